use super::*;
use crate::cli::tests::environment;
use crate::cli::{Invocation, Location, parse};

const BASE: &str = "--key web --start up --stop down";

/// Parses with these variables, `NAME=value`.
fn location(line: &str, variables: &[&str]) -> Result<Location, String> {
    let words = format!("{BASE} {line}");
    let words = words.split_whitespace().map(|word| word.replace("''", "").into());
    let var = |name: &str| {
        let pairs = variables.iter().filter_map(|pair| pair.split_once('='));
        let mut found = pairs.filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value.into())
    };
    match parse(words, &environment(&var, "alpha")) {
        Ok(Invocation::Agent(args)) => Ok(args.bucket.location),
        Ok(other) => panic!("{line}: {other:?}"),
        Err(refusal) => Err(refusal.text),
    }
}

fn access(line: &str, variables: &[&str]) -> Access {
    match location(line, variables).expect(line) {
        Location::Nats(access) => *access,
        other @ Location::Dir(_) => panic!("{line}: {other:?}"),
    }
}

fn login(line: &str, variables: &[&str]) -> Option<Login> {
    access(&format!("--nats h {line}"), variables).login
}

fn user(name: &str, password: Secret) -> Option<Login> {
    let name = name.to_owned();
    Some(Login::User { name, password })
}

fn given(text: &str) -> Secret {
    Secret::Given(text.to_owned())
}

#[test]
fn one_login_is_selected() {
    let file = || Secret::File("p".into());
    assert_eq!(login("--user u --password-file p", &[]), user("u", file()));
    assert_eq!(login("--user u", &["NATS_PASSWORD=x"]), user("u", given("x")));
    assert_eq!(login("--auth-token-file p", &[]), Some(Login::Token(file())));
    assert_eq!(login("--nkey n", &[]), Some(Login::Nkey("n".into())));
    assert_eq!(login("--creds c", &[]), Some(Login::Creds("c".into())));
    assert_eq!(login("", &[]), None);
    for (line, says) in [
        ("--creds c --nkey n", "--nkey: not together with --creds"),
        ("--user u --creds c", "--creds: not together with --user"),
        ("--password-file p", "--password-file: needs --user"),
        ("--password-file p --creds c", "--password-file: needs --user"),
    ] {
        assert_eq!(location(&format!("--nats h {line}"), &[]).expect_err(line), says);
    }
}

#[test]
fn options_come_before_the_environment() {
    let all = ["NATS_TOKEN=t", "NATS_NKEY=n", "NATS_CREDS=c", "NATS_USER=u", "NATS_PASSWORD=x"];
    assert_eq!(login("", &all), user("u", given("x")));
    assert_eq!(login("", &all[..3]), Some(Login::Creds("c".into())));
    assert_eq!(login("", &all[..2]), Some(Login::Nkey("n".into())));
    assert_eq!(login("", &all[..1]), Some(Login::Token(given("t"))));
    assert_eq!(login("", &["NATS_USER=", "NATS_PASSWORD=x"]), None);
    assert_eq!(login("--nkey f", &all), Some(Login::Nkey("f".into())));
    let env = ["NATS_CA=a", "NATS_CERT=b", "NATS_KEY=c"];
    let found = access("--nats h --tlsca x --tlsfirst", &env);
    assert_eq!(found.tls.ca, Some("x".into()));
    assert_eq!(found.tls.certificate, Some(("b".into(), "c".into())));
    assert!(found.tls.first);
    for (line, says) in [
        ("--tlscert c", "--tlscert: needs --tlskey"),
        ("--tlskey c", "--tlskey: needs --tlscert"),
        ("--tlsca ''", "--tlsca: is empty; write --tlsca FILE"),
    ] {
        assert_eq!(location(&format!("--nats h {line}"), &[]).expect_err(line), says);
    }
}

#[test]
fn subjects_are_checked() {
    let found = access("--nats h --js-domain hub --inbox-prefix _INBOX.web", &[]);
    assert_eq!(found.api.as_deref(), Some("$JS.hub.API"));
    assert_eq!(found.inbox.as_deref(), Some("_INBOX.web"));
    let found = access("--nats h --js-api-prefix js.acme", &[]);
    assert_eq!(found.api.as_deref(), Some("js.acme"));
    let default = access("--nats h --js-api-prefix $JS.API", &[]);
    assert_eq!(default.api.as_deref(), Some(API));
    for line in [
        "--js-domain a.b",
        "--js-domain >",
        "--js-api-prefix a..b",
        "--js-api-prefix a.*",
        "--inbox-prefix .a",
        "--inbox-prefix a.>",
        "--js-domain d --js-api-prefix p",
    ] {
        let refusal = location(&format!("--nats h {line}"), &[]).expect_err(line);
        assert!(refusal.starts_with("--"), "{refusal}");
    }
}

#[test]
fn a_forgotten_server_is_refused_and_gives_no_lock_in_a_directory() {
    for line in ["--creds c", "--js-domain d"] {
        let refusal = location(line, &[]).expect_err(line);
        assert!(refusal.starts_with("--nats: is missing; "), "{refusal}");
    }
    for line in ["--dir /d --tlsca c", "--dir /d --js-domain d"] {
        let refusal = location(line, &[]).expect_err(line);
        assert!(refusal.ends_with("see --nats"), "{refusal}");
    }
    let refusal = location("--dir /d --context c", &[]).expect_err("both");
    assert!(refusal.starts_with("--context: is for a server"), "{refusal}");
    let dir = location("--dir /d", &["NATS_CONTEXT=c", "NATS_USER=u"]);
    assert_eq!(dir, Ok(Location::Dir("/d".into())));
    // A context that cannot be read may have settings besides the servers.
    for (line, variable, says) in [
        ("", "NATS_CONTEXT=/c", "NATS_CONTEXT: /c: no such file or directory"),
        ("--context /c", "NATS_URL=h", "--context: /c: no such file or directory"),
    ] {
        assert_eq!(location(line, &[variable]).expect_err(line), says);
    }
}
