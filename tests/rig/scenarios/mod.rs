//! The scenarios, by the letter under which a campaign runs them.
//!
//! | letter | module | what it shows |
//! |---|---|---|
//! | b | [`failover`] | steady state; a host that dies |
//! | c | [`check`] | a health check that fails, is slow, hangs |
//! | d | [`link`] | servers and links that come and go; an agent alone that dies or sleeps |
//! | e, f | [`handover`] | a clean stop; two agents with one token |
//! | g | [`store`] | a store that loses what it promised to keep |
//! | h, i | [`mixed`] | agents of 0.2.0 beside it; old servers |

pub(crate) mod check;
pub(crate) mod failover;
pub(crate) mod handover;
pub(crate) mod link;
pub(crate) mod mixed;
pub(crate) mod store;

use std::time::Duration;

/// What shell commands may take on a busy machine, beside what is measured.
pub(crate) const COMMANDS_MAX: Duration = Duration::from_millis(100);
