//! A deterministic simulator: agents, guards, commands, clocks and a store in one
//! process and one thread, all of it from one seed.
//!
//! ```sh
//! cargo test --release --test simulate                      # fresh seeds, 50 s
//! cargo test --release --test simulate -- --seeds 100000    # so many
//! cargo test --release --test simulate -- --minutes 60
//! cargo test --release --test simulate -- --seed 4711       # one again, as text
//! ```
//!
//! `--base N` begins at that seed, `--jobs J` takes so many threads, `--brief` prints
//! one line of a failure, `--with KINDS` has these kinds of fault in every run, which
//! finds what needs several of them at once, `--without KINDS` and `--until-us T`
//! replay what was left when a failing seed was made small, `--beyond-drift` lets
//! clocks run outside of their bound. `--profile sim` instead of `--release` is built
//! faster and runs faster.
//!
//! What is shipped and runs here: `core::pump` and `core::guard`, unchanged. What is
//! modelled after the code around them: the inbox and the turn loop, the store thread
//! with its openings and deadlines, the child thread with its orders and wishes, the
//! watchdog thread, the line to the guard, its replacement and its handover from life
//! to life, the file of lives, the guard's loop, the watchdog device, SIGKILL, SIGSTOP,
//! SIGTERM, suspend, loss of power; putex 0.2.0 as it should behave.
//!
//! What is not modelled: what costs no time there may take a while here or the other
//! way round (a start begins in the instant in which the guard is told of it); the
//! protocol of NATS and the files of the directory store, which have tests of their
//! own; queues that are full; commands that no kill ends; a device that cannot be
//! disarmed; an agent that is set up in another way when it is started again. A last
//! resort that works is quick. A virtual machine that stands still is a clock outside
//! of its bound.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, unreachable_pub)]

#[path = "../core/sim/mod.rs"]
mod sim;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A panic in the core is a failure of a seed, and is printed as one.
    std::panic::set_hook(Box::new(|_| {}));
    match sim::campaign::play(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sim::campaign::Usage(text)) => {
            eprintln!("simulate: {text}");
            ExitCode::from(64)
        }
    }
}
