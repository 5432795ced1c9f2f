//! `putex lock` where people and scripts use it: at the prompt of a shell, in a pipeline, under
//! timeout(1), without a terminal, with the environment of cron.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::process::Signal;

use crate::disk::has;
use crate::site::{Site, in_directory, on_both_stores, on_server_quickly, state_of};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{lives, signal, wait_exit};
use crate::support::programs;
use crate::terminal::{CONTROL_C, CONTROL_Z, Terminal};

/// Makes a pipe that a command reads its end from.
fn pipe(site: &Site) -> File {
    let path = site.sandbox.join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
    File::options().read(true).write(true).open(path).expect("a pipe")
}

fn expect_free(site: &Site) {
    let run = site.run(&["-w", "10", "x", "true"]);
    assert_eq!(run.status, Some(0), "{}", run.said);
}

#[test]
fn control_c_ends_a_wait_and_takes_the_ticket_out_of_the_queue() {
    on_both_stores(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let mut terminal = Terminal::begin(site);
        terminal.enter("$P lock $S x true");
        terminal.wait_for("waiting, 1 ahead");
        let behind = site.lock("behind", &["x"]);
        behind.waits_behind(2);
        terminal.press(CONTROL_C);
        terminal.expect_status(130);
        behind.says(": waiting, 1 ahead: ");
        holder.end();
        behind.begun();
        behind.end();
        terminal.end();
    });
}

/// Runs a test at both shells.
fn at_both_shells(site: &Site, mut test: impl FnMut(&mut Terminal)) {
    for begin in [Terminal::begin, Terminal::with_bash] {
        let mut terminal = begin(site);
        test(&mut terminal);
        terminal.end();
    }
}

/// Writes a script, which has the variables of the prompt.
fn script(site: &Site, text: &str) {
    fs::write(site.sandbox.join("script"), text).expect("a file");
}

/// A command that says so when it runs, on the terminal.
const SLEEPER: &str = "sh -c 'echo be''gun >/dev/tty; exec sleep 100'";

/// Regression: Control-C ended the command only, which alone is in the foreground, and the next
/// command of the loop began.
#[test]
fn control_c_ends_a_script_or_a_loop_and_not_the_command_alone() {
    on_both_stores(|site| {
        at_both_shells(site, |terminal| {
            let [alone, before, behind] = [
                format!("$P lock $S x {SLEEPER}"),
                format!("$P lock $S x {SLEEPER} | cat"),
                format!("true | $P lock $S x {SLEEPER}"),
            ];
            let repeated = |line: &str| format!("for i in 1 2 3; do {line}; done; echo went''on");
            for line in [&alone, &before, &behind] {
                script(site, &repeated(line));
                for shell in ["sh", "bash"] {
                    terminal.enter(&format!("{shell} $D/script"));
                    terminal.wait_for("begun");
                    terminal.press(CONTROL_C);
                    let shown = terminal.wait_for("> ");
                    assert!(!shown.contains("begun") && !shown.contains("wenton"), "{shown}");
                    terminal.expect_status(130);
                }
            }
            terminal.enter(&repeated(&alone));
            terminal.wait_for("begun");
            terminal.press(CONTROL_C);
            let shown = terminal.wait_for("> ");
            assert!(!shown.contains("begun") && !shown.contains("wenton"), "{shown}");
            terminal.expect_status(130);
        });
        expect_free(site);
    });
}

/// As it does after any command that handles the signal, or that another process has sent it.
#[test]
fn a_script_goes_on_after_a_command_that_handles_control_c_or_was_interrupted_from_elsewhere() {
    on_both_stores(|site| {
        let handles = "sh -c 'trap \"exit 3\" INT; echo be''gun; while :; do sleep 0.01; done'";
        // In NATS, the parent of the command is a child of the front.
        let front = "case $(cat /proc/$PPID/comm) in \
                     putex-renewer) cut -d \" \" -f 4 /proc/$PPID/stat;; *) echo $PPID;; esac";
        let tells = format!("sh -c '{front} >$D/front; echo be''gun; exec sleep 100'");
        at_both_shells(site, |terminal| {
            script(site, &format!("$P lock $S x {handles}; echo went on $?."));
            terminal.enter("bash $D/script");
            terminal.wait_for("begun");
            terminal.press(CONTROL_C);
            terminal.wait_for("went on 3.");
            script(site, &format!("$P lock $S x {tells}; echo went on $?."));
            terminal.enter("bash $D/script");
            terminal.wait_for("begun");
            let front = fs::read_to_string(site.sandbox.join("front")).expect("a number");
            signal(front.trim().parse().expect("a number"), Signal::INT);
            terminal.wait_for("went on 130.");
            terminal.wait_for("> ");
        });
    });
}

#[test]
fn without_a_terminal_the_status_of_a_command_that_was_interrupted_is_a_status() {
    on_both_stores(|site| {
        let run = "exec setsid -w \"$P\" lock $S x sh -c 'kill -INT $$'";
        let mut command = site.sandbox.command("sh");
        command.args(["-c", run]).env("P", programs::putex());
        let run = site.sandbox.run(command.env("S", site.options().join(" ")));
        assert_eq!(run.status, Some(130), "{}", run.said);
    });
}

/// The shell of the script waits for its end, and does not see that it is stopped.
#[test]
fn control_z_in_a_script_brings_the_prompt_and_fg_continues_all() {
    on_both_stores(|site| {
        let mut pipe = pipe(site);
        let job = "sh -c 'echo $$ >$D/job; echo be''gun; read line <$D/pipe; exit 7'";
        script(site, &format!("$P lock $S x {job}; echo went on $?."));
        at_both_shells(site, |terminal| {
            for shell in ["sh", "bash"] {
                terminal.enter(&format!("{shell} $D/script"));
                terminal.wait_for("begun");
                let job = fs::read_to_string(site.sandbox.join("job")).expect("a number");
                let job = job.trim().parse().expect("a number");
                for _ in 0..2 {
                    until_true("the job", || terminal.is_of(job) && state_of(job) != Some('T'));
                    terminal.press(CONTROL_Z);
                    terminal.wait_for("Stopped");
                    terminal.enter("$P lock $S -n x true");
                    terminal.wait_for("not acquired: ");
                    terminal.expect_status(75);
                    terminal.enter("fg");
                }
                pipe.write_all(b"end\n").expect("a pipe");
                terminal.wait_for("went on 7.");
                terminal.wait_for("> ");
            }
        });
        expect_free(site);
    });
}

/// There, bash has what it runs ignore that it reads the terminal in the background: the read
/// fails.
#[test]
fn a_command_whose_output_a_shell_takes_reads_the_terminal() {
    on_both_stores(|site| {
        let mut terminal = Terminal::with_bash(site);
        for from in ["", "</dev/tty"] {
            let reads = format!("sh -c 'echo be''gun >/dev/tty; read y {from}; echo got $y'");
            terminal.enter(&format!("x=$($P lock $S x {reads}); echo \"[$x]\""));
            terminal.wait_for("begun");
            terminal.enter("a word");
            terminal.wait_for("[got a word]");
            terminal.wait_for("> ");
            terminal.enter(&format!("x=$($P lock $S x {reads}); echo \"[$x]\""));
            terminal.wait_for("begun");
            terminal.press(CONTROL_C);
            terminal.wait_for("> ");
            terminal.expect_status(130);
        }
        terminal.end();
        expect_free(site);
    });
}

/// The terminal stayed with the group: Control-Z stopped what was left of it, and neither the front
/// nor the shell noticed that.
#[test]
fn control_z_works_while_the_front_waits_for_what_the_command_has_left() {
    on_both_stores(|site| {
        let mut terminal = Terminal::begin(site);
        terminal.enter("$P lock $S x sh -c 'sleep 1000 & echo be''gun'");
        terminal.wait_for("begun");
        terminal.wait_for("the command has ended, others in its process group");
        terminal.press(CONTROL_Z);
        terminal.wait_for("Stopped");
        terminal.enter("$P lock $S -n x true");
        terminal.wait_for("not acquired: ");
        terminal.enter("kill %1; fg");
        terminal.wait_for("> ");
        terminal.expect_status(0);
        terminal.end();
        expect_free(site);
    });
}

/// Starts a job that is stopped by a program, with the front that runs it; returns its process.
fn stopped_job(site: &Site, terminal: &mut Terminal) -> u32 {
    let job = "sh -c 'echo $$ >$D/job; echo be''gun; exec sleep 1000'";
    terminal.enter(&format!("$P lock $S x {job}"));
    terminal.wait_for("begun");
    let job = fs::read_to_string(site.sandbox.join("job")).expect("a number");
    let job = job.trim().parse().expect("a number");
    until_true("the job", || terminal.is_of(job));
    signal(job, Signal::STOP);
    terminal.wait_for("Stopped");
    job
}

/// The front read the signal that tells of the end while it acted on the stop, and looked at no
/// child: it waited for ever, and held the lock.
#[test]
fn a_command_that_is_killed_while_its_front_acts_on_its_stop_has_ended() {
    if !has("strace") {
        return;
    }
    in_directory(|site| {
        let log = site.sandbox.join("strace").display().to_string();
        let slow = ["-e", "trace=kill", "-e", "inject=kill:delay_exit=500000"];
        let strace = [&["strace", "-o", &log][..], &slow].concat();
        let (putex, [option, store]) = (programs::putex().display().to_string(), site.store());
        let job = "echo $$ >$D/job; echo '> '; exec sleep 1000";
        let front = [&*putex, "lock", &option, &store, "x", "sh", "-c", job];
        // No shell watches its group.
        let terminal = Terminal::with(site, &[&strace[..], &front].concat());
        let job = fs::read_to_string(site.sandbox.join("job")).expect("a number");
        let job = job.trim().parse().expect("a number");
        signal(job, Signal::STOP);
        until_true("the front acts on it", || !terminal.is_of(job));
        signal(job, Signal::KILL);
        assert_eq!(terminal.ended(), Some(137));
        expect_free(site);
    });
}

/// The front stopped again with the command, which it had let go on.
#[test]
fn a_command_that_was_stopped_twice_goes_on_with_its_front() {
    on_both_stores(|site| {
        at_both_shells(site, |terminal| {
            let job = stopped_job(site, terminal);
            signal(job, Signal::CONT);
            until_true("it goes on", || state_of(job) != Some('T'));
            signal(job, Signal::STOP);
            until_true("it is stopped", || state_of(job) == Some('T'));
            terminal.enter("fg");
            until_true("it goes on", || terminal.is_of(job) && state_of(job) != Some('T'));
            terminal.press(CONTROL_C);
            terminal.wait_for("> ");
            terminal.expect_status(130);
        });
        expect_free(site);
    });
}

/// A stopped wait that got the lock would have to be renewed for as long as it is stopped.
#[test]
fn a_stopped_wait_gets_no_lock_that_it_keeps() {
    on_server_quickly(|site| {
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let mut terminal = Terminal::begin(site);
        terminal.enter("$P lock $S x true");
        terminal.wait_for("waiting, 1 ahead");
        terminal.press(CONTROL_Z);
        terminal.wait_for("Stopped");
        holder.end();
        expect_free(site);
        terminal.enter("fg");
        terminal.wait_for("the lock is lost");
        terminal.expect_status(100);
        terminal.end();
    });
}

#[test]
fn a_lock_stands_anywhere_in_a_pipeline() {
    on_both_stores(|site| {
        let mut terminal = Terminal::begin(site);
        terminal.enter("printf 'b\\na\\n' | $P lock $S x sort | tr ab AB | head -n 1");
        terminal.wait_for("\nA\r\n");
        terminal.wait_for("> ");
        terminal.enter("$P lock $S x yes | head -n 1");
        terminal.wait_for("\ny\r\n");
        terminal.end();
        // The command has died by SIGPIPE.
        let mut command = site.sandbox.command("bash");
        command.args(["-c", "\"$P\" lock $S x yes | true; echo ${PIPESTATUS[0]}"]);
        command.env("P", programs::putex()).env("S", site.options().join(" "));
        assert_eq!(site.sandbox.run(&mut command).shown, "141\n");
        expect_free(site);
    });
}

/// A process that reads a pipe waits until all writers have closed it.
#[test]
fn who_reads_output_errors_or_another_file_sees_its_end_though_the_server_hangs() {
    on_server_quickly(|site| {
        for redirection in ["2>/dev/null", "2>&1 >/dev/null", "3>&1 >/dev/null 2>&1"] {
            let mut command = site.sandbox.command("sh");
            let script = format!("exec \"$P\" lock $S -r 1s -f 9 x sh -c \"$0\" {redirection}");
            let job = "echo begun; echo begun >&2; { echo begun >&3; } 2>&-
                       while [ ! -e $D/end ]; do sleep 0.01; done";
            command.args(["-c", &script, job]).stdout(Stdio::piped());
            command.env("P", programs::putex()).env("D", site.sandbox.text());
            let mut front =
                command.env("S", site.store().join(" ")).spawn().expect("it can be run");
            let mut reader = front.stdout.take().expect("a pipe");
            let mut begun = [0; 6];
            reader.read_exact(&mut begun).expect("it begins");
            site.server().signal(Signal::STOP);
            let renewer = site.renewer_of(front.id());
            fs::write(site.sandbox.join("end"), "").expect("a file");
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).expect("its end");
            assert!(lives(renewer), "the renewer could not end its ticket yet");
            let status = wait_exit(&mut front, now() + PATIENCE).expect("it ends");
            assert_eq!(status.code(), Some(0), "{redirection}");
            site.server().signal(Signal::CONT);
            fs::remove_file(site.sandbox.join("end")).expect("it is there");
            until_true("the end of the renewer", || !lives(renewer));
        }
    });
}

#[test]
fn without_a_terminal_and_with_all_files_closed_a_command_runs() {
    on_both_stores(|site| {
        for files in ["<&-", "<&- >&- 2>&-", "</dev/null >/dev/null 2>&1"] {
            let script = format!("exec setsid -w \"$P\" lock $S x sh -c 'exit 5' {files}");
            let mut command = site.sandbox.command("sh");
            command.args(["-c", &script]).env("P", programs::putex());
            let run = site.sandbox.run(command.env("S", site.options().join(" ")));
            assert_eq!(run.status, Some(5), "{files}: {}", run.said);
        }
    });
}

#[test]
fn a_lock_under_timeout_is_free_when_timeout_ends() {
    on_both_stores(|site| {
        for signal in ["TERM", "KILL"] {
            let mut command = site.sandbox.command("timeout");
            command.args(["-s", signal, "0.5", "sh", "-c", "exec \"$P\" lock $S x sleep 100"]);
            command.env("P", programs::putex()).env("S", site.options().join(" "));
            let run = site.sandbox.run(&mut command);
            assert!(signal == "KILL" || run.status == Some(124), "{run:?}");
            expect_free(site);
            assert!(site.sandbox.processes_of("sleep").is_empty(), "{signal}");
        }
    });
}

#[test]
fn the_environment_of_cron_is_enough() {
    on_both_stores(|site| {
        for variables in ["", "HOME=/ LOGNAME=x PATH=/usr/bin:/bin SHELL=/bin/sh"] {
            let script =
                format!("exec env -i PUTEX_TEST=\"$PUTEX_TEST\" {variables} \"$P\" lock $S");
            let script = format!("{script} x -c 'echo \"$PUTEX_KEY in $PWD\"; exit 4'");
            let mut command = site.sandbox.command("sh");
            command.args(["-c", &script]).env("P", programs::putex()).current_dir("/");
            let run = site.sandbox.run(command.env("S", site.options().join(" ")));
            assert_eq!(run.status, Some(4), "{variables}: {}", run.said);
            assert_eq!(run.shown, "x in /\n");
        }
    });
}

/// The variable names no bucket: the page says what to do.
#[test]
fn the_same_name_in_another_bucket_is_refused_unless_the_variable_is_unset() {
    on_both_stores(|site| {
        let store = site.options().join(" ");
        let script = format!("$P lock {store} --bucket other -n x true");
        let run = site.run(&["x", "sh", "-c", &script]);
        assert_eq!(run.status, Some(64), "{}", run.said);
        assert!(run.said.contains("PUTEX_HELD"), "{}", run.said);
        let run = site.run(&["x", "sh", "-c", &format!("unset PUTEX_HELD; {script}")]);
        // On a server that bucket is new.
        let expected = if site.is_local() { 0 } else { 75 };
        assert_eq!(run.status, Some(expected), "{}", run.said);
    });
}
