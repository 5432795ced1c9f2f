//! A pause whose write comes late, one that the store has lost, and one that a signal withdraws.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use putex::core::{Instant, Revision, Written};
use putex::store::dir::DirStore;
use putex::store::{Bucket as _, Content, Expected, Opening};
use putex::sys;

use rustix::process::Signal;

use super::Site;
use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, observe_for};
use crate::support::process::{signal, wait_exit};
use crate::support::programs;
use crate::support::sandbox::Sandbox;
use crate::support::server::Server;

/// The key of the entry of the pause.
const KEY: &str = "putex.pause.web";

fn by() -> Instant {
    sys::now().after(PATIENCE)
}

/// Opens the bucket of the agents of a site.
fn bucket_of(site: &Site) -> DirStore {
    let mut bucket = DirStore::new(PathBuf::from(&site.store[1]), "putex");
    let how = Opening { makes_bucket: false, ..Opening::make(&[KEY]) };
    bucket.open(how, by()).expect("it opens");
    bucket
}

/// Returns the content of an entry of these headers.
fn content(headers: [(&str, &str); 2]) -> Content {
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Content { headers, payload: Vec::new() }
}

/// Regression: the pause was stored after `putex resume`, which had said that no pause stands, and
/// was observed.
#[test]
fn a_pause_whose_write_arrives_after_the_end_is_not_stored() {
    let site = Site::in_directory();
    let _agent = site.active_agent("h1", &["--key", "web"]);
    let mut bucket = bucket_of(&site);
    // No entry, and the end of a pause.
    for _ in 0..2 {
        let standing = bucket.get(KEY, by()).expect("an answer");
        let expected = standing.map_or(Revision(0), |entry| entry.revision);
        let resumed = site.run(&["resume", "web"]);
        assert_eq!((resumed.status, &*resumed.shown), (Some(0), "agents=1\n"), "{resumed:?}");
        assert_eq!(resumed.said, "putex: web: no pause stands\n");
        let pause = content([("Putex-Life", "3600000"), ("Putex-Nonce", "7")]);
        let written = bucket.write(KEY, Expected::Key(expected), &pause, None, by());
        assert!(matches!(written, Written::Moved(_)), "{written:?}");
    }
    assert_eq!(site.answer(&["paused", "web"]), Some(1));
}

/// Regression: after a loss, a pause of two hours had the serial number of the lost one of an hour,
/// and was said to be acknowledged by agents that observed the lost one. No end was acknowledged.
#[test]
fn the_number_of_a_pause_that_is_lost_is_not_given_again() {
    let site = Site::in_directory();
    let _agent = site.active_agent("h1", &["--key", "web"]);
    let mut bucket = bucket_of(&site);
    // The clock of the host of an operator was years ahead.
    let end = content([("KV-Operation", "DEL"), ("Putex-Serial", "9000000000000")]);
    let written = bucket.write(KEY, Expected::Key(Revision(0)), &end, None, by());
    assert!(matches!(written, Written::Stored(_)), "{written:?}");
    let file = PathBuf::from(&site.store[1]).join("putex/putex.pause.web.key");
    let copy = std::fs::read(&file).expect("the entry of the end");
    let of_agent = |member: &str| site.json(&[])["keys"][0]["agents"][0][member].clone();
    let mut serials = Vec::new();
    for lasts in ["1h", "2h"] {
        let paused = site.run(&["pause", "--for", lasts, "web"]);
        assert_eq!((paused.status, of_agent("paused")), (Some(0), true.into()), "{paused:?}");
        serials.push(of_agent("pause").as_u64());
        std::fs::write(&file, &copy).expect("the store is an earlier one");
        let shown = site.run(&["status", "web"]).shown;
        assert!(
            shown.contains("WARNING: paused by a pause that the bucket has lost: h1"),
            "{shown}"
        );
    }
    assert!(serials[1] > serials[0], "{serials:?}");
    let resumed = site.run(&["resume", "web"]);
    assert_eq!((resumed.status, of_agent("paused")), (Some(0), false.into()), "{resumed:?}");
}

/// A user that hears of the lock alone, as if a link was down for less than R when the agents were
/// paused.
const DEAF: &str = r#"
accounts {
  A {
    jetstream: enabled
    users: [
      { user: ops, password: p }
      { user: deaf, password: p, permissions: {
          subscribe: { deny: ["putex.hint.putex.putex.pause.>", "$SRV.>"] } } }
    ]
  }
}
"#;

/// Regression: an agent that had not heard of the pause started the service in it when the holder
/// had released the lock. The agent may take the lock, and reads the pause before start.
#[test]
fn a_pause_whose_hint_is_lost_is_observed_by_an_agent_that_hears_of_the_release() {
    let Some(binary) = programs::nats_server() else { return };
    let server = Server::start(&binary, DEAF);
    let [ops, deaf] = ["ops", "deaf"].map(|user| {
        let url = server.url("nats", &format!("{user}:p@127.0.0.1"));
        Site { store: ["--nats".to_owned(), url], ..Site::on(&server) }
    });
    let start = |site: &Site, token: &str| -> Agent {
        site.agent_of_r("2s", ["true", "true"], token, &["--key", "web"])
    };
    let mut first = start(&ops, "h1");
    first.wait_for_any(&["the service runs here"]);
    let second = start(&deaf, "h2");
    second.wait_for_any(&["the lock is held by h1"]);
    let paused = ops.run(&["pause", "--for", "1h", "web"]);
    assert!(paused.status == Some(0) && paused.shown.ends_with(" agents=1\n"), "{paused:?}");
    first.signal(Signal::TERM);
    assert_eq!(first.wait_end().0, Some(0));
    second.wait_for_any(&["paused for", "the service runs here"]);
    let log = second.log.text();
    assert!(log.contains("taking -> active") && !log.contains("the service runs here"), "{log}");
    // The next strokes do not start it either.
    observe_for(Duration::from_secs(5));
    let log = second.log.text();
    assert!(!log.contains("the service runs here"), "{log}");
}

/// A pause that is waited for until the test ends.
const WORDS: [&str; 7] = ["pause", "-v", "--for", "1h", "-w", "10m", "web"];

/// The command ended without a word, and the pause was in effect later.
#[test]
fn a_signal_withdraws_a_pause_that_is_not_acknowledged() {
    let site = Site::in_directory();
    let agent = site.agent_of_r("3s", ["true", "true"], "h1", &["--key", "web"]);
    agent.wait_for_any(&["the service runs here"]);
    agent.signal(Signal::STOP);
    let (mut pause, mut said) = site.begin(&WORDS);
    let mut next = || said.next().expect("a line").expect("it is text");
    let waits = next();
    assert!(waits.starts_with("putex: web: waiting: h1: holds the lock and does not"), "{waits}");
    // timeout(1) sends a command two signals at once: the pause stood, without a word.
    [Signal::INT, Signal::TERM].into_iter().for_each(|each| signal(pause.id(), each));
    assert_eq!(
        [next(), next()],
        ["ended by a signal", "the pause is withdrawn"].map(|why| { format!("putex: web: {why}") })
    );
    let ended = wait_exit(&mut pause, now() + PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(75));
    assert_eq!(site.run(&["status", "-e", "paused", "web"]).status, Some(1));
    agent.signal(Signal::CONT);
    for words in [&["pause", "--for", "1h", "-w", "60", "web"][..], &["resume", "web"]] {
        assert_eq!(site.run(words).status, Some(0), "{words:?}");
    }
}

/// The command named the server that had not answered meanwhile, as if the signal had not come.
#[test]
fn a_signal_before_the_first_answer_of_a_server_is_said() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", silent.local_addr().expect("an address"));
    let site = Site { sandbox: Sandbox::new("status"), store: ["--nats".to_owned(), url] };
    let (mut pause, said) = site.begin(&WORDS);
    let _connection = silent.accept().expect("it connects");
    signal(pause.id(), Signal::INT);
    let said: Vec<_> = said.map(|line| line.expect("it is text")).collect();
    assert_eq!(said, ["putex: web: ended by a signal; nothing is requested"]);
    let ended = wait_exit(&mut pause, now() + PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(75));
}

/// The command of the first operator waited on, and said in the end that all had acknowledged the
/// pause that another operator had ended.
#[test]
fn a_pause_that_another_operator_has_ended_is_not_acknowledged() {
    let site = Site::in_directory();
    let agent = site.agent_of_r("3s", ["true", "true"], "h1", &["--key", "web"]);
    agent.wait_for_any(&["the service runs here"]);
    agent.signal(Signal::KILL);
    let (mut pause, mut said) = site.begin(&WORDS);
    let mut next = || said.next().expect("a line").expect("it is text");
    assert!(next().starts_with("putex: web: waiting: h1: holds the lock and does not"));
    site.run(&["resume", "-w", "1", "web"]);
    let due = "putex: web: it stands no longer: it is over, or others have ended or replaced it";
    assert_eq!(next(), due);
    let ended = wait_exit(&mut pause, now() + PATIENCE).and_then(|status| status.code());
    assert_eq!(ended, Some(75));
}
