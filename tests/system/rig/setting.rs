//! The setting of a test: the agent, its server, and the pace.

use std::path::PathBuf;
use std::time::Duration;

use super::timing::Timing;
use crate::support::programs;

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
    /// When there is no server and `PUTEX_REQUIRE_TOOLS` is 1.
    pub(crate) fn new(r: Duration) -> Option<Setting> {
        Some(Setting::with_server(programs::nats_server()?, r))
    }

    /// As [`Setting::new`], with the old server of `$NATS_SERVER_OLD`.
    pub(crate) fn with_old_server(r: Duration) -> Option<Setting> {
        Some(Setting::with_server(programs::old_nats_server()?, r))
    }

    fn with_server(server: PathBuf, r: Duration) -> Setting {
        Setting { agent: programs::putex(), server, timing: Timing { r, f: 3, c: 1 } }
    }
}
