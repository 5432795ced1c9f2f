use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::*;
use crate::cli::access::Access;
use crate::cli::{Invocation, Location, parse};
use crate::nats::Secret;
use crate::nats::file::{TrustedFile, read_trusted};
use crate::nats::{Login, Server};

fn home(name: &str) -> Option<OsString> {
    match name {
        "HOME" => Some("/home/a".into()),
        "KEYS" => Some("/keys".into()),
        _ => None,
    }
}

/// The settings of an agent with this context, with more options and variables.
fn with(json: &Value, line: &str, variables: &[(&str, &str)]) -> Result<Access, String> {
    let words = format!("--key web --start up --stop down --context /c {line}");
    let var = |name: &str| {
        let given = variables.iter().find(|(known, _)| *known == name);
        given.map(|(_, value)| OsString::from(value)).or_else(|| home(name))
    };
    let read = |path: &std::path::Path| {
        let file = TrustedFile { bytes: json.to_string().into_bytes(), others_read: false };
        Ok((path == "/c").then_some(file))
    };
    let environment = Environment { var: &var, host: "alpha", read: &read };
    match parse(words.split_whitespace().map(OsString::from), &environment) {
        Ok(Invocation::Agent(args)) => match args.bucket.location {
            Location::Nats(access) => Ok(*access),
            other @ Location::Dir(_) => panic!("{other:?}"),
        },
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => {
            let is_line = refusal.text.starts_with("--context: it");
            let due = if is_line { Exit::Usage } else { Exit::Unsafe };
            assert_eq!(refusal.exit, due, "{refusal:?}");
            Err(refusal.text)
        }
    }
}

fn parsed(json: &Value) -> Result<Access, String> {
    with(json, "", &[])
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
    let Access { servers, login, tls, inbox, api, files } = context.expect("a context");
    assert_eq!(servers, Server::parse_list("tls://n1,tls://n2").expect("servers"));
    assert_eq!(login, Some(Login::Creds("/home/a/web.creds".into())));
    assert_eq!(tls.ca, Some("/etc/ca.pem".into()));
    assert_eq!(tls.certificate, Some(("/keys/c.pem".into(), "/keys/k.pem".into())));
    assert!(tls.first);
    let named: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(named, ["/c: creds", "/c: ca", "/c: cert", "/c: key"]);
    assert_eq!(inbox.as_deref(), Some("_INBOX.web"));
    assert_eq!(api.as_deref(), Some("$JS.hub.API"));
    let blank = parsed(&json!({"url": "h", "token": " "}));
    assert_eq!(blank.expect("a context").login, None, "as where it is left out");
}

#[test]
fn the_order_of_ways_to_log_in() {
    let all =
        json!({"url": "h", "user": "u", "password": "p", "creds": "c", "nkey": "n", "token": "t"});
    let without = |names: &[&str]| {
        let mut fields = all.as_object().expect("an object").clone();
        names.iter().for_each(|name| drop(fields.remove(*name)));
        parsed(&fields.into()).expect("a context").login
    };
    let word = |text: &str| Secret::Given(text.to_owned());
    let user_of = |name: &str, password| {
        let name = name.to_owned();
        Some(Login::User { name, password })
    };
    let user = |password| user_of("u", password);
    assert_eq!(without(&[]), user(word("p")));
    assert_eq!(without(&["password"]), user(word("")));
    assert_eq!(without(&["user"]), Some(Login::Creds("c".into())));
    assert_eq!(without(&["user", "creds"]), Some(Login::Nkey("n".into())));
    assert_eq!(without(&["user", "creds", "nkey"]), Some(Login::Token(word("t"))));
    let file = parsed(&json!({"url": "h", "user": "u", "password": "file://~/p"}));
    assert_eq!(file.expect("a context").login, user(Secret::File("/home/a/p".into())));
    // A login of a higher precedence replaces that of the context as a whole, whose password is for
    // its own user alone.
    let login = |line: &str, variables: &[(&str, &str)]| {
        with(&all, line, variables).expect("a context").login
    };
    assert_eq!(login("--user other", &[]), user_of("other", word("")));
    assert_eq!(login("--creds d", &[]), Some(Login::Creds("d".into())));
    assert_eq!(login("", &[("NATS_TOKEN", "x")]), Some(Login::Token(word("x"))));
    assert_eq!(login("", &[("NATS_PASSWORD", "x")]), user(word("x")));
    let servers = with(&all, "--nats i", &[]).expect("a context").servers;
    assert_eq!(servers, Server::parse_list("i").expect("a server"));
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
        (json!({}), "its url is missing or blank; write it there, or --nats"),
    ] {
        let refused = with(&json, "", &[]).map_err(|text| text.replace("--context: ", ""));
        assert_eq!(refused, Err(format!("/c: {says}")));
    }
    for (json, says) in [
        (json!({"url": "h", "cert": "c"}), "cert: needs --tlskey"),
        (
            json!({"url": "h", "inbox_prefix": "a.>"}),
            "inbox_prefix: a.>: is not a subject: it has a blank or a wildcard",
        ),
        (
            json!({"url": "h", "jetstream_domain": "a.b"}),
            "jetstream_domain: a.b: a domain has no dots",
        ),
    ] {
        assert_eq!(parsed(&json), Err(format!("/c: {says}")));
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
fn a_context_with_a_password_is_a_secret_and_nobody_else_may_write_any() {
    let path = env::temp_dir().join(format!("putex-context-{}.json", std::process::id()));
    let environment = Environment { var: &home, host: "alpha", read: &read_trusted };
    for (json, mode, fine) in [
        (json!({"url": "h", "creds": "c"}), 0o644, true),
        (json!({"url": "h", "creds": "c"}), 0o664, false),
        (json!({"url": "h", "token": "t"}), 0o644, false),
        (json!({"url": "h", "token": "t"}), 0o600, true),
        (json!({"url": "nats://u:p@h"}), 0o644, false),
    ] {
        fs::write(&path, json.to_string()).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        let loaded = load_file(&path.display().to_string(), &environment);
        assert_eq!(loaded.is_ok(), fine, "{json} {mode:o}: {loaded:?}");
    }
    fs::write(&path, "{\"token\": \"s3cr3t").expect("written");
    let damaged = load_file(&path.display().to_string(), &environment).expect_err("no JSON");
    fs::remove_file(&path).expect("removed");
    assert!(damaged.ends_with("is not a context, which is a JSON object"), "{damaged}");
}
