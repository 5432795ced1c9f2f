//! `putex lock` where people and scripts use it: at the prompt of a shell, in a pipeline, under
//! timeout(1), without a terminal, with the environment of cron.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::site::{Site, on_both_stores, on_both_stores_quickly, on_server_quickly};
use crate::support::clock::{PATIENCE, now, until_true};
use crate::support::process::{lives, wait_exit};
use crate::support::programs;
use crate::terminal::{CONTROL_C, CONTROL_Z, Terminal};

/// A command that says so when it runs, and ends with status 7 when it has read a line from the
/// pipe. It starts no other: a shell that is stopped while it starts one may not stop.
const JOB: &str = "sh -c 'echo be''gun; read line <$D/pipe; exit 7'";

/// Makes the pipe of [`JOB`].
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
fn control_z_and_fg_are_those_of_a_job_and_the_lock_goes_on_being_held() {
    on_both_stores_quickly(|site| {
        let (mut pipe, mut terminal) = (pipe(site), Terminal::begin(site));
        terminal.enter(&format!("$P lock $S x {JOB}"));
        terminal.wait_for("begun");
        terminal.press(CONTROL_Z);
        terminal.wait_for("Stopped");
        // For longer than T.
        terminal.enter("$P lock $S -w 1.5 x true");
        terminal.wait_for("not had: ");
        terminal.expect_status(75);
        terminal.enter("fg");
        pipe.write_all(b"end\n").expect("a pipe");
        terminal.wait_for("> ");
        terminal.expect_status(7);
        terminal.end();
        expect_free(site);
    });
}

#[test]
fn a_stopped_job_goes_on_in_the_background() {
    on_both_stores(|site| {
        let (mut pipe, mut terminal) = (pipe(site), Terminal::begin(site));
        terminal.enter(&format!("$P lock $S x {JOB}"));
        terminal.wait_for("begun");
        terminal.press(CONTROL_Z);
        terminal.wait_for("Stopped");
        terminal.enter("bg");
        pipe.write_all(b"end\n").expect("a pipe");
        terminal.enter("wait %1; echo waited''=$?.");
        terminal.wait_for("waited=7.");
        terminal.end();
        expect_free(site);
    });
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

#[test]
fn control_c_reaches_the_command_and_its_status_the_shell() {
    on_both_stores(|site| {
        let mut terminal = Terminal::begin(site);
        let traps = "sh -c 'trap \"exit 3\" INT; echo be''gun; while :; do sleep 0.01; done'";
        for (command, status) in [(traps, 3), ("sh -c 'echo be''gun; exec sleep 100'", 130)] {
            terminal.enter(&format!("$P lock $S x {command}"));
            terminal.wait_for("begun");
            terminal.press(CONTROL_C);
            terminal.expect_status(status);
        }
        terminal.end();
        expect_free(site);
    });
}

/// It would have to be renewed for as long as it is stopped.
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

/// Whoever reads a pipe waits until all have closed it.
#[test]
fn who_reads_errors_or_another_file_sees_its_end_though_the_server_hangs() {
    on_server_quickly(|site| {
        for redirection in ["2>&1 >/dev/null", "3>&1 >/dev/null 2>&1"] {
            let mut command = site.sandbox.command("sh");
            let script = format!("exec \"$P\" lock $S -r 1s -f 9 x sh -c \"$0\" {redirection}");
            let job = "echo begun >&2; { echo begun >&3; } 2>&-
                       while [ ! -e $D/end ]; do sleep 0.01; done";
            command.args(["-c", &script, job]).stdout(Stdio::piped());
            command.env("P", programs::putex()).env("D", site.sandbox.text());
            let mut front =
                command.env("S", site.options().join(" ")).spawn().expect("it can be run");
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

/// timeout(1) runs beside the command, and what it runs is in a group of its own.
#[test]
fn a_command_under_timeout_ends_with_its_lock() {
    on_both_stores(|site| {
        let begun = now();
        let run = site.run(&["x", "timeout", "0.5", "sleep", "100"]);
        assert_eq!(run.status, Some(124), "{}", run.said);
        assert!(now() - begun < Duration::from_secs(20));
        expect_free(site);
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
