//! Where a campaign runs: in namespaces of its own for processes, mounts and the network,
//! so that nothing of it is on the host's network and nothing outlives it.
//!
//! ```text
//!   cargo test --test campaign -- FLAGS         waits, and removes the folder
//!     unshare                                   makes the namespaces
//!       campaign init FLAGS                     process 1 there: reaps, and ends with the first
//!         campaign inside FLAGS                 the campaign
//! ```
//!
//! Whatever ends the first, SIGKILL too, closes the pipe to process 1; when that ends the
//! kernel kills all others, and with the last of them go mounts, devices and namespaces.
//! What can be left is the folder, which is removed by the next campaign.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::WaitOptions;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The first word of process 1 in the namespaces.
pub(crate) const INIT: &str = "init";

/// The first word of the campaign in the namespaces.
pub(crate) const INSIDE: &str = "inside";

/// Name of the folder of a campaign, before the number of its first process.
const FOLDER: &str = "putex-campaign-";

/// Name of the folder of a campaign that found something, before that number.
const KEPT: &str = "putex-campaign-kept-";

/// How often the first process looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// Environment variable that names the agents' program in the namespaces.
pub(crate) const AGENT: &str = "PUTEX_CAMPAIGN_AGENT";

/// Returns what this machine lacks for a campaign, if anything.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces and has to be root".to_owned());
    }
    for tool in ["ip", "unshare", "mount", "hostname"] {
        let there = env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(tool).is_file());
        if !there {
            return Some(format!("there is no `{tool}` in PATH"));
        }
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("/dev/net/tun cannot be opened: {error}"));
    }
    let namespaces = Command::new("unshare")
        .args(["--mount", "--pid", "--net", "--uts", "--fork", "true"])
        .stderr(Stdio::null())
        .status();
    if !namespaces.is_ok_and(|status| status.success()) {
        return Some("it is not permitted to make namespaces".to_owned());
    }
    None
}

/// Runs this program again in the namespaces, with `flags`, and returns how it ended.
pub(crate) fn enter(flags: &[String], agent: &Path) -> Result<ExitCode, String> {
    remove_leftovers();
    let number = std::process::id();
    let folder = env::temp_dir().join(format!("{FOLDER}{number}"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let signalled = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).unwrap_or(0);
        signal_hook::flag::register_usize(signal, Arc::clone(&signalled), number)
            .map_err(|error| error.to_string())?;
    }
    // Copies: another build meanwhile changes nothing for this campaign.
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let [program, agent] = [(program.as_path(), "campaign"), (agent, "putex")]
        .map(|(from, name)| copy(from, &folder.join(name)));
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--net", "--pid"])
        .args(["--fork", "--kill-child", "--mount-proc"])
        .arg(program?)
        .arg(INIT)
        .args(flags)
        .env("TMPDIR", &folder)
        .env(AGENT, agent?)
        .stdin(Stdio::piped())
        // Ctrl-C is for this process, which ends the others.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("unshare: {error}"))?;
    let code = wait(&mut child, &signalled);
    if matches!(code, 1 | 2) {
        let kept = env::temp_dir().join(format!("{KEPT}{number}"));
        let kept = fs::rename(&folder, &kept).map_or(folder, |()| kept);
        println!("logs and what was found are kept in {}", kept.display());
    } else {
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(ExitCode::from(code))
}

/// Waits for the campaign to end, or makes it end when a signal came.
fn wait(child: &mut Child, signalled: &AtomicUsize) -> u8 {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1));
        }
        let signal = signalled.load(Ordering::Relaxed);
        if signal != 0 {
            drop(child.stdin.take());
            let _ = child.wait();
            return u8::try_from(128 + signal).unwrap_or(1);
        }
        thread::sleep(LOOK);
    }
}

/// Process 1 of the namespaces: starts the campaign and reaps the processes that no other parent
/// reaps.
pub(crate) fn init(flags: &[String]) -> Result<ExitCode, String> {
    thread::spawn(|| {
        // Nobody writes: this ends when the first process of the campaign has ended.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let campaign = Command::new(program)
        .arg(INSIDE)
        .args(flags)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    loop {
        let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::empty()) else {
            continue;
        };
        if u32::try_from(pid.as_raw_nonzero().get()).is_ok_and(|pid| pid == campaign.id()) {
            let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
    }
}

/// Makes what is below `/run` private to the namespaces.
pub(crate) fn prepare() -> Result<(), String> {
    run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    for folder in ["/run/netns", "/run/putex"] {
        fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
    }
    run("ip", &["link", "set", "lo", "up"])
}

/// Mounts a file system of its own at `folder`, which `megabytes` fill.
pub(crate) fn mount_disk(folder: &Path, megabytes: u32) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let size = format!("size={megabytes}m,mode=700");
    let folder = folder.display().to_string();
    run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &folder])
}

/// Runs a command that has nothing to say unless it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let words = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", words()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", words(), said.trim()))
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf, String> {
    let copied = fs::copy(from, to).map(|_| to.to_owned());
    copied.map_err(|error| format!("{}: {error}", from.display()))
}

/// Removes the folders of campaigns whose first process does not live any more.
fn remove_leftovers() {
    let entries = fs::read_dir(env::temp_dir()).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(FOLDER));
        let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        if number.is_some_and(|number| !PathBuf::from("/proc").join(number).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
