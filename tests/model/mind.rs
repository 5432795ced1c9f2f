//! The shipped pump and the shipped guard as automata that are found as they are
//! walked: every state of theirs that differs has a number, and every step from one
//! is made once.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use putex::core::command::{Command, LockContext, Outcome, Run};
use putex::core::event::{Effect, Ending, Event, Opened, Sentry, Written};
use putex::core::guard::{Act, Fence, Guard, Inherited, News, Watch};
use putex::core::pump::{AgentId, Config, Pump, bounce};
use putex::core::record::{BucketId, Incarnation, KeyState, KeyValue, Lease, Record, Revision};
use putex::core::time::Instant;
use putex::core::timing::Timing;

use super::canon::{Frame, OLD_TERM, TERM_AGO_MAX, canon, high_water, last_nonce};
use super::cue::{Cue, Deed, End, Life, Move, OLD, Rec, Stand, Vigil, Word};
use super::quick::Quick;

/// Now, for a mind that begins: so late that every instant is in whole seconds.
const BEGIN: i64 = 10_000_000_000;

/// The head of the bucket, for a pump that knows no revision.
const FIRST: u64 = 1000;

/// One state of a mind, as it was when it was found.
pub(crate) struct Kept<M> {
    pub(crate) mind: Rc<M>,
    frame: Frame,
    nonce: u64,
    life: Life,
    /// When it wants a tick, from now.
    pub(crate) deadline: Option<i32>,
}

/// What comes of a cue.
pub(crate) struct Step<D> {
    pub(crate) id: u32,
    /// By how much the highest revision known has grown.
    pub(crate) grown: i16,
    /// By how many its attempts have.
    pub(crate) attempts: u8,
    pub(crate) wanted: Vec<D>,
}

/// All states of one kind of mind that were found.
pub(crate) struct Minds<M, C, D> {
    kept: Vec<Kept<M>>,
    numbers: HashMap<u128, u32>,
    steps: HashMap<(u32, C), Rc<Step<D>>, Quick>,
    timing: Timing,
    /// How often a state was found that was known.
    merged: u64,
}

impl<M, C, D> Minds<M, C, D> {
    fn new(timing: Timing) -> Minds<M, C, D> {
        Minds {
            kept: Vec::new(),
            numbers: HashMap::new(),
            steps: HashMap::default(),
            timing,
            merged: 0,
        }
    }

    pub(crate) fn get(&self, id: u32) -> &Kept<M> {
        &self.kept[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    fn begin_frame(&self) -> Frame {
        let past = self.timing.lock_time() + self.timing.confirmation();
        Frame {
            now: BEGIN,
            base: FIRST,
            past: i64::try_from(past.as_micros()).expect("short"),
        }
    }

    /// Returns the number of a state, which is new or not.
    fn keep(&mut self, kept: Kept<M>, text: &str) -> u32 {
        let key = canon(text, kept.frame);
        let next = u32::try_from(self.kept.len()).expect("fewer states than that");
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.kept.push(kept);
        }
        number
    }
}

pub(crate) type Pumps = Minds<Pump, Cue, Deed>;
pub(crate) type Guards = Minds<Guard, Word, Move>;

fn at(now: i64, from_now: i32) -> Instant {
    let at = u64::try_from(now + i64::from(from_now)).expect("after boot");
    Instant::from_boot(Duration::from_micros(at))
}

fn from(now: i64, at: Instant) -> i32 {
    let at = i64::try_from(at.since_boot().as_micros()).expect("not for ever");
    i32::try_from(at - now).expect("within minutes")
}

fn fence(vigil: Vigil, now: i64) -> Option<Fence> {
    match vigil {
        Vigil::Down => None,
        Vigil::MayRun {
            valid_until,
            act_at,
            stop_until,
            dead_by,
            resorted,
        } => Some(Fence {
            valid_until: at(now, valid_until),
            act_at: at(now, act_at),
            stop_until: stop_until.map(|until| at(now, until)),
            dead_by: at(now, dead_by),
            resorted,
        }),
    }
}

fn vigil(watch: Watch, now: i64) -> Vigil {
    match watch {
        Watch::Down => Vigil::Down,
        Watch::MayRun(fence) => Vigil::MayRun {
            valid_until: from(now, fence.valid_until),
            act_at: from(now, fence.act_at),
            stop_until: fence.stop_until.map(|at| from(now, at)),
            dead_by: from(now, fence.dead_by),
            resorted: fence.resorted,
        },
    }
}

fn ended(command: u8, end: End) -> (Command, Outcome) {
    let outcome = match end {
        End::Well => Outcome::Succeeded,
        End::Failed => Outcome::Failed("exit status 1".to_owned()),
        End::Overran => Outcome::Overran,
    };
    (Command::ALL[usize::from(command)], outcome)
}

impl Pumps {
    pub(crate) fn of(timing: Timing) -> Pumps {
        Minds::new(timing)
    }

    /// Returns the pump of a life that begins, with the lives before it that are
    /// proven dead and the fence of what they left running.
    pub(crate) fn begin(&mut self, life: Life, adopt: bool, left: Vigil) -> u32 {
        let before = if adopt { 1..life.number() } else { 1..1 };
        let host = life.host().unwrap_or(0);
        let me = AgentId {
            token: life.name().to_owned(),
            incarnation: Incarnation(life.0.into()),
            host: life.name().to_owned(),
            boot: BOOT.to_owned(),
            dead: before
                .rev()
                .map(|number| Incarnation(Life::of(host, number).0.into()))
                .collect(),
        };
        let config = Config {
            timing: self.timing,
            check: false,
            last_resort: true,
        };
        // Which lock it runs under is for the commands; the key tells it too.
        let inherited = fence(left, BEGIN).map(|fence| Inherited {
            fence,
            under: LockContext::default(),
            // What is killed ends at once here.
            start_dies: false,
        });
        let pump = Pump::new(config, me, inherited, at(BEGIN, 0));
        let frame = self.begin_frame();
        self.keep_pump(pump, frame, life).0
    }

    /// Returns the number of a state, and what it is in its own numbers.
    fn keep_pump(&mut self, pump: Pump, frame: Frame, life: Life) -> (u32, u64, u64) {
        let text = format!("{pump:?}");
        let base = high_water(&text).unwrap_or(frame.base);
        let nonce = last_nonce(&text);
        let kept = Kept {
            deadline: pump.deadline().map(|at| from(frame.now, at)),
            mind: Rc::new(pump),
            frame: Frame { base, ..frame },
            nonce,
            life,
        };
        let known = self.kept.len();
        let kept_as = Kept {
            mind: Rc::clone(&kept.mind),
            ..kept
        };
        let number = self.keep(kept, &text);
        if (number as usize) < known {
            self.merged += 1;
            if self.merged.is_multiple_of(COMPARED) {
                let before = self.get(number);
                assert_eq!(future(before), future(&kept_as), "taken for the same");
            }
        }
        (number, base, nonce)
    }

    pub(crate) fn step(&mut self, id: u32, cue: Cue) -> Rc<Step<Deed>> {
        if let Some(step) = self.steps.get(&(id, cue)) {
            return Rc::clone(step);
        }
        let kept = self.get(id);
        let (mut frame, nonce, life) = (kept.frame, kept.nonce, kept.life);
        let pump = (*kept.mind).clone();
        let (after, wanted) = if let Cue::Wait(wait) = cue {
            frame.now += i64::from(wait);
            (pump, Vec::new())
        } else {
            let event = self.event(kept, cue);
            let (after, effects) = bounce(pump, &event, at(frame.now, 0));
            let deeds = effects.iter().filter_map(|effect| deed(effect, frame));
            (after, deeds.collect())
        };
        let (new, base, last) = self.keep_pump(after, frame, life);
        let step = Rc::new(Step {
            id: new,
            grown: i16::try_from(base - frame.base).expect("a few revisions"),
            attempts: u8::try_from(last - nonce).expect("a few attempts"),
            wanted,
        });
        self.steps.insert((id, cue), Rc::clone(&step));
        step
    }

    fn event(&self, kept: &Kept<Pump>, cue: Cue) -> Event {
        let key_state = |at, rec| self.key_state(kept, at, rec);
        match cue {
            Cue::Wait(_) | Cue::Tick => Event::Tick,
            Cue::Opened { at, rec } => {
                let key_state = key_state(at, rec);
                Event::Opened(Opened {
                    bucket: BucketId {
                        epoch: "e".to_owned(),
                        created: "before".to_owned(),
                    },
                    last: key_state.revision,
                    age: Some(Duration::from_secs(3600)),
                    key_state,
                    replicas: 1,
                    remarks: Vec::new(),
                })
            }
            Cue::Closed => Event::Closed("cut off".to_owned()),
            Cue::Read { at, rec } => Event::Read(Ok(key_state(at, rec))),
            Cue::ReadFailed => Event::Read(Err("no answer".to_owned())),
            Cue::Stored(at) => Event::Written(Written::Stored(revision(kept, at))),
            Cue::Moved(at) => Event::Written(Written::Moved(Some(revision(kept, at)))),
            Cue::Unknown => Event::Written(Written::Unknown("no answer".to_owned())),
            Cue::Ended(command, end) => {
                let (command, outcome) = ended(command, end);
                Event::Ended(command, outcome)
            }
            Cue::GuardReady => Event::Guard(Sentry::Ready),
            Cue::GuardArmed => Event::Guard(Sentry::Armed),
            Cue::GuardLost => Event::Guard(Sentry::Lost("it has ended".to_owned())),
            Cue::Shutdown => Event::Shutdown("SIGTERM"),
        }
    }

    /// Writes out what the bucket shows, as this pump would have it.
    fn key_state(&self, kept: &Kept<Pump>, at: i16, rec: Rec) -> KeyState {
        let timing = self.timing;
        let revision = revision(kept, at);
        let term = rec.term_ago.map(|ago| match ago {
            OLD => Revision(OLD_TERM),
            ago => Revision(revision.0 - u64::from(ago)),
        });
        let own = rec.by == kept.life;
        let lease = Lease {
            incarnation: Incarnation(rec.by.0.into()),
            // Nobody looks at another's.
            nonce: if own {
                kept.nonce - u64::from(rec.nonce_ago)
            } else {
                0
            },
            host: rec.by.name().to_owned(),
            boot: BOOT.to_owned(),
            renewal: timing.renewal(),
            failures: timing.failures(),
            confirmations: timing.confirmations(),
            grace: timing.confirmation(),
            term,
            standing: rec.stand.standing(),
        };
        let token = match rec.stand {
            Stand::Taking | Stand::Active => rec.by.name().to_owned(),
            Stand::Released => String::new(),
        };
        let record = Record {
            token,
            lease: Some(lease),
        };
        KeyState {
            revision,
            found: KeyValue::Record(record),
        }
    }
}

/// One state in so many that is taken for one found before is compared with it.
const COMPARED: u64 = 64;

/// Returns what a pump does at some later instants, and what it is then.
fn future(kept: &Kept<Pump>) -> Vec<(u128, Vec<Deed>)> {
    let waits = [0, 10_000, 20_000, 80_000, 160_000, 300_000];
    let events = [Event::Tick, Event::Shutdown("SIGTERM")];
    let mut told = Vec::new();
    for (wait, event) in waits.into_iter().flat_map(|wait| {
        let events = events.iter();
        events.map(move |event| (wait, event))
    }) {
        let now = kept.frame.now + wait;
        let (after, effects) = bounce((*kept.mind).clone(), event, at(now, 0));
        let (text, frame) = (format!("{after:?}"), Frame { now, ..kept.frame });
        let base = high_water(&text).unwrap_or(frame.base);
        let deeds = effects.iter().filter_map(|effect| deed(effect, frame));
        told.push((canon(&text, Frame { base, ..frame }), deeds.collect()));
    }
    told
}

/// The name of every host's boot: hosts differ by their own names.
const BOOT: &str = "boot";

fn revision(kept: &Kept<Pump>, at: i16) -> Revision {
    let number = kept.frame.base.cast_signed() + i64::from(at);
    Revision(u64::try_from(number).expect("a mind begins far above 0"))
}

/// Returns a revision from the highest that is known; what is too far back is only
/// that.
fn place(revision: Revision, base: u64) -> i64 {
    let from_base = revision.0.cast_signed() - base.cast_signed();
    from_base.max(-TERM_AGO_MAX - 1)
}

fn deed(effect: &Effect, Frame { now, base, .. }: Frame) -> Option<Deed> {
    Some(match effect {
        Effect::Read { deadline } => Deed::Read {
            deadline: from(now, *deadline),
        },
        Effect::Write {
            expected,
            record,
            deadline,
        } => {
            let lease = record.lease.as_ref()?;
            let term_ago = lease.term.map(|term| {
                let ago = expected.0 + 1 - term.0;
                u8::try_from(ago)
                    .ok()
                    .filter(|ago| i64::from(*ago) <= TERM_AGO_MAX)
                    .unwrap_or(OLD)
            });
            Deed::Write {
                expected: i16::try_from(place(*expected, base)).ok()?,
                stand: Stand::of(lease.standing),
                term_ago,
                deadline: from(now, *deadline),
            }
        }
        Effect::Guard(watch, _) => Deed::Guard(vigil(*watch, now)),
        Effect::Run(Run {
            command,
            deadline,
            under: LockContext { term, .. },
            ..
        }) => Deed::Run {
            command: *command,
            deadline: from(now, *deadline),
            term: term.and_then(|term| i16::try_from(place(term, base)).ok()),
        },
        Effect::Extend(command, at) => Deed::Extend(*command, from(now, *at)),
        Effect::Kill(command) => Deed::Kill(*command),
        Effect::ReplaceGuard => Deed::ReplaceGuard,
        Effect::Exit(ending) => Deed::Exit {
            given_up: *ending == Ending::NotStopped,
        },
        Effect::Say(_, text) if text.contains("rolled back") => Deed::CryRollback,
        // Without control groups, killing the service does nothing.
        Effect::KillService | Effect::Announce | Effect::Say(..) => return None,
    })
}

impl Guards {
    pub(crate) fn of(timing: Timing) -> Guards {
        Minds::new(timing)
    }

    pub(crate) fn begin(&mut self) -> u32 {
        self.keep_guard(Guard::new(self.timing, true, false), BEGIN)
    }

    fn keep_guard(&mut self, guard: Guard, now: i64) -> u32 {
        // There is no device to be kicked.
        let text = format!("{guard:?}").replace("kick_owed: true", "kick_owed: false");
        let frame = self.begin_frame();
        let kept = Kept {
            deadline: guard.deadline().map(|at| from(now, at)),
            mind: Rc::new(guard),
            frame: Frame { now, ..frame },
            nonce: 0,
            life: Life(0),
        };
        self.keep(kept, &text)
    }

    /// Returns what a guard was told last.
    pub(crate) fn watch(&self, id: u32) -> Vigil {
        let kept = self.get(id);
        vigil(kept.mind.watch(), kept.frame.now)
    }

    pub(crate) fn step(&mut self, id: u32, word: Word) -> Rc<Step<Move>> {
        if let Some(step) = self.steps.get(&(id, word)) {
            return Rc::clone(step);
        }
        let kept = self.get(id);
        let mut now = kept.frame.now;
        let mut guard = (*kept.mind).clone();
        let news = match word {
            Word::Wait(wait) => {
                now += i64::from(wait);
                None
            }
            Word::Tick => Some(News::Tick),
            Word::Told(vigil) => Some(News::Told(
                fence(vigil, now).map_or(Watch::Down, Watch::MayRun),
            )),
            Word::AgentGone => Some(News::AgentGone),
            Word::AgentBack => Some(News::AgentBack),
            Word::GivenUp => Some(News::GivenUp),
            Word::StopBegan => Some(News::AgentsStopBegan),
            Word::StopEnded => Some(News::AgentsStopEnded),
            Word::Ended(command, end) => {
                let (command, outcome) = ended(command, end);
                Some(News::Ended(command, outcome))
            }
        };
        let mut wanted = Vec::new();
        if let Some(news) = news {
            let acts = guard.turn(news, at(now, 0));
            let killed = acts.contains(&Act::KillLeft);
            wanted.extend(acts.iter().filter_map(|act| moved(act, now)));
            guard.done(acts);
            // What is killed ends at once here, and there is a tick after all news.
            for news in [News::NoStart, News::Tick].into_iter().filter(|_| killed) {
                let acts = guard.turn(news, at(now, 0));
                wanted.extend(acts.iter().filter_map(|act| moved(act, now)));
                guard.done(acts);
            }
        }
        if word == Word::AgentBack {
            guard.set_up(self.timing, true, false);
        }
        let step = Rc::new(Step {
            id: self.keep_guard(guard, now),
            grown: 0,
            attempts: 0,
            wanted,
        });
        self.steps.insert((id, word), Rc::clone(&step));
        step
    }
}

fn moved(act: &Act, now: i64) -> Option<Move> {
    Some(match act {
        Act::SayArmed => Move::SayArmed,
        Act::KillAgent => Move::KillAgent,
        Act::KillLeft => Move::KillLeft,
        Act::Run(command, until) => Move::Run(*command, from(now, *until)),
        Act::Kill(command) => Move::Kill(*command),
        Act::Leave => Move::Leave,
        // There is no device, and there are no control groups.
        Act::Try | Act::Arm | Act::Kick | Act::Disarm | Act::SayUnfit(_) => return None,
        Act::KillService | Act::Say(..) => return None,
    })
}
