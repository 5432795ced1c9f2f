//! The files of `contrib`: its scripts pass shellcheck, and runit runs an agent with them.
//! The other service managers are in `tests/managers/run`.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use putex::cli::table::FLAGS;
use support::programs;
use support::sandbox::Sandbox;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn gather(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The target of a link is visited itself.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            gather(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// Returns the files of a folder, by their paths below the root.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    gather(&root().join(folder), &mut paths);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(root()).unwrap().to_owned(), text))
    };
    let mut found: Vec<_> = paths.into_iter().filter_map(read).collect();
    found.sort();
    found
}

fn is_required() -> bool {
    std::env::var("PUTEX_REQUIRE_TOOLS").is_ok_and(|value| value == "1")
}

#[test]
fn scripts_have_nothing_that_a_shell_could_misread() {
    let mut scripts = Vec::new();
    let mut openrc = Vec::new();
    let folders = [
        "contrib",
        "tests/appliance",
        "tests/managers",
        "tests/packages",
        "tests/qemu",
        "tests/static",
    ];
    for (path, text) in folders.into_iter().flat_map(files) {
        let first = text.lines().next().unwrap_or_default();
        if first == "#!/sbin/openrc-run" {
            openrc.push(path);
        } else if first == "#!/bin/sh" || first.starts_with("# shellcheck shell=sh") {
            scripts.push(path);
        }
    }
    assert!(scripts.len() >= 20, "{scripts:?}");
    assert_eq!(openrc.len(), 1, "{openrc:?}");
    // openrc-run reads and sets variables of an OpenRC script.
    for (scripts, without) in [(scripts, "SC1091"), (openrc, "SC1091,SC2034,SC2154")] {
        let checked = Command::new("shellcheck")
            .args(["-x", "-s", "sh", "-e", without])
            .args(scripts)
            .current_dir(root())
            .output();
        match checked {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{said}");
            }
            Err(error) => {
                assert!(!is_required(), "shellcheck: {error}");
                println!("skipped: shellcheck: {error}");
            }
        }
    }
}

#[test]
fn scripts_are_executable() {
    use std::os::unix::fs::PermissionsExt;
    for (path, text) in files("contrib") {
        let runs = text.starts_with("#!");
        let mode = fs::metadata(root().join(&path)).unwrap().permissions();
        assert_eq!(runs, mode.mode() & 0o111 == 0o111, "{}", path.display());
    }
}

#[test]
fn options_of_putex_in_contrib_exist() {
    let known: BTreeSet<_> = FLAGS.iter().map(|flag| flag.long).collect();
    let mut seen = 0;
    for (path, text) in files("contrib") {
        // Completions are generated from the table; see tests/completions.rs.
        if path.starts_with("contrib/completions") {
            continue;
        }
        let text = text.replace("\\\n", " ");
        let calls = text.lines().filter(|line| line.contains("--key "));
        for word in calls.flat_map(str::split_whitespace) {
            if let Some(flag) = word.trim_start_matches('"').strip_prefix("--") {
                let shown = path.display();
                assert!(known.contains(flag.trim_end_matches('"')), "--{flag} in {shown}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} options in contrib");
}

#[test]
fn sources_of_s6_rc_are_whole() {
    let folder = root().join("contrib/s6-rc");
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
    for service in ["putex-db", "putex-db-log"] {
        assert_eq!(read(&format!("{service}/type")), "longrun\n");
        assert!(read(&format!("{service}/run")).starts_with("#!/bin/sh\n"));
    }
    assert_eq!(read("putex-db/producer-for"), "putex-db-log\n");
    assert_eq!(read("putex-db-log/consumer-for"), "putex-db\n");
    // s6-rc copies only the data folder of a service.
    assert!(read("putex-db/run").contains(". ./data/conf\n"));
    assert!(read("putex-db/data/conf").contains("putex="));
}

#[test]
fn runit_runs_an_agent_that_is_killed_and_goes_on() {
    let Some(runsv) = programs::runsv() else {
        return;
    };
    let path = runsv.parent().unwrap().display().to_string();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let sandbox = Sandbox::new("runit");
    let output = sandbox
        .command(root().join("tests/managers/run"))
        .arg("runit")
        .env("PATH", path)
        .env("PUTEX_UNDER_TEST", programs::putex())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
