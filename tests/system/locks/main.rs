//! `putex lock`, as its users see it: the real program on a directory and on nats-server, with
//! commands that record when they run.

mod clients;
mod damage;
mod directory;
mod disk;
mod examples;
mod flock;
mod flom;
mod grab;
mod hold;
mod init;
mod killed;

mod leases;
mod loss;
mod minority;
mod modes;
mod others;
mod parts;
mod record;
mod report;
#[path = "../campaign/rng.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod rng;
mod shell;
mod site;
mod stress;
#[path = "../../support/mod.rs"]
mod support;
mod surroundings;
mod terminal;
