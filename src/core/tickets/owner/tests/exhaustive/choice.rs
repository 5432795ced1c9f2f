//! The choices in a state, and the states that follow from them.

use super::state::{Counts, Late, State, Waits};
use super::*;
use crate::core::tickets::owner::tests::simulated_bucket::Bucket;

#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// Nothing happens until this time.
    Pass(Time),
    /// A command that has just begun lasts so long, if it may.
    Lasts(usize, Time),
    /// The command has ended, or is killed at V.
    CommandEnds(usize),
    Begin(usize),
    Serve(usize),
    ServeLate(usize),
    Result(usize),
    GivenUp(usize),
    Rested(usize),
    /// A hint, the end of its command, or the loss of its bucket is noticed.
    Event(usize),
    // From here on: faults.
    RequestLost(usize),
    RequestLate(usize, Time),
    /// A listing is so many writes old.
    ListingOld(usize, usize),
    ResultLost(usize),
    ResultLate(usize, Time),
    HintLost(usize),
    Pause(usize, Time),
    Crash(usize),
    BucketLost,
    /// The server is killed, and starts again.
    Kill,
}

impl State {
    /// Returns the choices now, first those that are no fault.
    pub(super) fn choices(&self, scope: &Scope) -> Vec<Choice> {
        for (at, client) in self.clients.iter().enumerate() {
            if let Some(command) = &client.command {
                if command.ends_at.is_none() {
                    return scope.lasts.iter().map(|lasts| Choice::Lasts(at, *lasts)).collect();
                }
                // Until V, and no longer, the client has the names.
                if command.killed_at <= self.now {
                    return vec![Choice::CommandEnds(at)];
                }
            }
        }
        let (mut due, mut faults) = (Vec::new(), Vec::new());
        if !scope.is_split {
            // The use that a client makes of a result concerns no other: it comes to the same
            // before and after the acts of others at this instant.
            for at in 0..self.clients.len() {
                self.result_choices(at, &mut due, &mut faults);
                if !due.is_empty() {
                    break;
                }
            }
        }
        if due.is_empty() {
            for at in 0..self.clients.len() {
                self.client_choices(at, scope, &mut due, &mut faults);
            }
            for (at, late) in self.late.iter().enumerate() {
                if late.at <= self.now {
                    due.push(Choice::ServeLate(at));
                }
            }
            let serves =
                |choice: &Choice| matches!(choice, Choice::Serve(..) | Choice::ServeLate(_));
            let serves = due.iter().any(serves);
            if self.bucket.id == 1 && serves {
                faults.push(Choice::BucketLost);
            }
            if self.kills > 0 && serves && self.bucket.would_restore(self.now) {
                due.push(Choice::Kill);
            }
        }
        if due.is_empty() {
            return self.next_time().map(Choice::Pass).into_iter().collect();
        }
        if self.faults > 0 {
            due.extend(faults.into_iter().filter(scope.goes_wrong));
        }
        due
    }

    fn result_choices(&self, at: usize, due: &mut Vec<Choice>, faults: &mut Vec<Choice>) {
        let client = &self.clients[at];
        if client.paused_until > self.now {
            return;
        }
        let Waits::Result(request) = &client.waits else { return };
        if request.by <= self.now {
            due.push(Choice::GivenUp(at));
        }
        if request.result.as_ref().is_some_and(|(_, at)| *at <= self.now) {
            due.push(Choice::Result(at));
            faults.push(Choice::Crash(at));
            if request.by > self.now {
                faults.push(Choice::ResultLost(at));
                let in_time = |late: &Time| self.now + late < request.by;
                let late = LATE.into_iter().filter(in_time);
                faults.extend(late.map(|late| Choice::ResultLate(at, late)));
                faults.extend(PAUSES.map(|pause| Choice::Pause(at, pause)));
            }
        }
    }

    fn client_choices(
        &self,
        at: usize,
        scope: &Scope,
        due: &mut Vec<Choice>,
        faults: &mut Vec<Choice>,
    ) {
        let client = &self.clients[at];
        if client.command.as_ref().is_some_and(|it| it.ends_at.is_some_and(|at| at <= self.now)) {
            due.push(Choice::CommandEnds(at));
        }
        if let Waits::Arrival(request) = &client.waits {
            due.push(Choice::Serve(at));
            faults.push(Choice::RequestLost(at));
            faults.extend(LATE.map(|late| Choice::RequestLate(at, late)));
            if let Step::List(..) = request.step {
                let old = 1..=self.past.len();
                faults.extend(old.map(|writes| Choice::ListingOld(at, writes)));
            }
        }
        if client.paused_until > self.now {
            return;
        }
        if !client.events.is_empty() {
            due.push(Choice::Event(at));
            if let Some(Input::Renewed(_) | Input::Ended(_)) = client.events.front() {
                faults.push(Choice::HintLost(at));
            }
        }
        match &client.waits {
            Waits::Begin(begins) if *begins <= self.now => due.push(Choice::Begin(at)),
            Waits::Result(_) if scope.is_split => self.result_choices(at, due, faults),
            Waits::Rest(until) if *until <= self.now => {
                due.push(Choice::Rested(at));
                faults.push(Choice::Crash(at));
                faults.extend(PAUSES.map(|pause| Choice::Pause(at, pause)));
            }
            Waits::Begin(_) | Waits::Arrival(_) | Waits::Result(_) | Waits::Rest(_) => {}
            Waits::Ended | Waits::Crashed => {}
        }
    }

    /// Returns when something happens next.
    fn next_time(&self) -> Option<Time> {
        let mut times: Vec<Time> = self.late.iter().map(|late| late.at).collect();
        for client in &self.clients {
            if let Some(command) = &client.command {
                times.extend(command.ends_at);
                times.push(command.killed_at);
            }
            match &client.waits {
                Waits::Begin(at) | Waits::Rest(at) => times.push((*at).max(client.paused_until)),
                Waits::Result(request) => {
                    times.push(request.by.max(client.paused_until));
                    let result = request.result.as_ref();
                    times.extend(result.map(|(_, at)| (*at).max(client.paused_until)));
                }
                Waits::Arrival(_) | Waits::Ended | Waits::Crashed => {}
            }
            if !client.events.is_empty() && !client.is_gone() {
                times.push(client.paused_until);
            }
        }
        times.into_iter().filter(|at| *at > self.now).min()
    }

    /// Performs a choice.
    ///
    /// # Errors
    ///
    /// The rule that is broken by it.
    pub(super) fn perform(&mut self, choice: Choice, counts: &mut Counts) -> Result<(), String> {
        match choice {
            Choice::Pass(until) => self.now = until,
            Choice::Lasts(at, lasts) => {
                let ends_at = self.now + lasts;
                if let Some(command) = &mut self.client(at).command {
                    command.ends_at = Some(ends_at);
                }
            }
            Choice::CommandEnds(at) => {
                let client = self.client(at);
                (client.command, client.is_done) = (None, true);
                if !client.is_gone() {
                    client.events.push_back(Input::Done);
                }
            }
            Choice::Begin(at) => self.act(at, counts)?,
            Choice::Serve(at) => self.serve_now(at, 0, counts),
            Choice::ListingOld(at, writes) => {
                self.serve_now(at, writes, counts);
                self.spend();
            }
            Choice::ServeLate(index) => {
                let Late { client, request, .. } = self.late.remove(index);
                let input = self.serve(client, &request, 0, counts);
                let now = self.now;
                if let Waits::Result(waits) = &mut self.client(client).waits
                    && waits.number == request.number
                {
                    (waits.result, waits.served_at) = (Some((input, now)), now);
                }
            }
            Choice::Result(at) => self.give_result(at, false, counts)?,
            Choice::GivenUp(at) => self.give_result(at, true, counts)?,
            Choice::Rested(at) => {
                let now = self.clients[at].local(self.now);
                self.client(at).owner.handle(Input::Rested, now);
                self.listen(at, counts)?;
                self.act(at, counts)?;
            }
            Choice::Event(at) => {
                let event = self.client(at).events.pop_front();
                self.client(at).arrived.extend(event);
                if let Waits::Rest(_) = self.clients[at].waits {
                    self.act(at, counts)?;
                }
            }
            Choice::Kill => self.kill(),
            Choice::RequestLost(_)
            | Choice::RequestLate(..)
            | Choice::ResultLost(_)
            | Choice::ResultLate(..)
            | Choice::HintLost(_)
            | Choice::Pause(..)
            | Choice::Crash(_)
            | Choice::BucketLost => {
                self.go_wrong(choice);
                self.spend();
            }
        }
        Ok(())
    }

    /// Counts one of the faults that may happen as used.
    fn spend(&mut self) {
        self.faults -= 1;
        if self.faults == 0 {
            self.past.clear();
        }
    }

    /// Clients keep their connections, as if another server had the bucket then: what they do when
    /// they open it again is in the simulation.
    fn kill(&mut self) {
        self.kills -= 1;
        std::rc::Rc::make_mut(&mut self.bucket).restore_superseded(self.now);
    }

    fn serve_now(&mut self, at: usize, writes_old: usize, counts: &mut Counts) {
        let Waits::Arrival(mut request) = self.clients[at].waits.clone() else { return };
        let input = self.serve(at, &request, writes_old, counts);
        (request.result, request.served_at) = (Some((input, self.now)), self.now);
        self.client(at).waits = Waits::Result(request);
    }

    fn go_wrong(&mut self, fault: Choice) {
        let now = self.now;
        match fault {
            Choice::RequestLost(at) | Choice::RequestLate(at, _) => {
                let client = self.client(at);
                let Waits::Arrival(request) = client.waits.clone() else { return };
                client.waits = Waits::Result(request.clone());
                if let Choice::RequestLate(_, late) = fault {
                    self.late.push(Late { client: at, at: now + late, request });
                }
            }
            Choice::ResultLost(at) | Choice::ResultLate(at, _) => {
                if let Waits::Result(request) = &mut self.client(at).waits {
                    let result = request.result.take();
                    if let Choice::ResultLate(_, late) = fault {
                        request.result = result.map(|(input, at)| (input, at + late));
                    }
                }
            }
            Choice::HintLost(at) => drop(self.client(at).events.pop_front()),
            Choice::Pause(at, pause) => self.client(at).paused_until = now + pause,
            Choice::Crash(at) => {
                let client = self.client(at);
                client.waits = Waits::Crashed;
                client.events.clear();
            }
            Choice::BucketLost => {
                self.bucket = std::rc::Rc::new(Bucket::new(self.bucket.id + 1));
                self.past.clear();
            }
            Choice::Pass(_)
            | Choice::Lasts(..)
            | Choice::CommandEnds(_)
            | Choice::Begin(_)
            | Choice::Serve(..)
            | Choice::ServeLate(_)
            | Choice::Result(_)
            | Choice::GivenUp(_)
            | Choice::Rested(_)
            | Choice::Event(_)
            | Choice::Kill
            | Choice::ListingOld(..) => {}
        }
    }
}
