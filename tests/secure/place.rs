//! Where a test's files, servers and agents live.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long something may take that must happen: only a failing test waits it out.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A folder that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // A run before this one may have had the same process number.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("a clock that is set").as_nanos();
        let path = env::temp_dir().join(format!("putex-secure-{pid}-{next}-{now:x}"));
        fs::create_dir(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        write_secret(&path, text);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn write_secret(path: &Path, text: &str) {
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

/// Returns nats-server, or nothing when tests may do without.
pub(crate) fn nats_server() -> Option<PathBuf> {
    let found = env::var_os("NATS_SERVER").map(PathBuf::from).or_else(|| {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|dir| dir.join("nats-server"))
            .find(|file| file.is_file())
    });
    if found.is_none() {
        let required = env::var_os("PUTEX_REQUIRE_SERVER").is_some_and(|value| value == "1");
        assert!(!required, "no nats-server, and PUTEX_REQUIRE_SERVER=1");
        println!("skipped: no nats-server");
    }
    found
}

pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").port()
}

/// A server with JetStream, killed when dropped.
pub(crate) struct Server {
    binary: PathBuf,
    conf: PathBuf,
    pub(crate) port: u16,
    child: Child,
    folder: Folder,
}

impl Server {
    pub(crate) fn start(binary: &Path, lines: &str) -> Server {
        Server::start_on(binary, free_port(), lines)
    }

    pub(crate) fn start_on(binary: &Path, port: u16, lines: &str) -> Server {
        let folder = Folder::new();
        let conf = folder.path("server.conf");
        let store = folder.path("js");
        let head = format!("listen: \"127.0.0.1:{port}\"\n");
        let jetstream = match lines.contains("jetstream {") {
            true => String::new(),
            false => format!("jetstream {{ store_dir: \"{}\" }}\n", store.display()),
        };
        let lines = lines.replace("STORE", &store.display().to_string());
        fs::write(&conf, format!("{head}{jetstream}{lines}")).expect("a file");
        let child = spawn(binary, &conf);
        let mut server = Server {
            binary: binary.to_owned(),
            conf,
            port,
            child,
            folder,
        };
        server.await_ready();
        server
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, with other lines in its configuration.
    pub(crate) fn restart(&mut self, from: &str, to: &str) {
        self.kill();
        let conf = fs::read_to_string(&self.conf).expect("a file");
        assert!(conf.contains(from), "{from} is not in {conf}");
        fs::write(&self.conf, conf.replace(from, to)).expect("a file");
        self.child = spawn(&self.binary, &self.conf);
        self.await_ready();
    }

    pub(crate) fn url(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}", self.port)
    }

    fn await_ready(&mut self) {
        let begin = Instant::now();
        let log = self.folder.path("server.conf.log");
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains("Server is ready")
                && TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            {
                return;
            }
            let ended = self.child.try_wait().expect("a child");
            assert_eq!(ended, None, "the server ended:\n{said}");
            assert!(
                begin.elapsed() < PATIENCE,
                "the server does not start:\n{said}"
            );
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(binary: &Path, conf: &Path) -> Child {
    let log = conf.with_extension("conf.log");
    let _ = fs::remove_file(&log);
    Command::new(binary)
        .arg("-c")
        .arg(conf)
        .arg("-l")
        .arg(log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server starts")
}

/// Returns the program under test, to be run with nothing of this test's own
/// environment that it reads.
pub(crate) fn putex() -> Command {
    let binary = env::var_os("PUTEX_UNDER_TEST");
    let binary = binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_putex").into());
    let mut command = Command::new(binary);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let read = ["NATS_", "PUTEX_", "SSL_", "XDG_"];
        if read.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
}

/// An agent under test, ended when dropped.
pub(crate) struct Agent {
    child: Child,
    said: Option<JoinHandle<String>>,
    heard: std::sync::Arc<std::sync::Mutex<String>>,
    _folder: Folder,
}

impl Agent {
    /// Starts an agent of `key` in the bucket locks whose R is 100 ms, and whose token
    /// nobody else has.
    pub(crate) fn start(key: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Agent {
        let folder = Folder::new();
        // A token of its own: it must not be taken for another's next life.
        let token = folder
            .0
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let token = token.expect("a folder has a name");
        let mut child = putex()
            .args([
                "agent", "--bucket", "locks", "--key", key, "--token", &token, "-r", "100",
            ])
            .args(["--start", "true", "--stop", "true"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &folder.0)
            .env("HOME", &folder.0)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the agent's binary can be run");
        let mut stderr = child.stderr.take().expect("a pipe");
        let heard = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let into = std::sync::Arc::clone(&heard);
        let said = thread::spawn(move || {
            let mut gulp = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut gulp) {
                let text = String::from_utf8_lossy(&gulp[..count]).into_owned();
                into.lock().expect("nobody panics with it").push_str(&text);
            }
            into.lock().expect("nobody panics with it").clone()
        });
        Agent {
            child,
            said: Some(said),
            heard,
            _folder: folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has not ended.
    pub(crate) fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    pub(crate) fn heard(&self) -> String {
        self.heard.lock().expect("nobody panics with it").clone()
    }

    /// Waits until the agent has said `part`.
    pub(crate) fn await_line(&self, part: &str) {
        self.await_any(&[part]);
    }

    /// Waits until the agent has opened its bucket. It says so in so many words only if
    /// that took less than R; it is seen from what it did with it otherwise.
    pub(crate) fn await_open(&self) {
        self.await_any(&[
            "the bucket is open",
            "did not exist and was created",
            "the service runs here",
        ]);
    }

    fn await_any(&self, parts: &[&str]) {
        let begin = Instant::now();
        while !parts.iter().any(|part| self.heard().contains(part)) {
            assert!(
                begin.elapsed() < PATIENCE,
                "not said: {parts:?}\n{}",
                self.heard()
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the agent ends by itself; returns its status and what it said.
    pub(crate) fn await_end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let said = self.said.take().expect("once").join().expect("a thread");
                return (status.code(), said);
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "it does not end:\n{}",
                self.heard()
            );
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < PATIENCE {
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
