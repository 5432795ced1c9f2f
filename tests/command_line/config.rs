//! The configuration file: its example, and its effect on a process.

pub(crate) mod run;

use std::env;
use std::fs;
use std::path::Path;

use putex::cli::table::{FLAGS, Name};

use crate::support::agent::Agent;
use crate::support::clock::until;
use crate::support::folder::Folder;
use crate::support::sandbox::Sandbox;
use run::{Run, command};
use rustix::process::Signal;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

const WHOLE: &str = "key = web\nstart = true up\nstop = true down\n";

#[test]
fn check_shows_where_each_setting_is_from() {
    let folder = Folder::new("origins");
    let text = format!("{WHOLE}nats = 127.0.0.1:1\nbucket = locks\nrenewal = 4s\nsyslog = yes\n");
    let path = folder.put("db.conf", &text, 0o644);
    let line = |line: u32, value: &str| format!("{value}  [{path}:{line}]");
    let words = ["check", "--config", &path, "--bucket", "b2", "--token", "t"];
    let run = Run::of(&words, &[("NATS_CA", "/nowhere/ca"), ("NATS_URL", "")]);
    assert_eq!(run.status, Some(78), "{run:?}");
    run.shows(&[
        ("config", &format!("{path}  [option]")),
        ("nats", &line(4, "127.0.0.1:1")),
        ("bucket", "b2  [option]"),
        ("token", "t  [option]"),
        ("start", &line(2, "true up")),
        ("renewal", &line(6, "4s")),
        ("syslog", &line(7, "yes")),
        ("tlsca", "/nowhere/ca  [NATS_CA]"),
        ("failures", "3  [default]"),
        ("drift", "1%  [default]"),
        ("check-failures", "1  [default]"),
        ("start-grace", "0  [default]"),
        ("allow-memory", "no  [default]"),
        ("healthcheck", "none  [default]"),
    ]);
    assert_eq!(run.setting("dir"), None);
    assert_eq!(run.setting("creds"), None);
    let says = "putex: NATS_CA: /nowhere/ca: no such file or directory\n";
    assert_eq!(run.said, says);
    assert!(!run.shown.contains("the options are right"));
    let variables = [("PUTEX_CONFIG", &*path), ("NATS_URL", "127.0.0.2:1")];
    let run = Run::of(&["check", "-r", "500"], &variables);
    assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{run:?}");
    run.shows(&[
        ("config", &format!("{path}  [PUTEX_CONFIG]")),
        ("nats", "127.0.0.2:1  [NATS_URL]"),
        ("renewal", "500  [option]"),
        ("tlsca", "the system's roots  [default]"),
    ]);
    assert!(run.shown.ends_with("\nweb: the options are right\n"));
    let quiet = Run::of(&["check", "-q"], &variables);
    let nothing = (Some(0), String::new(), String::new());
    assert_eq!((quiet.status, quiet.shown, quiet.said), nothing);
    let text = format!("{WHOLE}nats = 127.0.0.1:1\nquiet = yes\n");
    let path = folder.put("quiet.conf", &text, 0o644);
    let run = Run::of(&["check", "--config", &path], &[]);
    run.shows(&[("quiet", &format!("yes  [{path}:5]"))]);
    let run = Run::of(&["check", "--config", &path, "-v"], &[]);
    run.shows(&[("quiet", "no  [default]"), ("verbose", "yes  [option]")]);
    let words = ["check", "127.0.0.3:1", "b", "k", "t"];
    let run = Run::of(&words, &variables);
    run.shows(&[("nats", "127.0.0.3:1  [argument]"), ("key", "k  [argument]")]);
}

#[test]
fn a_context_is_shown_as_one_more_origin_without_its_secrets() {
    let folder = Folder::new("context");
    let json = r#"{"url": "nats://u:hunter2@127.0.0.1:1", "user": "me", "password": "hunter2",
        "inbox_prefix": "_INBOX.me", "jetstream_domain": "hub", "tls_first": true}"#;
    let context = folder.put("prod.json", json, 0o600);
    let text = format!("{WHOLE}context = {context}\njs-api-prefix = a.b\n");
    let path = folder.put("db.conf", &text, 0o644);
    let run = Run::of(&["check", "--config", &path, "--inbox-prefix", "_INBOX.x"], &[]);
    assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{run:?}");
    run.shows(&[
        ("context", &format!("{context}  [{path}:4]")),
        ("nats", &format!("nats://...@127.0.0.1:1  [{context}]")),
        ("user", &format!("me  [{context}]")),
        ("(password)", &format!("(hidden)  [{context}]")),
        ("tlsfirst", &format!("yes  [{context}]")),
        ("inbox-prefix", "_INBOX.x  [option]"),
        ("js-api-prefix", &format!("a.b  [{path}:5]")),
    ]);
    assert_eq!(run.setting("js-domain"), None, "{run:?}");
    assert!(!run.shown.contains("hunter2"), "{run:?}");
    let path = folder.put("db.conf", &format!("{WHOLE}context = prod\n"), 0o644);
    fs::create_dir_all(folder.join("nats/context")).unwrap();
    folder.put("nats/context/prod.json", json, 0o600);
    let run = Run::of(&["check", "--config", &path], &[("XDG_CONFIG_HOME", folder.text())]);
    assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{run:?}");
    let file = folder.join("nats/context/prod.json");
    run.shows(&[("context", &format!("prod, which is {}  [{path}:4]", file.display()))]);
}

#[test]
fn of_settings_that_exclude_each_other_one_is_shown() {
    let folder = Folder::new("exclusive");
    let [nkey, creds, token, password] =
        ["nkey", "creds", "token", "password"].map(|name| folder.put(name, "x\n", 0o600));
    let text = format!(
        "{WHOLE}nats = 127.0.0.1:1\nuser = u\npassword-file = {password}\njs-domain = hub\n"
    );
    let path = folder.put("db.conf", &text, 0o644);
    let options = ["user", "password-file", "auth-token-file", "nkey", "creds"];
    let secrets = ["(password)", "(auth"];
    for (words, variable, shown) in [
        (vec![], ("A", "b"), vec!["user", "password-file"]),
        (vec!["--user", "me"], ("NATS_PASSWORD", "x"), vec!["user", "(password)"]),
        (vec!["--auth-token-file", &token], ("NATS_USER", "me"), vec!["auth-token-file"]),
        (vec![], ("NATS_TOKEN", "x"), vec!["(auth"]),
        (vec!["--nkey", &nkey], ("NATS_TOKEN", "x"), vec!["nkey"]),
        (vec!["--creds", &creds], ("NATS_NKEY", &nkey), vec!["creds"]),
    ] {
        let words = [&["check", "--config", &path, "--js-api-prefix", "a.b"], &words[..]].concat();
        let run = Run::of(&words, &[variable]);
        let names = options.iter().chain(&secrets).copied();
        let found: Vec<_> = names.filter(|name| run.setting(name).is_some()).collect();
        assert_eq!(found, shown, "{run:?}");
        assert_eq!(run.setting("js-domain"), None, "{run:?}");
        run.shows(&[("js-api-prefix", "a.b  [option]")]);
    }
    let run = Run::of(&["check", "--config", &path], &[]);
    assert_eq!(run.setting("js-api-prefix"), None, "{run:?}");
    run.shows(&[("js-domain", &format!("hub  [{path}:7]"))]);
}

#[test]
fn no_secret_is_shown() {
    let folder = Folder::new("secrets");
    let secret = folder.put("password", "hunter2\n", 0o600);
    let damaged = folder.put("damaged", "SUhunter2\n", 0o600);
    let urls = [
        "nats://u:hunter2@127.0.0.1:1",
        "nats://hunter2@127.0.0.1:1,tls://a:hunter2@127.0.0.1:2",
        "nats://u:hun,ter2@127.0.0.1:1",
        "nats://u:hunter2@127.0.0.1:x",
        "ws://u:hunter2@h",
        "u:hunter2 @h",
        // A secret with a comma looks like two servers.
        "hun,ter2@127.0.0.1:1",
        "u:hun,ter2@127.0.0.1:1",
        "nats://127.0.0.1?token=hunter2",
    ];
    let mut runs = Vec::new();
    for url in urls {
        let words = ["check", "--key", "web", "--start", "true", "--stop", "true", "--nats", url];
        runs.push(Run::of(&words, &[]));
        let text = format!("{WHOLE}nats = {url}\n");
        // With a file that others cannot read, an agent would run.
        for (mode, subcommand) in [(0o600, "check"), (0o644, "check"), (0o644, "agent")] {
            let path = folder.put("db.conf", &text, mode);
            runs.push(Run::of(&[subcommand, "--config", &path], &[]));
        }
        let path = folder.put("db.conf", WHOLE, 0o644);
        runs.push(Run::of(&["check", "--config", &path], &[("NATS_URL", url)]));
    }
    let path = folder.put("db.conf", &format!("{WHOLE}nats = 127.0.0.1:1"), 0o644);
    for (words, variable) in [
        (vec![], ("NATS_TOKEN", "hunter2")),
        (vec!["--user", "u"], ("NATS_PASSWORD", "hunter2")),
        (vec!["--user", "u", "--password-file", &secret], ("A", "b")),
        (vec!["--auth-token-file", &secret], ("A", "b")),
        (vec!["--nkey", &damaged], ("A", "b")),
        (vec!["--creds", &damaged], ("A", "b")),
    ] {
        let words = [&["check", "--config", &path, "--connect"], &words[..]].concat();
        runs.push(Run::of(&words, &[variable]));
    }
    for run in &runs {
        let all = format!("{}{}", run.shown, run.said);
        assert!(!all.contains("ter2") && !all.contains("hun"), "{all}");
    }
    let hidden = runs.iter().filter(|run| run.shown.contains("(hidden)  ["));
    assert!(hidden.count() >= 2, "{runs:?}");
}

/// A fault of R, F and C hid those of the commands.
#[test]
fn check_reports_the_faults_of_commands_beside_those_of_times() {
    let words = ["check", "-q", "--start", "/no/such", "--stop", "true", "-r", "5m"];
    let run = Run::of(&[&words[..], &["--dir", "/x", "--key", "web"]].concat(), &[]);
    let due = "putex: -r: 300 s is longer than the maximum of 60 s\n\
               putex: --start: there is no program /no/such that this user can run\n";
    assert_eq!((&*run.said, run.status), (due, Some(78)));
}

#[test]
fn check_reports_every_fault_and_an_agent_the_first() {
    let folder = Folder::new("several");
    let open = folder.put("open.nk", "SU\n", 0o644);
    let text = format!(
        "key = web\nstrat = up\nstop = down\nnats = 127.0.0.1:1\nreplicas = 9\n\
         nkey = {open}\nstop = again\nfailures = 1\nsyslog = maybe\n\
         watchdog = /nowhere/watchdog:required\ntlsca = /nowhere/ca\n"
    );
    let path = folder.put("db.conf", &text, 0o644);
    let says = [
        format!("{path}:2: strat: no such key; the nearest is start; see putex.conf(5)"),
        format!("{path}:7: stop: stands in line 3 already"),
        format!("{path}:9: syslog: maybe: write yes or no"),
        format!("{path}:5: replicas: 9: write 1 to 5"),
        format!("{path}:8: failures: 1 is less than 2"),
        "--start: is missing; write --start COMMAND, or start = COMMAND in".to_owned(),
        format!("{path}:6: nkey: {open}: has mode 0644: others can read or write this secret"),
        format!("{path}:11: tlsca: /nowhere/ca: no such file or directory"),
        "watchdog /nowhere/watchdog: there is no such device".to_owned(),
        format!("{path}:3: stop: there is no program down that this user can run"),
    ];
    let check = Run::of(&["check", "--config", &path], &[]);
    let lines: Vec<_> = check.said.lines().collect();
    assert_eq!(lines.len(), says.len(), "{}", check.said);
    for (line, says) in lines.iter().zip(&says) {
        assert!(line.starts_with(&format!("putex: {says}")), "{line}\n{says}");
    }
    for subcommand in ["agent", "finish"] {
        let run = Run::of(&[subcommand, "--config", &path], &[]);
        assert_eq!(run.said, format!("{}\n", lines[0]), "{subcommand}");
        assert_eq!((run.status, check.status), (Some(78), Some(78)));
        assert_eq!(run.shown, "");
    }
    // The lack of a device that is not required is only a warning.
    let text = format!("{WHOLE}dir = {}/lock\nwatchdog = /dev/null/x\n", folder.display());
    let path = folder.put("db.conf", &text, 0o644);
    let run = Run::of(&["check", "--config", &path], &[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.said.starts_with("putex: warning: watchdog /dev/null/x: "), "{run:?}");
    assert!(!folder.join("lock").exists(), "something was made");
    // A folder, and what is only told, may come later.
    let metrics = folder.join("none/db.prom").display().to_string();
    let words = ["--on-change", "/no/such", "--metrics-file", &metrics];
    let run = Run::of(&[&["check", "-q", "--config", &path], &words[..]].concat(), &[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let program = "--on-change: there is no program /no/such that this user can run";
    let folder_of = &format!("--metrics-file: {metrics}: No such file or directory");
    for text in [program, folder_of] {
        assert!(run.said.contains(&format!("putex: warning: {text}")), "{text}: {run:?}");
    }
    // A fault in a command of the service is an error.
    for (option, command, says) in [
        ("--start", "/no/such", "there is no program /no/such that this user can run"),
        ("--stop", "if", "the shell cannot read it: "),
        ("--stop", "systemctl stop 'web", "the shell cannot read it: "),
        ("--healthcheck", "no-such", "there is no program no-such that this user can run"),
        ("--last-resort", &path, " that this user can run"),
    ] {
        let run = Run::of(&["check", "--config", &path, option, command], &[]);
        assert_eq!(run.status, Some(78), "{run:?}");
        assert!(run.said.contains(&format!("putex: {option}: ")), "{run:?}");
        assert!(run.said.contains(says) && !run.shown.contains("are right"), "{run:?}");
    }
    // The message names the setting as it was set.
    let text = format!("{WHOLE}dir = /lock\nhealthcheck = /no/such\n");
    let path = folder.put("db.conf", &text, 0o644);
    let run = Run::of(&["check", "--config", &path], &[]);
    let named = format!("{path}:{}: healthcheck: there is no program", text.lines().count());
    assert!(run.said.contains(&named), "{run:?}");
    // Without --connect, no name is looked up: the longest label has 63 letters.
    let name = "x".repeat(64);
    let path = folder.put("db.conf", &format!("{WHOLE}nats = {name}\n"), 0o644);
    let run = Run::of(&["check", "--config", &path, "-q"], &[]);
    assert_eq!((run.status, &*run.shown, &*run.said), (Some(0), "", ""), "{run:?}");
    let run = Run::of(&["check", "--config", &path, "-q", "--connect"], &[]);
    assert_eq!(run.status, Some(69), "{run:?}");
    assert!(run.said.contains(&name), "{run:?}");
}

#[test]
fn a_file_that_others_could_write_runs_nothing() {
    let folder = Folder::new("modes");
    let ran = folder.join("ran");
    let text = format!(
        "key = web\ndir = {}/lock\nstart = true\nstop = touch {}\n",
        folder.display(),
        ran.display()
    );
    for mode in [0o646, 0o664, 0o602] {
        let path = folder.put("db.conf", &text, mode);
        let says = format!("putex: --config: {path}: has mode {mode:04o}: others can write it");
        for subcommand in ["agent", "finish", "check"] {
            let run = Run::of(&[subcommand, "--config", &path], &[]);
            assert_eq!(run.status, Some(78), "{mode:o}: {run:?}");
            assert!(run.said.starts_with(&says), "{run:?}");
            assert_eq!(run.said.lines().count(), 1, "{run:?}");
        }
    }
    let path = folder.put("db.conf", &text, 0o600);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        let run = Run::of(&["agent", "--config", &path], &[]);
        assert!(run.said.contains(": belongs to user 4242, who could"), "{run:?}");
        assert_eq!(run.status, Some(78));
    }
    for (path, says) in [
        ("/nonexistent/db.conf", "no such file"),
        ("/dev/null", "is not a regular file"),
        ("/", "is not a regular file"),
    ] {
        let run = Run::of(&["agent", "--config", path], &[]);
        assert_eq!(run.said, format!("putex: --config: {path}: {says}\n"));
        assert_eq!(run.status, Some(78));
    }
    // An agent reads it again while it renews a lock.
    let long = folder.put("long.conf", &format!("{text}#{}", "\n#".repeat(32 * 1024)), 0o600);
    let run = Run::of(&["agent", "--config", &long], &[]);
    assert_eq!(run.said, format!("putex: --config: {long}: is longer than 65536 bytes\n"));
    assert!(!ran.exists(), "stop was run");
}

#[test]
fn finish_stops_the_service_whatever_else_is_wrong() {
    let folder = Folder::new("finish");
    let (here, token) = (folder.display(), folder.name());
    let text = format!(
        "key = web\ndir = {here}/lock\ntoken = {token}\nstart = false\n\
         stop = echo down >>{here}/down\nreplicas = 9\nbogus = x\n"
    );
    let path = folder.put("db.conf", &text, 0o600);
    let run = Run::of(&["finish", "--config", &path], &[]);
    assert_eq!(run.status, Some(0), "{run:?}");
    for says in ["db.conf:7: bogus: no such key", "db.conf:6: replicas: 9: "] {
        assert!(run.said.contains(says), "{run:?}");
    }
    let down = fs::read_to_string(folder.join("down"));
    assert_eq!(down.unwrap(), "down\n", "{run:?}");
    let run = Run::of(&["agent", "--config", &path], &[]);
    assert_eq!(run.status, Some(78), "{run:?}");
}

#[test]
fn an_agent_runs_what_the_file_says_to_the_letter() {
    let folder = Folder::new("runs");
    let (here, token) = (folder.display(), folder.name());
    let text = format!(
        "# an agent\n\nkey = web\n dir =  {here}/lock \ntoken = {token}\nrenewal = 1s\n\
         confirmations = 1\nstart = x='a = \"#b\" # c'; echo \"$x\" >{here}/up # up\n\
         stop = rm -f {here}/up; echo $PUTEX_KEY >{here}/down\n"
    );
    let path = folder.put("db.conf", &text, 0o600);
    let sandbox = Sandbox::new("runs");
    let mut agent = Agent::start(&mut command(&sandbox, &["agent", "--config", &path], &[]));
    let whole = |text: &String| text.ends_with('\n');
    let up = folder.join("up");
    let written = until("up", || fs::read_to_string(&up).ok().filter(whole));
    let offline = Run::of(&["check", "--config", &path], &[]);
    let check = Run::of(&["check", "--config", &path, "--connect"], &[]);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(written, "a = \"#b\" # c\n", "{said}");
    assert_eq!(fs::read_to_string(folder.join("down")).unwrap(), "web\n");
    assert_eq!(check.status, Some(0), "{check:?}");
    let state = "\nbucket putex: exists and is fit for a lock\n";
    assert!(check.shown.contains(state), "{check:?}");
    assert!(offline.status == Some(0) && !offline.shown.contains(state), "{offline:?}");
}

#[test]
fn the_examples_of_the_file_are_right() {
    let folder = Folder::new("examples");
    let example = read("contrib/putex.conf");
    // Not every host has the programs of the examples.
    let bin = folder.subfolder("bin").display().to_string();
    for program in ["logger", "reboot", "systemctl"] {
        folder.file(&format!("bin/{program}"), "#!/bin/sh\n", 0o700);
    }
    let programs = [("PATH", &*format!("{bin}:{}", env::var("PATH").unwrap()))];
    let path = folder.put("shared.conf", &example, 0o644);
    let lock = folder.join("lock").display().to_string();
    let words = ["check", "--config", &path, "--dir", &lock, "--key", "k"];
    let run = Run::of(&[&words[..], &["--start", "true", "--stop", "true"]].concat(), &[]);
    assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{run:?}");
    // All settings that do not exclude each other, except those with files and devices.
    let leave = ["dir", "context", "js-api-prefix", "watchdog"];
    let whole: String = example
        .lines()
        .filter_map(|line| {
            let (key, value) = line.strip_prefix('#')?.split_once(" = ")?;
            let flag = FLAGS.iter().find(|flag| flag.key() == Some(key))?;
            let value = match key {
                "nats" => "127.0.0.1:1,127.0.0.1:2",
                _ => value,
            };
            let fits = flag.value != "file" && flag.name != Name::User && !leave.contains(&key);
            fits.then(|| format!("{key} = {value}\n"))
        })
        .collect();
    let path = folder.put("whole.conf", &whole, 0o644);
    let run = Run::of(&["check", "--config", &path], &programs);
    assert_eq!((run.status, run.said.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.shown.ends_with("\ndb: the options are right\n"));
    // The default values are those of the program.
    for flag in FLAGS.iter().filter(|flag| flag.key().is_some()) {
        let line = format!("#{} = {}\n", flag.long, flag.default);
        let speaks =
            flag.default.is_empty() || flag.default.contains(' ') || flag.default == "none";
        assert!(speaks || example.contains(&line), "{line}");
    }
    let page = read("man/putex.conf.5");
    let (_, text) = page.split_once(".Bd -literal -offset indent\n").unwrap();
    let (text, _) = text.split_once("\n.Ed").unwrap();
    let text = text.replace("n1.example,tls://n2.example,tls://n3.example", "127.0.0.1:1");
    let path = folder.put("page.conf", &text, 0o644);
    let run = Run::of(&["check", "--config", &path], &programs);
    let says = ": creds: /etc/putex/db.creds: no such file or directory\n";
    assert!(
        run.said.starts_with(&format!("putex: {path}:")) && run.said.ends_with(says),
        "{run:?}"
    );
    assert_eq!(run.setting("replicas"), Some(&*format!("3  [{path}:5]")));
}

#[test]
fn a_password_in_the_command_line_is_warned_of() {
    let words = ["check", "--key", "web", "--start", "true", "--stop", "true"];
    for (list, is_told) in [("u:p@127.0.0.1:1", true), ("127.0.0.1:1", false)] {
        let run = Run::of(&[&words[..], &["--nats", list]].concat(), &[]);
        let says = "putex: warning: --nats: every user of this host sees its password";
        assert_eq!((run.status, run.said.starts_with(says)), (Some(0), is_told), "{run:?}");
        let run = Run::of(&words, &[("NATS_URL", list)]);
        assert_eq!((run.status, &*run.said), (Some(0), ""), "{run:?}");
    }
}
