//! The environment of a command, and what `putex lock` holds and leaves behind.

use std::fs;

use rustix::process::{Pid, getpgid};

use crate::site::{Site, on_both_stores, on_server};
use crate::support::process::parent_of;
use crate::support::programs;

/// Returns the variables of putex that a command is given.
fn variables(site: &Site, words: &[&str]) -> Vec<(String, String)> {
    let mut command = site.putex(&["--token", "alpha"]);
    command.args(words).arg("env").env("PUTEX_TERM", "inherited");
    let run = site.sandbox.run(&mut command);
    assert_eq!(run.status, Some(0), "{}", run.said);
    let lines = run.shown.lines().filter_map(|line| line.split_once('='));
    let own = |name: &str| name.starts_with("PUTEX_") && name != "PUTEX_TEST";
    let mut found: Vec<_> = lines.filter(|(name, _)| own(name)).collect();
    found.sort_unstable();
    found.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_command_is_told_of_its_lock_and_the_term_grows_from_holder_to_holder() {
    on_both_stores(|site| {
        let (mut terms, mut epochs) = (Vec::new(), Vec::new());
        for (words, key, mode) in [
            (&["db"][..], "db", "exclusive"),
            (&["db"], "db", "exclusive"),
            (&["-s", "db/users"], "db/users", "shared"),
        ] {
            let found = variables(site, words);
            let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
            let all = ["EPOCH", "HELD", "KEY", "MODE", "SLOT", "TERM", "TOKEN"];
            assert_eq!(names, all.map(|name| format!("PUTEX_{name}")));
            let value = |name: &str| {
                let found = found.iter().find(|(found, _)| *found == format!("PUTEX_{name}"));
                found.expect("it is there").1.clone()
            };
            assert_eq!((value("KEY"), value("MODE")), (key.to_owned(), mode.to_owned()));
            assert_eq!(value("TOKEN"), "alpha");
            let term = value("TERM");
            assert_eq!(value("HELD"), format!("{key}:{term}"));
            terms.push(term.parse::<u64>().expect("a number"));
            epochs.push(value("EPOCH"));
        }
        assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
        assert!(!epochs[0].is_empty() && epochs.iter().all(|epoch| *epoch == epochs[0]));
    });
}

#[test]
fn the_renewer_is_in_a_group_of_its_own_and_holds_neither_input_nor_output() {
    on_server(|site| {
        let lock = site.lock("holder", &["x"]);
        let command = lock.begun().pid;
        let renewer = lock.renewer();
        assert_eq!(parent_of(command), Some(renewer));
        let group = |pid: u32| getpgid(Pid::from_raw(i32::try_from(pid).expect("a number")));
        let groups = [renewer, lock.front(), command].map(group);
        assert!(groups[0] != groups[1] && groups[0] != groups[2], "{groups:?}");
        for number in [0, 1] {
            let file = fs::read_link(format!("/proc/{renewer}/fd/{number}"));
            assert_eq!(file.expect("it is open").to_str(), Some("/dev/null"));
        }
        let piped = site.putex(&["y", "true"]);
        let words = piped.get_args().skip_while(|word| *word != "lock");
        let mut shell = site.sandbox.command("sh");
        shell.args(["-c", r#""$P" "$@" | cat"#, "sh"]).args(words).env("P", programs::putex());
        assert_eq!(site.sandbox.run(&mut shell).status, Some(0));
        lock.end();
    });
}

/// A script or a job of cron was silent for fifteen seconds.
#[test]
fn a_wait_for_a_new_bucket_is_said_without_a_terminal() {
    if let Some(site) = Site::on_new_bucket(&[]) {
        let said = |words: &[&str]| site.run(&[&["-w", "0.2"], words].concat()).said;
        let text = said(&["x", "true"]);
        assert!(text.starts_with("putex: x: waiting: this bucket is new"), "{text}");
        assert!(!said(&["-q", "x", "true"]).contains("waiting"));
    }
}

#[test]
fn an_old_server_is_refused_for_locks_and_the_line_says_which_version_is_needed() {
    if let Some(binary) = programs::old_nats_server() {
        let site = Site::on(&binary);
        let run = site.run(&["x", "true"]);
        assert_eq!(run.status, Some(78), "{}", run.said);
        let needed = "older than nats-server 2.11, which locks and leases need";
        assert!(run.said.contains(needed), "{}", run.said);
        assert_eq!(run.said.lines().count(), 1, "{}", run.said);
    }
}
