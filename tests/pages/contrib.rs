//! The files of `contrib`: its scripts pass shellcheck, the alerts and the dashboard use metrics
//! that there are. The service managers are in `tests/system/managers/run`.

mod metrics;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mdoc::read;
use crate::support::clock::until_true;
use crate::support::process::state_of;
use crate::support::programs;
use crate::support::sandbox::Sandbox;

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
pub(crate) fn files(folder: &str) -> Vec<(PathBuf, String)> {
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

#[test]
fn scripts_have_nothing_that_a_shell_could_misread() {
    let mut scripts = Vec::new();
    let mut openrc = Vec::new();
    let folders = ["contrib", "tests/system"];
    for (path, text) in folders.into_iter().flat_map(files) {
        let first = text.lines().next().unwrap_or_default();
        if first == "#!/sbin/openrc-run" {
            openrc.push(path);
        } else if first == "#!/bin/sh" || first.starts_with("# shellcheck shell=sh") {
            scripts.push(path);
        }
    }
    scripts.extend(["tests/all".into(), "tests/tools".into(), ".ci/run".into()]);
    assert!(scripts.len() >= 20, "{scripts:?}");
    assert_eq!(openrc.len(), 1, "{openrc:?}");
    // openrc-run reads and sets variables of an OpenRC script.
    for (scripts, without) in [(scripts, "SC1091"), (openrc, "SC1091,SC2034,SC2154")] {
        let Some(shellcheck) = programs::tool("shellcheck") else {
            return;
        };
        let checked = Command::new(shellcheck)
            .args(["-x", "-s", "sh", "-e", without])
            .args(scripts)
            .current_dir(root())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{said}");
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

/// At shutdown, the units after which the agent starts are stopped when it has ended. The service
/// must not be one of them: stop would wait for it.
#[test]
fn the_unit_is_after_what_start_stop_and_the_store_need_and_not_after_the_service() {
    let unit = fs::read_to_string(root().join("contrib/systemd/putex@.service")).unwrap();
    let lines = unit.lines().filter_map(|line| line.strip_prefix("After="));
    let after: BTreeSet<_> = lines.flat_map(str::split_whitespace).collect();
    let due = ["network-online.target", "nats-server.service", "docker.service"];
    assert_eq!(after, BTreeSet::from(due));
    let page = fs::read_to_string(root().join("man/putex.8")).unwrap();
    let (_, warning) = page.split_once("\n.Cm After=\n").unwrap();
    assert!(warning.lines().take(3).any(|line| line.contains("never the service itself")));
}

/// Where no server of PostgreSQL runs and none can be asked, as after the crash of a host.
#[test]
fn the_health_check_of_the_tutorial_says_what_the_log_there_shows() {
    let sandbox = Sandbox::new("healthcheck");
    let (bin, data) = (sandbox.subfolder("bin"), sandbox.subfolder("data"));
    for tool in ["psql", "pg_ctl", "pg_controldata", "pg_rewind", "postgres"] {
        sandbox.file(&format!("bin/{tool}"), "#!/bin/sh\nexit 2\n", 0o700);
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut check = sandbox.command(root().join("contrib/examples/postgresql"));
    check.args(["healthcheck", "standby"]).env("PUTEX_ROLE", "standby").env("PATH", path);
    check.env("SERVERS", "n1 n2 n3").env("SELF", "n1").env("PGDATA", &data);
    let user = sandbox.run(sandbox.command("id").arg("-un")).shown;
    let run = sandbox.run(check.env("PGUSER", user.trim()));
    assert!(run.status.is_some_and(|status| status != 0) && run.said.is_empty(), "{}", run.said);
    let tutorial = read("contrib/tutorial/README.md");
    let shown = run.shown.replace(&data.display().to_string(), "/var/lib/postgresql/data");
    let lines: Vec<_> = shown.lines().collect();
    assert!(!lines.is_empty());
    for line in lines {
        assert!(tutorial.contains(&format!("\ndb: healthcheck: {line}\n")), "{line}");
    }
}

/// Returns the script `web` of putex(8), with its files in `sandbox` and a service that only
/// sleeps.
fn script_of_the_manual(sandbox: &Sandbox) -> PathBuf {
    let page = fs::read_to_string(root().join("man/text/putex.8.txt")).unwrap();
    let (_, example) = page.split_once("/etc/web:").unwrap();
    let (example, _) = example.split_once("putex --nats").unwrap();
    let lines = example.lines().map(|line| line.strip_prefix("           ").unwrap_or(""));
    let script = lines.skip_while(|line| line.is_empty()).collect::<Vec<_>>().join("\n");
    for part in ["#!/bin/sh\n", "/run/web.pid", "/var/log/webd", "setsid webd"] {
        assert!(script.contains(part), "{part} in {script}");
    }
    let folder = sandbox.text();
    let script = script
        .replace("/run/web.pid", &format!("{folder}/web.pid"))
        .replace("/var/log/webd", &format!("{folder}/webd.log"))
        .replace("setsid webd", "setsid sleep 1000");
    sandbox.file("web", &script, 0o700)
}

#[test]
fn script_of_the_manual_kills_its_service_and_no_other() {
    let sandbox = Sandbox::new("web");
    let web = script_of_the_manual(&sandbox);
    let noted = Path::new(sandbox.text()).join("web.pid");
    let act = |act: &str| {
        let run = sandbox.run(sandbox.marked(&web).arg(act));
        assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{act}");
    };
    let is_asleep = |pid: u32| sandbox.processes_of("sleep").contains(&pid);
    act("stop");
    act("start");
    let first = fs::read_to_string(&noted).unwrap();
    let service: u32 = first.split_once(' ').unwrap().0.parse().unwrap();
    act("start");
    assert_eq!(fs::read_to_string(&noted).unwrap(), first, "it was started once");
    act("stop");
    assert!(!is_asleep(service) && !noted.exists());
    // Somebody else has the number now.
    let mut stranger = sandbox.marked("sleep").arg("1001").spawn().unwrap();
    let number = stranger.id();
    let (_, began) = first.split_once(' ').unwrap();
    fs::write(&noted, format!("{number} {began}")).unwrap();
    act("stop");
    assert!(stranger.try_wait().unwrap().is_none(), "stop killed a stranger");
    // A file without the time does not tell whose number it is.
    fs::write(&noted, format!("{number}\n")).unwrap();
    assert_ne!(sandbox.run(sandbox.marked(&web).arg("stop")).status, Some(0));
    assert!(stranger.try_wait().unwrap().is_none(), "stop killed a stranger");
    // The service has ended: nobody has waited for it, and then somebody has.
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let began = stat.split(' ').nth(21).unwrap();
    stranger.kill().unwrap();
    until_true("a zombie", || state_of(number) == Some('Z'));
    for wait in [false, true] {
        fs::write(&noted, format!("{number} {began}\n")).unwrap();
        if wait {
            stranger.wait().unwrap();
        }
        act("stop");
    }
}
