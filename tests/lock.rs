//! `putex lock`, as its users see it: the real program on a directory and on nats-server, with
//! commands that record when they run.

#[path = "lock/clients.rs"]
mod clients;
#[path = "lock/damage.rs"]
mod damage;
#[path = "lock/directory.rs"]
mod directory;
#[path = "lock/disk.rs"]
mod disk;
#[path = "lock/etcd.rs"]
mod etcd;
#[path = "lock/examples.rs"]
mod examples;
#[path = "lock/flock.rs"]
mod flock;
#[path = "lock/flom.rs"]
mod flom;
#[path = "lock/grab.rs"]
mod grab;
#[path = "lock/init.rs"]
mod init;
#[path = "lock/leases.rs"]
mod leases;
#[path = "lock/loss.rs"]
mod loss;
#[path = "lock/minority.rs"]
mod minority;
#[path = "lock/modes.rs"]
mod modes;
#[path = "lock/once.rs"]
mod once;
#[path = "lock/others.rs"]
mod others;
#[path = "lock/parts.rs"]
mod parts;
#[path = "lock/record.rs"]
mod record;
#[path = "lock/report.rs"]
mod report;
#[path = "campaign/rng.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod rng;
#[path = "lock/shell.rs"]
mod shell;
#[path = "lock/site.rs"]
mod site;
#[path = "lock/stress.rs"]
mod stress;
mod support;
#[path = "lock/surroundings.rs"]
mod surroundings;
#[path = "lock/terminal.rs"]
mod terminal;
