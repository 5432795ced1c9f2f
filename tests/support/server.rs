//! A real nats-server, on this host only unless it is told otherwise.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::clock::{At, PATIENCE, now, wait_until};
use super::folder::Folder;
use super::process;
use super::wire::Client;

/// A first leader is elected after 4 to 9 s.
const ELECTION_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(10);

/// How a server's log says that it answers. JetStream is up before.
const READY: &str = "Server is ready";

/// The text before the version in the log of a server.
const VERSION: &str = "Version: ";

/// The setting that makes a server keep streams. FOLDER is the server's folder.
const JETSTREAM: &str = "jetstream { store_dir: \"FOLDER/js\" }\n";

/// A nats-server, running or not. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    binary: PathBuf,
    /// The words of a command that runs another one elsewhere; none for here.
    within: Vec<String>,
    port: u16,
    /// Where its configuration, its log and its store are.
    home: PathBuf,
    running: Option<Child>,
    /// How long the log was when the server was started last.
    log_start: usize,
    /// The home, when it is removed with the server.
    _folder: Option<Folder>,
}

/// An older state of a server's store.
#[derive(Debug)]
pub(crate) struct StoreCopy(Folder);

impl Server {
    /// Starts a server with these lines in its configuration, in which FOLDER is replaced
    /// by the server's folder, and waits until it answers. It has JetStream; lines about
    /// that replace the usual ones.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub(crate) fn start(binary: &Path, lines: &str) -> Server {
        Server::try_start(binary, lines).expect("nats-server starts")
    }

    /// As [`Server::start`].
    ///
    /// # Errors
    ///
    /// When it does not start, with its log.
    pub(crate) fn try_start(binary: &Path, lines: &str) -> Result<Server, String> {
        let mut server = Server::prepare(binary, free_port(), &with_jetstream(lines));
        server.restart()?;
        Ok(server)
    }

    /// As [`Server::start`], without JetStream.
    pub(crate) fn start_without_jetstream(binary: &Path) -> Server {
        let mut server = Server::prepare(binary, free_port(), "");
        server.restart().expect("nats-server starts");
        server
    }

    /// Starts three servers that form one cluster, with these lines in the configuration of
    /// each, and waits for its leader. They are called n0, n1 and n2.
    ///
    /// # Errors
    ///
    /// When they do not start, or elect no leader.
    pub(crate) fn start_cluster(binary: &Path, lines: &str) -> Result<Vec<Server>, String> {
        let ports: [u16; 6] = free_ports();
        let (clients, routes) = ports.split_at(3);
        let urls: Vec<String> =
            routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let prepare = |number: usize| {
            let lines = format!(
                "{lines}server_name: n{number}\n\
                 cluster {{ name: tests, listen: \"127.0.0.1:{}\", routes: [{}] }}\n",
                routes[number],
                urls.join(", ")
            );
            Server::prepare(binary, clients[number], &with_jetstream(&lines))
        };
        let mut servers: Vec<Server> = (0..3).map(prepare).collect();
        servers.iter_mut().try_for_each(Server::spawn)?;
        for server in &mut servers {
            server.wait_ready()?;
        }
        let elected = || {
            let mut client = Client::connect(servers[0].port).ok()?;
            client.call("STREAM.NAMES", "").ok().map(|_| ())
        };
        wait_until(now() + ELECTION_MAX, elected).ok_or("the cluster elects no leader")?;
        Ok(servers)
    }

    fn prepare(binary: &Path, port: u16, lines: &str) -> Server {
        let folder = Folder::new("server");
        let home = folder.to_owned();
        let lines = lines.replace("FOLDER", folder.text());
        let conf = format!("listen: \"127.0.0.1:{port}\"\n{lines}");
        let server = Server::prepare_in(&home, &conf, &[], binary, port);
        let mut server = server.expect("the folder can be written");
        server._folder = Some(folder);
        server
    }

    /// Prepares a server whose whole configuration is `conf`, and that is run by the
    /// command `within`. Its log is the file `log` of `home`, which is kept.
    ///
    /// # Errors
    ///
    /// When the file system fails.
    pub(crate) fn prepare_in(
        home: &Path,
        conf: &str,
        within: &[&str],
        binary: &Path,
        port: u16,
    ) -> io::Result<Server> {
        fs::write(home.join("conf"), conf)?;
        Ok(Server {
            binary: binary.to_owned(),
            within: within.iter().map(|word| (*word).to_owned()).collect(),
            port,
            home: home.to_owned(),
            running: None,
            log_start: 0,
            _folder: None,
        })
    }

    /// Returns the port that clients use.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of its process.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub(crate) fn id(&self) -> u32 {
        self.running.as_ref().expect("it runs").id()
    }

    /// Returns the URL of the server, by one of the names of this host.
    pub(crate) fn url(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}", self.port)
    }

    /// Returns the version of the server that was started last.
    ///
    /// # Panics
    ///
    /// When its log does not name it.
    pub(crate) fn version(&self) -> String {
        let log = self.log();
        let version = log.split(VERSION).nth(1).and_then(|rest| rest.lines().next());
        version.expect("the log names the version").trim().to_owned()
    }

    /// Returns how many connections there were since the server was started last. It has to
    /// run with `debug: true`.
    pub(crate) fn connections(&self) -> usize {
        self.log().matches("Client connection created").count()
    }

    /// Returns whether the server is 2.10 and ignores what it does not know.
    pub(crate) fn is_old(&self) -> bool {
        self.version().starts_with("2.10.")
    }

    /// Starts the server on its port and store, and returns when it answered.
    ///
    /// # Errors
    ///
    /// When it does not start, with its log.
    pub(crate) fn restart(&mut self) -> Result<At, String> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Kills the server and starts it again with `from` replaced by `to` in its
    /// configuration.
    ///
    /// # Panics
    ///
    /// When `from` is not there, or the server does not start.
    pub(crate) fn reconfigure(&mut self, from: &str, to: &str) {
        self.kill();
        let path = self.home.join("conf");
        let conf = fs::read_to_string(&path).expect("it is there");
        assert!(conf.contains(from), "{from} is not in {conf}");
        fs::write(&path, conf.replace(from, to)).expect("it can be written");
        self.restart().expect("nats-server starts");
    }

    /// Starts the server, and does not wait until it answers.
    ///
    /// # Errors
    ///
    /// When it cannot be run.
    pub(crate) fn spawn(&mut self) -> Result<(), String> {
        process::end_all_on_signal();
        let log = self.home.join("log");
        self.log_start = fs::read(&log).map_or(0, |log| log.len());
        let mut command = match self.within.as_slice() {
            [] => Command::new(&self.binary),
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).arg(&self.binary);
                command
            }
        };
        let child = command
            .arg("-c")
            .arg(self.home.join("conf"))
            .arg("-l")
            .arg(log)
            .env(process::MARK, process::mark("server"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.binary.display()))?;
        self.running = Some(child);
        Ok(())
    }

    /// Waits until a server that was started answers; returns when it did.
    ///
    /// # Errors
    ///
    /// When it does not, with its log.
    pub(crate) fn wait_ready(&mut self) -> Result<At, String> {
        let port = self.port;
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let seen = wait_until(now() + PATIENCE, || {
            let ready = self.log().contains(READY) && listens();
            (ready || self.has_ended()).then(|| ready.then(now))
        });
        let failed = || format!("nats-server does not answer; its log:\n{}", self.log());
        seen.flatten().ok_or_else(failed)
    }

    /// Returns what the server said since it was started last.
    fn log(&self) -> String {
        let log = fs::read(self.home.join("log")).unwrap_or_default();
        let log = log.get(self.log_start..).unwrap_or_default();
        String::from_utf8_lossy(log).into_owned()
    }

    /// Ends the server with `signal` and returns when it was sent.
    pub(crate) fn stop(&mut self, signal: Signal) -> At {
        let at = now();
        if let Some(mut child) = self.running.take() {
            process::signal(child.id(), signal);
            process::signal(child.id(), Signal::CONT);
            if process::wait_exit(&mut child, at + STOP_MAX).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        at
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.stop(Signal::KILL);
    }

    /// Sends a signal to the server, if it runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(child) = &self.running {
            process::signal(child.id(), signal);
        }
    }

    /// Returns whether the server was started and not stopped.
    pub(crate) fn is_started(&self) -> bool {
        self.running.is_some()
    }

    /// Returns whether the server has ended by itself, once.
    pub(crate) fn has_ended(&mut self) -> bool {
        let running = self.running.as_mut();
        let ended = running.is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
        if ended {
            self.running = None;
        }
        ended
    }

    /// Copies the store of a server that does not run.
    ///
    /// # Errors
    ///
    /// When the file system fails.
    pub(crate) fn copy_store(&self) -> Result<StoreCopy, String> {
        assert!(self.running.is_none(), "a running server writes its store");
        let copy = Folder::new("copy");
        copy_tree(&self.home.join("js"), &copy.join("js")).map_err(|e| e.to_string())?;
        Ok(StoreCopy(copy))
    }

    /// Puts an older state back in the place of the store of a server that does not run.
    ///
    /// # Errors
    ///
    /// When the file system fails.
    pub(crate) fn restore_store(&self, copy: &StoreCopy) -> Result<(), String> {
        assert!(self.running.is_none(), "a running server writes its store");
        let store = self.home.join("js");
        fs::remove_dir_all(&store).map_err(|e| e.to_string())?;
        copy_tree(&copy.0.join("js"), &store).map_err(|e| e.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a port of 127.0.0.1 on which nobody listens at the moment.
pub(crate) fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Returns ports of 127.0.0.1 on which nobody listens at the moment.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All are bound before one is free again: it would be given twice.
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0"));
    listeners.map(|listener| {
        let address = listener.and_then(|listener| listener.local_addr());
        address.expect("127.0.0.1 has a free port").port()
    })
}

/// Returns the lines of a configuration with those that make a server keep streams, unless they
/// have such.
fn with_jetstream(lines: &str) -> String {
    let jetstream = if lines.contains("jetstream {") { "" } else { JETSTREAM };
    format!("{jetstream}{lines}")
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
