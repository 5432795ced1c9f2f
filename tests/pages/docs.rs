//! The manual pages, `--help` and the README against the tables and texts of the program: one
//! test for each set that they have to agree on.

mod calls;
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use putex::cli::config::{DEFAULT, LINE_BYTES_MAX};
use putex::cli::help::help;
use putex::cli::table::{FLAGS, Flag, Subcommand};
use putex::cli::topics::Topic;

use crate::contrib::files;
use crate::mdoc::{flags_of, items, logged, names, read, root, section, spellings};
use crate::support::sandbox::Sandbox;
use calls::putex_calls;
use pages::{WITH_PAGES, explained_flags, statuses};

fn page() -> String {
    read("man/putex.8")
}

#[test]
fn the_pages_explain_every_flag_with_its_default_and_its_variable_and_no_other() {
    for (page, flags) in explained_flags() {
        let known: BTreeSet<_> = flags.iter().map(|flag| spellings(flag)).collect();
        let items = items(&page);
        let documented = items.iter().map(|item| flags_of(&item.head));
        let documented: Vec<_> = documented.filter(|set| !set.is_empty()).collect();
        assert_eq!(documented.len(), known.len(), "one of them twice: {documented:?}");
        let documented: BTreeSet<_> = documented.into_iter().collect();
        assert_eq!(documented, known, "left: the page; right: the program");
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

/// In the pages, the README, and the calls of putex in `contrib`.
#[test]
fn flags_mentioned_anywhere_exist() {
    let known: BTreeSet<_> = FLAGS.iter().flat_map(spellings).collect();
    let pages = explained_flags().map(|(page, _)| page).concat();
    let others = ["putex.7", "putex-messages.7", "putex.conf.5"];
    let pages = pages + &others.map(|page| read(&format!("man/{page}"))).concat();
    let macros = pages.lines().filter(|line| line.starts_with('.'));
    let mut mentioned: Vec<String> = macros.flat_map(flags_of).collect();
    let readme = read("README.md");
    let is_of_flag = |c: char| c == '-' || c.is_alphabetic();
    for (index, _) in readme.match_indices("`--") {
        mentioned.push(readme[index + 1..].chars().take_while(|c| is_of_flag(*c)).collect());
    }
    let calls = putex_calls(&readme);
    assert!(calls.len() >= 3, "only {calls:?} in the README");
    mentioned.extend(calls.into_iter().flatten().filter(|word| word.starts_with('-')));
    let pages_and_readme = mentioned.len();
    // The completions are made from the table: see tests/command_line/completions.rs.
    let contrib = files("contrib").into_iter();
    for (_, text) in contrib.filter(|(path, _)| !path.starts_with("contrib/completions")) {
        let text = text.replace("\\\n", " ");
        let calls = text.lines().filter(|line| line.contains("--key "));
        let words = calls.flat_map(str::split_whitespace).map(|word| word.trim_matches('"'));
        mentioned.extend(words.filter(|word| word.starts_with("--")).map(str::to_owned));
    }
    assert!(mentioned.len() > pages_and_readme + 20, "few in contrib: {mentioned:?}");
    for flag in mentioned {
        assert!(known.contains(&flag), "{flag}");
    }
}

/// Returns whether each line fits a terminal that nobody has made wider.
fn fits_a_terminal(text: &str) -> bool {
    text.lines().all(|line| line.chars().count() <= 80)
}

#[test]
fn help_of_a_command_explains_its_own_options_and_where_to_read_on() {
    for subcommand in Subcommand::ALL {
        if [Subcommand::Help, Subcommand::Guard].contains(&subcommand) {
            continue;
        }
        let (name, text) = (subcommand.name(), help(Some(subcommand)));
        assert!(fits_a_terminal(&text), "{text}");
        let (before, options) = text.split_once("\noptions:\n").unwrap();
        assert!(before.starts_with(&format!("putex {name}: {}\n\nusage: ", subcommand.about())));
        assert!(before.contains(&format!("usage: putex {name} ")), "{before}");
        let (options, rest) = options.split_once("\nexample:\n").expect(name);
        assert!(rest.starts_with(&format!("  putex {name} ")), "{rest}");
        let topic = Topic::of(subcommand).expect(name).name;
        assert!(rest.ends_with(&format!("\nmore: putex help {topic}\n")), "{rest}");
        let own = || Flag::all_of(subcommand).filter(|flag| !flag.name.is_of_store());
        let begins = |line: &&str| line.starts_with("  -") || line.starts_with("      --");
        let lines = options.lines().filter(begins);
        assert_eq!(lines.count(), own().count(), "{options}");
        let flat = options.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in own() {
            let default = Some(flag.default).filter(|it| !["", "none"].contains(it));
            let default = default.map_or(String::new(), |default| format!(" [{default}]"));
            let also = if flag.others.is_empty() { "" } else { "; also " };
            let begin = format!("--{} {}", flag.long, flag.value);
            let explained = format!("{} {}{also}", begin.trim_end(), flag.help);
            assert!(flat.contains(&explained) && flat.contains(&default), "{explained}");
        }
        let has_store = Flag::all_of(subcommand).any(|flag| flag.name.is_of_store());
        let named = options.lines().filter(|line| line.ends_with(": putex help store"));
        assert_eq!(named.count(), usize::from(has_store), "{options}");
    }
}

#[test]
fn help_fits_a_screen_and_names_every_command_that_a_user_runs() {
    let text = help(None);
    assert!(text.lines().count() <= 40 && fits_a_terminal(&text), "{text}");
    let examples = text.split("\nexamples\n").nth(1).unwrap();
    assert_eq!(examples.matches("\n  putex ").count() + 1, 3, "{examples}");
    for subcommand in Subcommand::ALL {
        let line = format!("  {:<11} {}\n", subcommand.name(), subcommand.about());
        let is_run = ![Subcommand::Help, Subcommand::Guard].contains(&subcommand);
        assert_eq!(text.contains(&line), is_run, "{line}");
        if let Some(topic) = Topic::of(subcommand) {
            // The meaning of the times is in putex(7).
            let file = if topic.name == "timing" { "putex.8" } else { topic.page };
            let synopsis = section(&read(&format!("man/{file}")), "SYNOPSIS");
            let name = subcommand.name();
            let has = |form: String| synopsis.contains(&form);
            let forms = [".Cm ", ".Op Cm ", ".Nm putex "].map(|form| format!("{form}{name}"));
            let named = forms.into_iter().any(has);
            assert!(named, "{name} in the synopsis of {file}");
        }
    }
}

#[test]
fn the_example_of_the_configuration_file_has_its_keys_and_the_page_names_what_is_none() {
    let known: Vec<_> = FLAGS.iter().filter_map(Flag::key).collect();
    let known = sorted(known);
    let page = read("man/putex.conf.5");
    let example = read("contrib/putex.conf");
    let keys = example.lines().filter_map(|line| {
        let (key, _) = line.strip_prefix('#')?.split_once(" = ")?;
        key.chars().all(|c| c == '-' || c.is_ascii_lowercase()).then_some(key)
    });
    assert_eq!(sorted(keys.collect()), known, "left: the example; right: the program");
    let has_page = |of: &Subcommand| WITH_PAGES.contains(of);
    let is_of_locks = |flag: &&Flag| flag.subcommands.iter().all(has_page);
    let others = FLAGS.iter().filter(|flag| flag.key().is_none());
    for flag in others.filter(|flag| !is_of_locks(flag)) {
        let named = format!("-{}", flag.long);
        assert!(page.contains(&named), "{named}: that it is no key");
    }
    let most = format!("lines have {LINE_BYTES_MAX} bytes at most");
    assert!(page.contains(&most) && page.contains(DEFAULT));
}

/// Returns words in their order, each as often as it stands there.
fn sorted(mut words: Vec<&str>) -> Vec<&str> {
    words.sort_unstable();
    words
}

#[test]
fn the_pages_have_the_exit_statuses_of_the_program_and_no_others() {
    let all: BTreeSet<u8> = statuses(&read("src/exit.rs"));
    assert!(all.len() > 10, "{all:?}");
    // An agent neither waits for a lock nor runs in the place of a command.
    let of_agent = &all - &BTreeSet::from([75, 100, 126, 127]);
    let locked = &all - &BTreeSet::from([0]);
    // No command is run.
    let grabbed = &all - &BTreeSet::from([70, 126, 127]);
    let leased = &grabbed | &BTreeSet::from([1]);
    for (page, known) in [
        (page(), of_agent),
        (read("man/putex-lock.1"), locked),
        (read("man/putex-lease.1"), leased.clone()),
        (read("man/putex-grab.1"), grabbed.clone()),
        (read("man/putex-status.1"), &leased - &BTreeSet::from([75, 100])),
        (read("man/putex-switchover.1"), &grabbed - &BTreeSet::from([100])),
        (read("man/putex-pause.1"), &grabbed - &BTreeSet::from([100])),
        (read("man/putex-doctor.1"), BTreeSet::from([0, 1, 2, 3, 64, 71])),
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
    let texts = ["man/putex.8", "man/putex.7", "man/putex-messages.7", "README.md"];
    let mut mentioned = names(&texts.map(read).concat(), "PUTEX_");
    // Variables of flags are read by the agent itself.
    mentioned.retain(|name| !FLAGS.iter().any(|flag| flag.env == name));
    assert!(mentioned.is_subset(&given), "{mentioned:?} are not all in {given:?}");
}

#[test]
fn the_page_has_the_environment_that_the_agent_reads() {
    let cli = ["mod.rs", "settings.rs", "context.rs", "connect.rs"];
    let cli = cli.map(|file| format!("cli/{file}"));
    let others = ["main.rs", "agent/service_manager.rs", "log/queue.rs"].map(str::to_owned);
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
}

/// Returns the log lines that DIAGNOSTICS explains, with `...` for what differs.
fn explained() -> Vec<String> {
    let items = items(&section(&read("man/putex-messages.7"), "DIAGNOSTICS"));
    let heads = items.iter().map(|item| item.head.trim_start_matches("Sy ").trim_matches('"'));
    heads.map(|head| head.replace("\\-", "-")).collect()
}

#[test]
fn diagnostics_explains_log_lines_of_the_program_and_those_that_pages_show() {
    let mut program = String::new();
    gather(&root().join("src"), &mut program);
    let explained = explained();
    assert!(explained.len() > 20, "only {} log lines in DIAGNOSTICS", explained.len());
    for head in &explained {
        let said = match head.split_once(": ") {
            Some((states, why)) if states.contains(" -> ") => why,
            _ => head,
        };
        for piece in said.split("...").filter(|piece| piece.trim().len() > 2) {
            assert!(program.contains(piece), "{head}: the program does not say {piece:?}");
        }
    }
    let logged = logged("putex.7", " web: ");
    assert!(logged.len() >= 10, "only {logged:?}");
    for text in logged {
        let text = text.trim_start_matches("warning: ").trim_start_matches("error: ");
        let is_explained = explained.iter().any(|head| matches(head, text));
        assert!(is_explained, "{text:?} is not in DIAGNOSTICS");
    }
    let troubles = section(&page(), "TROUBLESHOOTING").replace("\\-", "-");
    let quotes = troubles.lines().filter_map(|line| line.strip_prefix(".Ql "));
    let quotes = quotes.map(|quote| quote.trim_end_matches([' ', ',', '.', ':']));
    let is_command = |quote: &&str| quote.starts_with("putex ") || quote.starts_with("nats ");
    let quotes: Vec<_> = quotes.filter(|quote| !is_command(quote)).collect();
    assert!(quotes.len() >= 8, "{quotes:?}");
    for quote in quotes {
        assert!(explained.iter().any(|head| head.contains(quote)), "{quote:?}");
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
