//! The log: how a line is written for its reader, and the thread that writes it.
//!
//! | file | part |
//! |---|---|
//! | `format` | the destination of the log, and the form of a line for it |
//! | `syslog` | the socket of a syslog daemon |
//! | `queue` | the queue of lines, and the thread that waits for their reader |
//! | `fatal` | the last line of an agent that ends at once |
//!
//! The crate `log` has the same name: outside the root of this crate `log::warn!` is that
//! crate, and `crate::log` is this module.

mod fatal;
mod format;
mod queue;
mod syslog;

pub(crate) use self::fatal::{end_on_panic, panic_if_asked};
pub use self::format::Destination;
pub(crate) use self::format::one_line;
pub use self::queue::LogQueue;
pub(crate) use self::queue::command_output;
