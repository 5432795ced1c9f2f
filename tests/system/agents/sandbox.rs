//! The sandbox of the tests: its agent leaves no file elsewhere, and no files, processes and
//! control groups are left when the sandbox is gone.

use std::fs;
use std::path::Path;

use crate::support::agent::Agent;
use crate::support::clock::until_true;
use crate::support::process::lives;
use crate::support::sandbox::{Sandbox, is_tight};
use putex::guard::cgroup;
use putex::store::dir::default_base;

/// Returns the paths below `folder` that have `part` in them.
fn find(folder: &Path, part: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let shown = path.display().to_string();
        found.extend(shown.contains(part).then_some(shown));
        if path.is_dir() && !path.is_symlink() {
            found.extend(find(&path, part));
        }
    }
    found
}

#[test]
fn an_agent_keeps_its_files_in_its_sandbox_and_nothing_is_left_of_both() {
    if !is_tight() {
        return;
    }
    let sandbox = Sandbox::new("kept");
    // No other file of this host has that in its name.
    let token = format!("token-of-{}", sandbox.name());
    let mut command = sandbox.agent_of(&token, "echo up >$D/up", "rm -f $D/up");
    let agent = Agent::start(command.args(["-r", "500ms"]));
    until_true("an active agent", || sandbox.join("up").exists());
    let kept = find(&sandbox.join("run"), "/putex/");
    assert!(!kept.is_empty(), "the agent's own files are elsewhere");
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let temp = sandbox.parent().expect("a folder is in another one");
    let uid = rustix::process::geteuid().as_raw();
    for variable in [runtime.as_deref(), None] {
        let base = default_base(uid, variable, temp);
        assert_eq!(find(&base, &token), [""; 0], "{}", base.display());
    }

    let dirs = fs::read_dir(sandbox.join("run/putex/.agents")).expect("the agent made it");
    let cgroups = dirs
        .flatten()
        .zip(cgroup::find())
        .map(|(dir, own)| own.join(format!("{}{}", cgroup::PREFIX, dir.file_name().display())));
    let cgroups: Vec<_> = cgroups.collect();
    let grouped = !agent.log.text().contains("no control group");
    assert_eq!(cgroups.iter().any(|cgroup| cgroup.exists()), grouped);

    let processes = sandbox.processes();
    assert!(processes.contains(&agent.id()) && processes.len() > 1);
    let folder = sandbox.to_owned();
    drop(agent);
    drop(sandbox);
    assert!(!folder.exists());
    assert!(cgroups.iter().all(|cgroup| !cgroup.exists()), "{cgroups:?}");
    let left: Vec<_> = processes.into_iter().filter(|pid| lives(*pid)).collect();
    assert_eq!(left, [0; 0], "processes");
}
