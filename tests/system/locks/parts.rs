//! Parts of a command that are hard to see: in a process group of their own, or in another
//! PID namespace. None of them runs beside the next holder, and no stranger is taken for one.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus};

use rustix::process::Signal;

use crate::record::{Held, WORKER};
use crate::site::{QUICK_T, Site, on_server, on_server_quickly};
use crate::support::clock::{PATIENCE, now, until, until_true};
use crate::support::process::{find_renewer, lives, signal, wait_exit};
use crate::support::programs;

/// A holder of the lock `x`, whose command is a shell with this script. In it, `$W` is a worker.
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
    command.env("W", WORKER).env("S", site.options().join(" ")).stderr(said);
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
            let ended = holder.child.try_wait().expect("a child");
            assert!(ended.is_none() || holder.find().is_some(), "{}", holder.said());
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

#[test]
fn what_a_dead_front_has_left_in_other_groups_is_dead_before_the_next_begins() {
    for script in [
        r#"timeout 100 sh -c "$W" holder stubborn; true"#,
        r#"timeout 100 env -i D="$D" PUTEX_TEST="$PUTEX_TEST" PUTEX_TERM=$PUTEX_TERM \
            PUTEX_MODE=exclusive PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        r#"timeout 100 "$P" lock $S inner \
            timeout 100 env PUTEX_TERM=$PUTEX_TERM PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        r#"timeout 100 "$P" lock $S --bucket other inner \
            timeout 100 env PUTEX_TERM=$PUTEX_TERM PUTEX_KEY=x sh -c "$W" holder stubborn; true"#,
        // No parent of it lives, and it has no environment.
        r#"setsid sh -c 'setsid env -i D="$D" PUTEX_TEST="$PUTEX_TEST" W="$W" \
            PUTEX_TERM=$PUTEX_TERM PUTEX_MODE=exclusive PUTEX_KEY=x PATH="$PATH" \
            sh -c "$W" holder stubborn & true'; sleep 100"#,
        r#""$P" lock --dir "$D/inner" inner sh -c 'timeout 100 env PUTEX_TERM='$PUTEX_TERM' \
            PUTEX_KEY=x sh -c "$W" holder stubborn; true'"#,
    ] {
        on_server(|site| {
            let mut holder = Holder::start(site, script);
            let held = holder.held();
            let next = site.lock("next", &["x"]);
            next.waits_behind(1);
            holder.kill_front();
            next.begun();
            assert!(!lives(held.pid), "it runs on: {script}");
            next.end();
        });
    }
}

/// The renewer of the inner lock was killed with the command of the outer one.
#[test]
fn a_lock_inside_of_the_command_of_a_dead_front_does_not_have_to_run_out() {
    on_server(|site| {
        let store = site.store().join(" ");
        let script = format!(r#""$P" lock {store} -r 30s inner sh -c "$W" holder stubborn"#);
        let mut holder = Holder::start(site, &script);
        let next = site.lock("next", &["inner"]);
        next.waits_behind(1);
        holder.kill_front();
        next.begun();
        next.end();
    });
}

/// Such processes descend from the front, as the processes of the command do.
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
