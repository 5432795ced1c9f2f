//! The decisions of `putex lock`: who is granted a name, and when the command must be dead.
//!
//! | file | part |
//! |---|---|
//! | `owner` | the renewer's decisions: how a ticket is written, waited for, renewed and ended |
//! | `step` | what the renewer does next, what comes of that, and what it tells the front |
//! | `command_end` | when a command is told to end, and when it is killed |
//! | `ticket` | names, modes and tickets; which tickets conflict |
//! | `decision` | which ticket is granted, which slot it has, what it waits for |
//! | `times` | how long a ticket is valid, and when its command is killed |

pub mod command_end;
pub mod decision;
pub mod owner;
pub mod step;
pub mod ticket;
pub mod times;

pub use self::command_end::{CommandEnd, EndSignal, KILL_WAIT};
pub use self::decision::{Decision, decide};
pub use self::owner::{Soft, TicketOwner};
pub use self::step::{End, Input, Mark, Step, ToFront};
pub use self::ticket::{Mode, Name, SLOTS_MAX, StoredTicket, Ticket, Unreadable};
pub use self::times::{KILL_LEAD, KillTimes, LockTiming};
