//! The programs that are tested, and those that tests need: named by the environment, just
//! built, in `PATH`, or among what `tests/tools` has unpacked.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A missing tool is a failure when this variable is 1.
const REQUIRE_TOOLS: &str = "PUTEX_REQUIRE_TOOLS";

/// Where `tests/tools` puts what a host lacks.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/bin");

/// The tools whose absence has been told.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the putex under test: `$PUTEX_UNDER_TEST`, or the one just built.
pub(crate) fn putex() -> PathBuf {
    named("PUTEX_UNDER_TEST").unwrap_or_else(built)
}

/// Returns a debug build of putex: `$PUTEX_DEBUG`, or the one just built, or the one
/// beside it; `None`, after saying so, when there is none.
pub(crate) fn debug_putex() -> Option<PathBuf> {
    let beside = || {
        let debug = built().parent()?.parent()?.join("debug/putex");
        let found = if cfg!(debug_assertions) { built() } else { debug };
        found.is_file().then_some(found)
    };
    let found = named("PUTEX_DEBUG").or_else(beside);
    if found.is_none() {
        println!("skipped: no $PUTEX_DEBUG and no debug build");
    }
    found
}

/// Returns the binary of putex 0.2.0 from `$PUTEX_020`; `None`, after saying so, when it
/// is not given.
pub(crate) fn putex_020() -> Option<PathBuf> {
    let found = named("PUTEX_020");
    if found.is_none() {
        println!("skipped: no $PUTEX_020");
    }
    found
}

/// Returns nats-server: `$NATS_SERVER`, or as [`tool`] does.
///
/// # Panics
///
/// As [`tool`].
pub(crate) fn nats_server() -> Option<PathBuf> {
    named("NATS_SERVER").or_else(|| tool("nats-server"))
}

/// Returns a nats-server of 2.10, the oldest that putex works with: `$NATS_SERVER_OLD`, or as
/// [`tool`] does.
///
/// # Panics
///
/// As [`tool`].
pub(crate) fn old_nats_server() -> Option<PathBuf> {
    named("NATS_SERVER_OLD").or_else(|| tool("nats-server-2.10"))
}

/// Returns every nats-server at hand.
///
/// # Panics
///
/// As [`tool`].
pub(crate) fn nats_servers() -> Vec<PathBuf> {
    [nats_server(), old_nats_server()].into_iter().flatten().collect()
}

/// Returns the file of a program that tests use; `None`, after a line on stderr that tells how to
/// get it, when there is none. The line is written once by each test program, past the capture
/// of the output of tests.
///
/// # Panics
///
/// When there is none and `PUTEX_REQUIRE_TOOLS` is 1.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let found =
        env::split_paths(&path()).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        let line = format!("no {name}: run tests/tools, or install it; its tests are skipped");
        assert!(!requires_tools(), "{line}; {REQUIRE_TOOLS} is 1");
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(name.to_owned()) {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
    found
}

/// Returns the `PATH` of what tests run: that of this process, then the tools.
pub(crate) fn path() -> OsString {
    let own = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&own).chain([Path::new(TOOLS).to_owned()]);
    env::join_paths(folders).expect("no folder has a colon in its name")
}

/// Returns whether a tool that is missing is a failure instead of a skipped test.
pub(crate) fn requires_tools() -> bool {
    env::var_os(REQUIRE_TOOLS).is_some_and(|value| value == "1")
}

fn built() -> PathBuf {
    env!("CARGO_BIN_EXE_putex").into()
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}
