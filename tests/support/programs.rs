//! The programs that are tested, and those that tests need: named by the environment,
//! just built, or in `PATH`.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// A missing tool is a failure when this variable is 1.
const REQUIRE_TOOLS: &str = "PUTEX_REQUIRE_TOOLS";

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

/// Returns nats-server: `$NATS_SERVER`, or the one in `PATH`; `None`, after saying so,
/// when there is none.
///
/// # Panics
///
/// When there is none and `PUTEX_REQUIRE_SERVER` is 1.
pub(crate) fn nats_server() -> Option<PathBuf> {
    let found = named("NATS_SERVER").or_else(|| in_path("nats-server"));
    needed(found, "nats-server", "PUTEX_REQUIRE_SERVER")
}

/// Returns the old nats-server, `$NATS_SERVER_OLD`, as [`nats_server`] does.
///
/// # Panics
///
/// As [`nats_server`].
pub(crate) fn old_nats_server() -> Option<PathBuf> {
    let found = named("NATS_SERVER_OLD");
    needed(found, "$NATS_SERVER_OLD", "PUTEX_REQUIRE_SERVER")
}

/// Returns every nats-server at hand; an old one is never required.
///
/// # Panics
///
/// As [`nats_server`].
pub(crate) fn nats_servers() -> Vec<PathBuf> {
    let old = named("NATS_SERVER_OLD");
    nats_server().into_iter().chain(old).collect()
}

/// Names a program that does nothing for each that the environment must name.
pub(crate) fn name_idle(command: &mut Command) -> &mut Command {
    command.envs(["NATS_SERVER", "NATS_SERVER_OLD", "RUNSV"].map(|name| (name, "true")))
}

/// Returns runit's `runsv`: `$RUNSV`, or the one in `PATH`; `None`, after saying so, when
/// there is none.
///
/// # Panics
///
/// When there is none and `PUTEX_REQUIRE_TOOLS` is 1.
pub(crate) fn runsv() -> Option<PathBuf> {
    let found = named("RUNSV").or_else(|| in_path("runsv"));
    needed(found, "runsv", REQUIRE_TOOLS)
}

/// Returns strace: `$STRACE`, or the one in `PATH`; `None`, after saying so, when there is
/// none.
///
/// # Panics
///
/// When there is none and `PUTEX_REQUIRE_TOOLS` is 1.
pub(crate) fn strace() -> Option<PathBuf> {
    let found = named("STRACE").or_else(|| in_path("strace"));
    needed(found, "strace", REQUIRE_TOOLS)
}

/// Returns whether a tool that cannot be used is a failure instead of a skipped test.
pub(crate) fn requires_tools() -> bool {
    is_required(REQUIRE_TOOLS)
}

/// Returns whether tests that take long are asked for.
pub(crate) fn is_slow_wanted() -> bool {
    let is_wanted = env::var_os("PUTEX_SLOW_TESTS").is_some_and(|value| value == "1");
    if !is_wanted {
        println!("skipped: PUTEX_SLOW_TESTS is not 1");
    }
    is_wanted
}

fn built() -> PathBuf {
    env!("CARGO_BIN_EXE_putex").into()
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

/// Says that a program is missing, and whether tests may do without it.
fn needed(found: Option<PathBuf>, name: &str, variable: &str) -> Option<PathBuf> {
    if found.is_none() {
        assert!(!is_required(variable), "no {name}, and {variable} is 1");
        println!("skipped: no {name}");
    }
    found
}

fn is_required(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}
