//! The lock is another's, or nobody's yet: assert stop, check, watch the keys of all seats.
//!
//! Each key is read every R, but a stroke, with its two commands, takes T as in the
//! flowchart: what they tell is needed when the lock may be had, and that is T
//! after something was seen at the earliest. The guard runs stop until it succeeds.

use std::time::Duration;

use super::context::Context;
use super::deadline::{Deadline, Timer, earliest, has_run_out};
use super::failback::Failback;
use super::stopping::{ServiceLock, Stopping};
use super::store_view::Seen;
use super::taking::Taking;
use super::write::pause;
use super::{Next, State};
use crate::core::command::{Outcome, Role};
use crate::core::event::Event;
use crate::core::protocol::{ServiceState, ToGuard};
use crate::core::record::Revision;
use crate::core::report::{Holder, Reason, Report};
use crate::core::seat::Seat;
use crate::core::time::Instant;

/// How much longer than the last one a confirming check is expected to take, as
/// a divisor: a quarter.
const CHECK_SPREAD: u32 = 4;

/// How much later than R the key is read while hints come, as a divisor of R.
const HINT_SPREAD: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Standby {
    /// When the next stroke, which asserts stop, may begin.
    stroke_at: Instant,
    /// When the key of each seat is read.
    reads: Vec<KeyReads>,
    /// No confirming check before this: the last one failed.
    retry_at: Instant,
    phase: Phase,
    /// How long the last check took, and whether it passed.
    check_took: Duration,
    healthy: Option<bool>,
    failback: Failback,
}

/// The reads of the key of one seat.
#[derive(Clone, Debug)]
struct KeyReads {
    /// When the key is read again if no hint comes before.
    read_at: Instant,
    /// The last read followed a hint.
    hint_led: bool,
    /// The holder that was reported.
    reported: Option<Holder>,
    /// An agent that only observes has said that it would take the lock from this revision.
    would_take: Option<Revision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until the next stroke, or until the lock may be had.
    Resting,
    /// The guard of this link asserts stop.
    Stopping { link: u64 },
    /// A check runs: that of the stroke, or the one that decides on a takeover.
    Checking { began: Instant, decides: bool },
    /// That one has passed, and counts for R; the lock may be had once its time has come.
    Ready { since: Instant },
}

impl Standby {
    pub(super) fn new(context: &Context, now: Instant) -> Standby {
        Standby::reading_at(context, now, now)
    }

    /// As [`Standby::new`], when the keys were read just now.
    pub(super) fn informed(context: &Context, now: Instant) -> Standby {
        Standby::reading_at(context, now.after(context.config.timing.renewal()), now)
    }

    fn reading_at(context: &Context, read_at: Instant, now: Instant) -> Standby {
        let reads = KeyReads { read_at, hint_led: false, reported: None, would_take: None };
        Standby {
            stroke_at: now,
            reads: vec![reads; context.config.seats as usize],
            retry_at: now,
            phase: Phase::Resting,
            check_took: Duration::ZERO,
            healthy: None,
            failback: Failback::default(),
        }
    }

    pub(super) fn turn(mut self, context: &mut Context, event: &Event, now: Instant) -> Next {
        if let Some(ending) = context.rejected() {
            return Stopping::to_end(context, ServiceLock::None, ending, Reason::Refused, now);
        }
        let asked = &mut self.reads[context.seat.index()];
        if let Event::CheckEnded(outcome) = event {
            self.checked(context, outcome, now);
        } else if let Event::Opened(_) = event {
            self.reads.iter_mut().for_each(|key| key.put_off(context, now));
        } else if let Event::Read(Ok(_)) = event {
            asked.put_off(context, now);
        } else if let Event::Changed(seat, _) = event {
            let changed = &mut self.reads[seat.index()];
            changed.hint_led = true;
            changed.put_off(context, now);
        } else if let Event::Read(Err(_)) = event {
            asked.read_at = now.after(pause(context));
        } else if let Event::Written(_) = event {
            // Of a take that was given up on: a read tells what became of it.
            asked.read_at = now;
        }
        self.report_holders(context);
        self.follow_stop(context, now);
        self.advance(context, now)
    }

    /// Follows the guard while it asserts stop: the check comes after that. A guard that is
    /// gone did not do it.
    fn follow_stop(&mut self, context: &mut Context, now: Instant) {
        let Phase::Stopping { link } = self.phase else {
            return;
        };
        if context.guard.link() != Some(link) {
            self.stroke_at = now;
            self.phase = Phase::Resting;
        } else if context.guard.is_down() {
            self.phase = Phase::Resting;
            if !context.check_runs && context.config.check {
                self.check(context, false, now);
            }
        }
    }

    /// Runs a check; none runs.
    fn check(&mut self, context: &mut Context, decides: bool, now: Instant) {
        let deadline = now.after(context.config.timing.lock_time());
        context.run_check(Role::Standby, deadline, false, None);
        self.phase = Phase::Checking { began: now, decides };
    }

    fn checked(&mut self, context: &mut Context, outcome: &Outcome, now: Instant) {
        let Phase::Checking { began, decides } = self.phase else {
            // One of a state before, which was killed there.
            return;
        };
        let passed = *outcome == Outcome::Succeeded;
        if self.healthy != Some(passed) {
            context.report(match outcome {
                Outcome::Succeeded => Report::Candidate,
                Outcome::Failed(why) => Report::NotCandidate(why.clone()),
                Outcome::Overran => Report::CheckKilled,
            });
            self.healthy = Some(passed);
        }
        self.check_took = now.since(began);
        self.phase = if decides && passed { Phase::Ready { since: now } } else { Phase::Resting };
        if decides && !passed {
            self.retry_at = began.after(context.config.timing.renewal()).max(now);
        }
    }

    fn report_holders(&mut self, context: &mut Context) {
        let again = context.store.refused.is_some();
        for (seat, reads) in Seat::all(context.config.seats).zip(&mut self.reads) {
            let Some(seen) = &context.store.keys[seat.index()].seen else { continue };
            let holder = &seen.takeover.holder;
            if reads.reported.as_ref() != Some(holder) {
                reads.reported = Some(holder.clone());
                let (holder, revision) = (holder.clone(), seen.key_state.revision);
                let lock = context.lock_name(seat);
                context.report(Report::HeldBy { lock, holder, revision, again });
            }
        }
    }

    /// Does what is due in each phase that follows from the one before at once.
    fn advance(mut self, context: &mut Context, now: Instant) -> Next {
        loop {
            let before = self.phase;
            self.read_and_request(context, now);
            if let Some((seat, seen)) = self.seat_taken_now(context, now) {
                return Taking::begin(context, seat, &seen, now);
            }
            self.begin(context, now);
            if self.phase == before {
                return Next::Stay(State::Standby(self));
            }
        }
    }

    /// Reads the key of a seat, and requests a lock from its holder, if that is due.
    fn read_and_request(&mut self, context: &mut Context, now: Instant) {
        if context.is_idle()
            && let Some(seat) = self.seat_to_read(context, now)
        {
            let reads = &mut self.reads[seat.index()];
            reads.hint_led = now < reads.read_at;
            context.seat = seat;
            context.read(now);
        }
        let healthy = !context.config.check || self.healthy == Some(true);
        self.failback.advance(context, healthy, now);
    }

    /// Returns the seat whose lock is taken now, and what stands under its key. An agent that only
    /// observes says so instead, and rests; so does one whose check counts no more.
    fn seat_taken_now(&mut self, context: &mut Context, now: Instant) -> Option<(Seat, Seen)> {
        let Phase::Ready { .. } = self.phase else { return None };
        let is_stale = has_run_out(self.check_stale(context), now);
        let Some((seat, seen)) = self.takeable(context).filter(|_| !is_stale) else {
            self.phase = Phase::Resting;
            return None;
        };
        if !has_run_out(self.take(context), now) {
            return None;
        }
        let seen = seen.clone();
        if context.config.observes {
            let (lock, holder) = (context.lock_name(seat), seen.takeover.holder);
            context.report(Report::WouldTake { lock, holder });
            self.reads[seat.index()].would_take = Some(seen.key_state.revision);
            self.phase = Phase::Resting;
            return None;
        }
        Some((seat, seen))
    }

    /// From rest: the takeover check when its time has come, else the next stroke, for which
    /// there must be a guard that answers.
    fn begin(&mut self, context: &mut Context, now: Instant) {
        if has_run_out(self.takeover_check(context), now) {
            if context.config.check {
                self.check(context, true, now);
            } else {
                self.phase = Phase::Ready { since: now };
            }
        } else if self.must_stop(context) || has_run_out(self.stroke(context), now) {
            self.stroke_at = now.after(context.config.timing.lock_time());
            match context.guard.link() {
                Some(link) => {
                    self.phase = Phase::Stopping { link };
                    context.tell_guard(ToGuard::Stop(context.stop_order(now)), now);
                }
                // It only observes.
                None => self.check(context, false, now),
            }
        }
    }

    fn rests(&self, context: &Context) -> bool {
        self.phase == Phase::Resting && !context.check_runs
    }

    pub(super) fn deadline(&self, context: &Context) -> Option<Deadline> {
        earliest([
            self.read_key(context),
            self.failback.deadline(context),
            self.check_stale(context),
            self.take(context),
            self.takeover_check(context),
            self.stroke(context),
        ])
    }

    /// Returns the seat whose key is read now: one with a hint, or the one that waits for longest.
    /// Only the key of the seat itself is read before a takeover that is due: with many seats, or
    /// a long way to the store, another read is always due too.
    fn seat_to_read(&self, context: &Context, now: Instant) -> Option<Seat> {
        let read_at = |seat: &Seat| self.reads[seat.index()].read_at;
        let seats = || Seat::all(context.config.seats);
        let hinted = seats().filter(|seat| context.store.keys[seat.index()].is_hinted());
        let seat = hinted.min_by_key(read_at);
        if let Some(next) = self.seat_to_take(context, now) {
            return seat.or_else(|| Some(next).filter(|next| now >= read_at(next)));
        }
        seat.or_else(|| seats().min_by_key(read_at).filter(|next| now >= read_at(next)))
    }

    /// Returns the seat whose takeover check, or take, is due now.
    fn seat_to_take(&self, context: &Context, now: Instant) -> Option<Seat> {
        let is_due = has_run_out(self.takeover_check(context), now)
            || has_run_out(self.take(context), now) && !has_run_out(self.check_stale(context), now);
        self.takeable(context).map(|(seat, _)| seat).filter(|_| is_due)
    }

    fn read_key(&self, context: &Context) -> Option<Deadline> {
        let read_at = self.reads.iter().map(|key| key.read_at).min();
        read_at.filter(|_| context.is_idle()).map(|at| Timer::ReadKey.at(at))
    }

    /// A takeover check that has passed counts for R.
    fn check_stale(&self, context: &Context) -> Option<Deadline> {
        match self.phase {
            Phase::Ready { since } => {
                Some(Timer::CheckStale.at(since.after(context.config.timing.renewal())))
            }
            Phase::Resting | Phase::Stopping { .. } | Phase::Checking { .. } => None,
        }
    }

    fn take(&self, context: &Context) -> Option<Deadline> {
        let is_ready = matches!(self.phase, Phase::Ready { .. }) && context.is_idle();
        let (_, seen) = self.takeable(context).filter(|_| is_ready)?;
        Some(Timer::Take.at(context.take_at(seen)))
    }

    /// The takeover check begins early, so that it ends when the lock may be had.
    fn takeover_check(&self, context: &Context) -> Option<Deadline> {
        let may_check = self.rests(context) && context.is_idle();
        let (_, seen) = self.takeable(context).filter(|_| may_check)?;
        let lead = self.check_took + self.check_took / CHECK_SPREAD;
        let check_at = context.take_at(seen).before(lead.min(context.wait(seen)));
        Some(Timer::TakeoverCheck.at(check_at.max(self.retry_at)))
    }

    /// Returns whether the guard asserts stop for the stroke, and is in time. A lock that may be
    /// had waits for it.
    fn is_asserting_stop(&self, context: &Context) -> bool {
        let is_of_stroke = matches!(self.phase, Phase::Stopping { .. });
        is_of_stroke && context.guard.service() == Some(&ServiceState::Stopping { overdue: false })
    }

    /// Returns why this agent takes no lock that may be had; `None` if it does.
    pub(super) fn why_no_candidate(&self, context: &Context) -> Option<String> {
        if context.config.observes {
            Some("it only observes".to_owned())
        } else if !context.config.priority.is_candidate() {
            Some("priority never".to_owned())
        } else if context.pause.is_some() {
            Some("paused".to_owned())
        } else if !context.is_open() {
            Some("the store is out of reach".to_owned())
        } else if let Some(why) = context.guard.unfit() {
            Some(why.to_owned())
        } else if !context.guard.is_down() && !self.is_asserting_stop(context) {
            Some("the service is not known to be down here".to_owned())
        } else if self.healthy == Some(false) {
            Some("the health check has failed".to_owned())
        } else if context.config.check && self.healthy.is_none() {
            Some("no health check has ended yet".to_owned())
        } else {
            None
        }
    }

    /// Returns the seat that this agent may have first, its own one before all others, and what
    /// stands under its key.
    fn takeable<'a>(&self, context: &'a Context) -> Option<(Seat, &'a Seen)> {
        // Stop is run first of all: what the previous instance left running may not be known. An
        // agent whose service is not known to be down is no candidate, not even for a lock
        // that is free; nor is one whose guard cannot do what is required of it.
        let able = context.is_open()
            && context.pause.is_none()
            && context.guard.is_down()
            && context.guard.unfit().is_none();
        let is_candidate = context.config.priority.is_candidate();
        let seats = Seat::all(context.config.seats).filter(|_| able);
        let seen = seats.filter_map(|seat| {
            let seen = context.store.keys[seat.index()].seen.as_ref()?;
            let is_said = self.reads[seat.index()].would_take == Some(seen.key_state.revision);
            let may = is_candidate || seen.takeover.is_of_own();
            (may && !is_said).then_some((seat, seen))
        });
        seen.min_by_key(|(_, seen)| (!seen.takeover.is_of_own(), context.take_at(seen)))
    }

    /// The next stroke needs a guard that has answered; one of an agent that only observes is a
    /// check. In a pause there is none. A stroke that is due less than R before the lock may be had
    /// waits until that could have been taken, after an answer that was under way: the stop could
    /// hold the take up.
    fn stroke(&self, context: &Context) -> Option<Deadline> {
        let is_possible = match context.config.observes {
            true => context.config.check,
            false => context.guard.report().is_some(),
        };
        if !is_possible || !self.rests(context) || context.pause.is_some() {
            return None;
        }
        let near = self.stroke_at.after(context.config.timing.renewal());
        let take_at = self.takeable(context).map(|(_, seen)| context.take_at(seen));
        let after_take = take_at.filter(|at| *at < near);
        let after_take = after_take.map(|at| at.after(context.config.timing.attempt()));
        Some(Timer::Stroke.at(after_take.map_or(self.stroke_at, |at| at.max(self.stroke_at))))
    }

    /// Returns whether the service may run, for all that the guard knows, and is not being stopped.
    fn must_stop(&self, context: &Context) -> bool {
        let may_run = match context.guard.service() {
            Some(ServiceState::Unknown | ServiceState::Up(..)) => true,
            Some(ServiceState::Down | ServiceState::Stopping { .. }) | None => false,
        };
        may_run && self.rests(context)
    }
}

impl KeyReads {
    /// The key is read every R. A hint is followed at once, and the read after it
    /// comes a little later than R: while hints come, every renewal would be read
    /// twice otherwise.
    fn put_off(&mut self, context: &Context, now: Instant) {
        let r = context.config.timing.renewal();
        self.read_at = now.after(if self.hint_led { r + r / HINT_SPREAD } else { r });
    }
}
