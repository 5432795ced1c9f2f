//! The notes of a guard are read by the next one.

use std::os::fd::AsFd;
use std::time::Duration;

use super::*;
use crate::sys::{Alarm, PollFlags};

fn file(name: &str) -> File {
    let name = format!("putex-note-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.expect("the temporary directory can be written");
    std::fs::remove_file(path).expect("it is there");
    file
}

fn parse_file(file: &File) -> Noted {
    parse(&read(file).expect("it is there"), &sys::boot_id().expect("it has one"))
}

fn begin(file: &File) -> (Note, Noted) {
    Note::begin(file.try_clone().expect("a descriptor")).expect("a note")
}

/// This process, as one that a guard has spawned at some time.
fn own() -> NotedProcess {
    NotedProcess { number: rustix::process::getpid(), ticks: 0..=u64::from(u32::MAX) }
}

#[test]
fn the_next_guard_learns_what_the_previous_one_has_noted() {
    let file = file("next");
    let (mut note, previous) = begin(&file);
    // Nobody has started the service in this boot, as far as guards know.
    assert_eq!(previous, Noted::default());
    assert_eq!(parse_file(&file).service, Service::Unknown);
    note.enter(Fact::Command(Command::Stop, own())).expect("there is room");
    let dir = |name: &str| PathBuf::from(format!("/sys/fs/cgroup/{name}/putex-1"));
    // The first one does not fit into the room that there is as a rule.
    let dirs = vec![dir(&"x".repeat(ROOM)), dir("y")];
    note.cgroups(dirs.clone()).expect("there is room");
    assert_eq!(parse_file(&file).cgroups, dirs);
    note.cgroups(dirs[1..].to_vec()).expect("there is room");
    note.cgroups(Vec::new()).expect("it was noted before");
    let times = Timing::new(Duration::from_secs(3), 3, 2, 10_000).expect("it is safe");
    assert_eq!(parse_file(&file).times(), None);
    note.enter(Fact::Times(times)).expect("there is room");
    let (_, previous) = begin(&file);
    assert_eq!(previous.cgroups, dirs[1..]);
    assert_eq!([previous.times(), parse_file(&file).times()], [Some(times); 2]);
    assert_eq!((previous.stop, previous.last_resort), (Some(own()), None));
}

/// The state also stays as it is when the next guard is killed at once.
#[test]
fn a_start_is_noted_until_it_has_ended_and_the_service_is_up_until_it_is_down() {
    let file = file("service");
    let (mut note, _) = begin(&file);
    let own = own();
    for (fact, service) in [
        (Fact::StartEnded, Service::Unknown),
        (Fact::Command(Command::Start, own.clone()), Service::Starting(own.clone())),
        (Fact::Command(Command::Stop, own.clone()), Service::Starting(own.clone())),
        (Fact::StartEnded, Service::Up),
        (Fact::Command(Command::Start, own.clone()), Service::Starting(own.clone())),
        (Fact::Down, Service::Down),
        (Fact::StartEnded, Service::Down),
        (Fact::Command(Command::Start, own.clone()), Service::Starting(own)),
    ] {
        let text = format!("{fact:?}");
        note.enter(fact).expect("there is room");
        for _ in 0..2 {
            assert_eq!(parse_file(&file).service, service, "{text}");
            assert_eq!(begin(&file).1.service, service, "{text}");
        }
    }
    assert!(Service::Starting(self::own()).was_started() && Service::Up.was_started());
    assert!(!Service::Unknown.was_started() && !Service::Down.was_started());
}

#[test]
fn the_next_guard_goes_on_with_a_start_that_has_not_ended() {
    let file = file("goes-on");
    begin(&file).0.enter(Fact::Command(Command::Start, own())).expect("there is room");
    let (mut note, previous) = begin(&file);
    assert_eq!(previous.service, Service::Starting(own()));
    note.enter(Fact::StartEnded).expect("there is room");
    assert_eq!(begin(&file).1.service, Service::Up);
}

#[test]
fn the_times_of_a_service_that_is_down_bind_nobody() {
    let file = file("times");
    let (mut note, _) = begin(&file);
    let times = Timing::new(Duration::from_secs(3), 3, 2, 10_000).expect("it is safe");
    note.enter(Fact::Times(times)).expect("there is room");
    assert!(parse_file(&file).times().is_some());
    note.enter(Fact::Down).expect("there is room");
    assert_eq!(parse_file(&file).times(), None);
    note.enter(Fact::Command(Command::Start, own())).expect("there is room");
    assert!(parse_file(&file).times().is_some());
}

#[test]
fn a_number_that_was_given_to_another_process_is_not_the_noted_command() {
    let number = rustix::process::getpid();
    let born = start_ticks(number).expect("it lives");
    let noted = |from, until| NotedProcess { number, ticks: from..=until };
    for (process, is_found) in [
        (noted(born, born), true),
        (noted(born - 1, born + 1), true),
        (noted(born + 1, born + 2), false),
        (noted(0, born - 1), false),
    ] {
        assert_eq!(process.find().is_some(), is_found);
        // A session whose number was given again was empty.
        let noted = Noted {
            boot: "here".to_owned(),
            service: Service::Starting(process),
            ..Noted::default()
        };
        let text = serde_json::to_vec(&noted).expect("it has a form in JSON");
        let start = parse(&text, "here").service;
        assert_eq!(matches!(start, Service::Starting(_)), is_found);
    }
    for (number, is_command) in [(1, false), (0, false), (-7, false), (7, true)] {
        let text = format!(r#"{{"number":{number},"ticks":{{"start":0,"end":9}}}}"#);
        assert_eq!(serde_json::from_str::<NotedProcess>(&text).is_ok(), is_command, "{text}");
    }
}

#[test]
fn a_command_that_has_left_its_group_is_killed_with_its_guard() {
    let file = file("left");
    let (mut note, _) = begin(&file);
    let since = sys::now();
    // The child is in the group of this process.
    let sleep = std::process::Command::new("sleep").arg("1000").spawn();
    let mut sleep = sleep.expect("it can be run");
    let number = Pid::from_child(&sleep);
    let exit = rustix::process::pidfd_open(number, PidfdFlags::empty()).expect("it lives");
    let process = NotedProcess::spawned(number, since);
    note.enter(Fact::Command(Command::Start, process)).expect("there is room");
    let session = begin(&file).1.kill_commands();
    let until = sys::now().after(sys::PATIENCE);
    let alarm = Alarm::new().expect("a descriptor");
    let killed = alarm.wait([(exit.as_fd(), PollFlags::IN)], Some(until)).expect("waits");
    let _ = sleep.kill();
    let _ = sleep.wait();
    assert_eq!((session, killed), (Some(number), [true]));
    // The session of the start may have other processes.
    assert_eq!(begin(&file).1.kill_commands(), session);
}

#[test]
fn commands_of_another_boot_are_forgotten() {
    let file = file("forgotten");
    let (mut note, _) = begin(&file);
    note.enter(Fact::Command(Command::Start, own())).expect("there is room");
    note.enter(Fact::Command(Command::Stop, own())).expect("there is room");
    note.cgroups(vec!["/sys/fs/cgroup/putex".into()]).expect("there is room");
    note.noted.boot = "another".to_owned();
    note.write().expect("there is room");
    assert_eq!(begin(&file).1, Noted::default());
    let boot = sys::boot_id().expect("it has one");
    assert_eq!(begin(&file).1, Noted { boot, ..Noted::default() });
}

#[test]
fn only_a_note_of_this_boot_tells_that_the_service_is_down() {
    let file = file("boot");
    let (mut note, _) = begin(&file);
    note.enter(Fact::Down).expect("there is room");
    let (text, boot) = (read(&file).expect("it is there"), sys::boot_id().expect("it has one"));
    assert_eq!(parse(&text, &boot).service, Service::Down);
    for (text, boot, service) in [
        (&*text, "another", Service::Unknown),
        (b"", "here", Service::Unknown),
        // The next guard said nothing of a guard that had died.
        (b"putex guard 2 here", "here", Service::Up),
        (br#"{"boot":"here"}"#, "here", Service::Up),
        (&text[..text.trim_ascii_end().len() - 1], &boot, Service::Up),
        (b"\0\0", "here", Service::Up),
    ] {
        assert_eq!(parse(text, boot).service, service, "{}", text.escape_ascii());
    }
}
