//! What is known in every state. Each event passes through [`Facts::note`] first.

use std::time::Duration;

use super::claim::Claim;
use super::guarded::Guarded;
use super::holders::Holders;
use super::pending::attempt;
use super::{AgentId, Config, Hold};
use crate::core::command::{Command, LockContext, Outcome, Role, Run};
use crate::core::event::{Effect, Event, Level, Notice, Opened, Rejection, Written};
use crate::core::record::{BucketId, KeyState, KeyValue, Lease, Record, Revision, told};
use crate::core::time::{Instant, Ms};
use crate::core::timing::ELECTION_T_MIN;

/// How often two live agents with one token are reported again.
const TWIN_EVERY: Duration = Duration::from_secs(60);

const START_DIES: &str = "the start of this agent's previous life was killed and has not ended: \
    start is run again when it has";

/// The request that is with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    Read,
    Write,
}

/// What is known of the service on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Nothing was asserted in this life yet.
    Unknown,
    /// It may run: start was asserted, or stop failed.
    MayRun,
    /// A stop command succeeded and no start followed.
    Down,
}

/// A revision of the key and when it was first seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) key_state: KeyState,
    pub(super) first_at: Instant,
    pub(super) claim: Claim,
}

impl Seen {
    /// Returns when the lock may be taken, if it does not move before.
    pub(super) fn take_at(&self) -> Instant {
        self.first_at.after(self.claim.wait)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) config: Config,
    pub(super) me: AgentId,
    /// The bucket, once it was open.
    pub(super) bucket: Option<BucketId>,
    /// Whether the store is open.
    pub(super) open: bool,
    /// Highest revision that the store was seen to have given.
    pub(super) high_water: Revision,
    /// What stands under the key, `None` when that is not known.
    pub(super) seen: Option<Seen>,
    /// Highest revision that a hint named since the last read; 0 for none.
    pub(super) hinted: Revision,
    pub(super) io: Option<Io>,
    pub(super) service: Service,
    /// Why the store refused the last write, if it did: nothing that follows from the same
    /// again needs to be said again.
    pub(super) refused: Option<String>,
    /// Set by [`Facts::note`] for the event at hand: the store was found to have
    /// lost what it had, and how that shows.
    pub(super) rolled_back: Option<String>,
    running: [bool; Command::ALL.len()],
    /// The start that runs is one of the life before, which was killed.
    start_dies: bool,
    /// Which commands began last while a start, killed or not, had not ended.
    beside_start: [bool; Command::ALL.len()],
    pub(super) guard: Guarded,
    pub(super) age: Option<Duration>,
    /// Highest revision of the key that was shown since the last loss, 0 for none since
    /// then; `None` while nothing was ever known to have stood there.
    pub(super) shown: Option<Revision>,
    pub(super) holders: Holders,
    twin_said_at: Option<Instant>,
    /// The last rejection that was reported.
    rejection: Option<Rejection>,
    /// What was said about the bucket when it was last opened.
    remarks: Vec<(Level, String)>,
    nonce: u64,
    effects: Vec<Effect>,
}

impl Facts {
    pub(super) fn new(config: Config, me: AgentId, now: Instant) -> Facts {
        Facts {
            config,
            me,
            bucket: None,
            open: false,
            high_water: Revision(0),
            seen: None,
            hinted: Revision(0),
            io: None,
            service: Service::Unknown,
            refused: None,
            rolled_back: None,
            running: [false; Command::ALL.len()],
            start_dies: false,
            beside_start: [false; Command::ALL.len()],
            guard: Guarded::new(now),
            age: None,
            shown: None,
            holders: Holders::default(),
            twin_said_at: None,
            rejection: None,
            remarks: Vec::new(),
            nonce: 0,
            effects: Vec::new(),
        }
    }

    /// Takes in what an event says of the world.
    pub(super) fn note(&mut self, event: &Event, now: Instant) {
        self.rolled_back = None;
        match event {
            Event::Opened(opened) => self.note_opened(opened, now),
            Event::Closed(why) => {
                self.io = None;
                if self.open {
                    self.say(Level::Warn, format!("store lost: {why}"));
                }
                self.open = false;
            }
            Event::Read(answer) => {
                self.io = None;
                match answer {
                    Ok(key_state) => self.look(key_state, now),
                    Err(why) => self.say(Level::Debug, format!("no answer to a read: {why}")),
                }
            }
            Event::Written(written) => {
                self.io = None;
                match written {
                    Written::Stored(revision) => self.note_stored(*revision, now),
                    Written::Moved(Some(revision)) => self.show(*revision),
                    Written::Moved(None) | Written::Denied(_) | Written::Unknown(_) => {}
                }
            }
            Event::Hint(revision) => {
                self.hinted = self.hinted.max(revision.unwrap_or(Revision(u64::MAX)));
            }
            Event::Ended(command, outcome) => {
                self.running[*command as usize] = false;
                self.start_dies &= *command != Command::Start;
                // Whatever an earlier stop achieved, one that fails no longer vouches for it.
                if *command == Command::Stop {
                    let stopped = *outcome == Outcome::Succeeded;
                    let down = stopped && !self.began_beside_start(Command::Stop);
                    self.service = if down { Service::Down } else { Service::MayRun };
                }
            }
            Event::Twin(notice) => self.note_twin(notice, now),
            Event::Guard(sentry) => self.note_guard(sentry, now),
            Event::Rejected(rejection) => {
                if self.bucket.is_some() && self.rejection.as_ref() != Some(rejection) {
                    self.say(
                        Level::Error,
                        format!("the store will not serve this agent any more: {rejection}"),
                    );
                    self.rejection = Some(rejection.clone());
                }
            }
            Event::Tick | Event::Shutdown(_) => {}
        }
    }

    fn note_opened(&mut self, opened: &Opened, now: Instant) {
        if self.bucket.is_some() {
            self.say(Level::Info, "store open again".to_owned());
        }
        self.open = true;
        self.io = None;
        self.rejection = None;
        self.age = opened.age;
        self.remark(opened);
        let loss = match &self.bucket {
            Some(known) if *known != opened.bucket => Some(format!(
                "the bucket was created anew: epoch {} became {}",
                told(&known.epoch),
                told(&opened.bucket.epoch)
            )),
            Some(_) if opened.last < self.high_water => Some(format!(
                "the bucket stands at revision {}, but {} was seen before",
                opened.last, self.high_water
            )),
            Some(_) | None => None,
        };
        self.bucket = Some(opened.bucket.clone());
        if let Some(loss) = loss {
            self.roll_back(&loss, now);
        }
        self.high_water = self.high_water.max(opened.last);
        self.look(&opened.key_state, now);
    }

    /// Every revision is given once, each higher than all before.
    fn note_stored(&mut self, revision: Revision, now: Instant) {
        let highest = self.high_water;
        if revision <= highest {
            let loss = format!("it stored revision {revision}, but {highest} was seen before");
            self.roll_back(&loss, now);
        }
        self.high_water = self.high_water.max(revision);
        self.show(revision);
    }

    /// Notes that the key has reached a revision.
    fn show(&mut self, revision: Revision) {
        self.shown = self.shown.max(Some(revision));
    }

    /// Says what is to know about the bucket, and did not hold before.
    fn remark(&mut self, opened: &Opened) {
        let mut remarks: Vec<_> = opened
            .remarks
            .iter()
            .map(|text| (Level::Info, text.clone()))
            .collect();
        let (lock, replicas) = (self.config.timing.lock_time(), opened.replicas);
        if replicas > 1 && lock < ELECTION_T_MIN {
            let text = format!(
                "T = {} is shorter than {}: with {replicas} replicas a leader election of NATS \
                 (4 to 8 s) can cost the lock",
                Ms(lock),
                Ms(ELECTION_T_MIN)
            );
            remarks.push((Level::Warn, text));
        }
        let known = std::mem::replace(&mut self.remarks, remarks.clone());
        for remark in remarks {
            if !known.contains(&remark) {
                self.want(Effect::Say(remark.0, remark.1));
            }
        }
    }

    /// Says loudly that the store lost what it had; nothing that it shows next is
    /// taken for a clean absence.
    pub(super) fn roll_back(&mut self, loss: &str, now: Instant) {
        self.say(Level::Error, format!("the store has rolled back: {loss}"));
        self.rolled_back = Some(loss.to_owned());
        self.seen = None;
        self.holders.bind(self.config.timing, now);
        self.age = None;
        self.high_water = Revision(0);
        // Whatever is written from now on has a number of its own.
        self.shown = self.shown.map(|_| Revision(0));
    }

    /// Returns whether the key stood at a later revision than `sight`: a read is stale,
    /// or the store has lost what came after and that has not shown yet.
    pub(super) fn is_older(&self, key_state: &KeyState) -> bool {
        self.shown.is_some_and(|shown| key_state.revision < shown)
    }

    /// Takes in what a read showed. A revision below one that was seen is a stale
    /// read, which changes little: a rollback shows at the next write or opening. Or
    /// at once, where a number was given again.
    fn look(&mut self, key_state: &KeyState, now: Instant) {
        if let Some(seen) = &self.seen
            && (key_state.revision < seen.key_state.revision || *key_state == seen.key_state)
        {
            // If it was a rollback, its holder is one of those that the store may lose next.
            self.holders.note(key_state, true);
            return;
        }
        if let Some(seen) = &self.seen
            && key_state.revision == seen.key_state.revision
        {
            let loss = format!("revision {} was another record before", key_state.revision);
            self.roll_back(&loss, now);
        }
        let moved_on = self.seen.is_some();
        if moved_on {
            // Somebody could store: what comes now is news.
            self.refused = None;
        }
        if moved_on && key_state.found == KeyValue::Marker {
            self.say(
                Level::Warn,
                "the key was deleted: its delete marker stands there".to_owned(),
            );
        }
        self.high_water = self.high_water.max(key_state.revision);
        self.watch_for_twin(key_state, now);
        let claim = self.claim(key_state, now);
        self.holders.note(key_state, self.is_older(key_state));
        if key_state.found != KeyValue::Absent {
            self.show(key_state.revision);
        }
        self.seen = Some(Seen {
            key_state: key_state.clone(),
            first_at: now,
            claim,
        });
    }

    /// Two incarnations with one token are two agents, or one that was restarted:
    /// only a record that moves while it is watched proves that the other lives.
    fn watch_for_twin(&mut self, key_state: &KeyState, now: Instant) {
        let Some(theirs) = self.twin_in(key_state) else {
            return;
        };
        let (incarnation, host) = (theirs.incarnation, told(&theirs.host));
        let before = self
            .seen
            .as_ref()
            .and_then(|seen| self.twin_in(&seen.key_state));
        if before.map(|lease| lease.incarnation) != Some(incarnation) {
            self.say(
                Level::Warn,
                format!(
                    "the lock is held under this agent's own token {} by another incarnation on \
                     host {host}: \
                     this agent's previous life, or another agent with the same token",
                    self.me.token
                ),
            );
        } else if self.twin_is_due(now) {
            self.say_twin(&host, &incarnation.to_string());
            self.want(Effect::Announce);
        }
    }

    fn note_twin(&mut self, notice: &Notice, now: Instant) {
        let other = notice.incarnation != self.me.incarnation.to_string();
        if other && notice.token == self.me.token && self.twin_is_due(now) {
            self.say_twin(&told(&notice.host), &told(&notice.incarnation));
        }
    }

    fn twin_in<'a>(&self, key_state: &'a KeyState) -> Option<&'a Lease> {
        match &key_state.found {
            KeyValue::Record(Record {
                token,
                lease: Some(lease),
            }) => {
                let other = lease.incarnation != self.me.incarnation;
                let twin = *token == self.me.token && other && !self.me.is_predecessor(lease);
                twin.then_some(lease)
            }
            KeyValue::Record(_) | KeyValue::Absent | KeyValue::Marker => None,
        }
    }

    fn twin_is_due(&mut self, now: Instant) -> bool {
        let due = self
            .twin_said_at
            .is_none_or(|at| now.since(at) >= TWIN_EVERY);
        if due {
            self.twin_said_at = Some(now);
        }
        due
    }

    fn say_twin(&mut self, host: &str, incarnation: &str) {
        self.say(
            Level::Error,
            format!(
                "two live agents have the same token {}: another runs on host {host}, incarnation \
                 {incarnation}; give each its own --token",
                self.me.token
            ),
        );
    }

    /// Returns whether a record is this agent's own, from this life.
    pub(super) fn is_mine(&self, key_state: &KeyState) -> bool {
        match &key_state.found {
            KeyValue::Record(Record {
                lease: Some(lease), ..
            }) => lease.incarnation == self.me.incarnation,
            KeyValue::Record(Record { lease: None, .. }) | KeyValue::Absent | KeyValue::Marker => {
                false
            }
        }
    }

    /// Returns whether the service does not run for all that is known: it was stopped,
    /// or no life of this agent can have left it running.
    pub(super) fn is_down(&self) -> bool {
        match self.service {
            Service::Unknown => self.me.dead.is_empty(),
            Service::MayRun => false,
            Service::Down => true,
        }
    }

    /// A life before left the service running, and a start that was killed may still do its
    /// work.
    pub(super) fn inherit(&mut self, start_dies: bool) {
        self.service = Service::MayRun;
        self.running[Command::Start as usize] = start_dies;
        self.start_dies = start_dies;
        if start_dies {
            self.say(Level::Warn, START_DIES.to_owned());
        }
    }

    pub(super) fn running(&self, command: Command) -> bool {
        self.running[command as usize]
    }

    /// Returns whether the last run of a command that undoes what start did may have been
    /// too early for that.
    pub(super) fn began_beside_start(&self, command: Command) -> bool {
        self.beside_start[command as usize]
    }

    /// Returns a number that no write of this incarnation had.
    pub(super) fn next_nonce(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    pub(super) fn say(&mut self, level: Level, text: String) {
        self.want(Effect::Say(level, text));
    }

    pub(super) fn want(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// As [`Facts::want`], before everything else of this turn.
    pub(super) fn want_first(&mut self, effect: Effect) {
        self.effects.insert(0, effect);
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Reads the key. The store is open and free.
    pub(super) fn read(&mut self, now: Instant) {
        self.io = Some(Io::Read);
        self.hinted = Revision(0);
        let deadline = now.after(attempt(self));
        self.want(Effect::Read { deadline });
    }

    /// Runs a command, which must not be running, under a lock.
    pub(super) fn run(
        &mut self,
        command: Command,
        role: Role,
        deadline: Instant,
        under: LockContext,
    ) {
        // Of one that was killed nothing can be hoped for.
        let hopeful = self.running(Command::Start) && !self.start_dies;
        let starting = command == Command::Check && hopeful;
        self.running[command as usize] = true;
        self.beside_start[command as usize] = self.running(Command::Start);
        if command == Command::Start {
            self.service = Service::MayRun;
        }
        self.want(Effect::Run(Run {
            command,
            role,
            deadline,
            starting,
            under,
        }));
    }

    /// Returns what a command is told of the lock.
    pub(super) fn under(&self, hold: Option<&Hold>) -> LockContext {
        LockContext {
            term: hold.map(|hold| hold.term),
            epoch: self.bucket.as_ref().map(|bucket| bucket.epoch.clone()),
            previous: hold.and_then(|hold| hold.previous.clone()),
        }
        .tellable()
    }

    /// Moves the deadline of a running command.
    pub(super) fn extend(&mut self, command: Command, deadline: Instant) {
        self.want(Effect::Extend(command, deadline));
    }

    pub(super) fn kill(&mut self, command: Command) {
        if self.running(command) {
            self.want(Effect::Kill(command));
        }
    }
}
