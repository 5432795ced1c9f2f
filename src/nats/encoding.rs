//! The text encodings of NATS: base64 in answers, base64url in signatures and JWTs,
//! base32 in keys. Pure.

/// RFC 4648 base32.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// RFC 4648 base64url.
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Decodes standard base64 with padding; `None` when it is anything else.
pub(super) fn from_base64(coded: &str) -> Option<Vec<u8>> {
    let coded = coded.as_bytes();
    if !coded.len().is_multiple_of(4) {
        return None;
    }
    let body = coded.strip_suffix(b"==").or(coded.strip_suffix(b"=")).unwrap_or(coded);
    unpack(body, 6, |byte| match byte {
        b'+' => Some(62),
        b'/' => Some(63),
        b'-' | b'_' => None,
        _ => digit(BASE64_URL, byte),
    })
}

/// Decodes base64url without padding; `None` when it is anything else.
pub(super) fn from_base64_url(coded: &str) -> Option<Vec<u8>> {
    unpack(coded.as_bytes(), 6, |byte| digit(BASE64_URL, byte))
}

/// Decodes base32 without padding; `None` when it is anything else.
pub(super) fn from_base32(coded: &str) -> Option<Vec<u8>> {
    unpack(coded.as_bytes(), 5, |byte| digit(BASE32, byte))
}

/// Encodes as base64url without padding.
pub(super) fn to_base64_url(bytes: &[u8]) -> String {
    pack(bytes, 6, BASE64_URL)
}

/// Encodes as base32 without padding.
pub(super) fn to_base32(bytes: &[u8]) -> String {
    pack(bytes, 5, BASE32)
}

/// Returns the value of a digit.
fn digit(alphabet: &[u8], byte: u8) -> Option<u8> {
    let value = alphabet.iter().position(|known| *known == byte)?;
    u8::try_from(value).ok()
}

/// Joins digits of `width` bits each to bytes. The bits that are left over must be zero,
/// so that every value has one encoding.
fn unpack(digits: &[u8], width: u32, value: impl Fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let (mut bits, mut held) = (0u32, 0u32);
    let mut out = Vec::with_capacity(digits.len());
    for digit in digits {
        bits = (bits << width | u32::from(value(*digit)?)) & 0x3fff;
        held += width;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
        }
    }
    let spare = bits & ((1 << held) - 1);
    (spare == 0 && held < width).then_some(out)
}

fn pack(bytes: &[u8], width: u32, alphabet: &[u8]) -> String {
    let mut out = String::new();
    let mut push_digit = |bits: u32| {
        let value = (bits & ((1 << width) - 1)) as usize;
        out.push(char::from(alphabet[value]));
    };
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8 | u32::from(*byte)) & 0xffff;
        held += 8;
        while held >= width {
            held -= width;
            push_digit(bits >> held);
        }
    }
    if held > 0 {
        push_digit(bits << (width - held));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        for (plain, base64, base32) in [
            ("", "", ""),
            ("f", "Zg==", "MY"),
            ("fo", "Zm8=", "MZXQ"),
            ("foo", "Zm9v", "MZXW6"),
            ("foob", "Zm9vYg==", "MZXW6YQ"),
            ("fooba", "Zm9vYmE=", "MZXW6YTB"),
            ("foobar", "Zm9vYmFy", "MZXW6YTBOI"),
        ] {
            let bytes = Some(plain.as_bytes().to_vec());
            assert_eq!(from_base64(base64), bytes);
            assert_eq!(from_base32(base32), bytes);
            assert_eq!(to_base32(plain.as_bytes()), base32);
            let url = base64.trim_end_matches('=');
            assert_eq!(from_base64_url(url), bytes);
            assert_eq!(to_base64_url(plain.as_bytes()), url);
        }
        assert_eq!(to_base64_url(&[0xfb, 0xff]), "-_8");
        assert_eq!(from_base64("+/8="), Some(vec![0xfb, 0xff]));
    }

    #[test]
    fn nothing_has_two_spellings() {
        for bad in ["Zg", "Zg=", "Zh==", "Z===", "-_8=", "Zm 9v", "Zg==Zg=="] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        for bad in ["Zh", "Z", "Zg==", "+/8", "Zm9\u{e9}"] {
            assert_eq!(from_base64_url(bad), None, "{bad}");
        }
        for bad in ["MZ", "M", "my", "MY======", "M1", "MZX"] {
            assert_eq!(from_base32(bad), None, "{bad}");
        }
    }

    #[test]
    fn base64_is_read_strictly() {
        for (coded, plain) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")]
        {
            assert_eq!(from_base64(coded).as_deref(), Some(plain.as_bytes()), "{coded}");
        }
        assert_eq!(from_base64("+/+/"), Some(vec![0xfb, 0xff, 0xbf]));
        for damaged in
            ["Zg", "Zg=", "Z===", "====", "=", "Zh==", "Zm9", "Z g=", "Zg==Zg==", "Zm9\n"]
        {
            assert_eq!(from_base64(damaged), None, "{damaged}");
        }
        let all: Vec<u8> = (0..=255).collect();
        let coded = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4\
                     OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3Bx\
                     cnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmq\
                     q6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj\
                     5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==";
        assert_eq!(from_base64(coded), Some(all));
    }
}
