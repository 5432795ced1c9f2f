use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::*;

fn home(name: &str) -> Option<OsString> {
    match name {
        "HOME" => Some("/home/a".into()),
        "KEYS" => Some("/keys".into()),
        _ => None,
    }
}

fn parsed(json: &Value) -> Result<Access, String> {
    read(json.as_object().expect("an object"), &home)
}

#[test]
fn the_fields_that_the_nats_command_writes() {
    let context = parsed(&json!({
        "description": "", "url": "tls://n1,tls://n2", "socks_proxy": "", "token": "",
        "user": "", "password": "", "creds": "~/web.creds", "nkey": "", "cert": "${KEYS}/c.pem",
        "key": "$KEYS/k.pem", "ca": "file:///etc/ca.pem", "nsc": "", "jetstream_domain": "hub",
        "jetstream_api_prefix": "", "jetstream_event_prefix": "", "inbox_prefix": "_INBOX.web",
        "user_jwt": "", "color_scheme": "x", "tls_first": true, "a_new_one": 7,
    }));
    let context = context.expect("a context");
    assert_eq!(context.url.as_deref(), Some("tls://n1,tls://n2"));
    let Access { login, tls, inbox, api, context: another, files, .. } = context;
    assert_eq!(login, Some(Login::Creds("/home/a/web.creds".into())));
    assert_eq!(tls.ca, Some("/etc/ca.pem".into()));
    assert_eq!(tls.certificate, Some(("/keys/c.pem".into(), "/keys/k.pem".into())));
    assert!(tls.first && another.is_none());
    let named: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(named, ["creds", "ca", "cert", "key"]);
    assert_eq!(inbox.as_deref(), Some("_INBOX.web"));
    assert_eq!(api.as_deref(), Some("$JS.hub.API"));
}

#[test]
fn the_order_of_ways_to_log_in() {
    let all = json!({"user": "u", "password": "p", "creds": "c", "nkey": "n", "token": "t"});
    let without = |names: &[&str]| {
        let mut fields = all.as_object().expect("an object").clone();
        names.iter().for_each(|name| drop(fields.remove(*name)));
        read(&fields, &home).expect("a context").login
    };
    let word = |text: &str| Secret::Given(text.to_owned());
    let user = |password| {
        let name = "u".to_owned();
        Some(Login::User { name, password })
    };
    assert_eq!(without(&[]), user(word("p")));
    assert_eq!(without(&["password"]), user(word("")));
    assert_eq!(without(&["user"]), Some(Login::Creds("c".into())));
    assert_eq!(without(&["user", "creds"]), Some(Login::Nkey("n".into())));
    assert_eq!(without(&["user", "creds", "nkey"]), Some(Login::Token(word("t"))));
    let file = parsed(&json!({"user": "u", "password": "file://~/p"})).expect("a context");
    assert_eq!(file.login, user(Secret::File("/home/a/p".into())));
}

#[test]
fn what_is_not_understood_is_refused() {
    for (json, says) in [
        (json!({"creds": "op://vault/creds"}), "creds: only paths and file:// are supported"),
        (json!({"token": "env://TOKEN"}), "token: only paths and file:// are supported"),
        (json!({"user_jwt": "ey"}), "user_jwt is not supported"),
        (json!({"socks_proxy": "h:1"}), "socks_proxy is not supported"),
        (json!({"url": 7}), "url is not text"),
        (json!({"ca": "$NOWHERE/ca"}), "ca: $NOWHERE is not set"),
        (json!({"cert": "c"}), "cert: needs key"),
        (
            json!({"inbox_prefix": "a.>"}),
            "inbox_prefix: is not a subject: it has a blank or a wildcard",
        ),
        (json!({"jetstream_domain": "a.b"}), "jetstream_domain: a domain has no dots"),
    ] {
        assert_eq!(parsed(&json).expect_err(says), says);
    }
}

#[test]
fn a_context_is_found_by_name_or_by_path() {
    let xdg = |name: &str| (name == "XDG_CONFIG_HOME").then(|| OsString::from("/x"));
    assert_eq!(path_of("a", &xdg), Ok("/x/nats/context/a.json".into()));
    assert_eq!(path_of("a", &home), Ok("/home/a/.config/nats/context/a.json".into()));
    assert_eq!(path_of("./a", &home), Ok("./a".into()));
    assert!(path_of("a", &|_| None).is_err());
}

#[test]
fn a_context_with_a_password_is_a_secret() {
    let path = env::temp_dir().join(format!("putex-context-{}.json", std::process::id()));
    for (json, mode, fine) in [
        (json!({"url": "h", "creds": "c"}), 0o644, true),
        (json!({"url": "h", "token": "t"}), 0o644, false),
        (json!({"url": "h", "token": "t"}), 0o600, true),
        (json!({"url": "nats://u:p@h"}), 0o644, false),
    ] {
        fs::write(&path, json.to_string()).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        let loaded = load(&path.display().to_string(), &home);
        assert_eq!(loaded.is_ok(), fine, "{json} {mode:o}: {loaded:?}");
    }
    fs::write(&path, "{\"token\": \"s3cr3t").expect("written");
    let damaged = load(&path.display().to_string(), &home).expect_err("no JSON");
    assert!(damaged.ends_with("is not a context, which is a JSON object"), "{damaged}");
    fs::remove_file(&path).expect("removed");
}
