//! TLS: the identity of a server to its client, and of the client to a server.

use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use putex::core::event::Written;
use putex::core::record::{KeyValue, Record, Revision};
use putex::core::seat::Seat;
use putex::nats::{ClientEvent, ConnectOptions};
use putex::sys::{self, Waker};

use super::agent::Agent;
use super::pki::Authority;
use super::{assert_says, client, nobody, open, refusal, soon, store};
use crate::support::clock::observe_for;
use crate::support::folder::Folder;
use crate::support::programs::nats_server;
use crate::support::server::{Server, free_ports};

/// An authority, its file, and a folder for what it signs.
struct TestCa {
    folder: Folder,
    authority: Authority,
    ca: std::path::PathBuf,
}

impl TestCa {
    fn new() -> TestCa {
        let folder = Folder::new("secure");
        let authority = Authority::new("putex test authority");
        let ca = authority.file(&folder, "ca.pem");
        TestCa { folder, authority, ca }
    }

    /// The lines of a server that is called `names`.
    fn tls(&self, names: &[&str]) -> String {
        self.authority.certify(&self.folder, "server", names).server("")
    }

    /// Access for a client that trusts this authority.
    fn access(&self) -> ConnectOptions {
        trusting(&self.ca)
    }
}

fn trusting(ca: &Path) -> ConnectOptions {
    let mut access = nobody();
    access.tls.ca = Some(ca.to_owned());
    access
}

/// Writes and reads once.
fn use_store(urls: &str, access: ConnectOptions) {
    let mut store = store(urls, access);
    let opened = store.open(soon()).expect("opened");
    let record = Record { token: "a".to_owned(), lease: None };
    let written = store.write(Seat::FIRST, opened.key_states[0].revision, &record, soon());
    assert!(matches!(written, Written::Stored(Revision(1..))), "{written:?}");
    let key_state = store.read(Seat::FIRST, soon()).expect("read");
    assert_eq!(key_state.value, KeyValue::Record(record));
}

#[test]
fn a_server_that_proves_its_name_is_used() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let server = Server::start(&binary, &ours.tls(&["localhost", "127.0.0.1"]));
    use_store(&server.url("tls", "localhost"), ours.access());
    // An address is a name too, and a server that insists on TLS gets it.
    use_store(&server.url("tls", "127.0.0.1"), ours.access());
    use_store(&server.url("nats", "localhost"), ours.access());
}

#[test]
fn tls_may_come_first() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let files = ours.authority.certify(&ours.folder, "server", &["localhost"]);
    let first = Server::start(&binary, &files.server("handshake_first: true"));
    let auto = Server::start(&binary, &files.server("handshake_first: auto"));
    let classic = Server::start(&binary, &files.server(""));
    let mut access = ours.access();
    access.tls.first = true;
    use_store(&first.url("tls", "localhost"), access.clone());
    use_store(&auto.url("tls", "localhost"), access.clone());
    use_store(&auto.url("tls", "localhost"), ours.access());
    let text = refusal(&classic.url("tls", "localhost"), access);
    assert_says(&text, &["78 ", "it does not answer with TLS", "--tlsfirst"]);
    let text = refusal(&first.url("tls", "localhost"), ours.access());
    assert_says(&text, &["the server closed the connection", "needs --tlsfirst"]);
}

#[test]
fn a_server_that_is_somebody_else_is_not_used() {
    let Some(binary) = nats_server() else { return };
    let (ours, stranger) = (TestCa::new(), TestCa::new());
    let server = Server::start(&binary, &ours.tls(&["localhost", "n1.example"]));
    let text = refusal(&server.url("tls", "127.0.0.1"), ours.access());
    let says = "its certificate is not for 127.0.0.1";
    assert_says(&text, &["78 127.0.0.1:", says]);
    let text = refusal(&server.url("tls", "localhost"), stranger.access());
    assert_says(&text, &["78 ", "signed by nobody who is trusted here; see --tlsca"]);
    // By nats:// the server chooses TLS, and its name is checked all the same.
    let text = refusal(&server.url("nats", "127.0.0.1"), ours.access());
    assert_says(&text, &["78 ", says]);
}

#[test]
fn an_expired_certificate_is_waited_out() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let files = ours.authority.certify_expired(&ours.folder, "old", &["localhost"]);
    let server = Server::start(&binary, &files.server(""));
    let text = refusal(&server.url("tls", "localhost"), ours.access());
    assert!(text.starts_with("localhost:"), "{text}");
    assert_says(&text, &["its certificate has expired, by the clock here"]);
    let ca = ours.ca.display().to_string();
    let url = server.url("tls", "localhost");
    let agent = Agent::start("web", &["--nats", &url, "--tlsca", &ca], &[]);
    let says = "store out of reach: localhost:";
    agent.await_line(says);
    observe_for(Duration::from_millis(2500));
    let heard = agent.heard();
    assert_eq!(heard.matches(says).count(), 1, "{heard}");
    assert!(agent.runs());
}

#[test]
fn nobody_is_talked_to_in_the_clear_who_should_not_be() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let plain = Server::start(&binary, "");
    let says = ["78 ", "it has no TLS, and is not talked to without"];
    let text = refusal(&plain.url("tls", "localhost"), nobody());
    assert_says(&text, &says);
    let text = refusal(&plain.url("nats", "localhost"), ours.access());
    assert_says(&text, &says);
    // A server of both kinds gets what the URL says.
    let lines = format!("{}allow_non_tls: true\n", ours.tls(&["localhost"]));
    let both = Server::start(&binary, &lines);
    use_store(&both.url("tls", "localhost"), ours.access());
    let text = refusal(&both.url("tls", "127.0.0.1"), ours.access());
    assert_says(&text, &["78 ", "its certificate is not for 127.0.0.1"]);
    use_store(&both.url("nats", "127.0.0.1"), nobody());
}

#[test]
fn both_ends_may_have_to_prove_themselves() {
    let Some(binary) = nats_server() else { return };
    let (ours, stranger) = (TestCa::new(), TestCa::new());
    let files = ours.authority.certify(&ours.folder, "server", &["localhost"]);
    let server = Server::start(&binary, &files.verifying_server(&ours.ca));
    let url = server.url("tls", "localhost");
    let with = |tls| ConnectOptions { tls, ..nobody() };
    let mut tls = ours.access().tls;
    let text = refusal(&url, with(tls.clone()));
    assert_says(&text, &["77 ", "it wants a client certificate; set --tlscert and --tlskey"]);
    tls.certificate = ours.authority.certify(&ours.folder, "own", &["a"]).pair();
    use_store(&url, with(tls.clone()));
    tls.first = true;
    let first =
        files.verifying_server(&ours.ca).replace("verify:", "handshake_first: true, verify:");
    let first = Server::start(&binary, &first);
    use_store(&first.url("tls", "localhost"), with(tls.clone()));
    tls.certificate = None;
    let text = refusal(&first.url("tls", "localhost"), with(tls.clone()));
    assert_says(&text, &["77 ", "it wants a client certificate"]);
    tls.first = false;
    tls.certificate = stranger.authority.certify(&stranger.folder, "own", &["a"]).pair();
    let text = refusal(&url, with(tls.clone()));
    assert_says(&text, &["77 ", "our certificate"]);
    tls.certificate = ours.authority.certify_expired(&ours.folder, "old", &["a"]).pair();
    let text = refusal(&url, with(tls.clone()));
    assert_says(&text, &["77 ", "our certificate"]);
    let (one, two) = (
        ours.authority.certify(&ours.folder, "one", &["a"]),
        ours.authority.certify(&ours.folder, "two", &["a"]),
    );
    tls.certificate = Some((one.certificate, two.key));
    let text = refusal(&url, with(tls));
    assert_says(&text, &["78 ", "two.key: is not the key of ", "one.pem"]);
}

#[test]
fn an_advertised_server_needs_the_name_that_the_user_gave() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    for (names, fine) in [(["localhost", "n1"], true), (["127.0.0.1", "n2"], false)] {
        let routes: [u16; 2] = free_ports();
        let lines = |own: usize, tls: &str| {
            let [listen, other] = [routes[own], routes[1 - own]];
            format!(
                "{tls}server_name: n{own}\ncluster {{ name: c, listen: \"127.0.0.1:{listen}\", \
                 routes: [\"nats://127.0.0.1:{other}\"] }}\n"
            )
        };
        let known = ours.authority.certify(&ours.folder, "known", &["localhost"]).server("");
        let other = ours.authority.certify(&ours.folder, "other", &names).server("");
        let mut first = Server::start(&binary, &lines(0, &known));
        let second = Server::start(&binary, &lines(1, &other));
        let mut client = client(&first.url("tls", "localhost"), ours.access());
        client.connect(soon()).expect("connected");
        let waker = Waker::new().expect("a descriptor");
        let place = format!("127.0.0.1:{}", second.port());
        // The client is told of the second server when the two servers have found each other.
        let end = soon();
        let knows = |client: &putex::nats::Client| {
            client.server().is_some_and(|info| info.connect_urls.contains(&place))
        };
        while !knows(&client) && sys::now() < end {
            client.wait(waker.as_fd(), Some(sys::now().after(Duration::from_millis(20))));
        }
        assert!(knows(&client), "{:?}", client.server());
        first.kill();
        let gone = client.wait(waker.as_fd(), Some(soon()));
        assert!(matches!(gone, ClientEvent::Gone(_)), "{gone:?}");
        let again = client.connect(sys::now().after(Duration::from_secs(3)));
        assert_eq!(again.is_ok(), fine, "{names:?}: {again:?}");
        match again {
            Ok(()) => assert_eq!(client.server().map(|info| &*info.address), Some(&*place)),
            Err(error) => {
                let says = format!("{place}: its certificate is not for localhost");
                assert_says(&error.to_string(), &[&says]);
            }
        }
    }
}

#[test]
fn the_agent_trusts_whom_the_system_trusts() {
    let Some(binary) = nats_server() else { return };
    let (ours, nothing) = (TestCa::new(), Folder::new("secure"));
    let server = Server::start(&binary, &ours.tls(&["localhost"]));
    let url = server.url("tls", "localhost");
    let ca = ours.ca.display().to_string();
    let roots = nothing.secret("empty.pem", "").display().to_string();
    let trusted = Agent::start("web", &["--nats", &url], &[("SSL_CERT_FILE", &ca)]);
    trusted.await_open();
    let none = Agent::start("web", &["--nats", &url], &[("SSL_CERT_FILE", &roots)]);
    let (status, said) = none.await_end();
    assert_eq!(
        (status, said.as_str()),
        (Some(78), "putex: this system has no trusted roots; set --tlsca\n")
    );
}

/// When a host boots, files with secrets may be put in their places late.
#[test]
fn an_agent_waits_for_a_file_that_is_missing_and_says_so_once() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let lines = format!("{}authorization {{ user: u, password: p }}\n", ours.tls(&["localhost"]));
    let server = Server::start(&binary, &lines);
    let url = server.url("tls", "localhost");
    let [ca, password] = ["late.pem", "late"].map(|name| ours.folder.join(name));
    let [ca_text, password_text] = [&ca, &password].map(|path| path.display().to_string());
    let words = ["--user", "u", "--password-file", &password_text, "--tlsca", &ca_text];
    let agent = Agent::start("web", &[&["--nats", &url], &words[..]].concat(), &[]);
    let certificate = fs::read_to_string(&ours.ca).expect("a file");
    for (path, text) in [(&password, "p"), (&ca, &*certificate)] {
        let says = format!("{}: no such file or directory", path.display());
        agent.await_line(&says);
        observe_for(Duration::from_millis(1500));
        let heard = agent.heard();
        assert_eq!(heard.matches(&says).count(), 1, "{heard}");
        assert!(agent.runs(), "{heard}");
        // An empty file would end the agent.
        fs::rename(ours.folder.secret("new", text), path).expect("put there");
    }
    agent.await_line("the service runs here");
}

/// A server that is started again and again fails in two ways.
#[test]
fn reasons_that_alternate_are_each_said_once() {
    let [port] = free_ports();
    let agent = Agent::start("web", &["--nats", &format!("127.0.0.1:{port}")], &[]);
    for _ in 0..3 {
        // Longer than the longest pause between two attempts.
        observe_for(Duration::from_millis(1200));
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        drop(listener.accept().expect("a connection"));
    }
    observe_for(Duration::from_millis(1200));
    let heard = agent.heard();
    for says in ["connection refused", "the server closed the connection"] {
        assert_eq!(heard.matches(says).count(), 1, "{heard}");
    }
}

#[test]
fn an_agent_that_ran_keeps_trying_and_says_why_once() {
    let Some(binary) = nats_server() else { return };
    let ours = TestCa::new();
    let lines = ours.tls(&["localhost"]);
    let mut server = Server::start(&binary, &lines);
    let ca = ours.ca.display().to_string();
    let url = server.url("tls", "localhost");
    let agent = Agent::start("web", &["--nats", &url, "--tlsca", &ca], &[]);
    agent.await_open();
    let files = ours.authority.certify(&ours.folder, "server2", &["elsewhere"]);
    server.reconfigure(&lines, &files.server(""));
    let says = "its certificate is not for localhost";
    agent.await_line(says);
    observe_for(Duration::from_millis(1500));
    let heard = agent.heard();
    assert_eq!(heard.matches(says).count(), 1, "{heard}");
    server.reconfigure(&files.server(""), &lines);
    agent.await_line("store open again");
    assert!(open(&url, ours.access()).is_ok());
}
