//! The children of a process of its own.

use super::*;

/// Does this in a process of its own, which adopts the processes that its children leave behind.
fn apart(check: impl FnOnce(Children)) {
    let Some(process) = raw::fork().expect("a process") else {
        let children = Children::adopt().expect("it can be");
        let checked = std::panic::AssertUnwindSafe(|| check(children));
        raw::end_copy(std::panic::catch_unwind(checked).is_err().into());
    };
    let ended = || rustix::process::waitpid(Some(process), WaitOptions::NOHANG).expect("a child");
    let (_, status) = sys::until("its end", ended);
    assert_eq!(status.exit_status(), Some(0));
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    sys::until(what, || is_so().then_some(()));
}

fn run(script: &str) -> Pid {
    let words = ["sh", "-c", script].map(OsString::from);
    spawn(&words, &[], None, None).expect("a shell")
}

fn listed(children: &mut Children) -> Vec<Pid> {
    children.listed().expect("there is a list")
}

#[test]
fn it_is_heard_when_the_leader_stops_and_ends_and_when_nothing_is_left() {
    apart(|mut children| {
        children.note_older();
        let group = run("kill -STOP $$; setsid sleep 0.3 & exit 7");
        let mut heard = Vec::new();
        wait_until("the end of all", || {
            let new = events(&children.reap(), group);
            if matches!(new[..], [Event::Stopped(_)]) {
                assert!(!children.are_none);
                send(group, libc::SIGCONT);
            }
            heard.extend(new);
            children.are_none
        });
        let stop = Event::Stopped(libc::SIGSTOP);
        assert_eq!(heard, [stop, Event::Ended(Ending::Status(7))]);
        assert!(is_empty(group));
    });
}

/// A shell may have executed this program after it had started others.
#[test]
fn children_from_before_are_neither_waited_for_nor_ended() {
    apart(|mut children| {
        let older = run("exec sleep 1000");
        children.note_older();
        let group = run("trap '' TERM; setsid sleep 1000 & sleep 1000");
        wait_until("its child", || listed(&mut children).len() == 1 && !is_empty(group));
        children.kill(sys::now());
        wait_until("the end of all", || {
            send(group, libc::SIGKILL);
            children.reap();
            children.are_none
        });
        assert!(is_child(older) && !is_empty(older));
        // A number in a list of another PID namespace is that of a stranger.
        assert!(!is_child(rustix::process::getppid().expect("a parent")));
        send(older, libc::SIGKILL);
        wait_until("its end", || !children.reap().is_empty());
        assert!(children.are_none);
    });
}

/// The lock was released while its command was at work.
#[test]
fn a_list_that_cannot_be_read_does_not_tell_that_there_are_none() {
    apart(|mut children| {
        let all = [(); 2].map(|()| run("exec sleep 1000"));
        children.note_older();
        children.older.pop();
        children.list = Some(File::open("/proc").expect("it is there"));
        assert!(children.reap().is_empty());
        assert!(!children.are_none);
        all.into_iter().for_each(|child| send(child, libc::SIGKILL));
        wait_until("the end of all", || {
            children.reap();
            children.are_none
        });
    });
}

#[test]
fn what_comes_later_is_told_to_end_too_and_each_once() {
    apart(|mut children| {
        children.note_older();
        let group = run(
            "setsid sh -c 'trap \"echo told >&2; exit 3\" TERM; while :; do sleep 0.01; done' & \
                         sleep 0.2; exit 0",
        );
        children.terminate();
        wait_until("the end of all", || {
            children.reap();
            children.are_none
        });
        assert!(is_empty(group));
    });
}

/// Killed, its lock would have to run out.
#[test]
fn a_renewer_of_a_lock_inside_is_killed_only_when_it_takes_long() {
    apart(|mut children| {
        children.note_older();
        run("printf putex-renewer >/proc/$$/comm; while :; do sleep 0.01; done");
        wait_until("its name", || listed(&mut children).iter().any(|it| is_renewer(*it)));
        let until = sys::now().after(std::time::Duration::from_millis(300));
        children.kill(until);
        wait_until("the end of all", || {
            children.reap();
            children.are_none
        });
        assert!(sys::now() >= until);
    });
}
