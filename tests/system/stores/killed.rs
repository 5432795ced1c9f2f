//! Processes that die or stop in the middle of what they do to the folder.
//!
//! They are this test program again, told by its environment what to do.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use putex::core::record::{KeyValue, Revision};
use putex::core::seat::Seat;
use putex::store::dir::DirStore;
use putex::store::{LockKey, StoreError, StoreErrorKind};
use putex::sys::{self, now};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::base::{Base, denied};
use crate::contract::{leased, plain, soon, stored};
use crate::support::clock::{PATIENCE, READ_MAX};

/// Says to this program, started as a child, what to do: `cas` or `hold`.
const CHILD: &str = "PUTEX_TEST_CHILD";
/// The base folder that the child works in.
const CHILD_BASE: &str = "PUTEX_TEST_BASE";

fn start(base: &Base, what: &str) -> (Kid, BufReader<ChildStdout>) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["killed::child", "--exact", "--nocapture"])
        .env(CHILD, what)
        .env(CHILD_BASE, &*base.0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let stdout = child.stdout.take().expect("its output");
    (Kid(child), BufReader::new(stdout))
}

/// A child that is killed when it is dropped, so that a failed test leaves none.
struct Kid(Child);

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The work of a child; nothing when this process is not a child.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let base = PathBuf::from(std::env::var_os(CHILD_BASE).expect("a base"));
    match what.as_str() {
        "cas" => cas(base),
        "hold" => {
            let dir = File::open(base.join("b")).expect("the folder");
            dir.lock().expect("the lock");
            say("held");
            // Until it is killed.
            sys::poll(&mut []).expect("to wait for the end");
            drop(dir);
        }
        other => panic!("{other}"),
    }
}

fn cas(base: PathBuf) {
    let mut store = LockKey::new(Box::new(DirStore::new(base, "b")), "web", 1, READ_MAX);
    let mut at = store.open(soon()).expect("it opens").key_states[0].revision;
    say(&format!("at {at}"));
    loop {
        at = stored(&mut store, at, &leased("alpha", at.0, None));
        say(&format!("at {at}"));
    }
}

/// Unlike `println!`, not held back by the harness or by a buffer.
fn say(line: &str) {
    // The parent may have closed the pipe; then it is about to kill us.
    let _ = std::io::stdout().write_all(format!("\n{line}\n").as_bytes());
    let _ = std::io::stdout().flush();
}

/// Returns the number of the next line `at N`, `None` at the end.
fn next_at(lines: &mut BufReader<ChildStdout>) -> Option<u64> {
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
            return None;
        }
        if let Some(number) = line.trim_end().strip_prefix("at ") {
            return number.parse().ok();
        }
    }
}

#[test]
fn a_writer_killed_at_any_instant_leaves_a_store_that_goes_on() {
    const KILLS: u64 = 100;
    let (mut base, mut reported, mut begun, mut leftovers) = (Base::new(), 0, 0, 0);
    for kill_number in 0..KILLS {
        if kill_number % 4 == 0 {
            (base, reported) = (Base::new(), 0);
        }
        let (child, mut lines) = start(&base, "cas");
        let random = sys::random().expect("random");
        // Half of them once they write, half while they start and open.
        let mut last = reported;
        for _ in 0..(if kill_number % 2 == 0 { 0 } else { random % 20 + 1 }) {
            last = next_at(&mut lines).expect("a line of the child");
        }
        let spread = if kill_number % 2 == 0 { 6000 } else { 400 };
        let pause = Duration::from_micros((random >> 64) as u64 % spread);
        thread::sleep(pause);
        drop(child);
        while let Some(at) = next_at(&mut lines) {
            last = at;
        }
        leftovers += u64::from(base.file("new").exists());
        begun += u64::from(last > reported);
        let mut store = base.store("web");
        let opened = store.open(soon()).expect("it opens after a kill");
        let at = opened.key_states[0].revision;
        assert!(at.0 >= last, "{last} was reported as stored, found {at}");
        assert!(opened.bucket.last >= at);
        assert_ne!(opened.key_states[0].value, KeyValue::Marker);
        reported = stored(&mut store, at, &plain("beta")).0;
        assert!(reported > at.0);
    }
    println!("{KILLS} kills: {begun} of a writing child, {leftovers} left a file half made");
}

#[test]
fn a_stopped_holder_of_the_lock_holds_no_call_beyond_its_deadline() {
    const WAIT: Duration = Duration::from_millis(100);
    let base = Base::new();
    let mut web = base.open("web");
    let at = stored(&mut web, Revision(0), &plain("alpha"));
    let (child, mut lines) = start(&base, "hold");
    let mut line = String::new();
    while line.trim_end() != "held" {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("a line"), 0);
    }
    let pid = Pid::from_child(&child.0);
    kill_process(pid, Signal::STOP).expect("to stop it");
    let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).expect("to see it stop");
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    let timed = |call: &mut dyn FnMut()| {
        let began = now();
        call();
        let took = now().since(began);
        assert!(took >= WAIT, "{took:?}");
    };
    // Ends a call that would wait for the stopped child for ever.
    let (done, over) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let late = over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        drop(child);
        late
    });
    timed(&mut || {
        let text = denied(web.write(Seat::FIRST, at, &plain("beta"), now().after(WAIT)));
        assert!(text.contains("lock"), "{text}");
    });
    timed(&mut || {
        let opened = base.store("web").open(now().after(WAIT));
        assert!(
            matches!(opened, Err(StoreError { kind: StoreErrorKind::Unreachable, .. })),
            "{opened:?}"
        );
    });
    assert_eq!(
        web.read(Seat::FIRST, now().after(WAIT)).map(|key_state| key_state.revision),
        Ok(at)
    );
    drop(done);
    assert!(!watchdog.join().expect("the watchdog"), "had to be ended");
    denied(web.write(Seat::FIRST, at, &plain("beta"), now()));
    stored(&mut web, at, &plain("beta"));
}
