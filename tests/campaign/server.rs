//! One of three nats-servers: in a network namespace and on a disk of its own.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::cage;
use super::place::{Node, SERVERS};
use crate::support::process;

/// Port for clients.
pub(crate) const PORT: u16 = 4222;

/// Port for the other servers.
const ROUTE_PORT: u16 = 6222;

/// Size of the disk. The store of one key with one copy needs a few of them.
const DISK_MEGABYTES: u32 = 48;

/// A nats-server, running or not.
#[derive(Debug)]
pub(crate) struct Server {
    node: Node,
    binary: PathBuf,
    folder: PathBuf,
    running: Option<Child>,
}

impl Server {
    /// Prepares the server of `node` below `folder`.
    pub(crate) fn prepare(node: Node, binary: &Path, folder: &Path) -> Result<Server, String> {
        let server = Server {
            node,
            binary: binary.to_owned(),
            folder: folder.join(node.name()),
            running: None,
        };
        cage::mount_disk(&server.disk(), DISK_MEGABYTES)?;
        let routes: Vec<String> = (0..SERVERS)
            .map(|other| format!("\"nats://{}:{ROUTE_PORT}\"", Node::server(other).address()))
            .collect();
        let (name, address) = (node.name(), node.address());
        let text = format!(
            "server_name: {name}\nlisten: \"{address}:{PORT}\"\n\
             log_file: \"{folder}/log\"\n\
             jetstream {{ store_dir: \"{folder}/disk/js\" }}\n\
             cluster {{ name: campaign, listen: \"{address}:{ROUTE_PORT}\"\n\
             routes: [{routes}] }}\n",
            folder = server.folder.display(),
            routes = routes.join(", ")
        );
        fs::write(server.folder.join("conf"), text).map_err(|error| error.to_string())?;
        Ok(server)
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Starts the server unless it runs.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        if self.running.is_some() {
            return Ok(());
        }
        let child = Command::new("ip")
            .args(["netns", "exec", &self.node.name()])
            .arg(&self.binary)
            .arg("-c")
            .arg(self.folder.join("conf"))
            .env(process::MARK, process::mark("server"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.binary.display()))?;
        self.running = Some(child);
        Ok(())
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the server from running, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(child) = &self.running {
            process::signal(child.id(), signal);
        }
    }

    /// Starts a server again that ended by itself; returns whether it had.
    pub(crate) fn tend(&mut self) -> Result<bool, String> {
        let ended = self
            .running
            .as_mut()
            .is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()));
        if ended {
            self.running = None;
            self.start()?;
        }
        Ok(ended)
    }

    /// Fills the disk, or removes what filled it.
    pub(crate) fn fill_disk(&self, full: bool) {
        fill(&self.disk(), full);
    }
}

/// Fills the file system of `folder`, or removes what filled it.
pub(crate) fn fill(folder: &Path, full: bool) {
    let file = folder.join("filler");
    if !full {
        let _ = fs::remove_file(file);
        return;
    }
    let Ok(mut file) = File::create(&file) else {
        return;
    };
    // In smaller and smaller pieces, so that the last byte is taken too.
    for size in [1 << 16, 1 << 12, 1] {
        let zeros = vec![0; size];
        while file.write(&zeros).is_ok_and(|wrote| wrote > 0) {}
    }
}
