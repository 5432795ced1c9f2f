//! A store, and the `putex lock` processes that use it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};

use rustix::process::Signal;

use crate::record::{self, Held, WORKER};
use crate::support::clock::{At, PATIENCE, now, until, until_true};
pub(crate) use crate::support::process::state_of;
use crate::support::process::{find_renewer, signal, wait_exit};
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox};
use crate::support::server::Server;

/// Options for T = 2 s: V is 1980 ms, and the command is killed at 1780 ms at the latest.
pub(crate) const QUICK: [&str; 6] = ["-r", "500ms", "-f", "4", "-k", "200ms"];

/// T with [`QUICK`].
pub(crate) const QUICK_T: At = At::from_secs(2);

/// Options for T = 5 s.
const CALM: [&str; 6] = ["-r", "1s", "-f", "5", "-k", "500ms"];

/// Options for a T that is longer than the patience of these tests: what happens has not waited
/// for it.
pub(crate) const ENDLESS: [&str; 6] = ["-r", "60s", "-f", "3", "-k", "1s"];

/// A store and a sandbox.
pub(crate) struct Site {
    pub(crate) sandbox: Sandbox,
    /// None where the store is a directory; three form a cluster.
    servers: Vec<Mutex<Server>>,
    timing: Vec<&'static str>,
}

/// A `putex lock` that runs a [`WORKER`].
pub(crate) struct Lock<'a> {
    site: &'a Site,
    id: String,
    child: Child,
}

/// Tells a story about a directory with the default times, and about nats-server.
pub(crate) fn on_both_stores(story: impl Fn(&Site)) {
    for site in Site::in_directory(&[]).into_iter().chain(Site::on_server(&CALM)) {
        story(&site);
        site.assert_end();
    }
}

/// As [`on_both_stores`], with short times.
pub(crate) fn on_both_stores_quickly(story: impl Fn(&Site)) {
    for site in Site::in_directory(&QUICK).into_iter().chain(Site::on_server(&QUICK)) {
        story(&site);
        site.assert_end();
    }
}

/// Tells a story about a directory.
pub(crate) fn in_directory(story: impl Fn(&Site)) {
    if let Some(site) = Site::in_directory(&[]) {
        story(&site);
        site.assert_end();
    }
}

/// Tells a story about nats-server, with the default times of these tests.
pub(crate) fn on_server(story: impl Fn(&Site)) {
    if let Some(site) = Site::on_server(&CALM) {
        story(&site);
        site.assert_end();
    }
}

/// Tells a story about nats-server, with short times.
pub(crate) fn on_server_quickly(story: impl Fn(&Site)) {
    if let Some(site) = Site::on_server(&QUICK) {
        story(&site);
        site.assert_end();
    }
}

impl Site {
    /// Returns whether the lock is in a directory.
    pub(crate) fn is_local(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the folder of the bucket in a directory.
    pub(crate) fn folder(&self) -> PathBuf {
        self.sandbox.join("store/putex")
    }

    /// Returns the files of the tickets in a directory, in their order.
    pub(crate) fn tickets(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder()).expect("a bucket");
        let paths = files.map(|file| file.expect("a file").path());
        let is_ticket =
            |path: &PathBuf| path.extension().is_some_and(|it| it == "held" || it == "until");
        let mut paths: Vec<_> = paths.filter(is_ticket).collect();
        let number = |path: &PathBuf| -> u64 {
            let name = path.file_stem().expect("a name").display().to_string();
            name.rsplit_once('.').expect("a number").1.parse().expect("a number")
        };
        paths.sort_by_key(number);
        paths
    }

    pub(crate) fn in_directory(timing: &[&'static str]) -> Option<Site> {
        Some(Site { sandbox: Sandbox::new("lock"), servers: Vec::new(), timing: timing.to_vec() })
    }

    /// Starts a server with a bucket that is believed; `None`, after saying so, when there is none.
    pub(crate) fn on_server(timing: &[&'static str]) -> Option<Site> {
        let site = Site::on_new_bucket(timing)?;
        site.believe();
        Some(site)
    }

    /// Starts a server without a bucket: the first lock in a new one is waited for.
    pub(crate) fn on_new_bucket(timing: &[&'static str]) -> Option<Site> {
        let site = Site::on(&programs::nats_server()?);
        Some(Site { timing: timing.to_vec(), ..site })
    }

    /// Makes the bucket, in which no locks of a lost one are waited for.
    pub(crate) fn believe(&self) {
        let mut command = self.sandbox.putex();
        command.arg("init").args(self.store());
        if self.servers.len() > 1 {
            command.args(["--replicas", "3"]);
        }
        let made = self.sandbox.run(&mut command);
        assert_eq!(made.status, Some(0), "{}", made.said);
    }

    /// Starts this server.
    pub(crate) fn on(binary: &Path) -> Site {
        let servers = vec![Mutex::new(Server::start(binary, ""))];
        Site { sandbox: Sandbox::new("lock"), servers, timing: Vec::new() }
    }

    /// Starts three servers, for a bucket of three copies.
    pub(crate) fn on_cluster(timing: &[&'static str]) -> Option<Site> {
        let servers = Server::start_cluster(&programs::nats_server()?, "");
        let servers = servers.expect("the cluster has a leader").into_iter().map(Mutex::new);
        let timing = [timing, &["--replicas", "3"]].concat();
        Some(Site { sandbox: Sandbox::new("lock"), servers: servers.collect(), timing })
    }

    /// Prepares a `putex lock` with these words: options, name, command. In the command, `$D`
    /// is the folder of the sandbox, and `$P` the putex.
    pub(crate) fn putex(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.sandbox.putex();
        command
            .arg("lock")
            .args(&self.timing)
            .args(self.store())
            .args(words)
            .env("D", self.sandbox.text())
            .env("P", programs::putex());
        command
    }

    /// Returns the options that name the store.
    pub(crate) fn store(&self) -> [String; 2] {
        if self.is_local() {
            return ["--dir".to_owned(), format!("{}/store", self.sandbox.text())];
        }
        let numbers = 0..self.servers.len();
        let urls: Vec<_> = numbers.map(|it| self.server_of(it).url("nats", "127.0.0.1")).collect();
        ["--nats".to_owned(), urls.join(",")]
    }

    /// Returns the options for times and store.
    pub(crate) fn options(&self) -> Vec<String> {
        self.timing.iter().map(|word| (*word).to_owned()).chain(self.store()).collect()
    }

    /// Returns the server, the first of several.
    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server_of(0)
    }

    /// Returns the server of this number.
    pub(crate) fn server_of(&self, number: usize) -> MutexGuard<'_, Server> {
        self.servers[number].lock().expect("nobody panics with it")
    }

    /// Runs a `putex lock` to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Run {
        self.sandbox.run(&mut self.putex(words))
    }

    /// Starts a `putex lock` with these options and this name, and a worker of this id.
    pub(crate) fn lock(&self, id: &str, words: &[&str]) -> Lock<'_> {
        self.lock_with(id, words, &[])
    }

    /// As [`Site::lock`], with these words for the worker.
    pub(crate) fn lock_with(&self, id: &str, words: &[&str], more: &[&str]) -> Lock<'_> {
        let said = File::create(self.said(id)).expect("the folder can be written");
        let mut command = self.putex(&["-v"]);
        command.args(words).args(["sh", "-c", WORKER, id]).args(more).stderr(said);
        let child = command.spawn().expect("the command can be run");
        Lock { site: self, id: id.to_owned(), child }
    }

    fn said(&self, id: &str) -> PathBuf {
        self.sandbox.join(format!("said-{id}"))
    }

    /// Returns the renewer of a front.
    pub(crate) fn renewer_of(&self, front: u32) -> u32 {
        until("a renewer", || find_renewer(front))
    }

    /// Returns the file in which commands record.
    pub(crate) fn record(&self) -> PathBuf {
        self.sandbox.join("record")
    }

    /// Returns the commands that have run, in their order.
    pub(crate) fn held(&self) -> Vec<Held> {
        record::read(&fs::read_to_string(self.record()).unwrap_or_default())
    }

    /// Returns the ids of the commands that have run, in their order.
    pub(crate) fn order(&self) -> Vec<String> {
        self.held().into_iter().map(|held| held.id).collect()
    }

    /// Expects that no two commands that exclude each other have run beside each other, that
    /// all ran in the order of their terms, and that nothing is left behind.
    pub(crate) fn assert_end(&self) {
        assert_eq!(record::faults(&self.held()), [""; 0]);
        until_true("the end of all processes", || self.sandbox.processes().is_empty());
        if self.is_local() {
            let files = fs::read_dir(self.folder()).expect("a bucket");
            let names = files.map(|file| file.expect("a file").file_name());
            let mut names: Vec<_> = names.map(|name| name.display().to_string()).collect();
            // The IDs of a lock stay, and the tickets that killed processes have left, until a
            // process finds them.
            let stays = |name: &str| ["once.", "lock."].iter().any(|it| name.starts_with(it));
            names.retain(|name| !stays(name) && name != "new");
            names.sort();
            assert_eq!(names, ["epoch", "sequence"]);
        }
        assert!(!self.sandbox.join("run/putex").exists(), "no file for processes of a host");
    }
}

impl Lock<'_> {
    /// Waits until the worker has begun.
    pub(crate) fn begun(&self) -> Held {
        until(&format!("{} begins", self.id), || {
            assert!(self.held().is_some() || !has_ended(self.front()), "not had: {}", self.said());
            self.held()
        })
    }

    /// Returns what the worker has recorded; `None` before it begins.
    pub(crate) fn held(&self) -> Option<Held> {
        self.site.held().into_iter().find(|held| held.id == self.id)
    }

    /// Waits until it waits behind this number of tickets, and expects that it does not run.
    pub(crate) fn waits_behind(&self, ahead: usize) {
        self.says(&format!(": waiting, {ahead} ahead: "));
        assert!(self.held().is_none(), "{} runs", self.id);
    }

    /// Waits until it has said this.
    pub(crate) fn says(&self, part: &str) {
        until_true(&format!("{} says {part}", self.id), || self.said().contains(part));
    }

    /// Returns what it has said.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.site.said(&self.id)).unwrap_or_default()
    }

    /// Has the worker end.
    pub(crate) fn let_go(&self) {
        File::create(self.site.sandbox.join(format!("end-{}", self.id))).expect("a file");
    }

    /// Has the worker end, and expects that all goes well.
    pub(crate) fn end(mut self) {
        self.let_go();
        assert_eq!(self.ended().code(), Some(0), "{}: {}", self.id, self.said());
    }

    /// Waits until the front has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let status = wait_exit(&mut self.child, now() + PATIENCE);
        status.unwrap_or_else(|| panic!("{} does not end: {}", self.id, self.said()))
    }

    /// Returns the exit status of the front, when it has ended.
    pub(crate) fn status(&mut self) -> i32 {
        let ended = self.ended();
        ended.code().unwrap_or_else(|| -ended.signal().unwrap_or_default())
    }

    pub(crate) fn front(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn renewer(&self) -> u32 {
        self.site.renewer_of(self.front())
    }

    pub(crate) fn signal_front(&self, number: Signal) {
        signal(self.front(), number);
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a process has ended, and may not have been waited for.
fn has_ended(pid: u32) -> bool {
    state_of(pid) == Some('Z')
}
