//! Other users of the host: what they can reach, and what they have put in the way.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::small_host::{Host, STOP};
use crate::support::agent::Agent;
use crate::support::sandbox::{Run, is_tight};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// Abstract names can be taken by anybody, and called by anybody.
#[test]
fn agent_and_guard_have_no_abstract_socket() {
    let host = Host::new("abstract");
    let _agent = host.agent();
    host.wait_until_up();
    let inodes: Vec<String> = host.sandbox.processes().iter().flat_map(sockets).collect();
    assert!(!inodes.is_empty(), "they have a socket");
    let table = fs::read_to_string("/proc/net/unix").expect("there is a /proc");
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .filter(|words: &Vec<&str>| inodes.iter().any(|inode| words.get(6) == Some(&&**inode)))
        .collect();
    assert!(!lines.is_empty(), "they stand in the table");
    let names: Vec<&str> = lines.iter().filter_map(|words| words.get(7).copied()).collect();
    assert!(!names.is_empty(), "the guard listens");
    let taken: Vec<_> = names.iter().filter(|name| name.starts_with('@')).collect();
    assert!(taken.is_empty(), "{taken:?}");
}

/// Returns the inodes of the sockets that a process has open.
fn sockets(pid: &u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let links = entries.into_iter().flatten().flatten();
    let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?;
            Some(text.strip_suffix(']')?.to_owned())
        })
        .collect()
}

#[test]
fn another_user_does_not_reach_the_socket_of_the_guard() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let host = Host::new("reach");
    let _agent = host.agent();
    host.wait_until_up();
    let socket = host.file_of_guard("socket");
    // Only what putex has made keeps others out.
    for open in [host.sandbox.to_path_buf(), host.sandbox.join("run")] {
        fs::set_permissions(open, Permissions::from_mode(0o755)).expect("it is this user's");
    }
    let sees = |path: &Path, user: u32| {
        let mut test = Command::new("/usr/bin/test");
        test.arg("-e").arg(path).uid(user).gid(user);
        test.status().expect("it can be run").success()
    };
    assert!(sees(&socket, 0));
    assert!(sees(&host.sandbox.join("run/putex"), NOBODY));
    assert!(!sees(&socket, NOBODY));
}

/// A directory that is in the way, and why it is refused.
struct InTheWay {
    make: fn(&Path),
    why: &'static str,
}

const IN_THE_WAY: [InTheWay; 3] = [
    InTheWay {
        make: |run| {
            folder(run, "putex", 0o700);
            give(&folder(run, "putex/.agents", 0o700));
        },
        why: "/run/putex/.agents belongs to user 65534",
    },
    InTheWay {
        make: |run| {
            folder(run, "putex", 0o700);
            let elsewhere = folder(run, "elsewhere", 0o700);
            symlink(elsewhere, run.join("putex/.agents")).expect("it is free");
        },
        why: "/run/putex/.agents is not a directory",
    },
    InTheWay {
        make: |run| {
            folder(run, "putex", 0o700);
            fs::set_permissions(run, Permissions::from_mode(0o777)).expect("it is this user's");
        },
        why: "/run is writable by others (mode 0777)",
    },
];

fn folder(run: &Path, name: &str, mode: u32) -> std::path::PathBuf {
    let path = run.join(name);
    fs::create_dir(&path).expect("it is free");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is this user's");
    path
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("only root is here");
}

/// Neither the agent nor finish uses a directory in which others could put what they like. Other
/// refusals on the way to it are in `locks/others.rs`.
#[test]
fn a_directory_that_others_have_made_or_can_write_to_is_refused() {
    if !rustix::process::geteuid().is_root() || !is_tight() {
        println!("skipped: only root can give files away");
        return;
    }
    for (number, InTheWay { make, why }) in IN_THE_WAY.iter().enumerate() {
        let host = Host::new(&format!("way-{number}"));
        let run = host.sandbox.subfolder("run");
        make(&run);
        let (status, said) = Agent::start(&mut host.putex("agent", "echo >$D/ran")).wait_end();
        assert_eq!(status, Some(71), "{why}: {said}");
        assert!(said.contains(&format!("cannot start: {why}")), "{why}: {said}");
        let finish = host.sandbox.run(&mut host.putex("finish", "echo >$D/ran"));
        let Run { status, said, .. } = finish;
        assert_eq!(status, Some(71), "{why}: {said}");
        assert!(said.contains(&format!("cannot finish: {why}")), "{why}: {said}");
        assert!(!host.has("ran") && !host.is_up(), "{why}");
        let made = fs::read_dir(run.join("elsewhere")).map_or(0, Iterator::count);
        assert_eq!(made, 0, "{why}");
    }
    // The same without anything in the way.
    let host = Host::new("way");
    let _agent = host.agent();
    host.wait_until_up();
    assert_eq!(host.finish(STOP).0, Some(0));
}
