//! Checks the documentation: the manual pages, `--help` and the README against the
//! tables and texts of the program.

mod calls;
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use putex::cli::help::help;
use putex::cli::table::{FLAGS, Flag, Subcommand};

use crate::mdoc::{flags_of, items, logged, names, read, root, section, spellings};
use crate::support::sandbox::Sandbox;
use calls::putex_calls;
use pages::{explained_flags, statuses};

const README_LINES_MAX: usize = 110;

fn page() -> String {
    read("man/putex.8")
}

#[test]
fn the_pages_have_the_flags_of_the_program_and_no_others() {
    for (page, flags) in explained_flags() {
        let items = items(&page);
        let documented = items.iter().map(|item| flags_of(&item.head));
        let documented: Vec<_> = documented.filter(|set| !set.is_empty()).collect();
        let known: BTreeSet<_> = flags.iter().map(|flag| spellings(flag)).collect();
        assert_eq!(documented.len(), known.len(), "one of them twice: {documented:?}");
        let documented: BTreeSet<_> = documented.into_iter().collect();
        assert_eq!(documented, known, "left: the page; right: the program");
    }
}

#[test]
fn the_pages_name_the_default_and_the_variable_of_every_flag() {
    for (page, flags) in explained_flags() {
        let items = items(&section(&page, "OPTIONS"));
        for flag in flags {
            let item = items.iter().find(|item| flags_of(&item.head) == spellings(flag)).unwrap();
            let shown = flag.shown();
            let stated = item.body.split_once("The default is ").map(|(_, rest)| rest);
            match (flag.default, stated) {
                ("", stated) => assert_eq!(stated, None, "{shown} has no default"),
                (default, Some(stated)) => {
                    let rest = stated.strip_prefix(default).unwrap_or("?");
                    let ends = rest.starts_with(['.', ',', ':']);
                    assert!(ends, "{shown}: the default is {default}, not {stated}");
                }
                (default, None) => panic!("{shown}: the default, {default}, is not named"),
            }
            assert!(item.body.contains(flag.env), "{shown}: {} is not named", flag.env);
        }
    }
}

#[test]
fn flags_mentioned_anywhere_in_the_pages_exist() {
    let known: BTreeSet<_> = FLAGS.iter().flat_map(spellings).collect();
    let pages = explained_flags().map(|(page, _)| page).concat();
    let others = ["putex.7", "putex-tutorial.7", "putex.conf.5"];
    let pages = pages + &others.map(|page| read(&format!("man/{page}"))).concat();
    for line in pages.lines().filter(|line| line.starts_with('.')) {
        for flag in flags_of(line) {
            assert!(known.contains(&flag), "{flag} in {line:?}");
        }
    }
}

#[test]
fn help_names_every_flag_with_its_default_and_its_variable() {
    for subcommand in [None].into_iter().chain(Subcommand::ALL.map(Some)) {
        let text = help(subcommand);
        let (_, text) = text.split_once("options:\n").unwrap();
        let is_due = |flag: &&Flag| {
            subcommand.is_none_or(|subcommand| flag.subcommands.contains(&subcommand))
        };
        for flag in FLAGS.iter().filter(is_due) {
            let values = [(flag.default, "["), (flag.env, "[$")];
            let named = text.lines().filter(|line| {
                let words: Vec<_> = line.split([' ', ',']).collect();
                line.starts_with("  ") && spellings(flag).iter().all(|how| words.contains(&&**how))
            });
            let mut named = named.filter(|line| {
                let shows = |value, open| line.contains(&format!("{open}{value}]"));
                values.iter().all(|(value, open)| value.is_empty() || shows(value, open))
            });
            assert!(named.next().is_some(), "{} in the help of {subcommand:?}", flag.shown());
        }
        let lines = text.lines().filter(|line| line.trim_start().starts_with('-'));
        let due = FLAGS.iter().filter(is_due).count();
        assert_eq!(lines.count(), due, "lines of options in the help of {subcommand:?}");
    }
    let synopsis = section(&page(), "SYNOPSIS");
    for subcommand in Subcommand::ALL {
        assert!(
            synopsis.contains(&format!("Cm {}", subcommand.name())),
            "{subcommand:?} in SYNOPSIS"
        );
        assert!(help(None).contains(subcommand.name()), "{subcommand:?} in --help");
    }
}

#[test]
fn help_sets_the_text_of_an_option_apart() {
    let text = help(None);
    for flag in FLAGS {
        let mut lines = text.lines().filter_map(|line| line.split_once(flag.help));
        let apart = lines.any(|(before, _)| before.ends_with("  "));
        assert!(apart, "{}: {}", flag.shown(), flag.help);
    }
}

#[test]
fn help_shows_the_use_of_every_command() {
    let text = help(None);
    let usage = text.split_once("\ncommands:\n").unwrap().0.replace("[agent]", "agent");
    // The agent starts its guard itself.
    for subcommand in Subcommand::ALL.iter().filter(|subcommand| **subcommand != Subcommand::Guard)
    {
        let shown = format!("putex {}", subcommand.name());
        assert!(usage.contains(&shown), "{shown} in\n{usage}");
    }
}

#[test]
fn the_pages_have_the_exit_statuses_of_the_program_and_no_others() {
    let program = read("src/exit.rs");
    let (common, of_lock) = program.split_once("pub enum LockExit").unwrap();
    let (common, of_lock) = (statuses(common), statuses(of_lock));
    assert!(common.len() > 5 && of_lock.len() > 3, "{common:?} {of_lock:?}");
    let all: BTreeSet<u8> = common.union(&of_lock).copied().collect();
    let locked = &all - &BTreeSet::from([0]);
    // No command is run.
    let grabbed = &all - &BTreeSet::from([70, 126, 127]);
    let leased = &grabbed | &BTreeSet::from([1]);
    for (page, known) in [
        (page(), common.clone()),
        (read("man/putex-lock.1"), locked),
        (read("man/putex-lease.1"), leased.clone()),
        (read("man/putex-grab.1"), grabbed.clone()),
        (read("man/putex-status.1"), &leased - &BTreeSet::from([75, 100])),
        (read("man/putex-switchover.1"), &grabbed - &BTreeSet::from([100])),
        (read("man/putex-pause.1"), &grabbed - &BTreeSet::from([100])),
        (read("man/putex-doctor.1"), &leased - &BTreeSet::from([75, 100])),
        (read("man/putex-audit.1"), &leased - &BTreeSet::from([100])),
    ] {
        let items = items(&section(&page, "EXIT STATUS"));
        let documented: Vec<u8> = items.iter().map(|item| item.head.parse().unwrap()).collect();
        assert!(documented.is_sorted(), "{documented:?}");
        let documented: BTreeSet<_> = documented.into_iter().collect();
        assert_eq!(documented, known, "left: the page; right: the program");
    }
}

#[test]
fn the_page_has_the_variables_that_commands_are_given_and_no_others() {
    let given = names(&read("src/command.rs"), "PUTEX_");
    let items = items(&section(&page(), "COMMANDS RUN"));
    let documented: BTreeSet<_> =
        items.iter().flat_map(|item| names(&item.head, "PUTEX_")).collect();
    assert_eq!(documented, given, "left: the page; right: the program");
    let mut mentioned = names(&[page(), read("man/putex.7")].concat(), "PUTEX_");
    // These are read by the agent itself.
    mentioned.retain(|name| !FLAGS.iter().any(|flag| flag.env == name));
    assert!(mentioned.is_subset(&given), "{mentioned:?} are not all in {given:?}");
}

#[test]
fn the_page_has_the_environment_that_the_agent_reads() {
    let cli = ["mod.rs", "access.rs", "context.rs", "connect.rs"].map(|file| format!("cli/{file}"));
    let others = ["main.rs", "agent/service_manager.rs"].map(str::to_owned);
    let readers = cli.into_iter().chain(others);
    let program: String = readers.map(|file| read(&format!("src/{file}"))).collect();
    let mut due = BTreeSet::new();
    for call in ["var(\"", "var_os(\"", "set(\"", "value(\"", "variable(\""] {
        for piece in program.split(call).skip(1) {
            due.insert(piece.split('"').next().unwrap().to_owned());
        }
    }
    if program.contains("temp_dir()") {
        due.insert("TMPDIR".to_owned());
    }
    due.extend(FLAGS.iter().map(|flag| flag.env.to_owned()).filter(|env| !env.is_empty()));
    // rustls-native-certs reads them.
    assert!(read("Cargo.toml").contains("rustls-native-certs"));
    due.extend(["SSL_CERT_FILE", "SSL_CERT_DIR"].map(str::to_owned));
    let documented: BTreeSet<_> = items(&section(&page(), "ENVIRONMENT"))
        .iter()
        .flat_map(|item| item.head.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>())
        .filter(|word| word.len() > 2)
        .collect();
    assert_eq!(documented, due, "left: the page; right: the program");
    for name in [
        "NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_TOKEN", "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
    ] {
        assert!(documented.contains(name), "{name}");
    }
}

/// Returns the log lines that DIAGNOSTICS explains, with `...` for what differs.
fn explained() -> Vec<String> {
    let items = items(&section(&page(), "DIAGNOSTICS"));
    let heads = items.iter().map(|item| item.head.trim_start_matches("Sy ").trim_matches('"'));
    heads.map(|head| head.replace("\\-", "-")).collect()
}

#[test]
fn the_page_quotes_log_lines_as_the_program_writes_them() {
    let mut program = String::new();
    gather(&root().join("src"), &mut program);
    let quoted = explained();
    assert!(quoted.len() > 20, "only {} log lines in DIAGNOSTICS", quoted.len());
    for head in quoted {
        let said = match head.split_once(": ") {
            Some((states, why)) if states.contains(" -> ") => why,
            _ => &head,
        };
        for piece in said.split("...").filter(|piece| piece.trim().len() > 2) {
            assert!(program.contains(piece), "{head}: the program does not say {piece:?}");
        }
    }
}

#[test]
fn the_log_lines_of_the_examples_are_explained() {
    let explained = explained();
    let is_explained = |line: &str| explained.iter().any(|head| matches(head, line));
    for (file, key, lines_min) in [("putex.8", " web: ", 10), ("putex-tutorial.7", " db: ", 15)] {
        let mut logged = logged(file, key);
        // `tests/contrib.rs` runs the health check; `check` has no log.
        logged.retain(|text| !text.starts_with("healthcheck: ") && !text.ends_with("are right"));
        assert!(logged.len() >= lines_min, "{file}: only {logged:?}");
        for text in logged {
            let text = text.trim_start_matches("warning: ").trim_start_matches("error: ");
            assert!(is_explained(text), "{file}: {text:?} is not in DIAGNOSTICS");
        }
    }
}

/// Whether a log line is one that `head` explains.
fn matches(head: &str, line: &str) -> bool {
    let mut pieces = head.split("...");
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    for piece in pieces {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    head.ends_with("...") || rest.is_empty()
}

#[test]
fn troubleshooting_quotes_lines_that_diagnostics_explains() {
    let explained = explained();
    let mut seen = 0;
    for line in section(&page(), "TROUBLESHOOTING").lines() {
        let Some(quote) = line.strip_prefix(".Ql ") else {
            continue;
        };
        let quote = quote.replace("\\-", "-");
        let quote = quote.trim_end_matches([' ', ',', '.', ':']);
        if !quote.starts_with("putex ") && !quote.starts_with("nats ") {
            assert!(explained.iter().any(|head| head.contains(quote)), "{quote:?}");
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen}");
}

/// Appends all sources below `folder`. String literals of several lines become one line.
fn gather(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, into);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            let mut pieces = text.split("\\\n");
            into.push_str(pieces.next().unwrap());
            pieces.for_each(|piece| into.push_str(piece.trim_start()));
        }
    }
}

#[test]
fn the_page_calculates_as_the_program_does() {
    let sandbox = Sandbox::new("timing");
    let report = sandbox.run(sandbox.putex().arg("timing")).shown;
    let page = read("man/putex.7");
    for (row, head) in [
        ("T = F*R", "T = F \\(mu R Bq "),
        ("validity V", "V = sent + T \\(mu (1 \\- e) Bq sent + "),
        ("takeover wait", "takeover wait = T \\(mu (1 + e) Bq "),
        ("confirmation C*R", "confirmation = C \\(mu R Bq "),
        ("stop budget", "stop budget = C \\(mu R \\- drift \\- slack Bq "),
        ("failover, best", "failover = T \\(mu (1 + e) + C \\(mu R Bq "),
    ] {
        let line = report.lines().find(|line| line.starts_with(row)).unwrap();
        let value: Vec<_> = line[row.len()..].split_whitespace().take(2).collect();
        let item = format!("\n.It {head}{}\n", value.join(" "));
        assert!(page.contains(&item), "not in the page: {item}");
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines, at most {README_LINES_MAX}");
}

#[test]
fn the_readme_uses_flags_files_and_variables_that_exist() {
    let readme = read("README.md");
    let known: BTreeSet<_> = FLAGS.iter().flat_map(spellings).collect();
    let mut calls = 0;
    for call in putex_calls(&readme) {
        calls += 1;
        let words: Vec<_> = call.iter().map(String::as_str).collect();
        for word in words.iter().filter(|word| word.starts_with('-')) {
            assert!(known.contains(*word), "{word} in {}", words.join(" "));
        }
        let subcommand = words.get(1).filter(|word| !word.starts_with('-'));
        let exists = subcommand
            .is_none_or(|word| Subcommand::ALL.iter().any(|subcommand| subcommand.name() == *word));
        assert!(exists, "{subcommand:?} is no command");
    }
    assert!(calls >= 3, "only {calls} calls of putex in the README");
    for (index, _) in readme.match_indices("`--") {
        let flag: String =
            readme[index + 1..].chars().take_while(|c| *c == '-' || c.is_alphabetic()).collect();
        assert!(known.contains(&flag), "{flag}");
    }
    let given = names(&read("src/command.rs"), "PUTEX_");
    assert!(names(&readme, "PUTEX_").is_subset(&given));
    assert!(readme.contains("man ./man/putex.8") && readme.contains("man ./man/putex.7"));
}

#[test]
fn the_readme_links_to_files_that_exist() {
    let readme = read("README.md");
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
    let mut shell = sandbox.command("timeout");
    let shell = shell.args(["-s", "INT", "8", "sh", "-c", &agent]);
    let run = sandbox.run(shell.env("PUTEX", crate::support::programs::putex()));
    for said in ["start: ONE runs", "stop: ONE is down"] {
        assert!(run.said.contains(said), "{said} in {}", run.said);
    }
}

/// What the README has a reader paste after the installation. The service manager is told to
/// the end; it is not there.
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
    std::os::unix::fs::symlink(crate::support::programs::putex(), bin.join("putex")).unwrap();
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
    assert!(seen >= 2, "{seen}");
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
