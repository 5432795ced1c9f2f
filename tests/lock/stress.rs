//! Many processes at once, some of which are killed.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::record::{SHORT_WORKER, faults};
use crate::rng::Rng;
use crate::site::{QUICK, Site};
use crate::support::clock::{PATIENCE, now, observe_for, wait_until};
use crate::support::process::{parent_of, signal, wait_exit};

const CLIENTS: u64 = 12;
const LASTS: Duration = Duration::from_secs(8);
const NAMES: [&str; 6] = ["a", "a/b", "a/c", "a/b/d", "e", "a/c,e"];

/// The share of the locks that are disturbed.
const DISTURBED: f64 = 0.3;

/// Of these, shares of the fronts that are killed; of the others that are stopped for a while; and
/// of the others, of the renewers, or in a directory of the commands, that are killed.
const FRONTS_KILLED: f64 = 0.6;
const FRONTS_STOPPED: f64 = 0.4;
const OTHERS_KILLED: f64 = 0.5;

/// The share of them that are disturbed not before the command runs.
const WHILE_IT_RUNS: f64 = 0.5;

/// In place of a number of seconds: no limit.
const FOR_EVER: &str = "for ever";

/// Longer than T.
const STOPPED_FOR: Duration = Duration::from_millis(1300);

/// How the fronts have ended.
#[derive(Debug, Default)]
struct Ends {
    /// With the status of their command.
    well: usize,
    /// Without the lock in time.
    without: usize,
    killed: usize,
    /// With the loss of the lock, or of the renewer before it was had.
    lost: usize,
    /// With anything else.
    odd: Vec<String>,
}

/// Starts fronts, one after another.
fn client(site: &Site, number: u64, seed: u64) -> Ends {
    let (mut rng, mut ends) = (Rng::new(seed, number), Ends::default());
    let until = now() + LASTS;
    for round in 0.. {
        if now() >= until {
            break;
        }
        let (name, mode) = (rng.pick(&NAMES), rng.pick(&["-s", "-x", "-j2"]));
        // Several names have no slots.
        let has_slots = site.is_local() && !name.contains(',');
        let mode = if mode == "-j2" && !has_slots { "-x" } else { mode };
        let wait = rng.pick(&["0", "0.2", "30", "30", FOR_EVER]);
        let (beats, status) = (rng.below(12).to_string(), rng.below(3).to_string());
        let id = format!("{number}-{round}");
        let limit = if wait == FOR_EVER { &[][..] } else { &["-w", wait] };
        let words = [mode, "-q", "-q", name, "sh", "-c", SHORT_WORKER, &id];
        let words = [limit, &words, &[&beats, &status]].concat();
        let mut front = site.putex(&words).stderr(Stdio::null()).spawn().expect("it can be run");
        let is_killed = rng.chance(DISTURBED) && disturb(site, &mut rng, &id, &mut front);
        match end(&mut front) {
            Some(137) if is_killed => ends.killed += 1,
            Some(code) if code.to_string() == status => ends.well += 1,
            // A front that is stopped may hold the door of the file.
            Some(69) => ends.without += 1,
            Some(75) if wait.starts_with('0') => ends.without += 1,
            Some(71 | 100) => ends.lost += 1,
            odd => ends.odd.push(format!("{id} {name} {mode} -w {wait}: {odd:?}")),
        }
    }
    ends
}

/// Kills or stops one of the two processes after a while, or none; returns whether that makes the
/// status of the front that of a killed process.
fn disturb(site: &Site, rng: &mut Rng, id: &str, front: &mut Child) -> bool {
    let mut after = rng.between(Duration::ZERO, Duration::from_millis(200));
    if rng.chance(WHILE_IT_RUNS) {
        after /= 4;
        let has_ended = |front: &mut Child| front.try_wait().is_ok_and(|status| status.is_some());
        let mut begun = || site.has_begun(id) || has_ended(front);
        if wait_until(now() + PATIENCE, || begun().then_some(())).is_none() {
            return false;
        }
    }
    if rng.chance(FRONTS_KILLED) {
        observe_for(after);
        signal(front.id(), Signal::KILL);
        return true;
    }
    if rng.chance(FRONTS_STOPPED) {
        observe_for(after);
        stop_for(front.id(), after);
    } else {
        let is_killed = rng.chance(OTHERS_KILLED);
        observe_for(after);
        let other = match site.is_local() {
            true => site.held().into_iter().find(|held| held.id == id).map(|held| held.pid),
            false => site.find_renewer(front.id()),
        };
        match other.filter(|pid| parent_of(*pid) == Some(front.id())) {
            Some(pid) if is_killed => signal(pid, Signal::KILL),
            Some(pid) => stop_for(pid, STOPPED_FOR),
            None => {}
        }
        // A command that was killed looks like a front that was.
        return is_killed && site.is_local();
    }
    false
}

fn stop_for(process: u32, time: Duration) {
    signal(process, Signal::STOP);
    observe_for(time);
    signal(process, Signal::CONT);
}

/// Waits for the end of a front; returns its status, as a shell shows it.
fn end(front: &mut Child) -> Option<i32> {
    let status = wait_exit(front, now() + PATIENCE)?;
    status.code().or_else(|| status.signal().map(|number| 128 + number))
}

fn play(site: &Site) {
    let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos()));
    println!("seed {seed}");
    let ends: Vec<Ends> = thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || client(site, number, seed)));
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("it does not panic")).collect()
    });
    let held = site.held();
    let count = |of: fn(&Ends) -> usize| ends.iter().map(of).sum::<usize>();
    let (well, without) = (count(|ends| ends.well), count(|ends| ends.without));
    let (killed, lost) = (count(|ends| ends.killed), count(|ends| ends.lost));
    let held_by = held.len();
    println!("{held_by} held, {well} well, {without} without, {killed} killed, {lost} lost");
    assert_eq!(faults(&held), [""; 0]);
    let odd: Vec<_> = ends.iter().flat_map(|ends| &ends.odd).collect();
    assert_eq!(odd, [""; 0]);
    assert!(well > 20 && killed > 2, "nothing was proved");
    // On a server, the ticket of a renewer that was killed is removed by the next who waits.
    let all = site.putex(&["-w", "30", "a,e", "true"]).status().expect("it can be run");
    assert!(all.success(), "{all}");
    site.assert_end();
}

#[test]
fn many_processes_that_are_killed_at_random_exclude_each_other_in_order_in_a_directory() {
    if let Some(site) = Site::in_directory(&QUICK) {
        play(&site);
    }
}

#[test]
fn many_processes_that_are_killed_at_random_exclude_each_other_in_order_on_a_server() {
    if let Some(site) = Site::on_server(&QUICK) {
        play(&site);
    }
}
