//! `--metrics-file`: what stands in it, when it is removed, and that no disk holds up an agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::sandbox::{Sandbox, with_own_mounts};
use rustix::process::Signal;

/// Makes a file system at `$0` of which nobody answers any request, and one at `$1` that is full.
/// Then runs the rest. The process that would answer is in the background.
const BAD_DISKS: &str = "exec 9<>/dev/fuse &&
    mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 none \"$0\" &&
    mount -i -t tmpfs -o size=4k none \"$1\" && echo full >\"$1/full\" || exit 99
    sleep 1000 2>/dev/null & exec 9>&-; shift; exec \"$@\"";

/// Returns an agent of a token, with R 500 ms and T 2 s.
fn agent_of(sandbox: &Sandbox, token: &str, file: &Path) -> Command {
    agent_of_service(sandbox, "echo up >$D/up", token, file)
}

/// Returns such an agent whose service is started so.
fn agent_of_service(sandbox: &Sandbox, start: &str, token: &str, file: &Path) -> Command {
    let mut command = sandbox.agent_of(token, start, "rm -f $D/up");
    command.args(["-r", "500ms", "-f", "4", "-c", "1", "--metrics-file"]).arg(file);
    command
}

/// Returns the samples of a file without what all have: `name{more}` and the value.
fn samples(file: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        let (name, labels) = name.split_once('{').expect("labels");
        let (_, more) = labels.split_once("key=\"web\",token=\"").expect("common labels");
        let (_, more) = more.split_once('"').expect("a token");
        (format!("{name}{{{}", more.trim_start_matches(',')), value.to_owned())
    });
    samples.collect()
}

fn value(file: &Path, name: &str) -> Option<String> {
    samples(file).remove(name)
}

fn is(file: &Path, state: &str) -> bool {
    value(file, &format!("putex_state{{state=\"{state}\"}}")).as_deref() == Some("1")
}

fn site(name: &str) -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new(name);
    let folder = sandbox.subfolder("metrics");
    (sandbox, folder.join("putex.prom"))
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry"));
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn one_of_two_agents_says_that_it_holds_the_lock_and_no_file_is_left_at_the_end() {
    let (sandbox, first_file) = site("two");
    let second_file = first_file.with_file_name("second.prom");
    let mut first = Agent::start(&mut agent_of(&sandbox, "h1", &first_file));
    until_true("an active agent", || is(&first_file, "active"));
    let mut second = Agent::start(&mut agent_of(&sandbox, "h2", &second_file));
    until_true("a candidate", || value(&second_file, "putex_candidate{}").as_deref() == Some("1"));
    let held = |file| value(file, "putex_holding{}");
    assert_eq!([held(&first_file), held(&second_file)], ["1", "0"].map(|it| Some(it.to_owned())));
    let both = [&first_file, &second_file].map(|file| samples(file));
    for (name, expected) in [
        ("putex_store_up{}", ["1", "1"]),
        ("putex_guard_up{}", ["1", "1"]),
        ("putex_start_failing{}", ["0", "0"]),
        ("putex_paused{}", ["0", "0"]),
        ("putex_state{state=\"standby\"}", ["0", "1"]),
        ("putex_renewals_total{result=\"unknown\"}", ["0", "0"]),
    ] {
        let found = [0, 1].map(|at| both[at].get(name).map(String::as_str));
        assert_eq!(found, expected.map(Some), "{name}");
    }
    let valid: f64 = both[0]["putex_valid_seconds{}"].parse().expect("a number");
    assert!(valid > 0.0 && valid < 2.0, "{valid}");
    assert_eq!(both[1]["putex_valid_seconds{}"], "0");

    // The other says so at once, and what it has counted.
    first.signal(Signal::TERM);
    assert_eq!(first.wait_end().0, Some(0));
    assert!(!first_file.exists());
    until_true("the other one", || is(&second_file, "active"));
    let changed = "putex_transitions_total{from=\"standby\",to=\"taking\"}";
    assert_eq!(value(&second_file, changed).as_deref(), Some("1"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait_end().0, Some(0));
    assert_eq!(names(first_file.parent().expect("a folder")), Vec::<String>::new());
}

#[test]
fn an_upgrade_and_a_restart_keep_the_file() {
    let (sandbox, file) = site("upgrade");
    let agent_of = |file: &Path| agent_of(&sandbox, "h1", file);
    let agent = Agent::start(&mut agent_of(&file));
    until_true("an active agent", || is(&file, "active"));
    agent.signal(Signal::USR2);
    agent.wait_for_any(&["adopted"]);
    let adopted = "putex_transitions_total{from=\"taking\",to=\"active\"}";
    until_true("the file of the next instance", || {
        assert!(file.exists());
        value(&file, adopted).as_deref() == Some("1") && is(&file, "active")
    });
    agent.kill();
    let agent = Agent::start(&mut agent_of(&file));
    agent.wait_for_any(&["adopted"]);
    until_true("an active agent", || is(&file, "active"));
    // A killed agent leaves its file, whose age tells that the agent is gone.
    agent.kill();
    until_true("the end of the service", || !sandbox.join("up").exists());
    assert!(is(&file, "active"));
    let mut agent = Agent::start(&mut agent_of(&file));
    until_true("a file that is written anew", || is(&file, "standby") || is(&file, "confirming"));
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait_end().0, Some(0));
    assert_eq!(names(file.parent().expect("a folder")), Vec::<String>::new());
}

/// Neither while it runs, nor at its end, nor those after it.
#[test]
fn a_disk_that_hangs_holds_up_neither_a_renewal_nor_an_end() {
    let sandbox = Sandbox::new("hangs");
    let (hangs, full) = (sandbox.subfolder("hangs"), sandbox.subfolder("full"));
    let start = |file: &Path| {
        let agent = agent_of(&sandbox, "h1", file);
        Agent::start(&mut with_own_mounts(BAD_DISKS, &[&hangs, &full], &agent))
    };
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return;
    }
    let file = hangs.join("putex.prom");
    let mut agent = start(&file);
    until_true("a service", || {
        assert!(agent.runs(), "{}", agent.log.text());
        sandbox.join("up").exists()
    });
    let said = agent.log.text();
    assert!(!said.contains("stopping"), "{said}");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert!(status == Some(0) && !sandbox.join("up").exists(), "{said}");
    assert!(said.contains("the lock is released"), "{said}");

    // A killed agent leaves no lock behind by which its guard would keep the next agent out.
    let agent = start(&file);
    until_true("a service", || sandbox.join("up").exists());
    agent.kill();
    until_true("no service", || !sandbox.join("up").exists());
    let agent = start(&full.join("putex.prom"));
    until_true("a service again", || sandbox.join("up").exists());
    agent.wait_for_any(&["the metrics cannot be written"]);
    let lines = agent.log.text().matches("the metrics cannot be written").count();
    assert_eq!(lines, 1, "{}", agent.log.text());
    assert!(agent.log.text().contains("No space left on device"), "{}", agent.log.text());
}

#[test]
fn a_folder_that_is_missing_is_reported_once_and_used_when_it_is_there() {
    let (sandbox, _) = site("missing");
    let file = sandbox.join("later/putex.prom");
    let agent = Agent::start(&mut agent_of(&sandbox, "h1", &file));
    until_true("a service", || sandbox.join("up").exists());
    let count = |text: &str| agent.log.text().matches(text).count();
    assert_eq!(count("the metrics cannot be written"), 1, "{}", agent.log.text());
    fs::create_dir(sandbox.join("later")).expect("it is missing");
    agent.wait_for_any(&["the metrics are written again"]);
    assert!(is(&file, "active"));
    assert_eq!(count("the metrics cannot be written"), 1, "{}", agent.log.text());
}

#[test]
fn a_path_that_is_no_file_everywhere_is_refused() {
    let sandbox = Sandbox::new("relative");
    for (path, why) in [
        ("putex.prom", "putex.prom: is relative; write /"),
        ("/run/", "/run/: names no file"),
        ("/run/.", "/run/.: names no file"),
        ("/", "/: names no file"),
    ] {
        let run = sandbox.run(&mut agent_of(&sandbox, "h1", Path::new(path)));
        assert_eq!(run.status, Some(64), "{}", run.said);
        assert!(run.said.contains(&format!("--metrics-file: {why}")), "{}", run.said);
    }
}
