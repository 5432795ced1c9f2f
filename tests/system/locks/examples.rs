//! The examples of putex-lock(1), run as they stand there, with programs that note that they ran.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::site::Site;
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{signal, wait_exit};
use crate::support::programs;
use crate::support::sandbox::Run;

/// The script of a program, unless a test gives it another one.
const NOTES: &str = "echo \"${0##*/} $* under $PUTEX_KEY\" >>\"$D/notes\"";

/// Returns the code blocks of an example, by its title.
fn blocks(title: &str) -> Vec<String> {
    let page = include_str!("../../../man/putex-lock.1").replace("\\e", "\\");
    let (_, examples) = page.split_once(".Sh EXAMPLES\n").expect("the section");
    let (examples, _) = examples.split_once("\n.Sh ").expect("the next section");
    let (_, example) = examples.split_once(&format!(".Ss {title}\n")).expect(title);
    let example = example.split("\n.Ss ").next().expect("its text");
    let blocks = example.split(".Bd -literal -offset indent\n").skip(1);
    blocks.map(|block| block.split(".Ed").next().expect("its end").to_owned()).collect()
}

/// A folder with the programs of the examples, and a server.
struct Host {
    site: Site,
    folder: PathBuf,
}

impl Host {
    fn begin() -> Option<Host> {
        let site = Site::on_server(&[])?;
        let folder = site.sandbox.join("work");
        fs::create_dir(&folder).expect("a folder");
        symlink(programs::putex(), folder.join("putex")).expect("a link");
        Some(Host { site, folder })
    }

    /// Makes programs that do this.
    fn programs(&self, names: &[&str], script: &str) {
        for name in names {
            let path = self.folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file");
            fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a file");
        }
    }

    /// Prepares a run of a program in the folder.
    fn command(&self, program: &str) -> Command {
        let mut command = self.site.sandbox.command(program);
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", self.folder.display()));
        command.env("NATS_URL", &self.site.store()[1]).env("D", self.site.sandbox.text());
        command.current_dir(&self.folder);
        command
    }

    fn sh(&self, script: &str) -> Run {
        self.site.sandbox.run(self.command("sh").args(["-c", script]))
    }

    /// Runs the lines of a block; expects that all goes well.
    fn run(&self, block: &str) {
        let run = self.sh(&format!("set -e\n{block}"));
        assert_eq!(run.status, Some(0), "{block}: {}", run.said);
    }

    /// Returns the notes since the last call.
    fn notes(&self) -> Vec<String> {
        let path = self.site.sandbox.join("notes");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }

    /// Runs a block and expects these notes.
    fn expect(&self, block: &str, notes: &[&str]) {
        self.run(block);
        assert_eq!(self.notes(), notes, "{block}");
    }
}

/// Returns the command of a line of a crontab.
fn of_cron(line: &str) -> String {
    let command = line.trim_end().strip_prefix("0 3 * * * ").expect("a line of cron");
    command.replace("\\%", "%")
}

fn cron_and_timer(host: &Host) {
    let cron = &blocks("A job of cron on several hosts")[0];
    run_on_two_hosts(host, &of_cron(cron), "send-mail  under jobs/mail");
    let unit = blocks("A timer of systemd").swap_remove(0);
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    run_on_two_hosts(host, start.expect("a command"), "backup  under jobs/backup");
}

/// Runs a job, and once more while its lock is held on; expects that it was run once.
fn run_on_two_hosts(host: &Host, command: &str, note: &str) {
    let mut first = host.command("sh");
    let mut first = first.args(["-c", &format!("exec {command}")]).spawn().expect("it can be run");
    let notes = host.site.sandbox.join("notes");
    until_true("the job", || fs::read_to_string(&notes).is_ok_and(|text| text.ends_with('\n')));
    host.expect(command, &[note]);
    signal(first.id(), Signal::INT);
    let status = wait_exit(&mut first, now() + PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

fn lines_of_a_shell(host: &Host) {
    let block = |title: &str| blocks(title).swap_remove(0);
    let deployed = ["deploy.sh v17 under deploy/web"];
    host.expect(&block("One deployment at a time"), &deployed);
    let tests = [
        "make test-users under db/users",
        "make test-orders under db/orders",
        "reset-database  under db",
    ];
    host.expect(&block("A database for tests"), &tests);
    let reports = ["report  under warehouse", "load  under warehouse"];
    host.expect(&block("Readers and a writer"), &reports);
    let transfers = ["transfer 7 9 under accounts/9", "transfer 9 7 under accounts/9"];
    host.expect(&block("Two names"), &transfers);
    host.expect(&block("A migration under a shared lock"), &["migrate  under cluster-db"]);
    host.programs(&["dump-sales"], "echo rows");
    host.programs(&["store-dump"], "exec cat");
    host.run(&block("Input and output"));
    let list = fs::read_to_string(host.folder.join("list")).expect("a file");
    assert_eq!((&*list, &*host.sh("gunzip -c sales.gz").shown), ("rows\n", "rows\n"));
    let [locally, there] = &blocks("On another host")[..] else { panic!("two") };
    host.expect(locally, &["ssh -tt h7 ./rebuild under hosts/h7"]);
    host.programs(&["ssh"], "shift; exec \"$@\"");
    host.expect(there, &["rebuild  under hosts/h7"]);
}

fn scripts(host: &Host) {
    let script = |title: &str| blocks(title).swap_remove(0);
    let text = script("A script that may find the lock taken");
    assert_eq!(host.sh(&text).shown, "the report is there\n");
    host.programs(&["report"], "exit 3");
    let run = host.sh(&text);
    assert_eq!((run.status, &*run.said), (Some(1), "the report has failed\n"));
    let holder = host.site.lock("holder", &["reports"]);
    holder.begun();
    let run = host.sh(&text.replace("-w 30", "-w 0"));
    assert_eq!((run.status, &*run.shown), (Some(0), "another report is being made\n"));
    holder.end();
    let text = script("A script that must know what happened");
    assert_eq!(host.sh(&text).status, Some(0));
    host.programs(&["migrate"], "exit 99");
    assert_eq!(host.sh(&text).status, Some(99));
    // The lock is lost when the renewer is killed.
    let kill = "kill -KILL $PPID; exec sleep 100";
    host.programs(&["migrate"], kill);
    let quick = text.replace("putex lock", "putex lock -r 250ms -f 4 -k 100ms");
    let run = host.sh(&quick);
    assert_eq!(run.status, Some(1));
    assert!(run.said.ends_with("ended in the middle\n"), "{}", run.said);
    fs::remove_file(host.folder.join("migrate")).expect("it is there");
    let run = host.sh(&quick);
    assert!(run.status == Some(1) && run.said.contains("not begun: {"), "{}", run.said);
    host.programs(&["itself"], &script("A script that runs itself under a lock"));
    let run = host.sh("itself");
    assert!(run.shown.starts_with("this is run once at a time, as term "), "{}", run.said);
}

#[test]
fn the_examples_of_the_page_do_what_it_says() {
    let Some(host) = Host::begin() else { return };
    let programs = [
        "backup", "send-mail", "deploy.sh", "make", "reset-database", "report", "load", "transfer",
        "migrate", "ssh", "rebuild",
    ];
    host.programs(&programs, NOTES);
    cron_and_timer(&host);
    lines_of_a_shell(&host);
    scripts(&host);
    host.site.assert_end();
}
