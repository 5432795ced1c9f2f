//! The judgement: terms in, overlaps out. Pure.
//!
//! A term is the time in which an agent may have run the service under one take of the lock.
//! Two terms of one seat overlap if there is an instant in both. The end of a term is an instant
//! that is not in it.
//!
//! The times in two logs are of two clocks. But the revisions are numbers of one store: an agent
//! releases the lock after the service is down, so a term whose number is larger than the
//! revision of a release began after the end of the term that was released. Two such terms that
//! seem to overlap tell how far the clocks are apart, and nothing else.

use std::time::Duration;

use super::event::Times;

/// So many overlaps are found at the most.
pub(super) const OVERLAPS_MAX: usize = 1000;

/// A time in which the service may have run. All instants are since the beginning of 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// The number of the seat.
    pub(super) seat: u32,
    /// The revision of the take; `None` if it is not known.
    pub(super) number: Option<u64>,
    /// The token of the agent.
    pub(super) agent: String,
    /// Which log it is from. Terms of one log do not overlap.
    pub(super) source: usize,
    /// The number of the line of the log with which it begins.
    pub(super) line: u64,
    /// When the service was allowed to start.
    pub(super) from: Duration,
    /// Whether that is known; if not, it may have been before `from`.
    pub(super) from_is_known: bool,
    /// When the service was down; `None` if it may run on.
    pub(super) until: Option<Duration>,
    /// How the end is known.
    pub(super) end: End,
    /// The service may have run until then, whatever the rules say: its guard was dead. Zero if
    /// none was.
    pub(super) ran_until: Duration,
    /// Why the service was stopped; blank if it is not known.
    pub(super) why: String,
    /// The revision of the release.
    pub(super) released: Option<u64>,
    /// How the lock was taken, if that is known.
    pub(super) take: Option<Take>,
    /// The times of the agent, if they are known.
    pub(super) times: Option<Times>,
}

/// How the end of a term is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was reported.
    Reported,
    /// It was not reported; by the rules of the protocol the service was down by then.
    ByRules,
    /// It was not reported, and no guard has kept the rules: the service may have run until the
    /// next guard began.
    GuardDead,
    /// Nothing is known of an end.
    Unknown,
    /// The agent has said that the service may still run, and not that it was down later.
    MayStillRun,
}

/// How a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Take {
    /// When.
    pub(super) at: Duration,
    /// The record said that the service is down.
    pub(super) released: bool,
    /// How long the record had stood still.
    pub(super) stood: Duration,
    /// How long the agent has waited then, for the service before to be down.
    pub(super) confirmed_for: Duration,
}

/// Two terms, and when both services may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    /// The term that began first.
    pub(super) first: usize,
    /// The other one.
    pub(super) second: usize,
    /// The beginning.
    pub(super) from: Duration,
    /// The end; `None` if none is known.
    pub(super) until: Option<Duration>,
}

/// Two terms, and a time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distance {
    /// The time.
    pub(super) time: Duration,
    /// The earlier term.
    pub(super) first: usize,
    /// The later one.
    pub(super) second: usize,
}

/// What was found. Terms are numbers of the list that was judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The overlaps, in the order of their seats and beginnings.
    pub(super) overlaps: Vec<Overlap>,
    /// A term that is in two logs.
    pub(super) double: Option<usize>,
    /// There are more than [`OVERLAPS_MAX`].
    pub(super) is_cut: bool,
    /// The closest two terms of two logs that the store has not ordered: those may have overlapped
    /// if the clocks are further apart.
    pub(super) closest: Option<Distance>,
    /// The closest two that the store has ordered.
    pub(super) closest_release: Option<Distance>,
    /// The largest difference of two clocks that shows.
    pub(super) clocks_apart: Option<Distance>,
    /// So many terms on which one of another log has followed have an end that was not reported.
    pub(super) unreported: usize,
}

impl Term {
    /// Ends the term where no line says that the service was down: by then by the rules, but not
    /// while no guard has kept them.
    pub(super) fn end_unreported(&mut self, by_rules: Duration) {
        let until = by_rules.max(self.from).max(self.ran_until);
        let is_kept = self.ran_until <= by_rules.max(self.from);
        self.end = if is_kept { End::ByRules } else { End::GuardDead };
        self.until = Some(until);
    }

    /// Returns whether another term seems to be this one: a log was given twice, or a host cloned.
    fn is_same(&self, other: &Term) -> bool {
        self.number.is_some()
            && (self.number, self.from, &self.agent) == (other.number, other.from, &other.agent)
    }

    /// Returns whether the store has the release of this term before the take of another.
    fn is_released_before(&self, other: &Term) -> bool {
        matches!((self.released, other.number), (Some(release), Some(take)) if release < take)
    }
}

/// Ends the terms whose ends are not in their logs where the rules of the protocol say by when the
/// service was down: an agent takes a lock when its record has stood still for T, or was released.
/// The holder's last renewal is not later than the beginning of that time. Nobody keeps the rules
/// where the guard is dead.
pub(super) fn end_by_rules(terms: &mut [Term]) {
    for at in 0..terms.len() {
        let Term { seat, number, from, times, .. } = terms[at];
        if !matches!(terms[at].end, End::Unknown | End::ByRules) {
            continue;
        }
        let down_by = |other: &Term| {
            let take = other.take.filter(|_| other.seat == seat)?;
            if take.at < from && other.number <= number {
                return None;
            }
            let last = take.at.saturating_sub(take.stood);
            Some(match (take.released, times) {
                (true, _) => last,
                // In a pause a lock may be valid for longer, and is waited for as long.
                (false, Some(Times { lock_time, stop_budget })) => {
                    last.saturating_add(lock_time.max(take.stood)).saturating_add(stop_budget)
                }
                // The agent that took it has waited for as long as the holder's record asked for.
                (false, None) => take.at.saturating_add(take.confirmed_for),
            })
        };
        let others = terms.iter().enumerate().filter(|(other, _)| *other != at);
        let known = others.filter_map(|(_, other)| down_by(other)).chain(terms[at].until).min();
        if let Some(until) = known {
            terms[at].end_unreported(until);
        }
    }
}

/// Returns the terms in the order of their beginnings, each as its number in the list; first those
/// of the first seat if `by_seat`.
pub(super) fn order(terms: &[Term], by_seat: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..terms.len()).collect();
    order.sort_unstable_by_key(|at| {
        let Term { seat, from, number, .. } = terms[*at];
        (seat * u32::from(by_seat), from, number, *at)
    });
    order
}

/// Judges terms.
pub(super) fn judge(terms: &[Term]) -> Judgement {
    let mut found = Judgement::default();
    let order = order(terms, true);
    found.unreported = unreported(terms, &order);
    let (mut running, mut last_ended): (Vec<usize>, Option<usize>) = (Vec::new(), None);
    for second in order {
        let later = &terms[second];
        if running.iter().chain(&last_ended).any(|at| terms[*at].seat != later.seat) {
            running.clear();
            last_ended = None;
        }
        running.retain(|at| {
            let runs = terms[*at].until.is_none_or(|until| until > later.from);
            if !runs && last_ended.is_none_or(|last| terms[last].until <= terms[*at].until) {
                last_ended = Some(*at);
            }
            runs
        });
        if let (Some(first), true) = (last_ended, running.is_empty()) {
            found.add_hand_over(terms, first, second);
        }
        // A term without any time in it overlaps with none.
        if later.until == Some(later.from) {
            last_ended = Some(second);
            continue;
        }
        for &first in &running {
            found.add_pair(terms, first, second);
        }
        running.push(second);
    }
    found
}

/// Returns how many of the terms in this order are followed by one of another log, and have an end
/// that was not reported. Before the next term of the same log its own guard has stopped the
/// service.
fn unreported(terms: &[Term], order: &[usize]) -> usize {
    let pairs = order.iter().zip(order.iter().skip(1));
    let pairs = pairs.map(|(first, second)| (&terms[*first], &terms[*second]));
    let is_unreported = |(first, second): &(&Term, &Term)| {
        matches!(first.end, End::ByRules | End::GuardDead)
            && first.seat == second.seat
            && first.source != second.source
    };
    pairs.filter(is_unreported).count()
}

impl Overlap {
    /// Returns whether both services ran by what the agents have reported: the second one began
    /// before the first was down.
    pub(super) fn is_certain(&self, terms: &[Term]) -> bool {
        terms[self.first].end == End::Reported && terms[self.second].from_is_known
    }
}

impl Judgement {
    /// Adds two terms that have an instant in common, by the clocks.
    fn add_pair(&mut self, terms: &[Term], first: usize, second: usize) {
        let (one, other) = (&terms[first], &terms[second]);
        if one.source == other.source {
            return;
        }
        if one.is_same(other) {
            self.double.get_or_insert(first);
            return;
        }
        let until = [one.until, other.until].into_iter().flatten().min();
        let ordered = [(one, other), (other, one)];
        let released = ordered.into_iter().find(|(one, other)| one.is_released_before(other));
        if let Some((before, after)) = released {
            let time = before.until.unwrap_or_default().saturating_sub(after.from);
            let apart = Distance { time, first, second };
            replace(&mut self.clocks_apart, apart, |known| known.time < time);
        } else if self.overlaps.len() < OVERLAPS_MAX {
            self.overlaps.push(Overlap { first, second, from: other.from, until });
        } else {
            self.is_cut = true;
        }
    }

    /// Adds two terms of which the second follows on the first.
    fn add_hand_over(&mut self, terms: &[Term], first: usize, second: usize) {
        let (one, other) = (&terms[first], &terms[second]);
        let Some(until) = one.until.filter(|_| one.end == End::Reported) else { return };
        if one.source == other.source || !other.from_is_known {
            return;
        }
        let time = other.from.saturating_sub(until);
        let gap = Distance { time, first, second };
        let closest = match one.is_released_before(other) {
            true => &mut self.closest_release,
            false => &mut self.closest,
        };
        replace(closest, gap, |known| known.time > time);
    }
}

fn replace(known: &mut Option<Distance>, new: Distance, is_better: impl Fn(&Distance) -> bool) {
    if known.as_ref().is_none_or(is_better) {
        *known = Some(new);
    }
}

#[cfg(test)]
mod tests;
