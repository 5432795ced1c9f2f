//! Logins of the client: passwords, tokens, nkeys, JWTs, and files that change.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use putex::core::seat::Seat;
use putex::nats::{ConnectOptions, Login, Secret};
use putex::sys::{self};

use super::agent::Agent;
use super::jwt::{Key, Kind, account, creds, operator};
use super::{assert_says, by, nobody, open, refusal, soon, store, store_at};
use crate::support::clock::observe_for;
use crate::support::folder::{Folder, write_secret};
use crate::support::programs::nats_server;
use crate::support::server::Server;

/// Returns the seconds since 1970 by the wall clock, as the end of a JWT is given.
fn unix_seconds() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs()
}

fn user(name: &str, password: PathBuf) -> ConnectOptions {
    by(Login::User { name: name.to_owned(), password: Secret::File(password) })
}

/// A server that trusts one operator, and an account with JetStream there.
struct Realm {
    operator: Key,
    account: Key,
    server: Server,
    preload: String,
}

impl Realm {
    fn new(binary: &std::path::Path) -> Realm {
        let (root, system) = (Key::new(Kind::Operator), Key::new(Kind::Account));
        let own = Key::new(Kind::Account);
        let preload = preload(&own, &account(&root, &own, &[], true));
        let lines = format!(
            "operator: \"{}\"\nsystem_account: {}\nresolver: MEMORY\n\
             resolver_preload {{\n{}: \"{}\"\n{preload}}}\n",
            operator(&root, &system),
            system.public,
            system.public,
            account(&root, &system, &[], false),
        );
        let server = Server::start(binary, &lines);
        Realm { operator: root, account: own, server, preload }
    }

    /// From now on these users are no more.
    fn revoke(&mut self, users: &[&Key]) {
        let jwt = account(&self.operator, &self.account, users, true);
        let now = preload(&self.account, &jwt);
        self.server.reconfigure(&self.preload, &now);
        self.preload = now;
    }

    fn url(&self) -> String {
        self.server.url("nats", "127.0.0.1")
    }
}

fn preload(account: &Key, jwt: &str) -> String {
    format!("{}: \"{jwt}\"\n", account.public)
}

#[test]
fn a_password_is_read_from_its_file_at_each_connection() {
    let Some(binary) = nats_server() else { return };
    let folder = Folder::new("secure");
    let password = folder.secret("password", "right\n");
    let lines = |word: &str| format!("authorization {{ user: u, password: {word} }}\n");
    let mut server = Server::start(&binary, &lines("right"));
    let url = server.url("nats", "127.0.0.1");
    let mut one = store(&url, user("u", password.clone()));
    one.open(soon()).expect("opened");
    write_secret(&password, "new\n");
    server.reconfigure(&lines("right"), &lines("new"));
    one.open(soon()).expect("opened with the new password");
    let old = folder.secret("old", "right\n");
    let text = refusal(&url, user("u", old));
    assert_says(&text, &["77 ", "the server says: Authorization Violation"]);
    let text = refusal(&url, nobody());
    assert_says(
        &text,
        &["77 ", "Authorization Violation (nothing was given to log in with; write --user"],
    );
    let blank = Secret::Given(String::new());
    let text = refusal(&url, by(Login::User { name: "u".to_owned(), password: blank }));
    assert_says(&text, &["77 ", "Violation (no password was given; write --password-file FILE)"]);
    // A URL's own user comes first.
    let own = url.replacen("127", "u:new@127", 1);
    open(&own, user("x", folder.join("none"))).expect("opened by the URL's user");
}

#[test]
fn an_nkey_signs() {
    let Some(binary) = nats_server() else { return };
    let folder = Folder::new("secure");
    let (known, unknown) = (Key::new(Kind::User), Key::new(Kind::User));
    let lines = format!("authorization {{ users [ {{ nkey: {} }} ] }}\n", known.public);
    let server = Server::start(&binary, &lines);
    let url = server.url("nats", "127.0.0.1");
    let key = |key: &Key| by(Login::Nkey(folder.secret("seed", &key.seed)));
    open(&url, key(&known)).expect("opened");
    let text = refusal(&url, key(&unknown));
    let who = format!("Authorization Violation (nkey {})", unknown.public);
    assert_says(&text, &["77 ", &who]);
    let text = refusal(&url, key(&Key::new(Kind::Account)));
    assert_says(&text, &["78 ", "seed: not the seed of an nkey", "not of a user"]);
    // A server that takes anybody has nothing to sign: it is not the one that is meant.
    let open_to_all = Server::start(&binary, "");
    let text = refusal(&open_to_all.url("nats", "127.0.0.1"), key(&known));
    assert_says(&text, &["77 ", "it knows neither nkeys nor JWTs"]);
}

#[test]
fn a_jwt_is_good_until_it_expires_or_is_revoked() {
    let Some(binary) = nats_server() else { return };
    let folder = Folder::new("secure");
    let mut realm = Realm::new(&binary);
    let own = Key::new(Kind::User);
    let now = unix_seconds();
    let with = |end| {
        let text = creds(&realm.account, &own, end);
        by(Login::Creds(folder.secret("web.creds", &text)))
    };
    open(&realm.url(), with(Some(now + 60))).expect("opened");
    let text = refusal(&realm.url(), with(Some(1_700_000_000)));
    let hint = format!("(JWT of user {}: expired, revoked, or", own.public);
    assert_says(&text, &["77 ", "the server says: ", &hint]);
    let forever = with(None);
    realm.revoke(&[&own]);
    let text = refusal(&realm.url(), forever);
    assert_says(&text, &["77 ", "Authorization Violation ", &hint]);
}

#[test]
fn an_agent_rides_out_a_revocation() {
    let Some(binary) = nats_server() else { return };
    let folder = Folder::new("secure");
    let mut realm = Realm::new(&binary);
    let (first, second) = (Key::new(Kind::User), Key::new(Kind::User));
    let file = folder.secret("web.creds", &creds(&realm.account, &first, None));
    let path = file.display().to_string();
    let url = realm.url();
    let agent = Agent::start("web", &["--nats", &url, "--creds", &path], &[]);
    agent.await_open();
    realm.revoke(&[&first]);
    let says = "the store will not serve this agent any more: ";
    agent.await_line(says);
    // A file in the making is not there for a while: that ends nothing either.
    fs::remove_file(&file).expect("removed");
    agent.await_line("web.creds: no such file or directory");
    write_secret(&file, &creds(&realm.account, &second, None));
    agent.await_line("store open again");
    let heard = agent.heard();
    assert_eq!(heard.matches(&first.public).count(), 1, "{heard}");
    assert_says(
        heard.lines().find(|line| line.contains(says)).expect("a line"),
        &["Authorization Violation (JWT of user "],
    );
}

#[test]
fn a_context_of_the_nats_command_is_used() {
    let Some(binary) = nats_server() else { return };
    let folder = Folder::new("secure");
    let known = Key::new(Kind::User);
    let lines = format!("authorization {{ users [ {{ nkey: {} }} ] }}\n", known.public);
    let server = Server::start(&binary, &lines);
    folder.secret("seed", &known.seed);
    let json = format!(
        r#"{{"url":"{}","nkey":"$KEYS/seed","user":"","token":"","socks_proxy":""}}"#,
        server.url("nats", "127.0.0.1")
    );
    let home = folder.to_owned();
    fs::create_dir_all(home.join("nats/context")).expect("a folder");
    fs::write(home.join("nats/context/prod.json"), json).expect("written");
    let (home, slash) = (home.display().to_string(), "nats/context/prod.json");
    let path = format!("{home}/{slash}");
    for (arguments, environment) in [
        (vec!["--context", "prod"], vec![("XDG_CONFIG_HOME", &*home)]),
        (vec!["--context", &path], vec![]),
        (vec![], vec![("XDG_CONFIG_HOME", &*home), ("NATS_CONTEXT", "prod")]),
    ] {
        let environment = [vec![("KEYS", &*home)], environment].concat();
        let agent = Agent::start("web", &arguments, &environment);
        agent.await_open();
    }
    let base = ("XDG_CONFIG_HOME", &*home);
    for (arguments, environment, setting) in [
        (vec!["--context", "none"], vec![base], "--context"),
        (vec![], vec![base, ("NATS_CONTEXT", "none")], "NATS_CONTEXT"),
    ] {
        let agent = Agent::start("web", &arguments, &environment);
        let (status, said) = agent.await_end();
        assert_eq!(status, Some(78), "{said}");
        let says = format!("{setting}: {home}/nats/context/none.json: no such file or directory\n");
        assert!(said.ends_with(&says), "{said}");
    }
}

#[test]
fn no_secret_gets_out_of_the_agent() {
    let Some(binary) = nats_server() else { return };
    let server = Server::start(&binary, "authorization { user: u, password: s3cr3t }\n");
    let url = server.url("nats", "127.0.0.1");
    let folder = Folder::new("secure");
    let seed = folder.secret("s3cr3t-seed", "none").display().to_string();
    let environment = [
        ("NATS_URL", &*url.replacen("127", "u:s3cr3t@127", 1)),
        ("NATS_USER", "s3cr3t"),
        ("NATS_PASSWORD", "s3cr3t"),
        ("NATS_TOKEN", "s3cr3t"),
        ("NATS_CREDS", &*seed),
        ("NATS_NKEY", &*seed),
        ("NATS_JWT", "s3cr3t"),
        ("NATS_SEED", "s3cr3t"),
        ("SEEN", "by start"),
    ];
    let agent = Agent::start("web", &["-v", "--start", "env"], &environment);
    // start is env(1): its output goes into the log.
    agent.await_line("start: SEEN=by start");
    agent.await_line("the service runs here");
    observe_for(Duration::from_millis(200));
    assert!(!agent.heard().contains("s3cr3t"), "{}", agent.heard());
    for file in ["cmdline", "comm"] {
        let shown = fs::read(format!("/proc/{}/{file}", agent.pid())).expect("its words");
        assert!(!String::from_utf8_lossy(&shown).contains("s3cr3t"));
    }
}

#[test]
fn a_domain_is_reached_by_its_name() {
    let Some(binary) = nats_server() else { return };
    let lines = "jetstream { store_dir: \"FOLDER/js\", domain: hub }\n";
    let server = Server::start(&binary, lines);
    let url = server.url("nats", "127.0.0.1");
    let mut there = store_at(&url, nobody(), Some("$JS.hub.API"));
    let opened = there.open(soon()).expect("opened");
    let record = putex::core::record::Record { token: "a".to_owned(), lease: None };
    let written = there.write(Seat::FIRST, opened.key_states[0].revision, &record, soon());
    let putex::core::event::Written::Stored(revision) = written else {
        panic!("not stored: {written:?}");
    };
    let lost = there.write(Seat::FIRST, opened.key_states[0].revision, &record, soon());
    let moved = putex::core::event::Written::Moved(Some(revision));
    assert_eq!(lost, moved, "a write through a domain is no compare-and-set");
    // The key itself was written.
    let here = store(&url, nobody()).open(soon()).expect("opened");
    assert_eq!(here.key_states[0].revision, revision);
    let mut nowhere = store_at(&url, nobody(), Some("$JS.other.API"));
    let refused = nowhere.open(sys::now().after(Duration::from_millis(500)));
    let text = format!("{refused:?}");
    assert_says(&text, &["no JetStream answers at $JS.other.API"]);
}
