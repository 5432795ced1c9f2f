//! `putex grab` and `putex release`: the holder of a lock when no process stays.

#[path = "grab/local.rs"]
mod local;

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::rng::Rng;
use crate::site::{QUICK, Site};
use crate::support::clock::{At, PATIENCE, now, observe_for, until, until_true};
use crate::support::process::wait_exit;
use crate::support::sandbox::Run;

/// The time of a lock that does not run out during a story.
const LONG: &str = "9m";

/// How long a ticket has not moved when it is removed, with `--for 1s`.
const SHORT: At = Duration::from_millis(1010);

/// How long a ticket of a directory stands, with `--for 1s`.
const SHORT_LOCAL: At = Duration::from_secs(1);

/// The output of `putex grab`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grab {
    status: i32,
    term: u64,
    ahead: u64,
    valid: u64,
}

impl Grab {
    fn of(run: &Run) -> Grab {
        Grab::parse(run.status, &run.shown)
    }

    fn parse(status: Option<i32>, line: &str) -> Grab {
        let numbers: Vec<u64> = ["term=", "place=", "valid="]
            .iter()
            .zip(line.trim_end().split(' '))
            .filter_map(|(name, word)| word.strip_prefix(name)?.parse().ok())
            .collect();
        let [term, ahead, valid] = numbers[..] else { panic!("{line:?} {status:?}") };
        Grab { status: status.expect("no signal"), term, ahead, valid }
    }

    fn is_had(&self) -> bool {
        assert_eq!(self.status == 0, self.ahead == 0, "{self:?}");
        self.ahead == 0
    }
}

/// Prepares a `putex grab` or `putex release` with these words.
fn command(site: &Site, words: &[&str]) -> Command {
    let mut command = site.sandbox.putex();
    command.arg(words[0]).args(site.store()).args(&words[1..]);
    command
}

fn run(site: &Site, words: &[&str]) -> Run {
    site.sandbox.run(&mut command(site, words))
}

/// An attempt of this requester, with these words behind it.
fn grab(site: &Site, who: &str, words: &[&str]) -> Grab {
    Grab::of(&run(site, &[&["grab", "--as", who, "--for", LONG], words].concat()))
}

fn release(site: &Site, who: &str, name: &str) -> i32 {
    run(site, &["release", "--as", who, name]).status.expect("no signal")
}

/// Returns how long a holder with `--for 1s` keeps others waiting that is gone.
fn run_out(site: &Site) -> At {
    if site.is_local() { SHORT_LOCAL } else { SHORT }
}

/// Waits until so many have `x` or wait for it.
fn until_queued(site: &Site, count: u64) {
    until_true("the others wait", || {
        let Grab { ahead, .. } = grab(site, "probe", &["x"]);
        assert_eq!(release(site, "probe", "x"), 0);
        ahead == count
    });
}

/// Tells a story about a directory, and about a bucket on nats-server that is old enough for
/// [`LONG`].
fn on_both_stores(story: impl Fn(&Site)) {
    for site in Site::in_directory(&[]).into_iter().chain(Site::on_server(&QUICK)) {
        assert!(grab(&site, "first", &["-w", "30", "first"]).is_had());
        assert_eq!(release(&site, "first", "first"), 0);
        story(&site);
        site.assert_end();
    }
}

/// As [`on_both_stores`], on nats-server only.
fn on_server(story: impl Fn(&Site)) {
    on_both_stores(|site| {
        if !site.is_local() {
            story(site);
        }
    });
}

#[test]
fn whoever_grabs_again_keeps_the_place_and_the_lock() {
    on_both_stores(|site| {
        let [a, b, c] = ["a", "b", "c"].map(|who| grab(site, who, &["x"]));
        assert_eq!([a.ahead, b.ahead, c.ahead], [0, 1, 2]);
        assert_eq!([a.status, b.status, c.status], [0, 75, 75]);
        assert!(a.term < b.term && b.term < c.term && (500..540).contains(&a.valid), "{a:?}");
        for _ in 0..2 {
            let again = ["a", "b", "c"].map(|who| grab(site, who, &["x"]));
            assert_eq!(again.clone().map(|it| it.term), [a.term, b.term, c.term]);
            assert_eq!(again.map(|it| it.ahead), [0, 1, 2]);
        }
        assert_eq!(release(site, "a", "x"), 0);
        // The later one does not overtake, however often it comes.
        assert_eq!(grab(site, "c", &["x"]).ahead, 1);
        let next = grab(site, "b", &["x"]);
        assert!(next.is_had() && next.term == b.term, "{next:?}");
        let last = grab(site, "a", &["x"]);
        assert!(last.ahead == 2 && last.term > c.term, "{last:?}");
    });
}

#[test]
fn attempts_one_by_one_get_rid_of_a_holder_that_is_gone_and_not_too_early() {
    on_both_stores(|site| {
        let begun = now();
        let gone = run(site, &["grab", "--as", "gone", "--for", "1s", "x"]);
        assert!(Grab::of(&gone).is_had());
        let mut said = String::new();
        // A script that is not to wait comes again, says putex-grab(1).
        let had = until("the lock", || {
            let attempt = run(site, &["grab", "--as", "b", "--for", LONG, "x"]);
            said.push_str(&attempt.said);
            Some(Grab::of(&attempt)).filter(Grab::is_had)
        });
        assert!(now() > begun + run_out(site), "after {:?}", now() - begun);
        let says = "gone has not renewed its lock in time: it was removed";
        assert_eq!(said.contains(says), !site.is_local(), "{said}");
        // The other one comes back: it has lost the lock, and waits.
        let back = run(site, &["grab", "--as", "gone", "--for", "1s", "x"]);
        let (lost, back) = (Grab::of(&gone), Grab::of(&back));
        assert!(back.term > had.term && lost.term < had.term && back.ahead == 1, "{back:?}");
    });
}

#[test]
fn without_a_place_nothing_is_left_in_the_queue() {
    on_both_stores(|site| {
        assert!(grab(site, "a", &["x"]).is_had());
        let without = run(site, &["grab", "--as", "b", "-n", "-E", "9", "x"]);
        assert_eq!((without.status, without.shown.as_str()), (Some(9), ""), "{without:?}");
        assert!(without.said.contains("x: not acquired: behind a"), "{}", without.said);
        // The store does not know whether there was a ticket before.
        let never = run(site, &["release", "--as", "b", "x"]);
        assert_eq!(never.status, Some(100), "{never:?}");
        let says = "b has no ticket of putex grab: a has a ticket for x, which ends with its";
        assert!(never.said.contains(says), "{}", never.said);
        assert!(grab(site, "a", &["-n", "x"]).is_had(), "it is kept");
        assert_eq!(release(site, "a", "x"), 0);
        assert!(grab(site, "b", &["-n", "x"]).is_had());
    });
}

#[test]
fn names_and_modes_exclude_each_other_as_those_of_a_command_do() {
    on_both_stores(|site| {
        assert!(grab(site, "a", &["-s", "db"]).is_had());
        assert!(grab(site, "b", &["-s", "db"]).is_had());
        assert_eq!(grab(site, "c", &["db/users"]).ahead, 2);
        assert_eq!(grab(site, "d", &["-s", "db"]).ahead, 1, "it does not overtake");
        assert!(grab(site, "d", &["mail"]).is_had());
        assert_eq!((release(site, "a", "db"), release(site, "b", "db")), (0, 0));
        assert!(grab(site, "c", &["db/users"]).is_had());
        for words in [&["db/users/x"][..], &["db"], &["-s", "db/users"]] {
            let all = [&["grab", "--as", "c"], words].concat();
            let refused = run(site, &all);
            assert_eq!(refused.status, Some(64), "{refused:?}");
            let says = "c has a ticket for db/users: it would wait for itself; release that first";
            assert!(refused.said.contains(says), "{}", refused.said);
        }
        let hint = run(site, &["release", "--as", "c", "db"]);
        assert_eq!(hint.status, Some(100));
        assert!(
            hint.said.contains("of putex grab: c has a ticket for db/users, which"),
            "{}",
            hint.said
        );
        assert_eq!(release(site, "c", "db/users"), 0);
    });
}

#[test]
fn whoever_waits_has_the_lock_when_it_is_released() {
    on_both_stores(|site| {
        assert!(grab(site, "a", &["x"]).is_had());
        let words = ["grab", "--as", "b", "--for", LONG, "-v", "-w", "60", "x"];
        let waiter = command(site, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut waiter = waiter.expect("it can be run");
        until_queued(site, 2);
        assert_eq!(release(site, "a", "x"), 0);
        wait_exit(&mut waiter, now() + PATIENCE).expect("it ends");
        let output = waiter.wait_with_output().expect("it has ended");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let said = text(output.stderr);
        let had = Grab::parse(output.status.code(), &text(output.stdout));
        assert!(had.is_had() && said.contains("x: waiting: behind a"), "{said}");
        // The place of one that does not get it in time is kept.
        let begun = now();
        let late = grab(site, "c", &["-w", "0.5", "x"]);
        assert!(late.status == 75 && now() >= begun + Duration::from_millis(500), "{late:?}");
        assert_eq!(grab(site, "c", &["x"]).term, late.term);
    });
}

#[test]
fn commands_and_scripts_wait_in_one_queue() {
    on_both_stores(|site| {
        let [store, place] = site.store();
        let inner = format!("\"$P\" grab {store} {place} --as me x/y");
        let inside = site.run(&["x", "-c", &inner]);
        assert_eq!(inside.status, Some(64), "it would wait for itself: {inside:?}");
        let holder = site.lock("holder", &["x"]);
        holder.begun();
        let mine = grab(site, "script", &["x"]);
        assert_eq!(mine.ahead, 1);
        let third = site.lock("third", &["x"]);
        third.waits_behind(2);
        holder.end();
        let had = grab(site, "script", &["x"]);
        assert!(had.is_had() && had.term == mine.term, "{had:?}");
        third.waits_behind(1);
        assert!(third.held().is_none(), "it runs beside the script");
        assert_eq!(release(site, "script", "x"), 0);
        third.begun();
        assert!(!grab(site, "script", &["x"]).is_had());
        third.end();
        assert!(grab(site, "script", &["x"]).is_had());
        assert_eq!(release(site, "script", "x"), 0);
    });
}

#[test]
fn a_command_gets_the_lock_of_a_script_that_is_gone() {
    on_both_stores(|site| {
        let begun = now();
        assert!(Grab::of(&run(site, &["grab", "--as", "gone", "--for", "1s", "x"])).is_had());
        let next = site.lock("next", &["x"]);
        let begun_at = next.begun().begun_at;
        // The clock of the record has hundredths of a second.
        assert!(begun_at > begun + run_out(site) - Duration::from_millis(10), "too early");
        next.end();
    });
}

#[test]
fn a_lock_is_taken_away_from_the_holder_that_is_named_and_from_nobody_else() {
    on_server(|site| {
        let mut holder = site.lock("holder", &["--token", "h1", "x"]);
        let term = holder.begun().term;
        assert_eq!(grab(site, "script", &["x"]).ahead, 1);
        let by_force =
            |who: &str| run(site, &["release", "--as", "me", "--force", "--holder", who, "x"]);
        let wrong = by_force("h2");
        assert_eq!((wrong.status, wrong.shown.as_str()), (Some(75), ""));
        assert!(wrong.said.contains("x: not broken: h1 has a ticket for x"), "{}", wrong.said);
        let broken = by_force("h1");
        let says = format!("broke x term={term} mode=exclusive holder=h1\n");
        assert_eq!((broken.status, broken.shown), (Some(0), says), "{}", broken.said);
        assert_eq!(holder.status(), 100, "{}", holder.said());
        assert_eq!(by_force("h1").status, Some(75), "the script has it");
        assert!(grab(site, "script", &["x"]).is_had());
        assert_eq!(by_force("script").status, Some(0));
        assert_eq!(by_force("script").status, Some(100), "nobody has it");
    });
}

#[test]
fn in_a_new_bucket_the_lock_is_not_had_before_locks_of_a_lost_one_have_run_out() {
    let Some(site) = Site::on_new_bucket(&QUICK) else { return };
    let begun = now();
    let first = run(&site, &["grab", "--as", "a", "--for", "1s", "x"]);
    assert!(first.said.contains("this bucket is new"), "{}", first.said);
    let first = Grab::of(&first);
    assert_eq!((first.status, first.ahead), (75, 1));
    let attempt = || Grab::of(&run(&site, &["grab", "--as", "a", "--for", "1s", "x"]));
    let had = until("the lock", || Some(attempt()).filter(Grab::is_had));
    // The locks of the lost bucket may have had the default lifetime.
    let waited = Duration::from_secs(15);
    assert!(now() > begun + waited && had.term == first.term, "{had:?}");
    // A longer time than any before is waited for once more.
    let longer = Grab::of(&run(&site, &["grab", "--as", "b", "--for", "16s", "y"]));
    assert_eq!(longer.ahead, 1);
}

#[test]
fn a_store_that_is_gone_is_told_apart_from_a_lock_that_is_not_had() {
    on_server(|site| {
        assert!(grab(site, "a", &["x"]).is_had());
        let words = ["grab", "--as", "b", "--for", LONG, "-q", "-w", "3", "x"];
        let mut waiter =
            command(site, &words).stderr(Stdio::null()).spawn().expect("it can be run");
        until_queued(site, 2);
        let stopped = site.server().stop(Signal::KILL);
        let status = wait_exit(&mut waiter, now() + PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(69));
        assert!(now() > stopped + Duration::from_secs(1), "it has waited");
        for words in [&["grab", "--as", "a", "--for", "1s", "x"][..], &["release", "x"]] {
            let gone = run(site, words);
            assert_eq!((gone.status, gone.shown.as_str()), (Some(69), ""), "{gone:?}");
        }
        site.server().restart().expect("it starts");
    });
}

/// Every ticket that a killed process leaves runs out.
#[test]
fn a_process_that_is_killed_at_any_moment_leaves_nothing_that_stays() {
    on_both_stores(|site| {
        let mut rng = Rng::new(17, 4);
        let (rounds, within) = if site.is_local() { (120, 6_000) } else { (30, 30_000) };
        for round in 0..rounds {
            let who = format!("killed{}", round % 3);
            let words = ["grab", "--as", &who, "--for", "1s", "-q", "x"];
            let mut child = command(site, &words);
            let mut child = child.stdout(Stdio::null()).spawn().expect("it can be run");
            observe_for(Duration::from_micros(rng.below(within) as u64));
            child.kill().expect("it was not waited for");
            child.wait().expect("it is dead");
        }
        let command = site.lock("command", &["x"]);
        assert!(grab(site, "next", &["-n", "y"]).is_had());
        command.begun();
        command.end();
        assert!(grab(site, "next", &["-n", "x"]).is_had());
        assert_eq!((release(site, "next", "x"), release(site, "next", "y")), (0, 0));
    });
}

/// The script of the page, with steps that do nothing.
#[test]
fn the_script_of_the_page_works_and_ends_when_its_lock_is_lost() {
    let page = std::fs::read_to_string("man/putex-grab.1").expect("a page");
    let (_, script) = page.split_once(".Ss A script of several steps").expect("a section");
    let (_, script) = script.split_once(".Bd -literal -offset indent\n").expect("a display");
    let (script, _) = script.split_once("\n.Ed").expect("its end");
    // A bucket that is new for five minutes would have to be waited for so long.
    let script = script.replace("--for 5m", &format!("--for {LONG}"));
    on_both_stores(|site| {
        let folder = site.sandbox.join("steps");
        std::fs::create_dir_all(&folder).expect("a folder");
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            let path = folder.join(name);
            std::fs::write(&path, text).expect("a file");
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, executable).expect("it is there");
        };
        write("script", &script);
        for step in ["build", "install", "restart"] {
            write(step, &format!("#!/bin/sh\necho {step}\n"));
        }
        let [store, place] = site.store();
        let config = site.sandbox.join("steps.conf");
        let text = format!("{} = {place}\n", store.trim_start_matches('-'));
        std::fs::write(&config, text).expect("a file");
        let programs = crate::support::programs::putex();
        let programs = programs.parent().expect("a folder").display();
        let script = || {
            let mut command = site.sandbox.command("./script");
            command.current_dir(&folder).env("PUTEX_CONFIG", &config);
            command.env("PATH", format!("{programs}:{}", std::env::var("PATH").expect("a path")));
            site.sandbox.run(&mut command)
        };
        let well = script();
        assert_eq!((well.status, &*well.shown), (Some(0), "build\ninstall\nrestart\n"), "{well:?}");
        assert!(grab(site, "next", &["-n", "deploy/web"]).is_had(), "it was not released");
        assert_eq!(release(site, "next", "deploy/web"), 0);
        // Somebody takes the lock away during the second step.
        let store = site.store().join("=");
        write(
            "install",
            &format!(
                "#!/bin/sh\nme=$(putex grab {store} --as spy -n deploy/web 2>&1)\n\
                 putex release {store} --force --holder \"${{me##* }}\" deploy/web >&2\n\
                 putex grab {store} --as spy --for {LONG} deploy/web >&2\n"
            ),
        );
        let lost = script();
        assert_eq!((lost.status, &*lost.shown), (Some(1), "build\n"), "{lost:?}");
        assert!(lost.said.contains("the lock is lost, or the store is gone"), "{}", lost.said);
        assert_eq!(release(site, "spy", "deploy/web"), 0, "another one's lock was released");
    });
}
