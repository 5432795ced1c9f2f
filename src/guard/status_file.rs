//! The status of an agent whose lock is in a directory: a file in its private directory, written
//! when somebody requests it.
//!
//! | file | content |
//! |---|---|
//! | `status` | JSON: the identity of the agent, the instant of the status, and the status |

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::instance_dir::{AGENTS_DIR, Identity};
use crate::core::{AgentStatus, Instant};
use crate::store::AgentAnswer;
use crate::sys::private_file;

const FILE: &str = "status";

/// The largest file that is read.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Deserialize, Serialize)]
struct Stored {
    /// The instant of the status, on the clock of this host.
    at: Instant,
    #[serde(flatten)]
    identity: Identity,
    status: AgentStatus,
}

/// Writes the status of an agent at this instant into its private directory.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(dir: &Path, identity: &Identity, at: Instant, status: AgentStatus) -> io::Result<()> {
    let text = serde_json::to_vec(&Stored { at, identity: identity.clone(), status })?;
    private_file::replace(dir, FILE, &text)
}

/// Returns the answers that agents of this user have written from this instant on, for the keys of
/// a bucket in a directory.
pub fn read(base: &Path, location: &str, bucket: &str, from: Instant) -> Vec<AgentAnswer> {
    let Ok(dirs) = fs::read_dir(base.join(AGENTS_DIR)) else { return Vec::new() };
    let stored = |dir: io::Result<fs::DirEntry>| {
        let file = private_file::open(&dir.ok()?.path().join(FILE)).ok()?;
        let mut text = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut text).ok()?;
        let Stored { at, identity, status } = serde_json::from_slice(&text).ok()?;
        let is_asked = identity.location == location && identity.bucket == bucket;
        let is_wanted = at >= from && is_asked && status.is_valid();
        is_wanted.then(|| AgentAnswer { key: identity.key, status: status.sanitized() })
    };
    dirs.filter_map(stored).collect()
}
