//! A real nats-server with a store of its own, on this host only.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::clock::{At, now, wait_until};
use super::process::{self, Folder};
use super::wire::Client;

const START_MAX: Duration = Duration::from_secs(10);
/// A first leader is elected after 4 to 9 s.
const ELECTION_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(10);
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// A nats-server, running or not. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    binary: PathBuf,
    port: u16,
    folder: Folder,
    options: Vec<String>,
    running: Option<Child>,
}

/// An older state of a server's store.
#[derive(Debug)]
pub(crate) struct StoreCopy(Folder);

impl Server {
    /// Starts a server with JetStream and waits until it answers.
    pub(crate) fn start(binary: &Path) -> Result<Server, String> {
        Server::start_with(binary, free_port(), &[])
    }

    /// As [`Server::start`], with further command line options.
    pub(crate) fn start_with(
        binary: &Path,
        port: u16,
        options: &[String],
    ) -> Result<Server, String> {
        let mut server = Server::prepare(binary, port, options);
        server.restart()?;
        Ok(server)
    }

    /// Starts three servers that form one cluster, and waits for its leader.
    pub(crate) fn start_cluster(binary: &Path) -> Result<Vec<Server>, String> {
        let routes: Vec<String> = (0..3)
            .map(|_| format!("nats://127.0.0.1:{}", free_port()))
            .collect();
        let mut servers: Vec<Server> = (0..3)
            .map(|number| {
                let options = [
                    "-n".to_owned(),
                    format!("n{number}"),
                    "--cluster_name".to_owned(),
                    "rig".to_owned(),
                    "--cluster".to_owned(),
                    routes[number].clone(),
                    "--routes".to_owned(),
                    routes.join(","),
                ];
                Server::prepare(binary, free_port(), &options)
            })
            .collect();
        for server in &mut servers {
            server.spawn()?;
        }
        for server in &servers {
            server.wait_ready()?;
        }
        let elected = || {
            let mut client = Client::connect(servers[0].port).ok()?;
            client.call("STREAM.NAMES", "").ok().map(|_| ())
        };
        wait_until(now() + ELECTION_MAX, elected).ok_or("the cluster elects no leader")?;
        Ok(servers)
    }

    fn prepare(binary: &Path, port: u16, options: &[String]) -> Server {
        process::end_all_on_signal();
        Server {
            binary: binary.to_owned(),
            port,
            folder: Folder::new("server"),
            options: options.to_vec(),
            running: None,
        }
    }

    /// Returns the port that clients use.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts the server again on its port and store; returns when it answered.
    pub(crate) fn restart(&mut self) -> Result<At, String> {
        self.spawn()?;
        self.wait_ready()
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

    /// Stops the server's process from running without ending it.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused server go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Copies the store of a server that does not run.
    pub(crate) fn copy_store(&self) -> Result<StoreCopy, String> {
        assert!(self.running.is_none(), "a running server writes its store");
        let copy = Folder::new("copy");
        copy_tree(&self.folder.join("js"), &copy.join("js")).map_err(|e| e.to_string())?;
        Ok(StoreCopy(copy))
    }

    /// Puts an older state back in the place of the store of a server that does not run.
    pub(crate) fn restore_store(&self, copy: &StoreCopy) -> Result<(), String> {
        assert!(self.running.is_none(), "a running server writes its store");
        let store = self.folder.join("js");
        fs::remove_dir_all(&store).map_err(|e| e.to_string())?;
        copy_tree(&copy.0.join("js"), &store).map_err(|e| e.to_string())
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.running {
            process::signal(child.id(), signal);
        }
    }

    fn spawn(&mut self) -> Result<(), String> {
        let child = Command::new(&self.binary)
            .args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string()])
            .arg("-sd")
            .arg(self.folder.join("js"))
            .arg("-l")
            .arg(self.folder.join("log"))
            .args(&self.options)
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

    /// JetStream is up before the client port is: an INFO line is enough.
    fn wait_ready(&self) -> Result<At, String> {
        let answered = || greets(self.port).ok()?.then(now);
        wait_until(now() + START_MAX, answered).ok_or_else(|| {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            format!("nats-server does not answer; its log: {log}")
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Signal::KILL);
    }
}

/// Returns a port of 127.0.0.1 on which nobody listens at the moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("127.0.0.1 has a free port")
        .port()
}

fn greets(port: u16) -> io::Result<bool> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.starts_with("INFO "))
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
