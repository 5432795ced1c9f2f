//! Operators, accounts and users of NATS: keys in letters, and JWTs that one signs
//! for another. Written apart from the program's own way to read them.

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

/// The purpose of a key: the letter that its public name begins with.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Operator = 14,
    Account = 0,
    User = 20,
}

/// A key, with its names in letters.
pub(crate) struct Key {
    pair: Ed25519KeyPair,
    pub(crate) public: String,
    pub(crate) seed: String,
}

impl Key {
    pub(crate) fn new(kind: Kind) -> Key {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("random");
        let pair = Ed25519KeyPair::from_seed_unchecked(&secret).expect("a key");
        let kind = (kind as u8) << 3;
        let public = encode_key(&[kind], pair.public_key().as_ref());
        let seed = encode_key(&[(18 << 3) | kind >> 5, (kind & 31) << 3], &secret);
        Key { pair, public, seed }
    }

    /// Signs that `subject` has what `nats` says, until `end` in seconds since 1970.
    pub(crate) fn certify(&self, subject: &Key, end: Option<u64>, nats: Value) -> String {
        let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
        let mut claims = json!({
            "jti": "TEST", "iat": 1_600_000_000, "iss": self.public, "sub": subject.public,
            "name": subject.public, "nats": nats,
        });
        if let Some(end) = end {
            claims["exp"] = json!(end);
        }
        let body = format!("{}.{}", url64(&header), url64(&claims));
        let signature = base64_url(self.pair.sign(body.as_bytes()).as_ref());
        format!("{body}.{signature}")
    }
}

pub(crate) fn operator(key: &Key, system: &Key) -> String {
    let nats = json!({"system_account": system.public, "type": "operator", "version": 2});
    key.certify(key, None, nats)
}

/// An account without limits, in which `revoked` users are no more.
pub(crate) fn account(operator: &Key, key: &Key, revoked: &[&Key], jetstream: bool) -> String {
    let room = if jetstream { -1 } else { 0 };
    let revoked: serde_json::Map<String, Value> =
        revoked.iter().map(|user| (user.public.clone(), json!(1_700_000_000))).collect();
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": room, "disk_storage": room, "streams": room,
        "consumer": room,
    });
    let nats = json!({
        "limits": limits, "revocations": revoked, "default_permissions": {"pub": {}, "sub": {}},
        "type": "account", "version": 2,
    });
    operator.certify(key, None, nats)
}

/// The creds file of a user.
pub(crate) fn creds(account: &Key, user: &Key, end: Option<u64>) -> String {
    let nats = json!({
        "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2,
    });
    let (jwt, seed) = (account.certify(user, end, nats), &user.seed);
    format!(
        "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
         ************************* IMPORTANT *************************\n\
         NKEY Seed printed below can be used to sign and prove identity.\n\
         NKEYs are sensitive and should be treated as secrets.\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n\n\
         *************************************************************\n"
    )
}

fn encode_key(head: &[u8], key: &[u8]) -> String {
    let mut bytes = [head, key].concat();
    let crc = bytes.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    bytes.extend(crc.to_le_bytes());
    encode(&bytes, 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
}

fn url64(json: &Value) -> String {
    base64_url(json.to_string().as_bytes())
}

fn base64_url(bytes: &[u8]) -> String {
    let upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let alphabet = format!("{upper}{}0123456789-_", upper.to_lowercase());
    encode(bytes, 6, &alphabet)
}

/// By way of a string of binary digits: slow, and plainly right.
fn encode(bytes: &[u8], width: usize, alphabet: &str) -> String {
    let mut bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    while !bits.len().is_multiple_of(width) {
        bits.push('0');
    }
    let places = (0..bits.len())
        .step_by(width)
        .map(|at| usize::from_str_radix(&bits[at..at + width], 2).expect("binary digits"));
    places.map(|place| char::from(alphabet.as_bytes()[place])).collect()
}
