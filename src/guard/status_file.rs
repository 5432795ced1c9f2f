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
use crate::sys::{self, private_file, safe_path};

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
/// a bucket in a directory. Where another user could have written them, there are none.
pub fn read(base: &Path, location: &str, bucket: &str, from: Instant) -> Vec<AgentAnswer> {
    let agents = base.join(AGENTS_DIR);
    let is_own = |it: &fs::Metadata| sys::check_own(&agents, it).is_ok();
    // The directory is there: none is made.
    let is_safe = fs::symlink_metadata(&agents).is_ok_and(|it| is_own(&it))
        && safe_path::make_dir(&agents).is_ok();
    let Some(dirs) = is_safe.then(|| fs::read_dir(&agents).ok()).flatten() else {
        return Vec::new();
    };
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Another user had made the directory of a user whose agents have another one: `putex pause`
    /// believed an agent that there is not.
    #[test]
    fn a_status_where_another_user_may_write_is_not_read() {
        let base = std::env::temp_dir().join(format!("putex-status-{}", std::process::id()));
        let (agents, now) = (base.join(AGENTS_DIR), sys::now());
        safe_path::make_dir(&agents.join("web")).expect("a directory");
        let [location, bucket, key, token] = ["/l", "b", "web", "h2"].map(str::to_owned);
        let identity = Identity { location, bucket, key, token };
        let status = AgentStatus::of_candidate("h2");
        write(&agents.join("web"), &identity, now, status).expect("it is written");
        for (mode, count) in [(0o700, 1), (0o750, 0), (0o777, 0)] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&agents, permissions).expect("it is set");
            assert_eq!(read(&base, "/l", "b", now).len(), count, "{mode:o}");
        }
        fs::remove_dir_all(base).expect("it is removed");
    }
}
