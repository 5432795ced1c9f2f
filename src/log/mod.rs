//! The log: how a line is written for its reader, and the two ways to write it.
//!
//! | file | part |
//! |---|---|
//! | `format` | the destination of the log, and the form of a line for it |
//! | `syslog` | the socket of a syslog daemon |
//! | `queue` | the agent's log: a queue, and a thread that waits for the reader |
//! | `direct` | the log of all other processes: written at once, a reader is never waited for |
//! | `stderr` | writing to stderr without blocking |
//! | `limit` | the limit on the output of commands |
//! | `lost` | counting the lines that were lost |
//! | `fatal` | the last line of an agent that ends at once |
//!
//! The crate `log` has the same name: outside the root of this crate `log::warn!` is that
//! crate, and `crate::log` is this module.

mod direct;
mod fatal;
mod format;
mod limit;
mod lost;
mod queue;
mod stderr;
mod syslog;

pub use self::direct::DirectLog;
pub(crate) use self::fatal::{FatalLog, panic_if_asked};
pub use self::format::Destination;
pub(crate) use self::format::one_line;
pub use self::queue::LogQueue;
