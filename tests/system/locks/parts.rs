//! Parts of a command that are hard to see: in a process group of their own, without a main
//! thread, in another PID namespace, or when no descriptor is left to look at them. None of them
//! runs beside the next holder, and no stranger is taken for one.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::record::{Held, WORKER};
use crate::site::{QUICK_T, Site, on_server, on_server_quickly, state_of};
use crate::support::clock::{PATIENCE, now, until, until_true};
use crate::support::process::{find_renewer, lives, signal, wait_exit};
use crate::support::programs;

/// A worker without a main thread, in python. `LEAVES` is what its parent does before.
fn threaded() -> String {
    format!(
        r#"
import ctypes, os, signal, sys, threading, time
def note(what, rest=""):
    up = open("/proc/uptime").read().split()[0]
    open(os.environ["D"] + "/record", "a").write(f"{{what}} holder {{up}} {{rest}}\n")
def work():
    while open("/proc/self/stat").read().split(") ")[1][0] != "Z": time.sleep(0.01)
    mode, key = os.environ["PUTEX_MODE"], os.environ["PUTEX_KEY"]
    note("begin", f"{{os.getpid()}} {{os.environ['PUTEX_TERM']}} {{mode}} {{key}}")
    while not os.path.exists(os.environ["D"] + "/end-holder"):
        time.sleep(0.01)
        note("beat")
    note("end")
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:] == ["leave"] and os.fork() != 0:
    os.setsid()
    time.sleep(100)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({}, 0)"#,
        libc::SYS_exit
    )
}

/// A holder of the lock `x`, whose command is a shell with this script. In it, `$W` is a worker
/// and `$T` one without a main thread.
struct Holder<'a> {
    site: &'a Site,
    child: Child,
}

/// Prepares the start of [`Holder`].
fn holder(site: &Site, script: &str) -> Command {
    with_workers(site.putex(&["-v", "x", "sh", "-c", script]), site)
}

fn with_workers(mut command: Command, site: &Site) -> Command {
    let said = File::create(site.sandbox.join("said")).expect("the folder can be written");
    command.env("W", WORKER).env("T", threaded()).env("S", site.options().join(" ")).stderr(said);
    command
}

impl<'a> Holder<'a> {
    /// Starts it; returns when its worker has begun.
    fn start(site: &'a Site, script: &str) -> Holder<'a> {
        Holder::spawn(site, holder(site, script))
    }

    fn spawn(site: &'a Site, mut command: Command) -> Holder<'a> {
        let mut holder = Holder { site, child: command.spawn().expect("it runs") };
        until_true("its worker", || {
            // A server can be too slow for it on a busy machine.
            let ended = holder.child.try_wait().expect("a child");
            if ended.is_some_and(|status| status.code() == Some(69)) {
                holder.child = command.spawn().expect("it runs");
            }
            holder.find().is_some()
        });
        holder
    }

    fn find(&self) -> Option<Held> {
        self.site.held().into_iter().find(|held| held.id == "holder")
    }

    fn held(&self) -> Held {
        self.find().expect("it has begun")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.site.sandbox.join("said")).unwrap_or_default()
    }

    fn front(&self) -> u32 {
        self.child.id()
    }

    fn kill_front(&mut self) {
        signal(self.front(), Signal::KILL);
        self.child.wait().expect("it is waited for");
    }

    fn ended(&mut self) -> ExitStatus {
        let status = wait_exit(&mut self.child, now() + PATIENCE);
        status.unwrap_or_else(|| panic!("it does not end: {}", self.said()))
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills the front while its renewer is stopped, and lets that go on when nobody has to see it any
/// more; `limit` is what is done to the renewer meanwhile.
fn kill_front_beside_stopped_renewer(front: u32, limit: impl FnOnce(Pid)) {
    let renewer = until("a renewer", || find_renewer(front));
    signal(renewer, Signal::STOP);
    until_true("its stop", || state_of(renewer) == Some('T'));
    limit(Pid::from_raw(i32::try_from(renewer).expect("a number")).expect("a number"));
    signal(front, Signal::KILL);
    until_true("the end of the front", || matches!(state_of(front), None | Some('Z')));
    signal(renewer, Signal::CONT);
}

/// Leaves a process as many descriptors as it takes to wait for its socket.
fn leave_no_descriptor(process: Pid) {
    let limit = Rlimit { current: Some(4), ..getrlimit(Resource::Nofile) };
    prlimit(Some(process), Resource::Nofile, limit).expect("it runs");
}

#[test]
fn what_a_dead_front_has_left_in_other_groups_is_dead_before_the_next_begins() {
    for script in [
        r#"timeout 100 sh -c "$W" holder stubborn; true"#,
        // What has no environment is found by its parent.
        r#"timeout 100 env -i D="$D" PUTEX_TEST="$PUTEX_TEST" PUTEX_TERM=$PUTEX_TERM \
            PUTEX_MODE=exclusive PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        r#"timeout 100 "$P" lock $S inner \
            timeout 100 env PUTEX_TERM=$PUTEX_TERM PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        r#"timeout 100 "$P" lock $S --bucket other inner \
            timeout 100 env PUTEX_TERM=$PUTEX_TERM PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        r#""$P" lock --dir "$D/inner" inner sh -c 'timeout 100 env PUTEX_TERM='$PUTEX_TERM' \
            PUTEX_KEY=x sh -c "$W" holder stubborn; true'"#,
    ] {
        on_server(|site| {
            let mut holder = Holder::start(site, script);
            let held = holder.held();
            // It has the same name and term, in another bucket.
            let mut stranger = site.sandbox.command("sleep");
            stranger.arg("100").env("PUTEX_HELD", format!("x:{}", held.term));
            let mut stranger = stranger.env("PUTEX_HELD_BY", "8c3e").spawn().expect("it runs");
            let next = site.lock("next", &["x"]);
            next.waits_behind(1);
            holder.kill_front();
            next.begun();
            assert!(!lives(held.pid), "it runs on: {script}");
            assert!(lives(stranger.id()), "a stranger was killed");
            stranger.kill().expect("it runs");
            stranger.wait().expect("it is waited for");
            next.end();
        });
    }
}

/// The renewer of the inner lock was killed with the command of the outer one.
#[test]
fn a_lock_inside_of_the_command_of_a_dead_front_does_not_have_to_run_out() {
    on_server(|site| {
        let script = r#""$P" lock $S -r 30s inner sh -c "$W" holder stubborn"#;
        let mut holder = Holder::start(site, script);
        let next = site.lock("next", &["inner"]);
        next.waits_behind(1);
        holder.kill_front();
        next.begun();
        next.end();
    });
}

/// They descend from the front, as what the command has started does.
#[test]
fn what_a_shell_has_started_before_it_executed_putex_is_not_killed_with_the_command() {
    on_server_quickly(|site| {
        let script = r#"sleep 100 & echo $! >"$D/older"
            exec "$P" lock $S x sh -c "$W" holder stubborn"#;
        let mut shell = site.sandbox.command("sh");
        shell.args(["-c", script]).env("P", programs::putex()).env("D", site.sandbox.text());
        let mut holder = Holder::spawn(site, with_workers(shell, site));
        let older = fs::read_to_string(site.sandbox.join("older")).expect("it was written");
        signal(until("a renewer", || find_renewer(holder.front())), Signal::KILL);
        assert_eq!(holder.ended().code(), Some(100), "{}", holder.said());
        let older = older.trim().parse().expect("a number");
        assert!(!lives(holder.held().pid) && lives(older));
        signal(older, Signal::KILL);
    });
}

#[test]
fn what_has_left_the_group_is_killed_by_v_when_the_lock_is_lost_and_the_front_is_stopped() {
    on_server_quickly(|site| {
        let mut holder = Holder::start(site, r#"setsid sh -c "$W" holder stubborn & wait"#);
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        signal(holder.front(), Signal::STOP);
        let cut = now();
        site.server().kill();
        until_true("the end of its worker", || !lives(holder.held().pid));
        let last = holder.held().last_at;
        site.server().restart().expect("it starts");
        let begun = next.begun();
        assert!(last < cut + QUICK_T, "it ran until {last:?}, cut at {cut:?}");
        assert!(begun.begun_at >= last, "{begun:?} {last:?}");
        signal(holder.front(), Signal::CONT);
        assert_eq!(holder.ended().code(), Some(100), "{}", holder.said());
        next.end();
    });
}

#[test]
fn a_part_without_a_main_thread_is_dead_before_the_next_begins() {
    on_server(|site| {
        let mut holder = Holder::start(site, r#"python3 -c "$T" & wait"#);
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        kill_front_beside_stopped_renewer(holder.front(), |_| {});
        holder.ended();
        next.begun();
        next.end();
    });
}

/// Its parent has left the group, so the front is not told of its end.
#[test]
fn the_lock_is_kept_while_a_part_without_a_main_thread_runs_in_the_group() {
    on_server(|site| {
        let script = r#"python3 -c "$T" leave & while [ ! -e "$D/record" ]; do sleep 0.01; done"#;
        let mut holder = Holder::start(site, script);
        let next = site.lock("next", &["x"]);
        until_true("that it is kept, or had by the next", || {
            holder.said().contains(": the lock is kept") || next.held().is_some()
        });
        assert!(next.held().is_none(), "it runs on");
        File::create(site.sandbox.join("end-holder")).expect("a file");
        assert_eq!(holder.ended().code(), Some(0), "{}", holder.said());
        next.begun();
        next.end();
        // It has left the group by itself.
        site.sandbox.kill_all();
    });
}

#[test]
fn a_renewer_without_a_descriptor_does_not_take_the_command_for_dead() {
    on_server(|site| {
        let mut holder = Holder::start(site, r#"sh -c "$W" holder stubborn & wait"#);
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        kill_front_beside_stopped_renewer(holder.front(), leave_no_descriptor);
        holder.ended();
        next.begun();
        next.end();
    });
}

#[test]
fn a_front_without_a_descriptor_does_not_say_that_all_of_its_command_has_ended() {
    on_server_quickly(|site| {
        let mut holder = Holder::start(site, r#"setsid sh -c "$W" holder stubborn & wait"#);
        let front = i32::try_from(holder.front()).expect("a number");
        let renewer = site.renewer_of(holder.front());
        leave_no_descriptor(Pid::from_raw(front).expect("a number"));
        // It is the renewer that could look for it.
        signal(renewer, Signal::KILL);
        assert_ne!(holder.ended().code(), Some(100), "{}", holder.said());
        assert!(holder.said().contains("MAY STILL RUN"), "{}", holder.said());
        assert!(lives(holder.held().pid));
        site.sandbox.kill_all();
    });
}

/// Prepares this script as the first process of a PID namespace; `None`, after saying so, where
/// there is none to be had. With `sees_it` its /proc is that of the namespace, else that around.
fn in_namespace(site: &Site, script: &str, sees_it: bool) -> Option<Command> {
    let words = ["--pid", "--fork", "--mount-proc", "sh", "-c"].into_iter();
    let words: Vec<_> = words.filter(|word| sees_it || *word != "--mount-proc").collect();
    let mut tried = site.sandbox.command("unshare");
    if site.sandbox.run(tried.args(&words).arg("true")).status != Some(0) {
        println!("skipped: no PID namespace");
        return None;
    }
    let mut command = site.sandbox.command("unshare");
    command.args(&words).arg(script).env("P", programs::putex()).env("D", site.sandbox.text());
    Some(with_workers(command, site))
}

/// The group of the command cannot be found in a /proc with other numbers.
#[test]
fn the_command_of_a_dead_front_is_dead_before_the_next_begins_where_proc_has_other_numbers() {
    on_server(|site| {
        let script = r#"
            "$P" lock $S x sh -c 'sh -c "$W" holder stubborn & wait' &
            while :; do sleep 0.01; done"#;
        let Some(command) = in_namespace(site, script, false) else { return };
        let _holder = Holder::spawn(site, command);
        let next = site.lock("next", &["x"]);
        next.waits_behind(1);
        let all = site.sandbox.processes_of("putex");
        let front = all.into_iter().find(|it| find_renewer(*it).is_some() && *it != next.front());
        kill_front_beside_stopped_renewer(front.expect("a front"), |_| {});
        next.begun();
        next.end();
        site.sandbox.kill_all();
    });
}

/// The number of the front is there that of a process with many descendants, and their numbers
/// are here those of strangers.
#[test]
fn no_stranger_is_killed_where_proc_has_other_numbers() {
    on_server_quickly(|site| {
        let inside = r#"
            "$P" lock $S x sh -c "$W" holder &
            while [ ! -e "$D/record" ]; do sleep 0.01; done
            for each in 1 2 3 4 5 6; do sleep 100 & all="$all $!"; done
            echo "$all" >"$D/strangers"
            wait %1
            kill -0 $all && touch "$D/all-live"
            touch "$D/done""#;
        let around = r#"
            sh -c 'i=0
                while [ $i -lt 200 ]; do i=$((i + 1)); sleep 100 & done
                touch "$D/many"; wait' &
            while [ ! -e "$D/many" ]; do sleep 0.01; done
            unshare --pid --fork sh -c "$INSIDE""#;
        let Some(mut command) = in_namespace(site, around, true) else { return };
        command.env("INSIDE", inside);
        let _holder = Holder::spawn(site, command);
        until_true("strangers", || site.sandbox.join("strangers").exists());
        site.server().kill();
        until_true("the end of the front", || site.sandbox.join("done").exists());
        assert!(site.sandbox.join("all-live").exists(), "strangers were killed");
        site.sandbox.kill_all();
    });
}
