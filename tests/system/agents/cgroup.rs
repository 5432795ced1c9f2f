//! The control group of start on a real kernel. Each test runs itself again in a mount
//! namespace of its own, where the hierarchy is mounted on a folder; where that is
//! not permitted, it says so and is skipped.

mod asserted;
mod emptied;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Output, Stdio, id};
use std::time::Duration;

use crate::support::clock::{PATIENCE, now, observe_for, until_true, wait_until};
use crate::support::folder::Folder;
use crate::support::sandbox::Sandbox;
use putex::guard::cgroup::{REMOVAL_WITHIN, ServiceCgroup};
use putex::sys::{self, PollFlags};
use rustix::fs::{FlockOperation, XattrFlags, flock};

/// Names the folder where the hierarchy is mounted, in the process that is in the
/// namespace.
const TOP: &str = "PUTEX_TEST_CGROUP_TOP";

/// Environment variable: the refusal that a user without rights is to get; blank for none.
const EXPECTED: &str = "PUTEX_TEST_CGROUP_EXPECTED";

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// A control group with this process in it, as an agent would be in its own.
struct Room {
    /// Scratch space, and the processes of agents.
    sandbox: Sandbox,
    /// Where the hierarchy is mounted.
    top: PathBuf,
    group: PathBuf,
}

impl Room {
    /// Returns the room, in the process that is in the namespace. In the one that is
    /// not, has the test of this name run there.
    fn enter(test: &str) -> Option<Room> {
        let Some(top) = std::env::var_os(TOP) else {
            run_again(test);
            return None;
        };
        let (sandbox, top) = (Sandbox::new("cgroup"), PathBuf::from(top));
        let group = top.join(format!("test-of-putex-{}", id()));
        fs::create_dir(&group).expect("a control group");
        let room = Room { sandbox, top, group };
        join(&room.group);
        // A host with systemd wants this.
        room.mark();
        Some(room)
    }

    fn mark(&self) {
        rustix::fs::setxattr(&self.group, "user.delegate", b"1", XattrFlags::empty())
            .expect("a mark");
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        join(&self.top);
        let _ = fs::write(self.group.join("cgroup.kill"), "1");
        wait_until(now() + PATIENCE, || remove(&self.group).ok());
    }
}

/// Moves this process.
fn join(group: &Path) {
    fs::write(group.join("cgroup.procs"), id().to_string()).expect("moved");
}

fn remove(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.path().is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

fn run_again(test: &str) {
    let top = Folder::new("top");
    let mount = r#"mount -t cgroup2 none "$0" 2>/dev/null || exit 77; exec "$@""#;
    let output = Process::new("unshare")
        .args(["-m", "sh", "-c", mount])
        .arg(top.as_os_str())
        .arg(std::env::current_exe().expect("it has a path"))
        .args(["--exact", &format!("cgroup::{test}"), "--nocapture"])
        .env(TOP, top.as_os_str())
        .output();
    fs::remove_dir(&*top).expect("nothing is mounted there out here");
    match output {
        Ok(output) if output.status.code() == Some(77) => println!("skipped: no mount"),
        Ok(output) => {
            let said = said(&output);
            // A name that no test has is a success of none.
            assert!(output.status.success() && said.contains(" 1 passed"), "{said}");
        }
        Err(error) => println!("skipped: unshare: {error}"),
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

fn made(name: &str) -> ServiceCgroup {
    ServiceCgroup::make(name).expect("it may be divided")
}

/// Prepares a start as the agent would, in a process group of its own.
fn prepare(cgroup: &ServiceCgroup, script: &str) -> Process {
    let mut process = Process::new("/bin/sh");
    process
        .args(["-c", &cgroup.entry, "putex", script])
        .args(["start", "active"])
        .stdin(Stdio::null())
        .process_group(0);
    process
}

fn is_empty_soon(cgroup: &ServiceCgroup) -> bool {
    is_empty_in(PATIENCE, cgroup)
}

fn is_empty_in(time: Duration, cgroup: &ServiceCgroup) -> bool {
    let empty = || (!cgroup.is_populated().expect("it tells")).then_some(());
    wait_until(now() + time, empty).is_some()
}

fn end(mut child: Child) {
    child.wait().expect("it ends");
}

#[test]
fn what_forks_for_ever_is_killed_again_and_again_by_the_same_descriptor() {
    let name = "what_forks_for_ever_is_killed_again_and_again_by_the_same_descriptor";
    let Some(room) = Room::enter(name) else {
        return;
    };
    let cgroup = made("putex-1");
    // Eight processes that are never the same for long, each in a session of its own.
    let hop = room.sandbox.join("hop");
    fs::write(&hop, "setsid sh \"$0\" &\n").expect("a script");
    let script = format!("for i in 1 2 3 4 5 6 7 8; do sh {} & done; wait", hop.display());
    for round in 0..20 {
        let child = prepare(&cgroup, &script).spawn();
        let child = child.expect("it runs");
        let procs = cgroup.dir.join("cgroup.procs");
        let read = || fs::read_to_string(&procs).expect("processes");
        until_true("processes", || read().lines().count() >= 4);
        let before = read();
        until_true("others", || read().lines().all(|pid| !before.contains(pid)));
        if round % 2 == 0 {
            cgroup.kill().expect("killed");
        } else {
            // As a process does that was handed only the path.
            let kill = cgroup.dir.join("cgroup.kill");
            fs::write(kill, "1").expect("killed");
        }
        assert!(is_empty_soon(&cgroup));
        end(child);
    }
    cgroup.remove();
}

#[test]
fn a_script_does_not_notice_the_entry() {
    let Some(room) = Room::enter("a_script_does_not_notice_the_entry") else {
        return;
    };
    let cgroup = made("putex-1 it's");
    for shell in ["/bin/sh", "dash", "bash --posix", "bash", "busybox sh"] {
        let words: Vec<&str> = shell.split(' ').collect();
        let mut there = Process::new(words[0]);
        if there.args(&words[1..]).args(["-c", ":"]).output().is_err() {
            println!("skipped: no {shell}");
            continue;
        }
        let entry = &cgroup.entry;
        let entry = entry.replace("exec /bin/sh", &format!("exec {shell}"));
        let run = |entry: &[&str], script: &str| -> Output {
            let mut process = Process::new(words[0]);
            process.args(&words[1..]).arg("-c").args(entry);
            process.args([script, "start", "active"]);
            process.stdin(Stdio::null()).output().expect("it runs")
        };
        for script in [
            r#"echo "$0|$1|$#|$LINENO" '"'"#,
            "\n\necho $LINENO; exit 7",
            "if",
            "echo fine\n)",
            "| cat",
            "echo one; false",
            "no-such-command",
            "kill -9 $$",
            "set -eu; echo $no_such_variable; echo not here",
            "",
            "# nothing",
            "cat <<END\n$1\nEND",
            "cat; echo end",
            "exec 3>&1; echo through >&3; ls /proc/self/fd | wc -l",
            "trap 'echo trapped' EXIT; exit 3",
            "env | grep -c .",
        ] {
            let plain = run(&[], script);
            let inside = run(&[&entry, "putex"], script);
            assert_eq!(plain.status, inside.status, "{shell}: {script}");
            assert_eq!(said(&plain), said(&inside), "{shell}: {script}");
        }
        assert_eq!(run(&[&entry, "putex"], "if").status.code(), Some(2));
        let inside = run(&[&entry, "putex"], "echo $$; cat /proc/self/cgroup");
        assert!(said(&inside).contains("/putex-1 it's\n"), "{}", said(&inside));
        let gone = entry.replace("/cgroup.procs", "/nothing");
        let outside = run(&[&gone, "putex"], "echo $0 $1; exit 9");
        let runs = outside.stdout == b"start active\n" && outside.status.code() == Some(9);
        assert!(runs, "{shell}: a script that cannot enter: {}", said(&outside));
        let warned = said(&outside).contains("putex: start runs outside of its control group");
        assert!(warned, "{shell}: {}", said(&outside));
    }
    cgroup.remove();
    drop(room);
}

#[test]
fn the_agent_stays_above_its_commands() {
    let Some(room) = Room::enter("the_agent_stays_above_its_commands") else {
        return;
    };
    let cgroup = made("putex-1");
    let child = prepare(&cgroup, "exec sleep 1000").spawn();
    let child = child.expect("it runs");
    until_true("the command is inside", || cgroup.is_populated().expect("it tells"));
    let own = fs::read_to_string(room.group.join("cgroup.procs")).expect("processes");
    assert!(own.lines().any(|pid| pid == id().to_string()), "{own}");
    let inside = fs::read_to_string(cgroup.dir.join("cgroup.procs"));
    assert_eq!(inside.expect("processes").trim(), child.id().to_string());
    // A guard is handed the path alone.
    let dir = cgroup.dir.to_owned();
    drop(cgroup);
    let other = ServiceCgroup::open(&dir).expect("it is there");
    other.kill().expect("killed");
    assert!(is_empty_soon(&other));
    end(child);
    other.remove();
    assert!(ServiceCgroup::open(&dir).is_err(), "it is gone");
}

/// A guard whose own control group did not get empty was woken by the other one for ever.
#[test]
fn a_control_group_behind_one_that_is_not_empty_is_looked_at() {
    let Some(room) = Room::enter("a_control_group_behind_one_that_is_not_empty_is_looked_at")
    else {
        return;
    };
    let both = [made("putex-1"), made("putex-2")];
    let children = both.each_ref().map(|cgroup| {
        let child = prepare(cgroup, "exec sleep 1000").spawn().expect("it runs");
        until_true("the command is inside", || cgroup.is_populated().expect("it tells"));
        child
    });
    both[1].kill().expect("killed");
    let tells = || sys::is_ready_for(&both[1].events, PollFlags::PRI, Duration::ZERO);
    until_true("the kernel tells of its end", tells);
    assert!(!ServiceCgroup::are_empty(&both));
    assert!(!tells(), "it tells again of what was not looked at");
    both[0].kill().expect("killed");
    children.into_iter().for_each(end);
    until_true("the end of both", || ServiceCgroup::are_empty(&both));
    both.into_iter().for_each(ServiceCgroup::remove);
    drop(room);
}

/// Two guards of an agent meet there when the private directory was removed between them.
#[test]
fn a_directory_is_not_removed_while_another_guard_uses_it() {
    let Some(room) = Room::enter("a_directory_is_not_removed_while_another_guard_uses_it") else {
        return;
    };
    let (one, other) = (made("putex-1"), made("putex-1"));
    let dir = one.dir.to_owned();
    one.remove();
    assert!(dir.exists(), "another uses it");
    other.remove();
    assert!(!dir.exists(), "the last one removes it");
    // A guard waits for the end of a removal, and makes the directory anew.
    fs::create_dir(&dir).expect("it is gone");
    let removing = fs::File::open(&dir).expect("it is there");
    flock(&removing, FlockOperation::LockExclusive).expect("nobody uses it");
    let begun = now();
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| ServiceCgroup::make("putex-1"));
        observe_for(Duration::from_millis(20));
        fs::remove_dir(&dir).expect("it is empty");
        drop(removing);
        next.join().expect("it does not panic")
    });
    // A removal that has taken longer than a guard waits says nothing.
    let in_time = now() < begun + REMOVAL_WITHIN * 9 / 10;
    assert!(!in_time || next.is_ok() && dir.exists());
    next.into_iter().for_each(ServiceCgroup::remove);
    // Any user can lock it, which keeps no guard from it.
    fs::create_dir(&dir).expect("it is gone");
    let locked = fs::File::open(&dir).expect("it is there");
    flock(&locked, FlockOperation::LockExclusive).expect("nobody uses it");
    made("putex-1").kill().expect("it can be used");
    drop(room);
}

#[test]
fn what_is_not_delegated_is_left_alone() {
    let Some(room) = Room::enter("what_is_not_delegated_is_left_alone") else {
        return;
    };
    // Under systemd, root has what is marked.
    let systemd = Process::new("sh")
        .args(["-c", "mount -t tmpfs none /run && mkdir -p /run/systemd/system"])
        .status();
    assert!(systemd.expect("it runs").success());
    made("putex-1").remove();
    rustix::fs::removexattr(&room.group, "user.delegate").expect("no mark");
    let why = ServiceCgroup::make("putex-1").err().expect("not ours");
    assert!(why.contains("Delegate=yes"), "{why}");
    rustix::fs::setxattr(&room.group, "trusted.delegate", b"1", XattrFlags::empty())
        .expect("the older mark");
    made("putex-1").remove();

    // Another user has what was given to them.
    let exe = room.sandbox.join("exe");
    fs::set_permissions(room.sandbox.text(), fs::Permissions::from_mode(0o755)).expect("for all");
    fs::copy(std::env::current_exe().expect("it has a path"), &exe).expect("a copy");
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).expect("for all");
    let ask = |expected: &str| {
        let output = Process::new(&exe)
            .args(["--exact", "cgroup::as_nobody", "--nocapture"])
            .env(EXPECTED, expected)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", said(&output));
    };
    ask("cgroup.procs: Permission denied");
    give(&room.group.join("cgroup.procs"));
    ask("Permission denied");
    give(&room.group);
    ask("");
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("given");
}

#[test]
fn as_nobody() {
    let Ok(expected) = std::env::var(EXPECTED) else {
        return;
    };
    match ServiceCgroup::make("putex-9") {
        Ok(cgroup) => {
            assert_eq!(expected, "");
            let child = prepare(&cgroup, "sleep 1000").spawn();
            let child = child.expect("it runs");
            until_true("the command is inside", || cgroup.is_populated().expect("it tells"));
            cgroup.kill().expect("killed");
            end(child);
            cgroup.remove();
        }
        Err(why) => assert!(!expected.is_empty() && why.contains(&expected), "{why}"),
    }
}
