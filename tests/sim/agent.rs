//! An agent's life: the shipped pump, its inbox and its effects, as `src/agent` runs
//! them. The other threads are in `nursery` (children, watchdog, the line to the
//! guard) and `wire` (the store).

use putex::core::command::Command;
use putex::core::event::{Effect, Ending, Event, Notice, Sentry, Written};
use putex::core::guard::Watch;
use putex::core::pump::{Pump, bounce};
use putex::core::record::{BucketId, Incarnation, KeyState, KeyValue, Record, Revision};

use super::clock::True;
use super::counters::Sometimes;
use super::guard::Says;
use super::nursery::{Order, Sentinel, Slot, Spawning, Wishes};
use super::process::{BEFORE, never};
use super::scenario::Step;
use super::wire::{Ask, Asked, Link, Reply};
use super::witness::{Writing, mark};
use super::world::{Happening, World};

/// What happens to a life, in one of its threads.
#[derive(Debug)]
pub enum LifeEvent {
    /// The process has begun.
    Begin,
    /// The guard of a life before answers, or does not.
    Inherit(usize, Says),
    InheritOver(u32),
    CallAgain,
    /// The pump takes an event from its inbox.
    Inbox(Box<Event>),
    PumpDue,
    /// The child thread has an order, or something to look at.
    Order(Order),
    /// A start begins that was not too late a moment ago.
    Spawn,
    /// It is said that a stop began.
    StopBegan,
    Exited(usize),
    GuardSays(usize, Says),
    GuardDue,
    /// The watchdog thread has a deadline.
    KillDue(Command),
    /// The store thread is asked, answered, left without an answer.
    Ask(Box<Asked>),
    Reply(u64, Box<Reply>),
    AskOver(u64),
    OpenAgain,
    Hint(u64, u64),
    LinkLost(u64),
}

/// The threads that can be late each on its own.
#[derive(Clone, Copy, Debug)]
pub enum Thread {
    Pump,
    Child,
    Watch,
    Store,
}

impl Thread {
    /// All of them, and whatever else there is on a host.
    pub const COUNT: usize = 5;
}

impl LifeEvent {
    pub fn thread(&self) -> Thread {
        match self {
            LifeEvent::Begin
            | LifeEvent::Inherit(..)
            | LifeEvent::InheritOver(_)
            | LifeEvent::CallAgain
            | LifeEvent::Inbox(_)
            | LifeEvent::PumpDue => Thread::Pump,
            LifeEvent::Order(_)
            | LifeEvent::Spawn
            | LifeEvent::StopBegan
            | LifeEvent::Exited(_)
            | LifeEvent::GuardSays(..)
            | LifeEvent::GuardDue => Thread::Child,
            LifeEvent::KillDue(_) => Thread::Watch,
            LifeEvent::Ask(_)
            | LifeEvent::Reply(..)
            | LifeEvent::AskOver(_)
            | LifeEvent::OpenAgain
            | LifeEvent::Hint(..)
            | LifeEvent::LinkLost(_) => Thread::Store,
        }
    }

    /// A deadline that has passed is looked at after the events that are there.
    pub fn is_due(&self) -> bool {
        matches!(self, LifeEvent::PumpDue | LifeEvent::GuardDue)
    }

    pub fn number(&self) -> u64 {
        match self {
            LifeEvent::Begin => 0,
            LifeEvent::Inherit(..) => 1,
            LifeEvent::InheritOver(_) | LifeEvent::CallAgain => 2,
            LifeEvent::Inbox(_) => 3,
            LifeEvent::PumpDue => 4,
            LifeEvent::Order(_) | LifeEvent::Spawn | LifeEvent::StopBegan => 5,
            LifeEvent::Exited(_) => 6,
            LifeEvent::GuardSays(..) => 7,
            LifeEvent::GuardDue => 8,
            LifeEvent::KillDue(_) => 9,
            LifeEvent::Ask(_) => 10,
            LifeEvent::Reply(..) => 11,
            LifeEvent::AskOver(_) => 12,
            LifeEvent::OpenAgain => 13,
            LifeEvent::Hint(..) => 14,
            LifeEvent::LinkLost(_) => 15,
        }
    }
}

/// One life of an agent: a process.
pub struct Life {
    pub site: usize,
    pub me: Incarnation,
    pub alive: bool,
    pub stopped: bool,
    pub held: Vec<LifeEvent>,
    pub pump: Option<Pump>,
    pub state: &'static str,
    /// Lives before this one, while the guard of the last is asked.
    pub before: Vec<Incarnation>,
    pub calling: Option<usize>,
    /// How often, and until when a guard is asked again that hung up.
    pub calls: u32,
    pub call_until: True,
    pub owns_file: bool,
    /// When the pump is woken next.
    pub wake_at: True,
    pub inbox_at: True,
    pub orders_at: True,
    pub slots: [Slot; 4],
    pub sentinel: Sentinel,
    pub wishes: Wishes,
    pub link: Link,
    pub writing: Writing,
    /// Highest revision that it was shown, of the bucket and of the key.
    pub known: u64,
    pub bucket: Option<BucketId>,
    pub known_key: u64,
    /// When it was shown something under a revision of the key, or wrote it.
    pub marks: Vec<(True, u64, u64)>,
    /// The guard has said that it is prepared, and was not told otherwise since.
    pub armed: bool,
    /// The command that the child thread is about to begin.
    pub spawning: Option<Spawning>,
    /// A stop has begun, which the guard was not told yet.
    pub stop_began: bool,
}

impl World<'_> {
    pub fn live(&mut self, id: usize, event: LifeEvent) {
        match event {
            LifeEvent::Begin => self.begin_life(id),
            LifeEvent::Inherit(guard, says) => self.inherit(id, guard, says),
            LifeEvent::InheritOver(call) => self.inherit_over(id, call),
            LifeEvent::CallAgain if self.lives[id].calling.is_some() => self.call_guard(id),
            LifeEvent::CallAgain => {}
            LifeEvent::Inbox(event) => self.hear(id, &event),
            LifeEvent::PumpDue => self.pump_due(id),
            LifeEvent::Order(order) => self.carry_out(id, order),
            LifeEvent::Spawn => self.spawn_held(id),
            LifeEvent::StopBegan => self.say_stop_begins(id),
            LifeEvent::Exited(process) => self.reap(id, process),
            LifeEvent::GuardSays(guard, says) => self.heed_guard(id, guard, says),
            LifeEvent::GuardDue => self.ensure_guard(id),
            LifeEvent::KillDue(command) => self.kill_due(id, command),
            LifeEvent::Ask(asked) => self.ask(id, *asked),
            LifeEvent::Reply(number, reply) => self.reply(id, number, *reply),
            LifeEvent::AskOver(number) => self.ask_over(id, number),
            LifeEvent::OpenAgain => self.open(id),
            LifeEvent::Hint(link, revision) => self.hint(id, link, revision),
            LifeEvent::LinkLost(link) => self.link_lost(id, link),
        }
    }

    /// Puts an event into the pump's inbox, behind what is there.
    pub fn tell(&mut self, id: usize, event: Event) {
        let at = self.now + self.late();
        let life = &mut self.lives[id];
        life.inbox_at = at.max(life.inbox_at + 1);
        let at = life.inbox_at;
        self.at(at, Happening::Life(id, LifeEvent::Inbox(Box::new(event))));
    }

    fn pump_due(&mut self, id: usize) {
        let life = &mut self.lives[id];
        if self.now < life.wake_at {
            // An earlier one took its place.
            return;
        }
        life.wake_at = never();
        let deadline = life.pump.as_ref().and_then(Pump::deadline);
        let site = life.site;
        if deadline.is_some_and(|at| at <= self.clock(site)) {
            self.hear(id, &Event::Tick);
        } else {
            self.wake_pump(id);
        }
    }

    /// Sees to it that the pump is woken at its deadline. One that is woken too early
    /// is put off then.
    pub fn wake_pump(&mut self, id: usize) {
        let life = &self.lives[id];
        let Some(deadline) = life.pump.as_ref().and_then(Pump::deadline) else {
            return;
        };
        let earliest = self.host(life.site).clock.when(deadline).max(self.now);
        if earliest < life.wake_at {
            let at = earliest + self.late();
            self.lives[id].wake_at = at;
            self.at(at, Happening::Life(id, LifeEvent::PumpDue));
        }
    }

    /// One event, one bounce, its effects.
    fn hear(&mut self, id: usize, event: &Event) {
        let site = self.lives[id].site;
        let now = self.clock(site);
        let Some(pump) = self.lives[id].pump.take() else {
            return;
        };
        if let Event::Opened(_) = event {
            self.lives[id].link.pump_knows();
        }
        let lost = self.shows_a_loss(id, event);
        self.before_turn(id, event);
        let (pump, effects) = bounce(pump, event, now);
        let said = effects.iter().any(says_loss);
        if lost && !said {
            self.fail(
                "loss",
                format!("{site} overlooks what the store lost: {event:?}"),
            );
        }
        if said {
            self.forget_known(id, event);
        }
        let state = pump.state();
        if let Some(deadline) = pump.deadline()
            && deadline <= now
        {
            let by = now.since(deadline);
            self.fail(
                "deadline",
                format!("in {state}, {by:?} ago, after {event:?}"),
            );
        }
        self.lives[id].pump = Some(pump);
        let old = std::mem::replace(&mut self.lives[id].state, state);
        self.hash = (self.hash ^ state.len() as u64).wrapping_mul(0x0000_0100_0000_01b3);
        if old != state {
            self.moved(id, old, state);
        }
        if old == "active" && state == "stopping" && tells_of_others(event) {
            self.sites[site].lost_at = Some(self.now);
        }
        for effect in effects {
            if !self.lives[id].alive {
                break;
            }
            self.perform(id, effect);
        }
        if self.lives[id].alive {
            self.wake_pump(id);
        }
    }

    fn moved(&mut self, id: usize, old: &'static str, new: &'static str) {
        let site = self.lives[id].site;
        self.show(site, new);
        match (old, new) {
            ("taking", "confirming") => self.count(Sometimes::Takeover),
            ("confirming", "active") => self.count(Sometimes::Confirmed),
            ("taking", "active") => self.count(Sometimes::TakenFree),
            (_, "stopping") => self.step(Step::Stopping),
            _ => {}
        }
    }

    pub fn show(&mut self, site: usize, state: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.state(self.now, site, state);
        }
    }

    fn perform(&mut self, id: usize, effect: Effect) {
        match effect {
            Effect::Read { deadline } => self.ask_store(id, Ask::Read { deadline }),
            Effect::Write {
                expected,
                record,
                deadline,
            } => {
                self.on_write(id, &record);
                self.step(Step::Write);
                self.ask_store(
                    id,
                    Ask::Write {
                        expected: expected.0,
                        record,
                        deadline,
                    },
                );
            }
            Effect::Announce => self.ask_store(id, Ask::Announce),
            Effect::Run(run) => {
                self.on_run(id, &run);
                self.arm(id, run.command, run.deadline);
                let order = Order::Run(run.command, run.deadline);
                let idle = self.lives[id].orders_at < self.now;
                if idle && self.chance.below(16) == 0 {
                    // The child thread is quick: the pump has not even turned to the end.
                    return self.carry_out(id, order);
                }
                self.order(id, order);
            }
            Effect::Guard(watch, under) => {
                self.step(Step::Told);
                self.lives[id].armed &= watch != Watch::Down;
                self.lives[id].wishes.tell = Some((watch, under));
                self.order(id, Order::Wishes);
            }
            Effect::ReplaceGuard => {
                self.lives[id].wishes.replace = true;
                self.order(id, Order::Wishes);
            }
            Effect::KillService => {
                self.lives[id].wishes.kill_service = true;
                self.order(id, Order::Wishes);
            }
            Effect::Extend(command, deadline) => self.arm(id, command, deadline),
            Effect::Kill(command) => self.kill_command(id, command),
            Effect::Say(_, text) => {
                let site = self.lives[id].site;
                self.on_say(site, &text);
                self.note(Some(site), || text);
            }
            Effect::Exit(ending) => self.exit(id, &ending),
        }
    }

    fn exit(&mut self, id: usize, ending: &Ending) {
        self.on_exit(id, ending);
        for command in Command::ALL {
            self.kill_command(id, command);
        }
        self.lives[id].pump = None;
        // The guard is told before the process ends, behind what was ordered before.
        self.order(id, Order::End(*ending == Ending::NotStopped));
    }

    pub fn order(&mut self, id: usize, order: Order) {
        let at = self.now + self.late();
        let life = &mut self.lives[id];
        life.orders_at = at.max(life.orders_at + 1);
        let at = life.orders_at;
        self.at(at, Happening::Life(id, LifeEvent::Order(order)));
    }

    fn ask_store(&mut self, id: usize, ask: Ask) {
        let opening = self.lives[id].link.pump_opening();
        let wait = self.late();
        let asked = Box::new(Asked { ask, opening });
        self.after(wait, Happening::Life(id, LifeEvent::Ask(asked)));
    }

    /// Returns what a life tells another that has its token.
    pub fn notice(&self, id: usize) -> Notice {
        let life = &self.lives[id];
        Notice {
            token: self.sc.sites[life.site].token.clone(),
            incarnation: life.me.to_string(),
            host: format!("h{}", self.sc.sites[life.site].host),
        }
    }

    /// Keeps what a life was shown, and when it learnt that a write was stored.
    fn before_turn(&mut self, id: usize, event: &Event) {
        match event {
            Event::Opened(opened) => {
                self.lives[id].bucket = Some(opened.bucket.clone());
                self.shown(id, opened.last.0.max(opened.key_state.revision.0));
                self.saw(id, &opened.key_state);
            }
            Event::Read(Ok(key_state)) => self.saw(id, key_state),
            Event::Written(Written::Stored(Revision(revision))) => {
                // Of a take that was given up on, only a read tells.
                if self.lives[id].state != "standby" {
                    self.shown(id, *revision);
                }
                self.step(Step::Stored);
                self.acknowledged(id, *revision);
            }
            Event::Shutdown(_) => self.count(Sometimes::Sigterm),
            Event::Guard(sentry) => self.lives[id].armed = *sentry == Sentry::Armed,
            Event::Tick
            | Event::Closed(_)
            | Event::Rejected(_)
            | Event::Read(Err(_))
            | Event::Written(Written::Moved(_) | Written::Denied(_) | Written::Unknown(_))
            | Event::Hint(_)
            | Event::Twin(_)
            | Event::Ended(..) => {}
        }
        self.on_event(id, event);
    }

    /// Whether an event can only be had from a store that lost what it had.
    fn shows_a_loss(&self, id: usize, event: &Event) -> bool {
        let life = &self.lives[id];
        match event {
            Event::Opened(opened) => life
                .bucket
                .as_ref()
                .is_some_and(|bucket| *bucket != opened.bucket || opened.last.0 < life.known),
            Event::Written(Written::Stored(revision)) => revision.0 <= life.known,
            _ => false,
        }
    }

    /// What was known of a store that has rolled back holds no more.
    fn forget_known(&mut self, id: usize, event: &Event) {
        let life = &mut self.lives[id];
        (life.known, life.known_key) = match event {
            Event::Opened(opened) => {
                let key = opened.key_state.revision.0;
                (opened.last.0.max(key), key)
            }
            Event::Read(Ok(key_state)) => (key_state.revision.0, key_state.revision.0),
            _ => (0, 0),
        };
    }

    fn shown(&mut self, id: usize, revision: u64) {
        let life = &mut self.lives[id];
        life.known = life.known.max(revision);
    }

    fn saw(&mut self, id: usize, key_state: &KeyState) {
        self.shown(id, key_state.revision.0);
        let life = &mut self.lives[id];
        life.known_key = life.known_key.max(key_state.revision.0);
        life.marks
            .push((self.now, key_state.revision.0, mark(&key_state.found)));
        if let KeyValue::Record(Record {
            lease: Some(lease), ..
        }) = &key_state.found
            && lease.incarnation == life.me
        {
            self.resolved(id, lease.nonce);
        }
    }

    /// Whether an agent of this site is there and can act.
    pub fn agent_is_well(&self, site: usize) -> bool {
        let life = self.sites[site].life.map(|id| &self.lives[id]);
        life.is_some_and(|life| life.alive && !life.stopped && life.pump.is_some())
    }

    /// The watchdog thread's deadline that has passed: kill at once.
    pub fn is_over(&self, id: usize, command: Command) -> bool {
        let site = self.lives[id].site;
        self.lives[id].slots[command as usize].deadline.max(BEFORE) <= self.clock(site)
    }
}

/// Whether an event can tell that another has written.
fn tells_of_others(event: &Event) -> bool {
    matches!(
        event,
        Event::Opened(_) | Event::Read(Ok(_)) | Event::Written(Written::Moved(_))
    )
}

fn says_loss(effect: &Effect) -> bool {
    matches!(effect, Effect::Say(_, text) if text.starts_with("the store has rolled back"))
}
