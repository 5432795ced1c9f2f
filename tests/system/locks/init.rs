//! Commands that wait as the first process of a container: for such a process the kernel has no
//! default action of a signal.

use rustix::process::Signal;

use crate::site::{Site, in_directory};
use crate::support::clock::{PATIENCE, now, until, until_true};
use crate::support::process::{children_of, has_signal, signal, wait_exit};
use crate::support::programs;

/// Returns whether a PID namespace can be made; says so if not.
fn has_namespaces(site: &Site) -> bool {
    let mut tried = site.sandbox.command("unshare");
    let run = site.sandbox.run(tried.args(["--pid", "--fork", "--mount-proc", "true"]));
    if run.status != Some(0) {
        println!("skipped: no PID namespace: {}", run.said);
    }
    run.status == Some(0)
}

#[test]
fn as_the_first_process_of_a_container_a_command_that_waits_is_ended_by_a_signal() {
    in_directory(|site| {
        if !has_namespaces(site) {
            return;
        }
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let waits = [
            &["lock", "x", "true"][..],
            &["lock", "-w", "600", "x", "true"],
            &["grab", "-w", "600", "--for", "10m", "--as", "a", "x"],
        ];
        for words in waits {
            for (sent, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
                let mut command = site.sandbox.command("unshare");
                command
                    .args(["--pid", "--fork", "--mount-proc"])
                    .arg(programs::putex())
                    .arg(words[0]);
                command.args(site.store()).args(&words[1..]);
                let mut unshare = command.spawn().expect("it can be run");
                let first = until("its child", || {
                    let mut putex = site.sandbox.processes_of("putex").into_iter();
                    putex.find(|it| children_of(unshare.id()).contains(it))
                });
                // Its handlers are set one after the other, that of SIGUSR2 as the last.
                let last = Signal::USR2;
                until_true("handlers", || has_signal(first, "SigCgt:", last));
                signal(first, sent);
                let ended = wait_exit(&mut unshare, now() + PATIENCE).expect("it ends");
                assert_eq!(ended.code(), Some(status), "{words:?}");
            }
        }
        holder.end();
    });
}
