//! The long campaigns, by letter:
//!
//! ```text
//! cargo test --release --test acceptance -- b --kills 20 --minutes 5
//! ```
//!
//! Without a letter all of them run, but for k: there the agent alone is killed or
//! stopped, and its service runs on. No agent without a guard passes that. `--kills` is
//! the number of killed hosts of b, `--minutes` the length of its steady state, `--rounds`
//! how often everything else is repeated. The exit status is 1 when anything was found
//! wrong, 64 when the arguments make no sense.

mod rig;

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;

use rig::clock::now;
use rig::proxy::Mode;
use rig::report::{Report, story};
use rig::scenarios::{check, failover, handover, link, mixed, store};
use rig::setting::{Setting, agent_under_test, putex_020};

const R: Duration = Duration::from_millis(500);
const LETTERS: &str = "bcdefghijl";

/// What needs a process that outlives the agent; runs when it is asked for alone.
const GUARDED: char = 'k';

/// What the command line asks for.
struct Campaign {
    letters: String,
    kills: usize,
    minutes: f64,
    rounds: usize,
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
    for letter in campaign.letters.chars() {
        for report in play(letter, &campaign) {
            clean &= report.is_clean();
        }
    }
    println!("{}", if clean { "all holds" } else { "VIOLATED" });
    ExitCode::from(u8::from(!clean))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Campaign, String> {
    let mut campaign = Campaign {
        letters: String::new(),
        kills: 20,
        minutes: 5.0,
        rounds: 1,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or(format!("{argument}: a number is missing"))
        };
        let bad = |_| format!("{argument}: not a number");
        match argument.as_str() {
            "--kills" => campaign.kills = value()?.parse().map_err(bad)?,
            "--rounds" => campaign.rounds = value()?.parse().map_err(bad)?,
            "--minutes" => {
                let minutes = value()?.parse();
                campaign.minutes = minutes.map_err(|_| format!("{argument}: not a number"))?;
            }
            letters if letters.chars().all(|c| c == GUARDED || LETTERS.contains(c)) => {
                campaign.letters.push_str(letters);
            }
            other => return Err(format!("{other}: neither a flag nor one of {LETTERS}")),
        }
    }
    if campaign.letters.is_empty() {
        campaign.letters.push_str(LETTERS);
    }
    Ok(campaign)
}

fn play(letter: char, campaign: &Campaign) -> Vec<Report> {
    if letter == 'i' {
        let Some(setting) = Setting::with_old_server(R) else {
            return Vec::new();
        };
        println!("i: b, c, d with {}", setting.server.display());
        let mut reports = b(&setting, campaign);
        reports.extend(c(&setting, campaign.rounds));
        reports.extend(d(&setting, campaign.rounds));
        let cluster = mixed::replicas_on_an_old_cluster_are_refused;
        reports.push(repeat(1, || cluster(&setting)));
        return reports;
    }
    let Some(setting) = Setting::new(R) else {
        return Vec::new();
    };
    let (setting, rounds) = (&setting, campaign.rounds);
    match letter {
        'b' => b(setting, campaign),
        'c' => c(setting, rounds),
        'd' => d(setting, rounds),
        'e' => vec![repeat(1, || {
            handover::a_terminated_agent_hands_over(setting, rounds)
        })],
        'f' => vec![repeat(rounds, || {
            handover::one_token_twice_is_never_active_twice(setting)
        })],
        'g' => g(setting, rounds),
        'h' => h(setting, rounds),
        'j' => vec![repeat(rounds, || j(setting))],
        GUARDED => [Signal::KILL, Signal::STOP]
            .map(|signal| {
                repeat(rounds, || {
                    link::a_lost_agent_does_not_leave_its_service(setting, signal)
                })
            })
            .into(),
        _ => vec![repeat(1, || l(setting))],
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
        repeat(1, || {
            failover::nothing_moves_when_nothing_happens(setting, window)
        }),
        repeat(1, || {
            failover::another_takes_over_from_a_killed_host(setting, kills)
        }),
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
    let broken = |mode| {
        repeat(rounds, || {
            link::a_broken_link_moves_the_service(setting, mode)
        })
    };
    vec![
        repeat(rounds, || {
            link::a_short_server_restart_moves_nothing(setting)
        }),
        repeat(rounds, || {
            link::a_long_server_outage_stops_the_service(setting)
        }),
        broken(Mode::Cut),
        broken(Mode::Freeze),
        repeat(rounds, || link::a_slow_link_moves_nothing(setting)),
        repeat(rounds, || {
            link::a_lost_acknowledgement_moves_nothing(setting)
        }),
    ]
}

fn g(setting: &Setting, rounds: usize) -> Vec<Report> {
    vec![
        repeat(rounds, || store::a_deleted_key_stops_the_service(setting)),
        repeat(rounds, || {
            store::a_deleted_bucket_stops_the_service(setting)
        }),
        repeat(rounds, || {
            store::a_restored_store_stops_the_service(setting)
        }),
        repeat(rounds, || {
            store::a_lost_memory_bucket_stops_the_service(setting)
        }),
    ]
}

fn h(setting: &Setting, rounds: usize) -> Vec<Report> {
    let Some(old) = putex_020() else {
        return Vec::new();
    };
    let scenario = mixed::old_and_new_take_over_from_each_other;
    vec![repeat(1, || scenario(setting, &old, rounds))]
}

/// Messages and time per stroke of an active agent and a standby; figures only.
fn j(setting: &Setting) -> Report {
    story("j: what an agent costs", |report| {
        let window = R * 20;
        let (active, standby) = rig::cost::measure(setting, &setting.agent, 2, window)?;
        report.note(format!("active, {active}"));
        report.note(format!("standby, {standby}"));
        Ok(())
    })
}

fn l(setting: &Setting) -> Report {
    story("l: mistakes", |report| {
        let began = now();
        for wrong in rig::bad_input::try_all(&agent_under_test(), Some(setting)) {
            report.check(false, || wrong);
        }
        report.measure("all rows", now() - began);
        Ok(())
    })
}
