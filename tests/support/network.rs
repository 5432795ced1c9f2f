//! Network namespaces.

use std::process::Command;
use std::thread;

use rustix::thread::UnshareFlags;

/// Returns what this machine lacks to make networks.
pub(crate) fn missing() -> Option<&'static str> {
    let output = Command::new("unshare").args(["--net", "ip", "link"]).output();
    let can = output.is_ok_and(|output| output.status.success());
    (!rustix::process::geteuid().is_root() || !can)
        .then_some("only root may make networks, with ip(8)")
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
