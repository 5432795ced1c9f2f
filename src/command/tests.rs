//! How commands are run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::PidfdFlags;

use super::*;
use crate::core::Role;
use crate::sys::Alarm;

/// Returns the session of a process, 0 where its leader is outside of the PID namespace.
fn session_of(process: Pid) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    after_name.split_whitespace().nth(3).expect("a session").to_owned()
}

fn commands(script: &str) -> Commands {
    Commands {
        check: Some(script.to_owned()),
        start: script.to_owned(),
        stop: script.to_owned(),
        last_resort: None,
        environment: None,
        on_change: None,
        key: "web".to_owned(),
        token: "one".to_owned(),
    }
}

/// Runs a command that shows its lines in `/proc`; returns whether it leads a session, its
/// process group, its number, and which of the first 31 signals are blocked or ignored.
fn state_of(command: Command) -> (bool, Pid, Pid, u32) {
    let commands = commands("exec cat /proc/self/status");
    let (deadline, context) = (sys::now(), LockContext::default());
    let run = Run { command, role: Role::Active, deadline, starting: false, context };
    let mut output = OutputPipe::new(command, None).expect("a descriptor");
    let prepared = commands.prepare(&run, None, deadline);
    let mut process = Process::spawn(prepared, output.writer()).expect("it can be run");
    process.release();
    sys::poll(&mut [PollFd::new(&process, PollFlags::IN)]).expect("it waits");
    let leads = session_of(process.group) == process.group.to_string();
    let group = rustix::process::getpgid(Some(process.group)).expect("it is not reaped");
    let own = process.group;
    assert_eq!(process.reap(), Outcome::Succeeded);
    let mut signals = 0;
    output.flush(&mut |_, line| {
        let line = String::from_utf8_lossy(line);
        if let Some(set) = line.strip_prefix("SigBlk:").or(line.strip_prefix("SigIgn:")) {
            signals |= u32::from_str_radix(&set.trim()[8..], 16).expect("a number");
        }
    });
    // The C library has two of the highest for itself.
    (leads, group, own, signals & 0x7fff_ffff)
}

/// Spawns the health check, by a shell or as it is.
fn spawn_check(script: &str, shell: Option<&str>, output: &OutputPipe) -> Process {
    let commands = commands(script);
    let (command, context) = (Command::Check, LockContext::default());
    let deadline = sys::now();
    let run = Run { command, role: Role::Active, deadline, starting: false, context };
    let mut prepared = commands.prepare(&run, None, deadline);
    match shell {
        None => prepared.program.clear(),
        Some(shell) => prepared.shell = vec![shell.to_owned()],
    }
    Process::spawn(prepared, output.writer()).expect("it can be run")
}

fn output_of_check() -> OutputPipe {
    OutputPipe::new(Command::Check, None).expect("a descriptor")
}

/// Runs the health check, by a shell or as it is, and returns its end and its output.
fn checked(script: &str, shell: Option<&str>) -> (Outcome, Vec<String>) {
    let mut output = output_of_check();
    let process = spawn_check(script, shell, &output);
    sys::poll(&mut [PollFd::new(&process, PollFlags::IN)]).expect("it waits");
    let (outcome, mut lines) = (process.reap(), Vec::new());
    output.flush(&mut |_, line| lines.push(String::from_utf8_lossy(line).into_owned()));
    // Which the shell sets for itself.
    let of_shell = ["PWD=", "OLDPWD=", "SHLVL=", "_="];
    lines.retain(|line| !of_shell.iter().any(|name| line.starts_with(name)));
    // A shell orders its variables anew.
    lines.sort_unstable();
    (outcome, lines)
}

#[test]
fn a_plain_program_runs_as_a_shell_would_run_it() {
    let folder = env::temp_dir().join(format!("putex-plain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = |name: &str, mode: u32, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        path.display().to_string()
    };
    let dies = script("dies", 0o755, "#!/bin/sh\nkill -KILL $$\n");
    let fails = script("fails", 0o755, "#!/bin/sh\necho $# \"$2\"\nexit 3\n");
    let bare = script("bare", 0o755, "echo $1\n");
    let closed = script("closed", 0o644, "#!/bin/sh\n");
    let plain = [
        ("/bin/echo one  two\tthree".to_owned(), true),
        ("/usr/bin/env".to_owned(), true),
        (format!("{fails} a=b --to=1,2@x:%"), true),
        (format!("{bare} x"), false),
        (closed, false),
        ("/no/such/program".to_owned(), false),
    ];
    for (script, is_executed) in plain {
        let by_shell = checked(&script, None);
        if is_executed {
            assert_eq!(checked(&script, Some("/bin/false")), by_shell, "{script}");
        }
        let program = checked(&script, Some("/bin/echo"));
        assert_eq!(program.1 == [""], !is_executed, "{script}: a shell is the last resort");
    }
    // A shell may wait for the program, and end with 128 and the signal.
    let outcome = checked(&dies, Some("/bin/false")).0;
    assert_eq!(outcome, Outcome::Failed("killed by signal 9".to_owned()));
    std::fs::remove_dir_all(&folder).expect("it is there");
}

/// The process shares the memory of this one until it is executed, or has failed.
#[test]
fn a_command_that_cannot_be_executed_says_why_and_leaves_the_error_number_alone() {
    // What is looked up once for all commands changes the error number.
    checked("true", None);
    let missing = File::open("/no/such/file").expect_err("it is missing");
    let process = spawn_check("true", Some("/dev/null"), &output_of_check());
    sys::poll(&mut [PollFd::new(&process, PollFlags::IN)]).expect("it waits");
    let number = io::Error::last_os_error();
    let why = "it could not be run: Permission denied (os error 13)".to_owned();
    assert_eq!(process.reap(), Outcome::Failed(why));
    assert_eq!(number.raw_os_error(), missing.raw_os_error());
}

#[test]
fn what_a_shell_may_read_otherwise_is_left_to_it() {
    assert_eq!(plain_words(" /bin/a\t-b  c "), ["/bin/a", "-b", "c"]);
    for script in [
        "", "true", "a/b", "A=b /bin/a", "/bin/a $b", "/bin/a b; c", "/bin/a\n", "/bin/a 'b'",
        "/bin/a *", "/bin/a ~", "/bin/a >b", "/bin/a &", "/bin/a #b", "/bin/a !", "/bin/a {b}",
        "/bin/a \\b", "/bin/a [b]", "/bin/a é", "(/bin/a)",
    ] {
        assert!(plain_words(script).is_empty(), "{script}");
    }
}

#[test]
fn start_has_a_session_of_its_own_and_every_command_its_group_and_all_signals() {
    for command in Command::ALL {
        if matches!(command, Command::LastResort | Command::OnChange) {
            continue;
        }
        let (leads, group, own, signals) = state_of(command);
        assert_eq!(group, own, "{command:?}");
        assert_eq!(leads, command == Command::Start, "{command:?}");
        assert_eq!(signals, 0, "{command:?}");
    }
}

/// timeout(1) makes a group, and so the service came up after its stop had counted.
#[test]
fn start_is_killed_with_the_groups_that_it_has_made() {
    let (command, context) = (Command::Start, LockContext::default());
    let commands = commands("timeout 1000 sh -c 'echo $$; exec sleep 1000'; true");
    let now = sys::now();
    let run = Run { command, role: Role::Active, deadline: now, starting: true, context };
    let mut output = OutputPipe::new(command, None).expect("a descriptor");
    let prepared = commands.prepare(&run, None, now);
    let mut process = Process::spawn(prepared, output.writer()).expect("it can be run");
    process.release();
    let (alarm, until) = (Alarm::new().expect("a descriptor"), Some(now.after(sys::PATIENCE)));
    assert_eq!(alarm.wait([(output.as_fd(), PollFlags::IN)], until).expect("it waits"), [true]);
    let mut number = None;
    output.flush(&mut |_, line| {
        number = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse().ok());
    });
    let sleep = number.and_then(Pid::from_raw).expect("its number");
    assert_ne!(rustix::process::getpgid(Some(sleep)), Ok(process.group), "of coreutils?");
    let exit = rustix::process::pidfd_open(sleep, PidfdFlags::empty()).expect("it lives");
    process.end();
    assert_eq!(alarm.wait([(exit.as_fd(), PollFlags::IN)], until).expect("it waits"), [true]);
}
