//! The guard: a second, small process that owns the service and outlives the agent.
//!
//! | file | part |
//! |---|---|
//! | `start` | how a guard begins |
//! | [`status_file`] | the status of an agent whose lock is in a directory |
//! | `process` | the main loop; decides by [`crate::core::guard`] |
//! | `finish` | `putex finish`: a guard without an agent |
//! | `protocol` | the messages between agent and guard as packets |
//! | `socket` | the socket between them |
//! | `instance_dir` | the private directory with locks and socket |
//! | `note` | the notes of a guard for the next guard |
//! | `service_command` | a command: its runner, its output, and the notes of it |
//! | `output_rest` | how long its output rests after some was read |
//! | `cgroup` | the control group of start |
//! | `cgroups` | all control groups in which the service may be, and whether start enters |
//! | `device` | the watchdog device |
//!
//! The guard is in a session of its own, so that a signal to the agent's process group or
//! terminal does not end it, and no signal ends it but SIGKILL, SIGSTOP and those of a fault.

pub mod cgroup;
mod cgroups;
mod device;
mod finish;
mod instance_dir;
pub(crate) mod note;
mod output_rest;
mod process;
pub mod protocol;
mod service_command;
mod socket;
mod start;
pub mod status_file;

pub use self::device::inspect as inspect_device;
pub use self::finish::finish;
pub use self::instance_dir::{Identity, InstanceDir, RunningGuard, digest};
pub use self::socket::{next_packet, receive, send, send_json};
pub use self::start::run;
