//! The README: what it has a reader paste is run, and what it shows is said.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use crate::mdoc::{read, root};
use crate::support::agent::Agent;
use crate::support::programs;
use crate::support::sandbox::Sandbox;

const LINES_MAX: usize = 115;

#[test]
fn the_readme_is_short_and_names_pages_and_files_that_exist() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= LINES_MAX, "{lines} lines, at most {LINES_MAX}");
    assert!(readme.contains("man ./man/putex.8") && readme.contains("man ./man/putex.7"));
    assert!(!readme.contains("pkill"), "it could end other processes");
    let targets = readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let files: Vec<_> = targets.filter(|target| !target.contains("://")).collect();
    assert!(files.len() >= 4 && files.contains(&"man/failover.svg"), "{files:?}");
    for file in files {
        assert!(root().join(file).is_file(), "{file}");
    }
}

/// Returns the code block of a text in which a line begins with `begin`.
fn code_block(text: &str, begin: &str) -> String {
    let mut blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.lines().any(|line| line.starts_with(begin)));
    block.unwrap_or_else(|| panic!("no block with {begin}")).to_owned()
}

#[test]
fn the_trial_of_the_readme_runs_start_and_stop() {
    let sandbox = Sandbox::new("trial");
    let trial = code_block(&read("README.md"), "cargo run -q -- ");
    let agent = trial.replace("cargo run -q -- ", "exec \"$PUTEX\" ");
    let agent = agent.replace("/tmp/putex-trial", &sandbox.join("lock").display().to_string());
    assert!(agent.contains("\"$PUTEX\"") && !agent.contains("/tmp/putex-trial"), "{agent}");
    let mut shell = sandbox.command("sh");
    let shell = shell.args(["-c", &agent]).env("PUTEX", programs::putex());
    let mut agent = Agent::start(shell);
    agent.wait_for_any(&["start: ONE runs"]);
    agent.signal(Signal::INT);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("stop: ONE is down"), "{said}");
    // The sample is the output, with other numbers.
    let readme = read("README.md");
    let (_, sample) = readme.split_once("```text\n").unwrap();
    let sample: Vec<_> = sample.split("```").next().unwrap().lines().collect();
    assert!(sample.len() >= 3, "{sample:?}");
    let said = without_numbers(&said);
    for line in sample {
        assert!(said.contains(&without_numbers(line)), "{line}\n{said}");
    }
}

/// Returns a text with one sign for each number.
fn without_numbers(text: &str) -> String {
    let mut without = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' if without.ends_with('#') => {}
            '0'..='9' => without.push('#'),
            letter => without.push(letter),
        }
    }
    without.replace("#.#", "#")
}

/// The commands that the README has a reader paste after the installation. They run to the end; a
/// script in the place of systemctl notes its calls.
#[test]
fn the_readme_leads_to_settings_that_are_right() {
    let sandbox = Sandbox::new("settings");
    let (etc, bin) = (sandbox.subfolder("etc"), sandbox.subfolder("bin"));
    let settings = code_block(&read("README.md"), "systemctl enable --now putex@db");
    // No server is there.
    assert!(settings.contains("putex check --connect "), "{settings}");
    let settings = settings.replace("putex check --connect ", "putex check ");
    let settings = settings.replace("/etc/putex", &etc.display().to_string());
    let script = "#!/bin/sh\necho systemctl \"$@\" >>\"$D/asked\"\n";
    fs::write(bin.join("systemctl"), script).unwrap();
    std::os::unix::fs::symlink(programs::putex(), bin.join("putex")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = sandbox.command("sh");
    shell.args([
        "-ec",
        &format!("chmod +x {}/systemctl\n{settings}\n./start; ./stop", bin.display()),
    ]);
    shell.env("PATH", &path).env("D", sandbox.text());
    let run = sandbox.run(shell.env("PUTEX_CONFIG", etc.join("putex.conf")));
    assert_eq!(run.status, Some(0), "{} {}", run.shown, run.said);
    assert!(run.shown.contains("db: the options are right\n"), "{}", run.shown);
    assert!(run.shown.contains("nats://n1,nats://n2,nats://n3"), "{}", run.shown);
    assert!(run.shown.contains("systemctl is-active -q \"$PUTEX_KEY\""), "{}", run.shown);
    assert_eq!(
        fs::read_to_string(sandbox.join("asked")).unwrap().lines().collect::<Vec<_>>(),
        [
            "systemctl disable db",
            "systemctl enable --now putex@db",
            "systemctl start db",
            "systemctl stop db"
        ]
    );
    // In an interactive shell a line that fails does not end the lines that were pasted.
    let wrong = settings.replace("replicas = 3", "replicas = 9");
    assert_ne!(wrong, settings);
    fs::remove_file(sandbox.join("asked")).unwrap();
    let mut shell = sandbox.command("sh");
    shell.args(["-c", &wrong]).env("PATH", path).env("D", sandbox.text());
    let run = sandbox.run(shell.env("PUTEX_CONFIG", etc.join("putex.conf")));
    assert!(run.said.contains("replicas"), "{}", run.said);
    assert!(!sandbox.join("asked").exists(), "enabled although the settings are wrong");
}

#[test]
fn the_readme_names_files_that_are_installed() {
    let sandbox = Sandbox::new("installed");
    for managers in [&["systemd", "openrc"][..], &["sysv"]] {
        let mut install = sandbox.command(root().join("contrib/install"));
        let run =
            sandbox.run(install.arg("/bin/true").args(managers).env("DESTDIR", sandbox.text()));
        assert_eq!(run.status, Some(0), "{}", run.said);
    }
    let readme = read("README.md");
    let mut seen = 0;
    for word in readme
        .split([' ', '`', '\n', '>'])
        .filter(|word| word.starts_with("/usr/local/") || word.starts_with("/etc/putex/putex.conf"))
    {
        assert!(sandbox.join(&word[1..]).exists(), "{word}");
        seen += 1;
    }
    assert!(seen >= 1, "{seen}");
    assert!(sandbox.join("etc/init.d/putex").exists());
    assert!(sandbox.join("usr/local/lib/systemd/system/putex@.service").exists());
}

#[test]
fn the_readme_offers_the_names_that_the_installer_knows() {
    let installer = read("contrib/install");
    let (_, usage) = installer.split_once("BINARY|- ").unwrap();
    let known: BTreeSet<_> = usage.lines().next().unwrap().split(' ').collect();
    let readme = read("README.md");
    let line = readme.lines().find(|line| line.starts_with("contrib/install ")).unwrap();
    let (_, offered) = line.split_once("; or ").unwrap();
    for name in offered.split(", ").map(|name| name.trim_start_matches("or ")) {
        // A name is one word.
        let is_known = name.contains(' ') || known.contains(&*format!("[{name}]"));
        assert!(is_known, "{name}: {known:?}");
    }
}
