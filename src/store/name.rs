//! The valid names of buckets and keys, and the valid tokens, the same in every store.
//!
//! The rules are those of NATS KV, so that a name that passes here can be made
//! part of a subject without escaping: it has no wildcard, no blank, no line
//! break and no empty token.

/// Key that holds the epoch of a bucket. No agent may use it for its lock.
pub const EPOCH_KEY: &str = "putex.epoch";

/// Key that says that tickets of a lost bucket have run out.
pub const MARK_KEY: &str = "putex.settled";

/// Key that is written to confirm that another one has been read as it is.
pub const READ_KEY: &str = "putex.read";

/// Key that `putex doctor` writes to measure how long that takes.
pub const DOCTOR_KEY: &str = "putex.doctor";

/// The first elements of the keys that putex uses itself, besides the keys of agents.
const OWN_ROOTS: [&str; 3] = ["lease", TICKET_ROOT, "putex"];

/// The first element of the keys of tickets.
pub const TICKET_ROOT: &str = "lock";

/// Returns why a command is refused that uses the content of a bucket that does not exist: only a
/// command that gets a lock or a lease makes the bucket.
pub fn no_such_bucket(bucket: &str) -> String {
    format!(
        "bucket {bucket}: does not exist, so nobody has a lock or a lease in it; write the bucket \
         that was used, see --bucket"
    )
}

/// Returns whether putex uses a key itself, for something else than an agent.
pub fn is_own(key: &str) -> bool {
    key.split('.').next().is_some_and(|first| OWN_ROOTS.contains(&first))
}

/// Longest name of a bucket or a key, in bytes.
///
/// A server stores a bucket in a directory of its name, a directory store a key in a file of
/// its name, and a file name has at most 255 bytes; the difference is for prefixes and
/// suffixes.
pub const NAME_BYTES_MAX: usize = 200;

/// How the keys of pauses begin.
pub(crate) const PAUSE_PREFIX: &str = "putex.pause.";

/// How the keys of requests for a switchover begin.
pub(crate) const SWITCHOVER_PREFIX: &str = "putex.switchover.";

/// Longest key of agents, in bytes: a request for a switchover has a longer one.
const AGENTS_KEY_BYTES_MAX: usize = NAME_BYTES_MAX - SWITCHOVER_PREFIX.len();

/// Longest token that is accepted: a host name has at most 64 bytes on Linux, a
/// domain name 253.
const TOKEN_BYTES_MAX: usize = 255;

/// Checks the name of a bucket: `[a-zA-Z0-9_-]+`.
///
/// # Errors
///
/// The rule that the name breaks, with the name.
pub fn valid_bucket(name: &str) -> Result<(), String> {
    match name.strip_prefix("KV_") {
        // The commands of a refusal and of NATS name it so.
        Some(bucket) => Err(format!("{name} is the stream; write its bucket, {bucket}")),
        None => check("bucket", name, "_-", "a bucket name; write a-z A-Z 0-9 _ - only"),
    }
}

/// Checks the name of a key: `[-/_=.a-zA-Z0-9]+`, no dot at either end, no two
/// dots in a row, and not [`EPOCH_KEY`].
///
/// # Errors
///
/// The rule that the name breaks, with the name.
pub fn valid_key(name: &str) -> Result<(), String> {
    check("key", name, "-/_=.", "a key; write a-z A-Z 0-9 - / _ = . only")?;
    if name.split('.').any(str::is_empty) {
        return Err(format!("key {name:?}: a key has something around each dot"));
    }
    if name == EPOCH_KEY {
        return Err(format!("key {name:?}: this key is kept for the epoch of the bucket"));
    }
    Ok(())
}

/// Checks the name of a key of agents: a valid key that putex does not use itself.
///
/// # Errors
///
/// The rule that the name breaks, with the name.
pub fn valid_agents_key(name: &str) -> Result<(), String> {
    valid_key(name)?;
    check_length("key", name, AGENTS_KEY_BYTES_MAX)?;
    if is_own(name) {
        let roots = OWN_ROOTS.join(", ");
        return Err(format!("key {name:?}: {roots} and keys that begin so are not for agents"));
    }
    Ok(())
}

/// Returns a token if it is valid.
///
/// # Errors
///
/// The rule that the token breaks, without the token.
pub fn valid_token(token: &str) -> Result<String, String> {
    if token.len() > TOKEN_BYTES_MAX {
        let length = token.len();
        return Err(format!("{length} bytes are more than the maximum of {TOKEN_BYTES_MAX}"));
    }
    if token.is_empty() || token.chars().any(char::is_control) || token.trim() != token {
        return Err("has blanks around it or control characters in it".to_owned());
    }
    Ok(token.to_owned())
}

/// Checks the length, and that all characters are letters, digits or one of `others`.
fn check(what: &str, name: &str, others: &str, rule: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{what}: the name is empty"));
    }
    check_length(what, name, NAME_BYTES_MAX)?;
    match name.chars().find(|c| !c.is_ascii_alphanumeric() && !others.contains(*c)) {
        Some(c) => Err(format!("{what} {name:?}: {c:?} is not allowed in {rule}")),
        None => Ok(()),
    }
}

fn check_length(what: &str, name: &str, most: usize) -> Result<(), String> {
    let bytes = name.len();
    if bytes > most {
        return Err(format!("{what}: the name has {bytes} bytes, more than the maximum of {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_locks_and_leases_are_told_from_those_of_users() {
        assert!(["lease.db", "lock.db.0f", "putex.epoch", "lease"].iter().all(|key| is_own(key)));
        assert!(["db", "leases.db", "a.lock", "lock/x"].iter().all(|key| !is_own(key)));
    }

    /// An agent with a key of 184 bytes passed its check, and was refused by its store.
    #[test]
    fn the_longest_key_of_agents_has_room_for_what_stands_before_it() {
        let longest = "x".repeat(AGENTS_KEY_BYTES_MAX);
        assert_eq!(valid_agents_key(&longest), Ok(()));
        for of_key in [PAUSE_PREFIX, SWITCHOVER_PREFIX] {
            assert_eq!(valid_key(&format!("{of_key}{longest}")), Ok(()));
        }
        let refused = valid_agents_key(&format!("{longest}x")).expect_err("too long");
        assert_eq!(refused, "key: the name has 184 bytes, more than the maximum of 183");
    }

    #[test]
    fn names_that_nats_takes_are_taken() {
        for name in ["locks", "A-b_9", "x"] {
            assert_eq!(valid_bucket(name), Ok(()), "{name}");
        }
        for name in ["web", "a/b=c", "a.b.c", "-", "putex.epochs", "putex"] {
            assert_eq!(valid_key(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_would_change_a_subject_are_refused() {
        for name in ["", "a.b", "a b", "a*", ">", "a\r\n", "é", "a/b", &"x".repeat(201)] {
            assert!(valid_bucket(name).is_err(), "{name}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in
            ["", ".a", "a.", "a..b", "a b", "a.*", "a.>", "a\n", "é", "putex.epoch", ".", &long]
        {
            assert!(valid_key(name).is_err(), "{name}");
        }
    }
}
