//! A nats-server, one of three: in a network namespace and on a disk of its own.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::namespaces;
use super::nodes::{Node, SERVERS};
use crate::support::server;

/// Port for clients.
pub(crate) const PORT: u16 = 4222;

/// Port for the other servers.
const ROUTE_PORT: u16 = 6222;

/// Size of the disk. The store of one key with one copy needs a few of them, that of busy locks
/// many.
const DISK_MEGABYTES: u32 = 256;

/// A nats-server, running or not.
#[derive(Debug)]
pub(crate) struct Server {
    server: server::Server,
    disk: PathBuf,
}

impl Server {
    /// Prepares the server of `node` below `folder`.
    pub(crate) fn prepare(node: Node, binary: &Path, folder: &Path) -> Result<Server, String> {
        let home = folder.join(node.name());
        let disk = home.join("disk");
        namespaces::mount_disk(&disk, DISK_MEGABYTES)?;
        let routes: Vec<String> = (0..SERVERS)
            .map(|other| format!("\"nats://{}:{ROUTE_PORT}\"", Node::server(other).address()))
            .collect();
        let (name, address) = (node.name(), node.address());
        let conf = format!(
            "server_name: {name}\nlisten: \"{address}:{PORT}\"\n\
             jetstream {{ store_dir: \"{disk}/js\" }}\n\
             cluster {{ name: campaign, listen: \"{address}:{ROUTE_PORT}\"\n\
             routes: [{routes}] }}\n",
            disk = disk.display(),
            routes = routes.join(", ")
        );
        let within = ["ip", "netns", "exec", &name];
        let server = server::Server::prepare_in(&home, &conf, &within, binary, PORT);
        let server = server.map_err(|error| format!("{}: {error}", home.display()))?;
        Ok(Server { server, disk })
    }

    /// Starts the server unless it runs.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        match self.server.is_started() {
            true => Ok(()),
            false => self.server.spawn(),
        }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Stops the server from running, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Starts a server again that ended by itself; returns whether it had.
    pub(crate) fn tend(&mut self) -> Result<bool, String> {
        let ended = self.server.has_ended();
        if ended {
            self.start()?;
        }
        Ok(ended)
    }

    /// Fills the disk, or removes what filled it.
    pub(crate) fn fill_disk(&self, full: bool) {
        fill(&self.disk, full);
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
