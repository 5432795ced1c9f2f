//! NKeys: Ed25519 keys in base32, and signing with them.
//!
//! The text of a key is the base32 of its kind, its 32 bytes, and a CRC16 of both,
//! low byte first. A seed has one more prefix, S.

use base32ct::{Base32UpperUnpadded, Encoding as _};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// Marks the key of a user.
const USER: u8 = 20 << 3;

/// A user's key, public and private.
pub struct KeyPair {
    signer: Ed25519KeyPair,
    /// The public key as text, which begins with U.
    pub public: String,
}

impl KeyPair {
    /// Reads a user's seed, which begins with SU.
    ///
    /// # Errors
    ///
    /// Why the text is not the seed of a user. The error does not contain the text.
    pub fn from_seed(text: &str) -> Result<KeyPair, &'static str> {
        // The first letter stands for the upper five bits of the first byte, which mark a seed.
        if !text.is_empty() && !text.starts_with('S') {
            return Err("it is not a seed, which begins with SU");
        }
        let bytes = Base32UpperUnpadded::decode_vec(text).map_err(|_| "it is not in base32")?;
        let ([first, second, key @ ..], crc) =
            bytes.split_first_chunk::<34>().ok_or("it is too short")?;
        if crc != crc16(&bytes[..34]).to_le_bytes() {
            return Err("its checksum is wrong: a character was changed or lost");
        }
        if (first & 7) << 5 | second >> 3 != USER {
            return Err("it is the seed of an account, an operator or a server, not of a user");
        }
        let signer = Ed25519KeyPair::from_seed_unchecked(key);
        let signer = signer.map_err(|_| "it is not an Ed25519 key")?;
        let public = [&[USER], signer.public_key().as_ref()].concat();
        let checked = [&*public, &crc16(&public).to_le_bytes()].concat();
        Ok(KeyPair { signer, public: Base32UpperUnpadded::encode_string(&checked) })
    }

    /// Signs the nonce of a server; returns the signature in base64url.
    pub(super) fn sign(&self, nonce: &str) -> String {
        Base64UrlUnpadded::encode_string(self.signer.sign(nonce.as_bytes()).as_ref())
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| shift(crc))
    })
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    /// Of the NATS documentation.
    const SEED_TEXT: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC_TEXT: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    fn seed_of(kind: u8) -> String {
        let mut bytes = vec![18 << 3 | kind >> 5, kind << 3];
        bytes.extend_from_slice(&[7; 32]);
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        Base32UpperUnpadded::encode_string(&bytes)
    }

    #[test]
    fn a_seed_gives_its_public_key() {
        let pair = KeyPair::from_seed(SEED_TEXT).expect("a seed");
        assert_eq!(pair.public, PUBLIC_TEXT);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_signature_can_be_verified() {
        let pair = KeyPair::from_seed(SEED_TEXT).expect("a seed");
        let signature = pair.sign("riH__bqO4wOcMYQ");
        let signature = Base64UrlUnpadded::decode_vec(&signature).expect("base64url");
        let public = Base32UpperUnpadded::decode_vec(&pair.public).expect("base32");
        let public = UnparsedPublicKey::new(&ED25519, &public[1..33]);
        assert!(public.verify(b"riH__bqO4wOcMYQ", &signature).is_ok());
        assert!(public.verify(b"riH__bqO4wOcMYq", &signature).is_err());
    }

    #[test]
    fn what_is_no_seed_of_a_user_is_refused() {
        let changed = SEED_TEXT.replace("SSL3", "SSL4");
        for (text, says) in [
            (changed.as_str(), "checksum"),
            (PUBLIC_TEXT, "not a seed"),
            (&SEED_TEXT[..50], "too short"),
            ("SU1", "base32"),
            ("SU======", "base32"),
            (&SEED_TEXT.to_lowercase().replace('s', "S"), "base32"),
            ("SUB", "base32"),
            ("", "too short"),
            (&seed_of(0), "not of a user"),
        ] {
            let refusal = KeyPair::from_seed(text).err().expect(text);
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
        assert!(KeyPair::from_seed(&seed_of(USER)).is_ok());
    }
}
