//! Many agents in one process, against servers of their own:
//!
//! ```text
//! cargo bench --profile sim --bench scale -- --agents 1000 --events restart,cut
//! ```
//!
//! Each agent is a thread with the pump, the store and the client of a real one. Its guard is
//! simulated, and it has no health check. `--help` has the options.

#[path = "scale/agent.rs"]
mod agent;
#[path = "scale/counters.rs"]
mod counters;
#[path = "scale/event.rs"]
mod event;
#[path = "scale/guard.rs"]
mod guard;
#[path = "scale/herd.rs"]
mod herd;
#[path = "scale/host.rs"]
mod host;
#[path = "scale/options.rs"]
mod options;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "scale/window.rs"]
mod window;

use std::path::Path;
use std::process::ExitCode;

use event::Site;
use herd::Herd;
use options::{HELP, Options};
use support::programs;
use window::{Reading, Window};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("scale: {why}");
            return ExitCode::FAILURE;
        }
    };
    let Some(binary) = programs::nats_server() else { return ExitCode::SUCCESS };
    match measure(&options, &binary) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("scale: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts servers and agents, and prints what the agents cost, and what became of them at each
/// event.
fn measure(options: &Options, binary: &Path) -> Result<(), String> {
    host::prepare()?;
    let mut site = Site::start(options, binary)?;
    let herd = Herd::start(options, site.urls())?;
    let took = herd.wait_active()?;
    println!("{options}");
    let used = Reading::take(&site.servers)?;
    println!("all keys have an active agent {took:.1?} after the last start; {used}\n");
    println!("{}", Window::HEAD);
    println!("{}", herd.observe("steady", &site.servers)?);
    for event in &options.events {
        let outcome = event.happen(&mut site, &herd)?;
        println!("{}", herd.observe(&format!("after {event}"), &site.servers)?);
        println!("\n{outcome}\n");
    }
    for (reason, times) in herd.reasons() {
        println!("{times:7} times: {reason}");
    }
    Ok(())
}
