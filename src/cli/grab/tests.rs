//! The command lines of `putex grab` and `putex release`.

use log::Level;

use super::super::tests::{once, parse_with, refused_line};
use super::super::value::seconds;
use super::*;
use crate::cli;
use crate::core::DRIFT_PPM_DEFAULT;
use crate::core::tickets::{LockTiming, Mode};
use crate::exit::Exit;

/// Returns what a line asks for, on this host and with this file.
fn request_at(line: &str, host: &str, file: Option<&str>) -> Request {
    let cli::Request::Grab(request) = once(parse_with(line, file, &[], host)).1 else {
        panic!("{line}")
    };
    request
}

/// Returns what a command in a directory asks for: its name and the words behind the store.
fn request(command: &str, words: &str) -> Request {
    request_at(&format!("{command} --dir /d {words}"), "alpha", None)
}

fn refused(line: &str) -> (String, u8) {
    let refusal = refused_line(line);
    (refusal.text, refusal.exit as u8)
}

fn for_time(lifetime: Duration) -> LockTiming {
    grab::timing(lifetime, DRIFT_PPM_DEFAULT).expect("a time")
}

#[test]
fn defaults_are_those_of_the_page() {
    let Request { name, who, task, level } = request("grab", "db");
    assert_eq!((name.to_string().as_str(), who.as_str()), ("db", "alpha"));
    assert_eq!(level, Level::Warn as u64);
    let (wait, withdraws) = (Duration::ZERO, false);
    let timing = for_time(Duration::from_secs(60));
    assert_eq!(
        task,
        Task::Grab { mode: Mode::Exclusive, timing, wait, withdraws, busy_status: 75 }
    );
    assert_eq!(request("release", "db").task, Task::Release);
}

#[test]
fn options_mean_the_same_in_any_order_and_before_or_behind_the_name() {
    let due = Task::Grab {
        mode: Mode::Shared,
        timing: for_time(Duration::from_millis(1500)),
        wait: Duration::from_secs(7),
        withdraws: false,
        busy_status: 5,
    };
    for words in [
        "-s -w 7 -E 5 --for 1.5 --as me b/c",
        "b/c --as=me --shared --wait 7s -E5 --for=1500ms",
        "-x --timeout 7000ms b/c -s --conflict-exit-code 5 --for 1.5s --as me",
    ] {
        let request = request("grab", words);
        assert_eq!((request.name.to_string().as_str(), request.who.as_str()), ("b/c", "me"));
        assert_eq!(request.task, due, "{words}");
    }
    for words in ["-n db", "db --nb", "-w 9 --nonblock db", "--nonblocking db"] {
        let Task::Grab { wait, withdraws, .. } = request("grab", words).task else {
            panic!("{words}")
        };
        assert_eq!((wait, withdraws), (Duration::ZERO, true), "{words}");
    }
}

#[test]
fn who_is_the_option_then_the_token_of_the_file_then_the_host_if_that_is_its_own() {
    let who = |line: &str, host: &str, file: &str| request_at(line, host, Some(file)).who;
    let file = "dir = /d\ntoken = filed\n";
    for command in ["grab", "release"] {
        assert_eq!(who(&format!("{command} --as me x"), "alpha", file), "me");
        assert_eq!(who(&format!("{command} x"), "alpha", file), "filed");
        assert_eq!(who(&format!("{command} x"), "alpha", "dir = /d\n"), "alpha");
        // Many hosts are called so: all of them would be one requester.
        let refusal = parse_with(&format!("{command} --dir /d x"), None, &[], "localhost");
        let refusal = refusal.expect_err("it is no name");
        let due = "--as: is missing, and the host name \"localhost\" is not this host's own; \
                   write --as WHO";
        assert_eq!((refusal.text.as_str(), refusal.exit), (due, Exit::Usage));
    }
}

#[test]
fn a_time_that_others_could_not_read_is_refused_with_the_bounds() {
    for time in ["999ms", "0", "101m", "2h"] {
        let bounds = "write 1s to 100m; whoever needs a lock for longer grabs it again";
        let due = format!("--for: {time}: {bounds}");
        assert_eq!(refused(&format!("grab --dir /d --for {time} x")), (due, 64));
    }
    for time in ["1s", "59.001", "4m", "241s", "100m", "1h"] {
        let Task::Grab { timing, .. } = request("grab", &format!("--for {time} x")).task else {
            panic!("{time}")
        };
        let asked_for = seconds(time).expect("a time");
        assert_eq!(timing.lifetime(), asked_for, "exactly {time}");
        assert_eq!(timing.validity_of(timing.lifetime()), asked_for * 99 / 100, "{time}");
    }
}

#[test]
fn a_lock_is_taken_away_only_from_a_holder_that_is_named() {
    let Task::Break(holder) = request("release", "--force --holder h1 db").task else {
        panic!("not broken")
    };
    assert_eq!(holder, "h1");
    for (words, says) in [
        ("--force db", "--force: write --holder WHO too, the holder that is to lose it"),
        ("--holder h1 db", "--holder: needs --force, which takes the lock away from its holder"),
        ("--force --holder '' db", "--holder: "),
    ] {
        let (text, status) = refused(&format!("release --dir /d {words}"));
        assert!(text.starts_with(says), "{words}: {text}");
        assert_eq!(status, 64, "{words}");
    }
}

#[test]
fn lines_that_name_nothing_or_too_much_are_refused_with_what_to_write() {
    for (line, says) in [
        ("grab --dir /d", "NAME is missing; write putex grab NAME"),
        ("release --dir /d", "NAME is missing; write putex release NAME"),
        ("grab --dir /d a b", "b: unexpected argument; write putex grab NAME, or putex lock"),
        ("grab --dir /d a,b", "NAME: a,b: a lock has one name; "),
        ("grab --dir /d a.b", "NAME: a.b: write a-z"),
        ("grab --dir /d -k 5 a", "-k: not an option of putex grab"),
        ("grab --dir /d --force a", "--force: not an option of putex grab"),
        ("grab --dir /d --token t a", "--token: not an option of putex grab"),
        ("release --dir /d --for 5 a", "--for: not an option of putex release"),
        ("grab --dir /d -w x a", "-w: x: is not a time"),
    ] {
        let (text, status) = refused(line);
        assert!(text.starts_with(says) && !text.contains('\n'), "{line}: {text}");
        assert_eq!(status, 64, "{line}");
    }
    let (text, status) = refused("grab a");
    assert!(text.starts_with("--nats: is missing"), "{text}");
    assert_eq!(status, 78);
}
