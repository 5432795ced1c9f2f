//! The cost of an agent per stroke, beside that of putex 0.2.0 when `$PUTEX_020` names it:
//!
//! ```text
//! PUTEX_020=.. cargo bench --bench cost -- 30
//! ```
//!
//! The number is the length of each window in seconds. One server, R 100 ms, F 3,
//! C 1, commands that do nothing; the time of the commands is not counted.

#[path = "../tests/system/rig/mod.rs"]
mod rig;
#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Duration;

use rig::cost::{Cost, measure};
use rig::setting::Setting;
use support::programs::putex_020;

const R: Duration = Duration::from_millis(100);
const WINDOW_SECONDS: u64 = 20;

fn main() -> ExitCode {
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let window = Duration::from_secs(seconds.unwrap_or(WINDOW_SECONDS));
    let Some(setting) = Setting::new(R) else {
        return ExitCode::SUCCESS;
    };
    match compare(&setting, window) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cost: {why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(setting: &Setting, window: Duration) -> Result<(), String> {
    let new = costs(setting, &setting.agent, "under test", window)?;
    let Some(binary) = putex_020() else {
        return Ok(());
    };
    let old = costs(setting, &binary, "0.2.0", window)?;
    for ((role, new), (_, old)) in new.iter().zip(&old) {
        println!("{role}, share of 0.2.0: {}", new.ratios(old));
    }
    Ok(())
}

/// Measures an agent alone, and an active one and a standby together.
fn costs(
    setting: &Setting,
    binary: &std::path::Path,
    name: &str,
    window: Duration,
) -> Result<[(&'static str, Cost); 3], String> {
    let (alone, _) = measure(setting, binary, 1, window)?;
    let (active, standby) = measure(setting, binary, 2, window)?;
    let costs = [("alone", alone), ("active beside a standby", active), ("standby", standby)];
    for (role, cost) in &costs {
        println!("{name}, {role}, {cost}");
    }
    Ok(costs)
}
