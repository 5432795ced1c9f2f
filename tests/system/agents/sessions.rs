//! The session of a start that fails or is killed, on a host without control groups: start has
//! ended when all of its session has. No other start is run before, and no stop counts.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::small_host::{file_in, wait_for_end};
use crate::support::agent::Agent;
use crate::support::clock::{PATIENCE, now, observe_for, until_true};
use crate::support::process::{children_of, is_traced};
use crate::support::programs;
use crate::support::sandbox::{Run, Sandbox, is_tight};

/// A start that does not end, with a process in a group of its own. It counts its runs.
const TIMEOUT: &str = "echo >>$D/starts; timeout 1000 sleep 1000; true";

/// The same with a process of another user.
const FOREIGN: &str =
    "echo >>$D/starts; setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000; true";

/// Enough for a guard to be killed and another one to be started.
const TIMES: [&str; 6] = ["-r", "1s", "-f", "3", "-c", "2"];

/// A host that has no control groups. Its users are told that, and why.
struct Host {
    sandbox: Sandbox,
    /// The program that runs putex there, and its words; empty for none.
    runner: &'static [&'static str],
}

impl Host {
    /// Returns one, where root may hide the control groups.
    fn new(name: &str, runner: &'static [&'static str]) -> Option<Host> {
        if !rustix::process::geteuid().is_root() || !is_tight() {
            println!("skipped: only root may hide the control groups");
            return None;
        }
        Some(Host { sandbox: Sandbox::new(name), runner })
    }

    /// Prepares an agent, or `putex finish`, with this start.
    fn putex(&self, verb: &str, start: &str) -> Command {
        let mut command = self.sandbox.command("sh");
        command.args(["-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"", "sh"]);
        command
            .args(self.runner)
            .arg(programs::putex())
            .args([verb, "--key", "web", "--token", "one"]);
        command.args(TIMES).args(["--start", start, "--stop", "rm -f $D/up"]);
        command.args(["--last-resort", "echo >$D/resort", "--dir"]).arg(self.sandbox.join("lock"));
        command.env("D", self.sandbox.text());
        command
    }

    fn agent(&self, start: &str) -> Agent {
        Agent::start(&mut self.putex("agent", start))
    }

    fn has(&self, file: &str) -> bool {
        self.sandbox.join(file).exists()
    }

    fn starts(&self) -> u64 {
        fs::metadata(self.sandbox.join("starts")).map_or(0, |file| file.len())
    }

    fn sleeps(&self) -> Vec<Pid> {
        self.sandbox.processes_of("sleep").into_iter().map(number).collect()
    }

    /// Waits for the only process of this name that start has made; returns its number.
    fn wait_for_sleep(&self) -> Pid {
        until_true("start", || self.sleeps().len() == 1);
        self.sleeps()[0]
    }

    fn wait_for_no_guard(&self) {
        until_true("the end of the guard", || self.sandbox.guards("web").is_empty());
    }

    /// Has strace follow the thread that ends sessions, with these options; `None` where it may
    /// not.
    fn follow_sessions(&self, options: &[&str]) -> Option<Child> {
        let thread = thread_of(self.sandbox.guard("web"), "putex-start");
        let mut strace = self.sandbox.marked(programs::tool("strace")?);
        strace.args(["-qq", "-o", "/dev/null"]).args(options).args(["-p", &thread.to_string()]);
        let mut strace = strace.stderr(Stdio::null()).spawn().expect("it runs");
        until_true("strace", || is_traced(thread) || matches!(strace.try_wait(), Ok(Some(_))));
        if !is_traced(thread) {
            println!("skipped: strace may not follow a process");
            return None;
        }
        Some(strace)
    }
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).expect("a number")
}

/// Returns the number of a thread of this name.
fn thread_of(process: Pid, name: &str) -> u32 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
    let mut threads = threads.map(|thread| thread.expect("an entry").path());
    let named = format!("{name}\n");
    let thread =
        threads.find(|path| fs::read_to_string(path.join("comm")).is_ok_and(|it| it == named));
    let thread = thread.expect("there is one");
    let number = thread.file_name().expect("a number").to_string_lossy();
    number.parse().expect("a number")
}

fn end(mut strace: Child) {
    let _ = (strace.kill(), strace.wait());
}

/// timeout(1) makes a group of its own. Nobody but the guard knows of these processes.
#[test]
fn what_a_start_leaves_in_other_groups_is_gone_when_the_service_is_down() {
    let Some(host) = Host::new("groups", &[]) else { return };
    let start = "for n in $(seq 200); do timeout 1000 sleep 1000 & done; echo >$D/up; wait";
    let mut agent = host.agent(start);
    until_true("the service", || host.has("up") && host.sleeps().len() == 200);
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!((status, host.sleeps().len()), (Some(0), 0), "{said}");
}

/// The listing of a large host takes as long. A stop that came first counted, and the start that
/// was being killed started the service after it.
#[test]
fn a_stop_counts_when_all_that_a_killed_start_has_made_has_ended() {
    let Some(host) = Host::new("restarted", &[]) else { return };
    let start = "timeout 1000 sh -c 'while :; do echo >$D/up; sleep 0.01; done'; true";
    let mut agent = host.agent(start);
    until_true("the service", || host.has("up"));
    let inject = ["-e", "inject=getdents64:delay_enter=300ms"];
    let Some(strace) = host.follow_sessions(&inject) else { return };
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    end(strace);
    assert_eq!((status, host.has("up")), (Some(0), false), "{said}");
}

/// Each process makes the next one and ends. While all of them were looked at that a listing had
/// shown, others had come: the session seemed empty.
#[test]
fn processes_that_follow_each_other_faster_than_they_are_listed_are_found() {
    let Some(host) = Host::new("chain", &[]) else { return };
    let start = "timeout 1000 sh -c 'next() { sleep 0.05; echo >$D/up; next & }; next & wait;
        sleep 1000'; true";
    let mut agent = host.agent(start);
    until_true("the service", || host.has("up"));
    let inject = ["-e", "inject=getdents64:delay_exit=300ms"];
    let Some(strace) = host.follow_sessions(&inject) else { return };
    agent.signal(Signal::TERM);
    let (_, said) = agent.wait_end();
    host.wait_for_no_guard();
    end(strace);
    observe_for(Duration::from_millis(500));
    assert_eq!((host.has("up"), host.sleeps().len()), (false, 0), "{said}");
}

/// As when memory runs out: only the leader is killed. The rest of its session went on, and could
/// start the service after it had been stopped.
#[test]
fn a_start_that_somebody_kills_ends_with_its_session() {
    let Some(host) = Host::new("somebody", &[]) else { return };
    let mut agent = host.agent(TIMEOUT);
    let sleep = host.wait_for_sleep();
    let of_guard = children_of(host.sandbox.guard("web").as_raw_pid().unsigned_abs());
    let [start] = of_guard.as_slice() else { panic!("{of_guard:?}") };
    kill_process(number(*start), Signal::KILL).expect("it runs");
    until_true("another start", || host.starts() > 1);
    assert!(!host.sleeps().contains(&sleep), "it goes on");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!((status, host.sleeps().len()), (Some(0), 0), "{said}");
    assert!(said.contains("start failed: killed by signal 9"), "{said}");
}

/// As when memory runs out: only the script is killed, and the shell of start ends with an exit
/// status. The rest of its session went on beside the next start.
#[test]
fn so_does_a_start_whose_script_somebody_kills() {
    let Some(host) = Host::new("script", &[]) else { return };
    let script = "sh -c 'echo $$ >$D/script; timeout 1000 sleep 1000; true'";
    let mut agent = host.agent(&format!("echo >>$D/starts; {script}; exit $?"));
    let sleep = host.wait_for_sleep();
    let killed = fs::read_to_string(host.sandbox.join("script")).expect("it has begun");
    kill_process(number(killed.trim().parse().expect("a number")), Signal::KILL).expect("it runs");
    until_true("another start", || host.starts() > 1);
    assert!(!host.sleeps().contains(&sleep), "it goes on");
    agent.signal(Signal::TERM);
    let (status, said) = agent.wait_end();
    assert_eq!((status, host.sleeps().len()), (Some(0), 0), "{said}");
    assert!(said.contains("start failed: exit status 137"), "{said}");
}

/// The guard may not kill a process of another user. The last resort may.
#[test]
fn a_process_of_a_killed_start_that_may_not_be_killed_is_waited_for() {
    let Some(host) = Host::new("foreign", &["setpriv", "--bounding-set", "-kill"]) else { return };
    let mut agent = host.agent(FOREIGN);
    let sleep = host.wait_for_sleep();
    agent.signal(Signal::TERM);
    stays_until_its_end(&host, &mut agent, sleep);
}

/// Regression: the guard waited for the end of a process that it may not kill, and listed no
/// processes meanwhile. A process of another user that executes a set-user-ID program of root may
/// be killed by root.
#[test]
fn a_process_that_comes_while_another_one_may_not_be_killed_is_killed() {
    let Some(host) = Host::new("later", &["setpriv", "--bounding-set", "-kill"]) else { return };
    let (of_root, begin) = (host.sandbox.join("sleep"), host.sandbox.join("begin"));
    fs::copy("/bin/sleep", &of_root).expect("there is room");
    fs::set_permissions(&of_root, Permissions::from_mode(0o4755)).expect("it is ours");
    let fifo = host.sandbox.command("mkfifo").arg(&begin).status().expect("it runs");
    assert!(fifo.success());
    let start = "exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '
        echo >&7; read -r _ <&8; /proc/self/fd/9 1000 & exec sleep 1000' 7>$D/up 8<>$D/begin \
        9<$D/sleep";
    let mut agent = host.agent(&format!("({start}); true"));
    let up = host.sandbox.join("up");
    until_true("start", || fs::metadata(&up).is_ok_and(|file| file.len() > 0));
    agent.signal(Signal::TERM);
    agent.wait_for_any(&["start had not ended when it began"]);
    fs::write(&begin, "\n").expect("it is read");
    let sleep = host.wait_for_sleep();
    // A shell becomes the other process.
    let is_gone = |name: &str| host.sandbox.processes_of(name).is_empty();
    until_true("the end of the other one", || is_gone("sh") && is_gone("9"));
    stays_until_its_end(&host, &mut agent, sleep);
}

/// The next guard took the start for one that had ended, since its leader had.
#[test]
fn so_it_is_by_the_next_guard() {
    let Some(host) = Host::new("next", &["setpriv", "--bounding-set", "-kill"]) else { return };
    let mut agent = host.agent(FOREIGN);
    let sleep = host.wait_for_sleep();
    agent.signal(Signal::TERM);
    agent.wait_for_any(&["start had not ended when it began"]);
    let guard = host.sandbox.guard("web");
    kill_process(guard, Signal::KILL).expect("it runs");
    stays_until_its_end(&host, &mut agent, sleep);
    let next = "the guard before this one is dead";
    assert!(agent.log.text().contains(next), "{}", agent.log.text());
}

/// As with a service manager that ends all of an agent that has died.
#[test]
fn so_it_is_by_finish() {
    let Some(host) = Host::new("finish", &["setpriv", "--bounding-set", "-kill"]) else { return };
    let agent = host.agent(FOREIGN);
    let sleep = host.wait_for_sleep();
    agent.signal(Signal::TERM);
    agent.wait_for_any(&["start had not ended when it began"]);
    let guard = host.sandbox.guard("web");
    agent.kill();
    kill_process(guard, Signal::KILL).expect("it runs");
    wait_for_end(guard);
    let finish = || host.sandbox.run(&mut host.putex("finish", FOREIGN));
    let Run { status, said, .. } = finish();
    assert_eq!(status, Some(70), "{said}");
    kill_process(sleep, Signal::KILL).expect("it lives");
    let Run { status, said, .. } = finish();
    assert_eq!(status, Some(0), "{said}");
}

/// Regression: finish took the note for one of another boot, and wrote over it: the start went on
/// after the stop.
#[test]
fn finish_on_a_host_that_does_not_tell_its_boot_keeps_the_note() {
    let Some(host) = Host::new("bootless", &[]) else { return };
    let agent = host.agent(TIMEOUT);
    let sleep = host.wait_for_sleep();
    let guard = host.sandbox.guard("web");
    agent.kill();
    kill_process(guard, Signal::KILL).expect("it runs");
    wait_for_end(guard);
    let finish = |mount: &str| {
        let mut command = host.sandbox.command("sh");
        command.args(["-c", &format!("{mount} && exec \"$@\""), "sh"]);
        let putex = host.putex("finish", TIMEOUT);
        command.arg(putex.get_program()).args(putex.get_args()).env("D", host.sandbox.text());
        host.sandbox.run(&mut command)
    };
    let Run { status, said, .. } = finish("mount -t tmpfs none /proc/sys/kernel/random");
    assert_eq!((status, host.sleeps()), (Some(71), vec![sleep]), "{said}");
    let Run { status, said, .. } = finish("true");
    assert_eq!((status, host.sleeps().len()), (Some(0), 0), "{said}");
}

/// A process that cannot be looked at may be of the session.
#[test]
fn a_guard_without_descriptors_does_not_take_a_session_for_empty() {
    does_not_take_a_session_for_empty("shortage", "pidfd_open:error=EMFILE");
}

/// As under a rule of SELinux. Each process was taken for one of another session.
#[test]
fn a_guard_that_may_not_ask_for_sessions_does_not_take_a_session_for_empty() {
    does_not_take_a_session_for_empty("denied", "getsid:error=EACCES");
}

/// As where /proc is unmounted, or one of another PID namespace is mounted over it.
#[test]
fn a_guard_without_its_proc_does_not_take_a_session_for_empty() {
    does_not_take_a_session_for_empty("procless", "readlink,readlinkat:error=ENOENT");
}

fn does_not_take_a_session_for_empty(name: &str, fault: &str) {
    let Some(host) = Host::new(name, &[]) else { return };
    let mut agent = host.agent(TIMEOUT);
    let sleep = host.wait_for_sleep();
    let inject = ["-e", &format!("inject={fault}")];
    let Some(strace) = host.follow_sessions(&inject) else { return };
    agent.signal(Signal::TERM);
    assert_overdue(&host, &mut agent, sleep);
    end(strace);
    host.wait_for_no_guard();
    assert!(host.sleeps().is_empty());
}

/// As when a start has made all the processes that its user may have. The processes are killed all
/// the same.
#[test]
fn a_guard_without_threads_does_not_take_a_session_for_empty_either() {
    let Some(host) = Host::new("threads", &[]) else { return };
    let mut agent = host.agent(TIMEOUT);
    host.wait_for_sleep();
    let inject = ["-e", "inject=clone,clone3:error=EAGAIN"];
    let Some(strace) = host.follow_sessions(&inject) else { return };
    agent.signal(Signal::TERM);
    agent.wait_for_any(&["THE SERVICE MAY STILL RUN"]);
    assert!(host.sleeps().is_empty());
    end(strace);
    host.wait_for_no_guard();
    let (_, said) = agent.wait_end();
    assert!(said.contains("the service is down"), "{said}");
}

/// No stop counts before a process of the start has ended, which this one ends at last.
fn stays_until_its_end(host: &Host, agent: &mut Agent, process: Pid) {
    assert_overdue(host, agent, process);
    kill_process(process, Signal::KILL).expect("it lives");
    host.wait_for_no_guard();
}

/// The agent ends without having stopped the service, of which this process is left.
fn assert_overdue(host: &Host, agent: &mut Agent, process: Pid) {
    let status = agent.wait_exit(now() + PATIENCE);
    let said = agent.log.text();
    assert_eq!(host.sleeps(), [process], "{said}");
    assert_eq!(status.and_then(|status| status.code()), Some(70), "{said}");
    assert!(said.contains("THE SERVICE MAY STILL RUN") && host.has("resort"), "{said}");
    assert!(!host.sandbox.guards("web").is_empty(), "{said}");
}

/// The process is the service. Processes that start has left behind on purpose, in its session,
/// stay.
#[test]
fn a_service_in_the_session_of_a_start_that_has_ended_is_adopted_by_the_next_guard() {
    let Some(host) = Host::new("adopted", &[]) else { return };
    let start = "echo >>$D/starts; test -e $D/up || { sleep 1000 & echo >$D/up; }";
    let agent = host.agent(start);
    let sleep = host.wait_for_sleep();
    let note = file_in(&host.sandbox, "lock");
    let noted = || fs::read_to_string(&note).is_ok_and(|text| text.contains(r#""service":"Up""#));
    until_true("the note of the end of start", noted);
    kill_process(host.sandbox.guard("web"), Signal::KILL).expect("it runs");
    let starts = host.starts();
    until_true("another start", || host.starts() > starts);
    let said = agent.log.text();
    assert!(said.contains("the guard before this one is dead"), "{said}");
    assert_eq!(host.sleeps(), [sleep], "{said}");
}
