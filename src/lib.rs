//! The parts of `putex`. Not an API: the binary and its tests are the only users.
//!
//! # Modules
//!
//! In reading order: a module imports only from modules above it.
//!
//! | module | content |
//! |---|---|
//! | [`core`] | the decisions, without I/O: times, the record, the state machines: pump and guard |
//! | [`exit`] | exit statuses |
//! | [`sys`] | system calls; the only unsafe code |
//! | [`log`] | the log: destinations, the form of a line, the queue |
//! | [`nats`] | the NATS client |
//! | [`store`] | compare-and-set on keys, in NATS or in a directory |
//! | [`command`] | the operator's commands as processes |
//! | [`guard`] | the process that owns the service: start, stop, last resort, deadline |
//! | [`agent`] | the process that owns the lock: threads around the pump |
//! | [`lock`] | `putex lock`: a command that runs while a lock is held |
//! | [`grab`] | `putex grab` and `putex release`: locks without a process |
//! | [`lease`] | `putex lease` and `putex put`: leases, and writes under one |
//! | [`status`] | `putex status`: who holds what |
//! | [`operation`] | the common part of the requests of operators |
//! | [`init`] | `putex init`: a bucket is made |
//! | [`switchover`] | `putex switchover`: a lock goes to another agent |
//! | [`pause`] | `putex pause`, `putex resume`: no agent of a key does anything for some time |
//! | [`cli`] | the command line, settings, contexts, help |
//! | [`check`] | `putex check` |
//! | [`doctor`] | `putex doctor`: whether servers, agents and host are fit |
//!
//! # Invariants
//!
//! The service never outlives its lock: it is down at V + stop budget, before another agent may
//! start it. So it runs on at most one host at a time. This follows from eleven rules; each is
//! enforced in the file that it names.
//!
//! 1. Every write is a compare-and-set on the revision seen: `src/store/nats/write.rs`.
//! 2. A write is stored, refused or unknown. An unknown one is repeated unchanged until the
//!    outcome is known; the old validity stands until then: `src/core/write.rs`,
//!    `src/core/pump/write.rs`.
//! 3. An agent loses the lock as soon as it sees another revision, a rollback or another bucket:
//!    `src/core/pump/store_view.rs`, `src/core/pump/hold.rs`.
//! 4. The lock is released only after stop has succeeded: `src/core/pump/stopping.rs`.
//! 5. The owner of a record is its incarnation, not its token: `src/core/record.rs`.
//! 6. The service starts without a wait only if no other agent can be running it:
//!    `src/core/pump/takeover.rs`.
//! 7. Deadlines are on a clock that counts suspend (`src/sys.rs`), and are checked again after
//!    every wake-up and before every act: `src/core/pump/hold.rs`, `src/core/guard/mod.rs`,
//!    `src/nats/client/request.rs`.
//! 8. Nothing written for one connection is sent on the next: `src/nats/link.rs`.
//! 9. No script, log or full pipe blocks the thread that renews: `src/agent/mod.rs`.
//! 10. The record holds R, F and C; a challenger waits the longer of its own times and the
//!     holder's: `src/core/pump/holders.rs`.
//! 11. The service is down at V + stop budget, whatever happens to the agent:
//!     `src/core/guard/mod.rs`, which stops the service by `src/core/stop.rs`.
//!
//! # Where it is decided
//!
//! | question | function | file |
//! |---|---|---|
//! | When is the stop command killed? | `overran`, `become_overdue` | `src/core/stop.rs` |
//! | Does the last resort run? | `become_overdue`, `run_next` | `src/core/stop.rs` |
//! | How long must a lock stand still to be taken? | `decide` | `src/core/pump/takeover.rs` |
//! | Is the lock taken now? | `take_if_due` | `src/core/pump/standby.rs` |
//! | What keeps an agent from every lock? | `obstacle` | `src/core/pump/context.rs` |
//! | When is a health check killed? | `check_by` | `src/core/pump/active.rs` |
//! | When is that of a standby killed? | `check` | `src/core/pump/standby.rs` |
//! | Does a pause hold? | `is_paused` | `src/core/pump/pause.rs` |
//! | When is the lock written? | `advance` | `src/core/pump/write.rs` |
//! | Has the agent lost its lock? | `receive` | `src/core/pump/hold.rs` |
//! | Does the guard stop the service by itself? | `advance` | `src/core/guard/mod.rs` |
//! | What ends processes that stop has left? | `empty_cgroup` | `src/guard/process.rs` |
//! | Is the service of the previous instance adopted? | `adoptable` | `src/core/pump/taking.rs` |
//! | Does a second agent with the same identity end? | `wait_for_agent_lock` | `src/agent/mod.rs` |
//! | Is a ticket begun anew? | `has_run_out` | `src/core/tickets/owner.rs` |
//! | Is a ticket granted? | `decide` | `src/core/tickets/decision.rs` |
//! | Does a ticket in a directory stand? | `ticket` | `src/store/dir/tickets.rs` |
//! | Is a script told that it has a lock? | `come_first` | `src/core/tickets/owner/waiting.rs` |
//! | When is the command under a ticket killed? | `kill_times` | `src/core/tickets/times.rs` |
//! | When is it killed after a loss? | `kill_times_after_loss` | `src/core/tickets/times.rs` |
//! | Is the write into NATS conditional? | `expected_headers` | `src/store/nats/write.rs` |
//! | Is the write into a directory conditional? | `compare_and_set` | `src/store/dir/entries.rs` |
//! | Which server is tried next, and how long? | `next` | `src/nats/pool.rs` |
//! | When is a server left? | `unanswered` | `src/nats/pool.rs` |
//! | Is there room for a line of the log? | `has_room` | `src/log/queue.rs` |

pub mod agent;
pub mod check;
pub mod cli;
pub mod command;
pub mod core;
pub mod doctor;
pub mod exit;
pub mod grab;
pub mod guard;
pub mod init;
pub mod lease;
pub mod lock;
pub mod log;
pub mod nats;
pub mod operation;
pub mod pause;
pub mod status;
pub mod store;
pub mod switchover;
pub mod sys;

#[cfg(any(test, fuzzing))]
#[path = "../tests/fuzz/mod.rs"]
pub mod fuzz;
