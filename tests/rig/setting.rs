//! What is tested: which agent, against which server, at which pace.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::clock::Timing;

/// The binaries and the pace of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) agent: PathBuf,
    pub(crate) server: PathBuf,
    pub(crate) timing: Timing,
}

impl Setting {
    /// Returns the agent under test with the usual server; `None`, after saying
    /// so, when there is no server.
    ///
    /// # Panics
    ///
    /// When there is no server and `PUTEX_REQUIRE_SERVER` is 1.
    pub(crate) fn new(r: Duration) -> Option<Setting> {
        Setting::with_server(
            named_or_in_path("NATS_SERVER", "nats-server"),
            "nats-server",
            r,
        )
    }

    /// As [`Setting::new`], with the old server of `$NATS_SERVER_OLD`.
    pub(crate) fn with_old_server(r: Duration) -> Option<Setting> {
        let server = env::var_os("NATS_SERVER_OLD").map(PathBuf::from);
        Setting::with_server(server, "$NATS_SERVER_OLD", r)
    }

    fn with_server(server: Option<PathBuf>, name: &str, r: Duration) -> Option<Setting> {
        let Some(server) = server else {
            let required = env::var_os("PUTEX_REQUIRE_SERVER").is_some_and(|value| value == "1");
            assert!(!required, "no {name}, and PUTEX_REQUIRE_SERVER is 1");
            println!("skipped: no {name}");
            return None;
        };
        Some(Setting {
            agent: agent_under_test(),
            server,
            timing: Timing { r, f: 3, c: 1 },
        })
    }
}

/// Returns the binary under test: `$PUTEX_UNDER_TEST`, or the one just built.
pub(crate) fn agent_under_test() -> PathBuf {
    env::var_os("PUTEX_UNDER_TEST")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_putex").into())
        .into()
}

/// Returns the binary of putex 0.2.0 from `$PUTEX_020`; `None`, after saying so,
/// when it is not given.
pub(crate) fn putex_020() -> Option<PathBuf> {
    let binary = env::var_os("PUTEX_020").map(PathBuf::from);
    if binary.is_none() {
        println!("skipped: no $PUTEX_020");
    }
    binary
}

/// Returns a debug build of the agent under test: `$PUTEX_DEBUG`, or the one just built,
/// or the one beside it; `None`, after saying so, when there is none.
pub(crate) fn debug_agent() -> Option<PathBuf> {
    if let Some(binary) = env::var_os("PUTEX_DEBUG") {
        return Some(binary.into());
    }
    let built = PathBuf::from(env!("CARGO_BIN_EXE_putex"));
    let binary = if cfg!(debug_assertions) {
        built
    } else {
        built.parent()?.parent()?.join("debug/putex")
    };
    let found = binary.is_file().then_some(binary);
    if found.is_none() {
        println!("skipped: no $PUTEX_DEBUG and no debug build");
    }
    found
}

/// Returns runit's `runsv`: `$RUNSV`, or the one in `PATH`; `None`, after saying so, when
/// there is none.
///
/// # Panics
///
/// When there is none and `PUTEX_REQUIRE_TOOLS` is 1.
pub(crate) fn runsv() -> Option<PathBuf> {
    let binary = named_or_in_path("RUNSV", "runsv");
    if binary.is_none() {
        let required = env::var_os("PUTEX_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "no runsv, and PUTEX_REQUIRE_TOOLS is 1");
        println!("skipped: no runsv");
    }
    binary
}

fn named_or_in_path(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        return Some(path.into());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| Path::is_file(file))
}
