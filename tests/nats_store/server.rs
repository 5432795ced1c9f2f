//! A real nats-server of one test's own, on 127.0.0.1, with its store in a folder
//! that is removed with it.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use putex::core::time;
use putex::nats::{Client, Login, Secret, url};
use putex::store::nats::{NatsSettings, NatsStore};
use putex::sys;
use serde_json::Value;

/// How long a server may take to start: only a failing test waits it out.
const START_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs a story on every server at hand: `$NATS_SERVER` or the one in PATH, and
/// `$NATS_SERVER_OLD`.
pub(crate) fn on_servers(story: impl Fn(&Path)) {
    let new = env::var_os("NATS_SERVER").map(PathBuf::from).or_else(|| {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|dir| dir.join("nats-server"))
            .find(|file| file.is_file())
    });
    let old = env::var_os("NATS_SERVER_OLD").map(PathBuf::from);
    if new.is_none() && old.is_none() {
        let required = env::var_os("PUTEX_REQUIRE_SERVER").is_some_and(|value| value == "1");
        assert!(!required, "no nats-server, and PUTEX_REQUIRE_SERVER=1");
        println!("skipped: no nats-server");
        return;
    }
    for binary in [new, old].into_iter().flatten() {
        println!("with {}", binary.display());
        story(&binary);
    }
}

/// Returns the deadline of a call that must succeed.
pub(crate) fn soon() -> time::Instant {
    sys::now().after(Duration::from_secs(5))
}

/// A server, killed when dropped.
pub(crate) struct Server {
    binary: PathBuf,
    folder: PathBuf,
    pub(crate) port: u16,
    child: Child,
    /// From INFO.
    pub(crate) version: String,
}

impl Server {
    /// Starts a server with JetStream.
    pub(crate) fn start(binary: &Path) -> Server {
        Server::start_with(binary, "jetstream { store_dir: \"FOLDER/js\" }\n")
    }

    /// Starts a server with these lines in its configuration; FOLDER is replaced.
    pub(crate) fn start_with(binary: &Path, lines: &str) -> Server {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(format!("putex-nats-{pid}-{next}"));
        fs::create_dir(&folder).expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let lines = lines.replace("FOLDER", &folder.display().to_string());
        let conf = format!("listen: \"127.0.0.1:{port}\"\n{lines}");
        fs::write(folder.join("server.conf"), conf).expect("a file");
        let child = spawn(binary, &folder);
        let mut server = Server {
            binary: binary.to_owned(),
            folder,
            port,
            child,
            version: String::new(),
        };
        server.version = server.await_info();
        server
    }

    fn await_info(&mut self) -> String {
        let begin = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).expect("INFO");
                let json = line.strip_prefix("INFO ").expect("INFO");
                let info: Value = serde_json::from_str(json).expect("JSON");
                return info["version"].as_str().expect("a version").to_owned();
            }
            assert!(begin.elapsed() < START_MAX, "the server does not start");
            assert_eq!(
                self.child.try_wait().expect("a child"),
                None,
                "the server ended"
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .expect("kill");
        assert!(status.success(), "kill: {status}");
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.binary, &self.folder);
        self.await_info();
    }

    /// Whether the server is 2.9 and ignores what it does not know.
    pub(crate) fn is_old(&self) -> bool {
        self.version.starts_with("2.9.")
    }

    /// Copies the store of a stopped server aside, or back.
    pub(crate) fn copy_store(&self, from: &str, to: &str) {
        let (from, to) = (self.folder.join(from), self.folder.join(to));
        let _ = fs::remove_dir_all(&to);
        let status = Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(to)
            .status()
            .expect("cp");
        assert!(status.success(), "cp: {status}");
    }

    pub(crate) fn client(&self, login: Option<(&str, &str)>) -> Client {
        let servers =
            url::Server::parse_list(&format!("nats://127.0.0.1:{}", self.port)).expect("a URL");
        let credentials = match login {
            Some((user, password)) => Login::User {
                name: user.to_owned(),
                password: Secret::Given(password.to_owned()),
            },
            None => Login::None,
        };
        Client::new(
            servers,
            credentials,
            "test".to_owned(),
            Duration::from_secs(2),
        )
    }

    /// Returns a store that takes files only and asks for one copy.
    pub(crate) fn store(&self, bucket: &str, key: &str) -> NatsStore {
        NatsStore::new(self.client(None), settings(bucket, key))
    }

    /// Returns a store of the key `web` that has logged in.
    pub(crate) fn store_as(&self, user: &str, password: &str, bucket: &str) -> NatsStore {
        NatsStore::new(self.client(Some((user, password))), settings(bucket, "web"))
    }

    pub(crate) fn admin(&self) -> Admin {
        self.admin_as(None)
    }

    pub(crate) fn admin_as(&self, login: Option<(&str, &str)>) -> Admin {
        let mut client = self.client(login);
        client.connect(soon()).expect("connected");
        Admin(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn spawn(binary: &Path, folder: &Path) -> Child {
    Command::new(binary)
        .arg("-c")
        .arg(folder.join("server.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server starts")
}

pub(crate) fn settings(bucket: &str, key: &str) -> NatsSettings {
    NatsSettings {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        replicas: 1,
        allow_memory: false,
        api: None,
    }
}

/// Somebody who asks the server directly.
pub(crate) struct Admin(Client);

impl Admin {
    /// Makes a request and returns the JSON of its answer.
    pub(crate) fn ask(&mut self, subject: &str, body: &str) -> Value {
        let reply = self
            .0
            .request(subject, &[], body.as_bytes(), soon())
            .expect("an answer");
        serde_json::from_slice(&reply.payload).expect("JSON")
    }

    /// As [`Admin::ask`] about a stream, and the answer must not be an error.
    pub(crate) fn stream(&mut self, what: &str, bucket: &str, body: &str) -> Value {
        let answer = self.ask(&format!("$JS.API.STREAM.{what}.KV_{bucket}"), body);
        assert!(answer["error"].is_null(), "{what} {bucket}: {answer}");
        answer
    }

    /// Publishes with headers, and returns the sequence that it got.
    pub(crate) fn put(&mut self, subject: &str, headers: &[(&str, &str)], value: &str) -> u64 {
        let reply = self
            .0
            .request(subject, headers, value.as_bytes(), soon())
            .expect("an answer");
        let answer: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        answer["seq"]
            .as_u64()
            .filter(|seq| *seq > 0)
            .unwrap_or_else(|| panic!("{answer}"))
    }

    /// Publishes and expects no answer.
    pub(crate) fn shout(&mut self, subject: &str, headers: &[(&str, &str)]) {
        self.0.publish(subject, headers, b"").expect("published");
    }
}

/// Returns the configuration of a bucket as putex 0.2.0 asked for it.
pub(crate) fn old_config(bucket: &str) -> Value {
    serde_json::json!({
        "name": format!("KV_{bucket}"), "description": "",
        "subjects": [format!("$KV.{bucket}.>")], "retention": "limits",
        "max_consumers": 0, "max_msgs": 0, "max_bytes": 0, "discard": "new", "max_age": 0,
        "max_msgs_per_subject": 1, "max_msg_size": 0, "storage": "file", "num_replicas": 1,
        "allow_rollup_hdrs": true, "deny_delete": true,
    })
}
