//! The scenarios, by the letter under which a campaign runs them.
//!
//! | letter | module | what it shows |
//! |---|---|---|
//! | b | [`failover`] | steady state; a host that dies |
//! | c | [`check`] | a health check that fails, is slow, hangs |
//! | d | [`link`] | servers and links that come and go |
//! | e, f | [`handover`] | a clean stop; two agents with one token |
//! | g | [`store`] | a store that loses what it promised to keep |
//! | h, i | [`mixed`] | agents of 0.2.0 beside it; old servers |
//! | 3a to 3d | [`guard`] | agents that die or sleep alone; guards that die |
//! | 3f, 3g, 3k | [`guard_commands`] | a stop that hangs or fails; a start that takes long |
//! | 3h, 3i, 3j | [`guard_strain`] | a log that nobody reads; no time left; panics |

pub(crate) mod check;
pub(crate) mod failover;
pub(crate) mod guard;
pub(crate) mod guard_commands;
pub(crate) mod guard_strain;
pub(crate) mod handover;
pub(crate) mod link;
pub(crate) mod mixed;
pub(crate) mod store;

use std::time::Duration;

/// Time that shell commands may take on a busy machine, beside the measured time.
pub(crate) const COMMANDS_MAX: Duration = Duration::from_millis(100);
