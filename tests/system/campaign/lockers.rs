//! The clients of one host that run commands under locks: a process of this program in the
//! network of the host. Their kills and stops of each other are random; the faults of the host's
//! network and of the servers come on top.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use super::namespaces;
use super::nodes::{Node, SERVERS};
use super::server::PORT;
use crate::clients::{Clients, Ends};
use crate::record;
use crate::support::clock::{now, wait_until};
use crate::support::process;

/// The first word of the process of the clients.
pub(crate) const ROLE: &str = "lock-clients";

/// The bucket of the locks, which the first client makes.
const BUCKET: &str = "tickets";

/// R and T of the locks.
const R: &str = "500ms";
const F: &str = "4";
const T: Duration = Duration::from_secs(2);

/// Longer than all faults of a round and the recovery of the cluster.
const PATIENCE: Duration = Duration::from_secs(300);

/// When this file is in the folder, no client begins anew.
const STOP: &str = "stop";

/// The clients of one host.
#[derive(Debug)]
pub(crate) struct Lockers {
    node: Node,
    folder: PathBuf,
    count: usize,
    seed: u64,
    running: Option<Child>,
    starts: usize,
}

/// Plays the clients of one host: the words of [`Lockers::start`].
pub(crate) fn play(words: &[String]) -> Result<ExitCode, String> {
    let [folder, name, count, seed] = words else { return Err(format!("{ROLE}: words")) };
    let binary = env::var_os(namespaces::AGENT).ok_or("the environment names no putex")?;
    let folder = Path::new(folder);
    let urls = (0..SERVERS).map(|number| format!("{}:{PORT}", Node::server(number).address()));
    let urls: Vec<String> = urls.collect();
    let lock = || {
        let mut command = Command::new(&binary);
        command
            .args(["lock", "-r", R, "-f", F, "-k", "200ms", "--nats", &urls.join(",")])
            .args(["--bucket", BUCKET, "--replicas", &SERVERS.to_string()])
            .env("D", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    };
    let clients = Clients {
        lock: &lock,
        name: name.clone(),
        record: folder.join("record"),
        is_local: false,
        lifetime: T,
        goes_on: &|| !folder.join(STOP).exists(),
        wait_limit: PATIENCE,
        seed: seed.parse().map_err(|_| "no seed")?,
    };
    let count = count.parse().map_err(|_| "no number of clients")?;
    let ends = clients.play(count);
    let Ends { well, without, killed, lost, odd } = ends;
    let text = format!("{well} {without} {killed} {lost}\n{}", odd.join("\n"));
    fs::write(folder.join(format!("ends-{name}")), text).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

impl Lockers {
    /// Returns so many clients of the host of that number, which do not run yet.
    pub(crate) fn new(number: usize, folder: &Path, count: usize, seed: u64) -> Lockers {
        let (node, folder) = (Node::host(number), folder.join("locks"));
        Lockers { node, folder, count, seed, running: None, starts: 0 }
    }

    fn mark(&self) -> String {
        process::mark(&format!("locks-{}", self.node.name()))
    }

    /// Starts the clients if they do not run.
    pub(crate) fn tend(&mut self) -> Result<(), String> {
        let is_over = self.folder.join(STOP).exists();
        if self.count > 0 && self.running.is_none() && !is_over { self.start() } else { Ok(()) }
    }

    fn start(&mut self) -> Result<(), String> {
        self.starts += 1;
        fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let child = Command::new("ip")
            .args(["netns", "exec", &self.node.name()])
            .arg(program)
            .arg(ROLE)
            .arg(&self.folder)
            .arg(format!("{}.{}.", self.node.name(), self.starts))
            .args([self.count.to_string(), (self.seed + self.starts as u64).to_string()])
            .env(process::MARK, self.mark())
            .stdin(Stdio::null())
            .spawn();
        self.running = Some(child.map_err(|error| format!("ip: {error}"))?);
        Ok(())
    }

    /// Kills the clients, their `putex lock` and the commands, as a power cut does.
    pub(crate) fn crash(&mut self) {
        process::kill_marked(&self.mark());
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits for the end of all clients.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.running else { return Ok(()) };
        File::create(self.folder.join(STOP)).map_err(|error| error.to_string())?;
        let ended = process::wait_exit(child, now() + PATIENCE * 2);
        match ended.filter(std::process::ExitStatus::success) {
            Some(_) => {}
            None => return Err(format!("the lock clients of {}: {ended:?}", self.node.name())),
        }
        // Processes that the clients have left behind end soon.
        let is_empty = || process::find_marked(&self.mark()).is_empty().then_some(());
        let ended = wait_until(now() + PATIENCE, is_empty);
        ended.ok_or(format!("{}: processes of lock clients are left", self.node.name()))
    }
}

/// Judges what the commands of all clients have recorded.
pub(crate) fn judge(text: &mut String, wrong: &mut Vec<String>, folder: &Path) {
    let folder = folder.join("locks");
    let Ok(record) = fs::read_to_string(folder.join("record")) else { return };
    let held = record::read(&record);
    wrong.extend(record::faults(&held));
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let ends = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ends-"));
    let (mut sums, mut odd) = ([0; 4], Vec::new());
    for entry in ends {
        let ends = fs::read_to_string(entry.path()).unwrap_or_default();
        let (counts, others) = ends.split_once('\n').unwrap_or_default();
        let counts = counts.split(' ').map(|count| count.parse().unwrap_or(0));
        sums.iter_mut().zip(counts).for_each(|(sum, count): (&mut usize, usize)| *sum += count);
        odd.extend(others.lines().map(|line| format!("a putex lock has ended oddly: {line}")));
    }
    wrong.extend(odd);
    let [well, without, killed, lost] = sums;
    let _ = writeln!(
        text,
        "  locks: {} commands ran; of the putex lock that were counted to the end, {well} ended \
         well, {without} without the lock, {killed} were killed, {lost} lost it",
        held.len()
    );
}
