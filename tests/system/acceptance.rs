//! The long campaigns, by letter:
//!
//! ```text
//! cargo test --release --test acceptance -- b --kills 20 --minutes 5
//! cargo test --release --test acceptance -- 3a 3b --rounds 10
//! ```
//!
//! Letters may stand together, what has two of them stands alone. Without any all of them
//! run but 3i, which leaves nothing else on this machine any time. `--kills` is the number
//! of killed hosts of b and of restarted agents of 3b, `--minutes` the length of b's steady
//! state, `--rounds` how often everything else is repeated, `--loops` and `--seconds` are
//! the busy loops of 3i and how long they run. The exit status is 1 when anything was found
//! wrong, 64 when the arguments make no sense.

#[path = "rig/mod.rs"]
mod rig;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Duration;

use rig::report::Report;
use rig::scenarios::guard_commands::Cause;
use rig::scenarios::{check, failover, guard, guard_commands, guard_strain};
use rig::scenarios::{handover, link, mixed, store};
use rig::setting::Setting;
use support::programs::{debug_putex, putex_020, tool};
use support::proxy::Mode;

const R: Duration = Duration::from_millis(500);
const LETTERS: &str = "bcdefghi";

/// The scenarios of the guard, but for the busy machine.
const GUARDED: [&str; 9] = ["3a", "3b", "3c", "3d", "3f", "3g", "3h", "3j", "3k"];

/// The busy machine, when it is asked for.
const BUSY: &str = "3i";

/// How long start takes in 3k.
const LONG_START: Duration = Duration::from_secs(20);

/// The options of the command line.
struct Campaign {
    names: Vec<String>,
    kills: usize,
    minutes: f64,
    rounds: usize,
    loops: usize,
    seconds: u64,
}

fn main() -> ExitCode {
    let campaign = match parse(std::env::args().skip(1)) {
        Ok(campaign) => campaign,
        Err(why) => {
            eprintln!("acceptance: {why}");
            return ExitCode::from(64);
        }
    };
    let mut clean = true;
    for name in &campaign.names {
        for report in play(name, &campaign) {
            clean &= report.is_clean();
        }
    }
    println!("{}", if clean { "all holds" } else { "VIOLATED" });
    ExitCode::from(u8::from(!clean))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Campaign, String> {
    let mut campaign =
        Campaign { names: Vec::new(), kills: 20, minutes: 5.0, rounds: 1, loops: 200, seconds: 60 };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument}: a number is missing"));
        let bad = |_| format!("{argument}: not a number");
        match argument.as_str() {
            "--kills" => campaign.kills = value()?.parse().map_err(bad)?,
            "--rounds" => campaign.rounds = value()?.parse().map_err(bad)?,
            "--loops" => campaign.loops = value()?.parse().map_err(bad)?,
            "--seconds" => campaign.seconds = value()?.parse().map_err(bad)?,
            "--minutes" => {
                let minutes = value()?.parse();
                campaign.minutes = minutes.map_err(|_| format!("{argument}: not a number"))?;
            }
            name if name == BUSY || GUARDED.contains(&name) => {
                campaign.names.push(name.to_owned());
            }
            letters if letters.chars().all(|letter| LETTERS.contains(letter)) => {
                campaign.names.extend(one_by_one(letters));
            }
            other => {
                let known = GUARDED.join(", ");
                return Err(format!(
                    "{other}: neither a flag nor of {LETTERS} nor one of {known}, {BUSY}"
                ));
            }
        }
    }
    if campaign.names.is_empty() {
        campaign.names.extend(one_by_one(LETTERS));
        campaign.names.extend(GUARDED.map(str::to_owned));
    }
    Ok(campaign)
}

fn one_by_one(letters: &str) -> impl Iterator<Item = String> {
    letters.chars().map(String::from)
}

fn play(name: &str, campaign: &Campaign) -> Vec<Report> {
    if name == "i" {
        let Some(setting) = Setting::with_old_server(R) else {
            return Vec::new();
        };
        println!("i: b, c, d with {}", setting.server.display());
        let mut reports = b(&setting, campaign);
        reports.extend(c(&setting, campaign.rounds));
        reports.extend(d(&setting, campaign.rounds));
        return reports;
    }
    let Some(setting) = Setting::new(R) else {
        return Vec::new();
    };
    let (setting, rounds) = (&setting, campaign.rounds);
    match name {
        "b" => b(setting, campaign),
        "c" => c(setting, rounds),
        "d" => d(setting, rounds),
        "e" => vec![repeat(1, || handover::a_terminated_agent_hands_over(setting, rounds))],
        "f" => vec![repeat(rounds, || handover::one_token_twice_is_never_active_twice(setting))],
        "g" => g(setting, rounds),
        "h" => h(setting, rounds),
        guarded => play_guarded(guarded, setting, campaign),
    }
}

fn play_guarded(name: &str, setting: &Setting, campaign: &Campaign) -> Vec<Report> {
    let rounds = campaign.rounds;
    match name {
        "3a" => a_of_3(setting, rounds),
        "3b" => b_of_3(setting, campaign.kills),
        "3c" => vec![repeat(rounds, || guard::a_sleeping_agent_does_not_keep_its_service(setting))],
        "3d" => d_of_3(setting, rounds),
        "3f" => [Cause::LostLink, Cause::LostLinkThenKilled, Cause::Told]
            .map(|cause| {
                repeat(rounds, || {
                    guard_commands::a_hanging_stop_meets_the_last_resort(setting, cause)
                })
            })
            .into(),
        "3g" => [true, false]
            .map(|told| {
                repeat(rounds, || guard_commands::a_failing_stop_is_repeated(setting, told))
            })
            .into(),
        "3h" => vec![repeat(rounds, || guard_strain::a_full_log_holds_nothing_up(setting))],
        BUSY => i_of_3(campaign),
        "3j" => j_of_3(setting, rounds),
        _ => vec![repeat(rounds, || {
            guard_commands::a_slow_start_keeps_and_loses_its_lock(setting, LONG_START)
        })],
    }
}

/// Runs a scenario `rounds` times, prints the sum and returns it.
fn repeat(rounds: usize, scenario: impl Fn() -> Report) -> Report {
    let mut sum = scenario();
    for _ in 1..rounds {
        sum.merge(scenario());
    }
    println!("{sum}");
    sum
}

fn b(setting: &Setting, campaign: &Campaign) -> Vec<Report> {
    let window = Duration::from_secs_f64(campaign.minutes * 60.0);
    let kills = campaign.kills;
    vec![
        repeat(1, || failover::nothing_moves_when_nothing_happens(setting, window)),
        repeat(1, || failover::another_takes_over_from_a_killed_host(setting, kills)),
    ]
}

fn c(setting: &Setting, rounds: usize) -> Vec<Report> {
    vec![
        repeat(rounds, || check::a_failing_check_moves_the_service(setting)),
        repeat(rounds, || check::a_slow_check_moves_nothing(setting)),
        repeat(rounds, || check::a_hanging_check_moves_the_service(setting)),
    ]
}

fn d(setting: &Setting, rounds: usize) -> Vec<Report> {
    let broken = |mode| repeat(rounds, || link::a_broken_link_moves_the_service(setting, mode));
    vec![
        repeat(rounds, || link::a_short_server_restart_moves_nothing(setting)),
        repeat(rounds, || link::a_long_server_outage_stops_the_service(setting)),
        broken(Mode::Cut),
        broken(Mode::Freeze),
        repeat(rounds, || link::a_slow_link_moves_nothing(setting)),
        repeat(rounds, || link::a_lost_acknowledgement_moves_nothing(setting)),
    ]
}

fn g(setting: &Setting, rounds: usize) -> Vec<Report> {
    vec![
        repeat(rounds, || store::a_deleted_key_stops_the_service(setting)),
        repeat(rounds, || store::a_deleted_bucket_stops_the_service(setting)),
        repeat(rounds, || store::a_restored_store_stops_the_service(setting)),
        repeat(rounds, || store::a_lost_memory_bucket_stops_the_service(setting)),
    ]
}

fn h(setting: &Setting, rounds: usize) -> Vec<Report> {
    let Some(old) = putex_020() else {
        return Vec::new();
    };
    let scenario = mixed::old_and_new_take_over_from_each_other;
    vec![repeat(1, || scenario(setting, &old, rounds))]
}

fn a_of_3(setting: &Setting, rounds: usize) -> Vec<Report> {
    vec![
        repeat(rounds, || guard::a_killed_agent_does_not_leave_its_service(setting)),
        repeat(rounds, || guard::agents_that_end_leave_nothing(setting)),
    ]
}

/// Once restarted by the rig, once by a real supervisor.
fn b_of_3(setting: &Setting, kills: usize) -> Vec<Report> {
    let mut reports = vec![repeat(1, || guard::a_restarted_agent_goes_on(setting, kills))];
    if let Some(runsv) = tool("runsv") {
        reports.push(repeat(1, || guard::a_supervised_agent_goes_on(setting, &runsv, kills)));
    }
    reports
}

fn d_of_3(setting: &Setting, rounds: usize) -> Vec<Report> {
    vec![
        repeat(rounds, || guard::a_killed_guard_is_replaced(setting)),
        repeat(rounds, || guard::agent_and_guard_die_together(setting)),
        repeat(rounds, || guard::a_stopped_guard_is_survived(setting)),
        repeat(rounds, || guard::a_restarted_agent_meets_a_stopped_guard(setting)),
    ]
}

/// At R 1 s: a shorter R says more about the machine than about the agent.
fn i_of_3(campaign: &Campaign) -> Vec<Report> {
    let Some(setting) = Setting::new(Duration::from_secs(1)) else {
        return Vec::new();
    };
    let (loops, window) = (campaign.loops, Duration::from_secs(campaign.seconds));
    vec![repeat(campaign.rounds, || {
        guard_strain::a_busy_machine_never_runs_two(&setting, loops, window)
    })]
}

fn j_of_3(setting: &Setting, rounds: usize) -> Vec<Report> {
    let Some(agent) = debug_putex() else {
        return Vec::new();
    };
    guard_strain::THREADS
        .map(|thread| {
            repeat(rounds, || {
                guard_strain::a_panicking_thread_ends_the_agent(setting, &agent, thread)
            })
        })
        .into()
}
