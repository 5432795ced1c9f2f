//! Network namespaces.

use std::process::Command;
use std::thread;

use rustix::thread::UnshareFlags;

/// Returns what this machine lacks to make networks.
pub(crate) fn missing() -> Option<&'static str> {
    let can = rustix::process::geteuid().is_root() && can("unshare", &["--net", "ip", "link"]);
    (!can).then_some("only root may make networks, with ip(8)")
}

/// Returns whether a program is there and succeeds with these words.
pub(crate) fn can(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

/// Does something in a thread with a network of its own.
#[expect(unsafe_code, reason = "the thread has no descriptor of another network")]
pub(crate) fn in_own_network<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        // SAFETY: no memory is shared otherwise than before.
        let apart = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        apart.expect("a network namespace");
        work()
    };
    thread::scope(|scope| scope.spawn(inside).join().expect("the thread does not panic"))
}

/// Runs ip(8) with these words, after those that say where.
#[track_caller]
pub(crate) fn ip(before: &[&str], words: &str) {
    let words = [before, &["ip"], &words.split(' ').collect::<Vec<_>>()].concat();
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.expect("it can be run");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
