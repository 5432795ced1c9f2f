//! The decisions of `putex lock`, `putex grab` and `putex release`: who is granted a name, and
//! when a command must be dead.
//!
//! | file | part |
//! |---|---|
//! | `owner` | how a ticket is written, found, waited for, renewed and ended |
//! | `step` | the steps of an owner, their results, and its messages to the asker |
//! | `command_end` | when a command is told to end, and when it is killed |
//! | `grab` | the times of a ticket without a process that stays |
//! | `release` | how such a ticket is ended, or a ticket of another is broken |
//! | `ticket` | names, modes and tickets; which tickets conflict |
//! | `key` | the last elements of their keys |
//! | `earlier_keys` | the tickets that a listing has to read |
//! | `decision` | which ticket is granted, which slot it has, what it waits for |
//! | `times` | how long a ticket is valid, and when its command is killed |

pub mod command_end;
pub mod decision;
pub mod earlier_keys;
pub mod grab;
pub mod key;
pub mod owner;
pub mod release;
pub mod step;
pub mod ticket;
pub mod times;

pub use self::command_end::{CommandEnd, EndSignal, KILL_WAIT};
pub use self::decision::{Decision, decide};
pub use self::earlier_keys::EarlierKeys;
pub use self::owner::{Asker, Soft, TicketOwner, of_requester};
pub use self::release::{Broken, Released, Releaser, Whose};
pub use self::step::{End, Input, Mark, Step, TicketsListed, TicketsOpened, ToFront};
pub use self::ticket::{Mode, Name, RunsOut, SLOTS_MAX, StoredTicket, Ticket, Unreadable};
pub use self::times::{KILL_LEAD, KillTimes, LockTiming};
