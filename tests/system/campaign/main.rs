//! The fault campaign: three servers, three agents, and everything that can go wrong.
//!
//! ```text
//! cargo test --release --test campaign -- --seed 1 --minutes 30 -r 1s -f 12 -c 2
//! cargo test --release --test campaign -- --seed 1 --minutes 30 -r 500ms -f 3 -c 1
//! cargo test --release --test campaign -- --seed 1 --minutes 5 -r 500ms -f 3 -c 1 --old
//! ```
//!
//! | flag | |
//! |---|---|
//! | `--seed S` | what is random; another one each time unless given |
//! | `--minutes M` | for how long, 1 unless given |
//! | `-r`, `-f`, `-c` | the agents' R, F and C; 1s, 12 and 2 unless given |
//! | `--locks N` | so many clients on each host run commands under locks, with R 500 ms and T 2 s |
//! | `--old` | the agents are putex 0.2.0, `$PUTEX_020` |
//! | `--unguarded` | agent and guard are also killed at once: nobody promised to survive that |
//! | `--step-clock N` | the wall clock is stepped by up to N seconds, and put back |
//!
//! It needs root, `/dev/net/tun` and namespaces, and says so in one line when something is
//! missing. `$NATS_SERVER` and `$PUTEX_UNDER_TEST` are as in the rig. The exit status is 1
//! when services overlapped or nobody ran the service for 3 B ([`course`]); then the logs, journals
//! and faults are kept in a folder that is named. It is 2 when the campaign itself failed,
//! and 64 when the arguments make no sense.
//!
//! Everything is in namespaces of its own ([`namespaces`]), connected by [`wires`], which also
//! are what delays, loses, doubles and cuts. The [`course`] is rounds of [`faults`] drawn
//! from the seed, each followed by a time in which all has to be well again. Whether
//! services overlap is judged by the rig's observer, which asks the kernel every 2 ms, and
//! once more from what the services wrote themselves ([`verdict`]).
//!
//! A seed gives the same plan of faults again. What they meet is not the same to the
//! millisecond: the servers, the kernel and the time are real.
//!
//! The wall clock belongs to the whole machine, so it is stepped only when asked for, and
//! put back unless the campaign's first process is killed by SIGKILL: not where others work.
//!
//! To add a fault: name it in [`faults`], say how often it is drawn, and how it is done
//! and undone in [`cure`].

#[path = "../locks/clients.rs"]
mod clients;
#[path = "../locks/record.rs"]
#[allow(dead_code, reason = "the stories of locks use the rest")]
mod record;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../../support/mod.rs"]
mod support;

mod clock;
mod course;
mod cure;
mod faults;
mod health;
mod host;
mod lockers;
mod log;
mod namespaces;
mod nodes;
mod rng;
mod server;
mod service;
mod tap;
mod testbed;
mod verdict;
mod wires;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use course::Order;
use faults::Extras;
use host::Agent;
use rig::setting::Setting;
use rig::timing::Timing;
use support::clock::now;
use support::programs::{putex, putex_020};
use testbed::Testbed;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let flags = words.get(1..).unwrap_or_default();
    let role = words.first().map_or("", String::as_str);
    if service::ROLES.contains(&role) {
        return service::play(role, flags.first().map_or("", String::as_str));
    }
    let ended = match role {
        lockers::ROLE => lockers::play(flags),
        namespaces::INIT => namespaces::init(flags),
        namespaces::INSIDE => inside(flags),
        _ => begin(&words),
    };
    ended.unwrap_or_else(|why| {
        eprintln!("campaign: {why}");
        ExitCode::from(2)
    })
}

/// Looks whether all is there, and goes into the namespaces.
fn begin(flags: &[String]) -> Result<ExitCode, String> {
    let order = match parse(flags) {
        Ok(order) => order,
        Err(why) => {
            eprintln!("campaign: {why}");
            return Ok(ExitCode::from(64));
        }
    };
    if let Some(what) = namespaces::missing() {
        return Err(what);
    }
    if order.agent.old && putex_020().is_none() {
        return Err("--old needs $PUTEX_020".to_owned());
    }
    let Some(_) = Setting::new(order.timing.r) else {
        return Err("no nats-server: neither $NATS_SERVER nor in PATH".to_owned());
    };
    let mut flags = flags.to_vec();
    if !flags.iter().any(|flag| flag == "--seed") {
        flags.extend(["--seed".to_owned(), order.seed.to_string()]);
    }
    println!("campaign: seed {}", order.seed);
    let wall = clock::wall_offset();
    let ended = namespaces::enter(&flags, &order.agent.binary);
    if order.extras.step_max > 0 {
        clock::put_back(wall)?;
    }
    ended
}

/// Runs the campaign, in the namespaces.
fn inside(flags: &[String]) -> Result<ExitCode, String> {
    let mut order = parse(flags)?;
    order.agent.binary =
        env::var_os(namespaces::AGENT).ok_or("the environment names no agent")?.into();
    let setting = Setting::new(order.timing.r).ok_or("no nats-server")?;
    let folder = env::temp_dir();
    let found = Testbed::prepare(order.seed, order.timing, &order.agent, &setting.server, &folder);
    let mut testbed = found?;
    testbed.add_lockers(order.locks, order.seed, &folder);
    let course = course::run(&order, &mut testbed, &folder)?;
    let clean = verdict::judge(&order, &course, &testbed, &folder);
    Ok(ExitCode::from(u8::from(!clean)))
}

fn parse(flags: &[String]) -> Result<Order, String> {
    let mut flags = flags.iter();
    let mut order = Order {
        seed: u64::from(now().subsec_nanos()),
        length: Duration::from_secs(60),
        timing: Timing { r: Duration::from_secs(1), f: 12, c: 2 },
        agent: Agent { binary: putex(), old: false },
        extras: Extras::default(),
        locks: 0,
    };
    while let Some(flag) = flags.next() {
        let mut value = || flags.next().ok_or(format!("{flag}: a value is missing"));
        let bad = |text: &str| format!("{flag}: {text} is no value for it");
        match flag.as_str() {
            "--old" => {
                let binary = env::var_os("PUTEX_020").map(PathBuf::from);
                order.agent = Agent { binary: binary.unwrap_or_default(), old: true };
            }
            "--unguarded" => order.extras.unguarded = true,
            "--step-clock" => {
                let text = value()?;
                order.extras.step_max = text.parse().map_err(|_| bad(text))?;
            }
            "--seed" => {
                let text = value()?;
                order.seed = text.parse().map_err(|_| bad(text))?;
            }
            "--locks" => {
                let text = value()?;
                order.locks = text.parse().map_err(|_| bad(text))?;
            }
            "--minutes" => {
                let text = value()?;
                let minutes: f64 = text.parse().map_err(|_| bad(text))?;
                order.length =
                    Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| bad(text))?;
            }
            "-r" => {
                let text = value()?;
                order.timing.r = interval(text).ok_or_else(|| bad(text))?;
            }
            "-f" => {
                let text = value()?;
                order.timing.f = text.parse().map_err(|_| bad(text))?;
            }
            "-c" => {
                let text = value()?;
                order.timing.c = text.parse().map_err(|_| bad(text))?;
            }
            other => return Err(format!("{other}: no flag of a campaign")),
        }
    }
    Ok(order)
}

/// Reads what `-r` of putex reads: milliseconds, or with a unit.
fn interval(text: &str) -> Option<Duration> {
    if let Some(ms) = text.strip_suffix("ms") {
        return ms.parse().ok().map(Duration::from_millis);
    }
    match text.strip_suffix('s') {
        Some(seconds) => seconds.parse().ok().map(Duration::from_secs),
        None => text.parse().ok().map(Duration::from_millis),
    }
}
