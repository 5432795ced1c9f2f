//! The cases of the tests of flock(1), and of its page.

use std::time::Duration;

use crate::site::{Site, on_both_stores};
use crate::support::clock::now;
use crate::support::programs;

fn ran(site: &Site) -> bool {
    site.sandbox.join("ran").exists()
}

/// A command that must not be run.
const RUNS: [&str; 3] = ["sh", "-c", "touch $D/ran"];

#[test]
fn flock_beside_a_shared_holder_only_a_shared_lock_is_had_and_after_it_any() {
    on_both_stores(|site| {
        let holder = site.lock("holder", &["-s", "x"]);
        holder.begun();
        for options in [&["-n", "-E", "123"][..], &["-x", "--nb", "-E", "123"]] {
            let refused = site.run(&[options, &["x"], &RUNS].concat());
            assert_eq!(refused.status, Some(123), "{options:?}: {}", refused.said);
            assert!(refused.said.contains("not acquired: behind "), "{}", refused.said);
            assert!(!ran(site), "{options:?}");
        }
        assert_eq!(site.run(&["-s", "-n", "x", "true"]).status, Some(0));
        let begun = now();
        let late = site.run(&[&["-w", "1.5", "-E", "5", "x"][..], &RUNS].concat());
        assert_eq!(late.status, Some(5), "{}", late.said);
        assert!(now() - begun >= Duration::from_millis(1500) && !ran(site));
        let mut waiter = site.lock("waiter", &["--timeout", "30", "-E", "5", "x"]);
        waiter.waits_behind(1);
        holder.end();
        waiter.begun();
        waiter.let_go();
        assert_eq!(waiter.status(), 0);
        assert_eq!(site.run(&["-x", "-w", "0", "x", "true"]).status, Some(0));
        assert_eq!(site.run(&["-n", "x", "-c", "exit 9"]).status, Some(9));
    });
}

/// As execvp(3) of glibc does it, by which flock(1) starts a command.
#[test]
fn flock_a_script_that_names_no_interpreter_is_run_by_the_shell() {
    on_both_stores(|site| {
        let script = site.sandbox.file("script", "echo \"$0\" \"$1\" \"$#\"\n", 0o700);
        site.sandbox.file("data", "echo no", 0o600);
        let shown = format!("{} a word 2\n", script.display());
        let by_path = site.run(&["x", &script.display().to_string(), "a word", ""]);
        assert_eq!((by_path.status, by_path.shown), (Some(0), shown.clone()), "{}", by_path.said);
        let line = "PATH=/nonexistent:$D:$PATH; \"$P\" lock $S x script 'a word' ''
                    \"$P\" lock $S x data; echo $?; \"$P\" lock $S x nothing; echo $?";
        let mut command = site.sandbox.command("sh");
        command.args(["-c", line]).env("D", site.sandbox.text());
        command.env("P", programs::putex()).env("S", site.options().join(" "));
        let found = site.sandbox.run(&mut command);
        assert_eq!(found.shown, shown + "126\n127\n", "{}", found.said);
    });
}
