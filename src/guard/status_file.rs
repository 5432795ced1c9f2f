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
    location: String,
    bucket: String,
    key: String,
    status: AgentStatus,
}

/// Writes the status of an agent at this instant into its private directory.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(dir: &Path, identity: &Identity, at: Instant, status: AgentStatus) -> io::Result<()> {
    let Identity { location, bucket, key, .. } = identity.clone();
    let text = serde_json::to_vec(&Stored { at, location, bucket, key, status })?;
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
        let stored: Stored = serde_json::from_slice(&text).ok()?;
        let is_wanted = |it: &Stored| {
            it.at >= from && it.location == location && it.bucket == bucket && it.status.is_valid()
        };
        let answer = |Stored { key, status, .. }| AgentAnswer { key, status: status.sanitized() };
        Some(stored).filter(is_wanted).map(answer)
    };
    dirs.filter_map(stored).collect()
}
