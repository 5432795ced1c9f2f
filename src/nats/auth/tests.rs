use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use base64ct::{Base64UrlUnpadded, Encoding as _};

use super::*;

const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// A file that is removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = env::temp_dir().join(format!("putex-auth-{}-{name}", std::process::id()));
        let mut file = OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(&path).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn jwt(claims: &str) -> String {
    format!("eyJ0eXAiOiJKV1QifQ.{}.c2ln", Base64UrlUnpadded::encode_string(claims.as_bytes()))
}

fn creds(jwt: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\r\n{jwt}\r\n------END NATS USER JWT------\r\n\n\
         ************************* IMPORTANT *************************\n\
         NKEY Seed printed below can be used to sign and prove identity.\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

fn connect(credentials: &Credentials, nonce: Option<&str>) -> Result<Value, &'static str> {
    let mut connect = json!({});
    credentials.add_to(&mut connect, nonce)?;
    Ok(connect)
}

#[test]
fn a_creds_file_is_a_jwt_and_its_key() {
    let jwt = jwt(&format!(r#"{{"sub":"{PUBLIC}","exp":17}}"#));
    let file = File::new("good", &creds(&jwt, SEED));
    let login = Login::Creds(file.0.clone());
    let credentials = login.read().expect("credentials");
    let sent = connect(&credentials, Some("abc")).expect("signed");
    assert_eq!(sent["jwt"], jwt);
    assert_eq!(sent["sig"].as_str().map(str::len), Some(86));
    assert!(sent.get("nkey").is_none() && sent.get("user").is_none());
    assert!(connect(&credentials, None).is_err());
    let refusal_hint = credentials.refusal_hint();
    assert!(refusal_hint.contains(": expired, revoked, or"), "{refusal_hint}");
}

#[test]
fn a_seed_file_may_be_a_creds_file_and_have_comments() {
    for text in [format!("{SEED}\n"), format!("# for putex\n\n  {SEED}  \n"), creds("a.b.c", SEED)]
    {
        let file = File::new("seed", &text);
        let credentials = Login::Nkey(file.0.clone()).read().expect("a seed");
        let sent = connect(&credentials, Some("abc")).expect("signed");
        assert_eq!(sent["nkey"], PUBLIC);
        assert!(sent.get("jwt").is_none());
    }
}

#[test]
fn passwords_and_tokens_are_read_anew() {
    let file = File::new("word", "one\n");
    let login = Login::User { name: "u".to_owned(), password: Secret::File(file.0.clone()) };
    let sent = connect(&login.read().expect("read"), None).expect("no key");
    assert_eq!((&sent["user"], &sent["pass"]), (&"u".into(), &"one".into()));
    fs::write(&file.0, "two\n").expect("written");
    let sent = connect(&login.read().expect("read"), None).expect("no key");
    assert_eq!(sent["pass"], "two");
    let login = Login::Token(Secret::File(file.0.clone()));
    let sent = connect(&login.read().expect("read"), None).expect("no key");
    assert_eq!(sent["auth_token"], "two");
}

#[test]
fn damaged_files_are_refused_without_showing_them() {
    let good = jwt(&format!(r#"{{"sub":"{PUBLIC}"}}"#));
    for (text, says) in [
        (creds("", SEED), "not a creds file: no JWT"),
        (creds(&good, ""), "no line of it is the seed of an nkey"),
        (creds(&good, &SEED.replace("SSL3", "SSL4")), "checksum"),
        ("secret\n".to_owned(), "not a creds file: no JWT"),
    ] {
        let file = File::new("bad", &text);
        let refusal = Login::Creds(file.0.clone()).read().err().expect(says).text;
        assert!(refusal.contains(says), "{refusal}");
        assert!(!refusal.contains("secret") && !refusal.contains("SUAC"), "{refusal}");
    }
    let file = File::new("none", "options\n");
    let refusal = Login::Nkey(file.0.clone()).read().err().expect("no seed").text;
    assert!(refusal.ends_with("no line of it is the seed of an nkey"), "{refusal}");
}

#[test]
fn no_secret_is_shown() {
    let word = || Secret::Given("secret".to_owned());
    let user = Login::User { name: "web".to_owned(), password: word() };
    for login in [user, Login::Token(word())] {
        let credentials = login.read().expect("nothing to read");
        assert!(!format!("{login:?} {login:#?}").contains("secret"));
        assert!(!credentials.refusal_hint().contains("secret"));
    }
    let pair = KeyPair::from_seed(SEED).expect("a seed");
    let jwt = Credentials { fields: vec![("jwt", "secret".to_owned())], key: Some(pair) };
    assert!(!jwt.refusal_hint().contains("secret"));
}
