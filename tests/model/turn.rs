//! One act, and all that comes of it at once. What must never be is found here.

use putex::core::command::Command;

use super::Model;
use super::act::{Act, Place};
use super::cue::{Cue, Deed, End, Life, Move, NAMES, Rec, Stand, Vigil, Word};
use super::world::{Answer, Ask, BACK_MAX, Job, Put, World};

/// A world in which something has just happened.
pub(crate) struct Turn<'a> {
    model: &'a mut Model,
    pub(crate) world: World,
    /// What was last meant for a guard, whether there was one or not.
    said: Vigil,
}

/// What was broken, in words.
pub(crate) type Kept = Result<(), String>;

impl<'a> Turn<'a> {
    pub(crate) fn of(model: &'a mut Model, world: World) -> Turn<'a> {
        let said = Vigil::Down;
        Turn { model, world, said }
    }

    /// Lets something happen.
    pub(crate) fn act(&mut self, act: Act) -> Kept {
        self.perform_act(act)?;
        for host in &mut self.world.hosts {
            // Nothing is left of a lock that has no service and no holder.
            let state = host
                .mind
                .map(|mind| self.model.pumps.get(mind).mind.state());
            if !host.up && matches!(state, None | Some("looking" | "standby")) {
                host.bound = 0;
            }
        }
        Ok(())
    }

    fn perform_act(&mut self, act: Act) -> Kept {
        match act {
            Act::Pass(by) => self.pass(by),
            Act::Begin { host, knows } => self.begin(host, knows),
            Act::Tick { host } => self.cue(host, Cue::Tick),
            Act::GuardTick { host, post } => self.word(host, post, Word::Tick),
            Act::Perform { host, answered } => {
                self.perform(host);
                if answered {
                    return self.answer(host);
                }
                Ok(())
            }
            Act::Answer { host } => self.answer(host),
            Act::GiveUp { host } => self.give_up(host),
            Act::Land { at } => {
                if let Some(put) = self.world.common.late[at].take() {
                    self.world.commit(put, self.model.held);
                }
                Ok(())
            }
            Act::End { host, job, how } => self.end(host, job, how),
            Act::Open { host } => {
                self.world.hosts[host].closed = None;
                let (at, rec) = (self.world.hosts[host].lag, self.world.common.rec);
                self.cue(host, Cue::Opened { at, rec })
            }
            Act::Thaw { host } => {
                self.world.hosts[host].frozen = None;
                Ok(())
            }
            Act::Delay { .. }
            | Act::Hang { .. }
            | Act::Close { .. }
            | Act::Kill { .. }
            | Act::Freeze { .. }
            | Act::KillGuard { .. }
            | Act::Terminate { .. } => {
                self.world.common.faults -= 1;
                self.fault(act)
            }
        }
    }

    fn fault(&mut self, act: Act) -> Kept {
        match act {
            Act::Delay { host } => {
                if let Some(ask) = &mut self.world.hosts[host].ask {
                    ask.slow = true;
                }
                Ok(())
            }
            Act::Hang { host, job } => {
                if let Some(job) = self.job(host, job) {
                    job.slow = true;
                }
                Ok(())
            }
            Act::Close { host, performed } => self.close(host, performed),
            Act::Kill { host } => self.die(host),
            Act::Freeze { host } => {
                self.world.hosts[host].frozen = Some(self.model.longest);
                Ok(())
            }
            Act::KillGuard { host } => self.kill_guard(host),
            Act::Terminate { host } => self.cue(host, Cue::Shutdown),
            Act::Pass(_)
            | Act::Begin { .. }
            | Act::Tick { .. }
            | Act::GuardTick { .. }
            | Act::Perform { .. }
            | Act::Answer { .. }
            | Act::GiveUp { .. }
            | Act::Land { .. }
            | Act::End { .. }
            | Act::Open { .. }
            | Act::Thaw { .. } => Err("no fault".to_owned()),
        }
    }

    fn pass(&mut self, by: i32) -> Kept {
        let (held, grid) = (self.model.held, self.model.grid);
        self.world.pass(by, held, grid);
        for (at, host) in self.world.hosts.iter_mut().enumerate() {
            if let Some(mind) = &mut host.mind {
                *mind = self.model.pumps.step(*mind, Cue::Wait(by)).id;
            }
            for post in host.posts.iter_mut().flatten() {
                post.mind = self.model.guards.step(post.mind, Word::Wait(by)).id;
            }
            if host.up && host.bound == 0 {
                return Err(format!("the service on {} outlives its V + C*R", NAMES[at]));
            }
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, knows: bool) -> Kept {
        let host = &mut self.world.hosts[at];
        host.lives += 1;
        let life = Life::of(at, host.lives);
        let post = host.posts[0];
        let left = match post {
            Some(post) if knows => self.model.guards.watch(post.mind),
            Some(_) | None => Vigil::Down,
        };
        host.mind = Some(self.model.pumps.begin(life, knows, left));
        // The store is opened at once, unless a fault comes between.
        host.closed = Some(0);
        host.lag = 0;
        if knows && post.is_some() {
            self.word(at, 0, Word::AgentBack)?;
        } else {
            if host.posts[0].is_some() {
                host.posts[1] = host.posts[0];
            }
            host.posts[0] = Some(self.model.new_post());
        }
        self.cue(at, Cue::GuardReady)
    }

    /// Tells a pump something and does what it wants.
    pub(crate) fn cue(&mut self, at: usize, cue: Cue) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(mind) = host.mind else { return Ok(()) };
        let step = self.model.pumps.step(mind, cue);
        host.mind = Some(step.id);
        host.lag -= step.grown;
        let life = Life::of(at, host.lives);
        self.world.attempted(life, step.attempts);
        let deadline = self.model.pumps.get(step.id).deadline;
        if deadline.is_some_and(|deadline| deadline <= 0) {
            return Err(format!("the next deadline of {} has passed", NAMES[at]));
        }
        for deed in &step.wanted {
            self.deed(at, *deed, step.grown)?;
        }
        Ok(())
    }

    /// `grown` is by how much the pump's own revisions moved in the same step.
    fn deed(&mut self, at: usize, deed: Deed, grown: i16) -> Kept {
        // From the pump's highest, before the step, to the key's.
        let behind = self.world.hosts[at].lag + grown;
        let life = Life::of(at, self.world.hosts[at].lives);
        match deed {
            Deed::Read { deadline } => self.ask(at, None, deadline),
            Deed::Write {
                expected,
                stand,
                term_ago,
                deadline,
            } => {
                if stand == Stand::Released && self.world.hosts[at].up {
                    return Err(format!("{} releases before its service is down", NAMES[at]));
                }
                let rec = Rec {
                    by: life,
                    stand,
                    term_ago,
                    nonce_ago: 0,
                };
                let put = Put {
                    host: u8::try_from(at).expect("a few hosts"),
                    expected: (expected - behind).max(-BACK_MAX),
                    rec,
                    sent: 0,
                };
                self.ask(at, Some(put), deadline)
            }
            Deed::Guard(vigil) => {
                self.said = vigil;
                self.word(at, 0, Word::Told(vigil))
            }
            Deed::Run {
                command,
                deadline,
                term,
            } => {
                let term = term.map(|term| (term - behind).max(-BACK_MAX));
                self.run(at, command, deadline, term)
            }
            Deed::Extend(command, deadline) => {
                if let Some(job) = &mut self.world.hosts[at].jobs[command as usize] {
                    job.deadline = deadline;
                }
                Ok(())
            }
            Deed::Kill(command) => {
                if let Some(job) = &mut self.world.hosts[at].jobs[command as usize] {
                    job.kill();
                }
                Ok(())
            }
            Deed::ReplaceGuard => Err("a guard that answers is replaced".to_owned()),
            Deed::CryRollback => Err(format!("{} says that the store rolled back", NAMES[at])),
            Deed::Exit { given_up } => {
                if given_up {
                    self.word(at, 0, Word::GivenUp)?;
                }
                self.die(at)
            }
        }
    }

    fn ask(&mut self, at: usize, put: Option<Put>, deadline: i32) -> Kept {
        let ask = Ask {
            put,
            deadline,
            slow: false,
            answer: None,
        };
        if self.world.hosts[at].ask.replace(ask).is_some() {
            return Err(format!("{} has two requests under way", NAMES[at]));
        }
        Ok(())
    }

    fn run(&mut self, at: usize, command: Command, deadline: i32, term: Option<i16>) -> Kept {
        let host = &mut self.world.hosts[at];
        let job = &mut host.jobs[command as usize];
        if job.replace(Job::until(deadline)).is_some() {
            return Err(format!(
                "{}: two instances of {}",
                NAMES[at],
                command.name()
            ));
        }
        match command {
            Command::Start => self.start(at, term),
            // It works, and at once: a power switch.
            Command::LastResort => {
                host.up = false;
                Ok(())
            }
            Command::Stop => self.word(at, 0, Word::StopBegan),
            Command::Check => Ok(()),
        }
    }

    fn start(&mut self, at: usize, term: Option<i16>) -> Kept {
        let number = u8::try_from(at).expect("a few hosts");
        let Some(term) = term else {
            return Err(format!("{} starts without a term", NAMES[at]));
        };
        let (last, by) = self.world.common.last;
        let old = term == -BACK_MAX;
        if term < last || by != number && (term == last || old) {
            return Err(format!(
                "the term of {} is not above the one before",
                NAMES[at]
            ));
        }
        self.world.common.last = (term, number);
        let mut others = self.world.hosts.iter().enumerate();
        let beside = others.find(|(other, host)| *other != at && host.up);
        if let Some((other, _)) = beside {
            return Err(format!(
                "host {at} starts while the service on {other} is up"
            ));
        }
        if self.world.common.stray > 0 {
            return Err(format!("{} starts while the service on z is up", NAMES[at]));
        }
        let host = &mut self.world.hosts[at];
        host.up = true;
        if host.bound == 0 {
            return Err(format!("{} starts after its V + C*R", NAMES[at]));
        }
        Ok(())
    }

    fn perform(&mut self, at: usize) {
        let Some(ask) = self.world.hosts[at].ask else {
            return;
        };
        let answer = match ask.put {
            Some(put) => self.world.commit(put, self.model.held),
            None => Answer::Shown(0, self.world.common.rec),
        };
        if let Some(ask) = &mut self.world.hosts[at].ask {
            ask.answer = Some(answer);
        }
    }

    fn answer(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        let Some(answer) = host.ask.take().and_then(|ask| ask.answer) else {
            return Ok(());
        };
        let lag = host.lag;
        self.cue(
            at,
            match answer {
                Answer::Shown(at, rec) => Cue::Read { at: at + lag, rec },
                Answer::Stored(at) => Cue::Stored(at + lag),
                Answer::Moved(at) => Cue::Moved(at + lag),
            },
        )
    }

    /// No answer has come. What the store has not performed, it may perform yet.
    fn give_up(&mut self, at: usize) -> Kept {
        let Some(ask) = self.world.hosts[at].ask.take() else {
            return Ok(());
        };
        let Some(put) = ask.put else {
            return self.cue(at, Cue::ReadFailed);
        };
        if ask.answer.is_none() {
            self.world.leave_behind(put);
        }
        self.cue(at, Cue::Unknown)
    }

    fn close(&mut self, at: usize, performed: bool) -> Kept {
        if performed {
            self.perform(at);
        }
        self.give_up(at)?;
        let host = &mut self.world.hosts[at];
        // What the pump asked for before it learns of it is not performed.
        host.ask = None;
        if host.mind.is_some() {
            host.closed = Some(self.model.longest);
        }
        self.cue(at, Cue::Closed)
    }

    fn job(&mut self, at: usize, place: Place) -> Option<&mut Job> {
        let host = &mut self.world.hosts[at];
        match place {
            Place::Agent(number) => host.jobs[usize::from(number)].as_mut(),
            Place::Guard(post, number) => {
                host.posts[post].as_mut()?.jobs[usize::from(number)].as_mut()
            }
        }
    }

    fn end(&mut self, at: usize, place: Place, how: End) -> Kept {
        let command = place.command();
        let host = &mut self.world.hosts[at];
        match place {
            Place::Agent(number) => host.jobs[usize::from(number)] = None,
            Place::Guard(post, number) => {
                if let Some(post) = &mut host.posts[post] {
                    post.jobs[usize::from(number)] = None;
                }
            }
        }
        if command == Command::Stop && how == End::Well {
            // What a start beside it does comes after it.
            let start = host.jobs[Command::Start as usize];
            host.up = start.is_some_and(|start| !start.killed);
        }
        match place {
            Place::Agent(number) => {
                if command == Command::Stop {
                    self.word(at, 0, Word::StopEnded)?;
                }
                self.cue(at, Cue::Ended(number, how))
            }
            Place::Guard(post, _) => self.word(at, post, Word::Ended(command as u8, how)),
        }
    }

    /// Tells a guard something and does what it wants.
    fn word(&mut self, at: usize, number: usize, word: Word) -> Kept {
        for moved in self.hear(at, number, word) {
            let host = &mut self.world.hosts[at];
            match moved {
                Move::SayArmed => self.cue(at, Cue::GuardArmed)?,
                Move::KillAgent if number == 0 => self.die(at)?,
                // What an agent left running goes with it.
                Move::KillAgent | Move::KillLeft => {}
                Move::Leave => host.posts[number] = None,
                Move::Run(command, deadline) => {
                    let which = usize::from(command == Command::LastResort);
                    if let Some(post) = &mut host.posts[number] {
                        post.jobs[which] = Some(Job::until(deadline));
                    }
                    host.up &= command == Command::Stop;
                }
                Move::Kill(command) => {
                    let which = usize::from(command == Command::LastResort);
                    let post = host.posts[number].as_mut();
                    if let Some(job) = post.and_then(|post| post.jobs[which].as_mut()) {
                        job.kill();
                    }
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, at: usize, number: usize, word: Word) -> Vec<Move> {
        let Some(post) = &mut self.world.hosts[at].posts[number] else {
            return Vec::new();
        };
        let step = self.model.guards.step(post.mind, word);
        post.mind = step.id;
        step.wanted.clone()
    }

    /// Another is there at once, is told what this one was told, and then what the
    /// pump has to say.
    fn kill_guard(&mut self, at: usize) -> Kept {
        let Some(post) = self.world.hosts[at].posts[0] else {
            return Ok(());
        };
        self.said = self.model.guards.watch(post.mind);
        self.world.hosts[at].posts[0] = None;
        self.cue(at, Cue::GuardLost)?;
        if self.world.hosts[at].mind.is_none() {
            return Ok(());
        }
        self.world.hosts[at].posts[0] = Some(self.model.new_post());
        let moved = self.hear(at, 0, Word::Told(self.said));
        if self.world.hosts[at].jobs[Command::Stop as usize].is_some() {
            self.hear(at, 0, Word::StopBegan);
        }
        self.cue(at, Cue::GuardReady)?;
        if moved.contains(&Move::SayArmed) {
            self.cue(at, Cue::GuardArmed)?;
        }
        Ok(())
    }

    /// The agent is gone: what it asked of the store may be performed yet, what it
    /// ran is killed by the guard or has no effect any more.
    fn die(&mut self, at: usize) -> Kept {
        let host = &mut self.world.hosts[at];
        let life = Life::of(at, host.lives);
        let stops = host.jobs[Command::Stop as usize].is_some();
        host.mind = None;
        host.lag = 0;
        host.frozen = None;
        host.closed = None;
        host.jobs = Default::default();
        let ask = host.ask.take();
        if let Some(Ask {
            put: Some(put),
            answer: None,
            ..
        }) = ask
        {
            self.world.leave_behind(put);
        }
        self.world.forget_life(life, self.model.held);
        self.word(at, 0, Word::AgentGone)?;
        if stops {
            self.word(at, 0, Word::StopEnded)?;
        }
        Ok(())
    }
}
