//! Every state that can come about, depth first.
//!
//! No state comes again in its own history: time passes, commands end. Where one does, somebody
//! waits for ever. So the longest history is finite, and is found.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::Scope;
use super::Time;
use super::canon::fold;
use super::choice::Choice;
use super::state::{Counts, State};

/// Most steps of a history. Only a client that never rests takes more, at one instant.
const STEPS_MAX: usize = 2_000;

/// A state of the history that is looked at.
struct Frame {
    state: State,
    key: u128,
    choices: Vec<Choice>,
    next: usize,
    /// The longest time from here to the end, by the choices that were searched.
    longest: Time,
}

/// The result of a search.
pub(super) struct SearchResult {
    pub(super) states: usize,
    pub(super) transitions: u64,
    pub(super) longest: Time,
    pub(super) counts: Counts,
    /// The rule that is broken, and the history that has led to that.
    pub(super) broken: Option<String>,
}

pub(super) struct Search<'a> {
    scope: &'a Scope,
    /// The longest time to the end; none yet for the states of this history.
    seen: HashMap<u128, Option<Time>>,
    /// The states that follow from a state, to check that merged states have the same ones.
    following: HashMap<u128, Vec<(u128, Time, bool)>>,
    history: Vec<Frame>,
    found: SearchResult,
}

impl Search<'_> {
    pub(super) fn new(scope: &Scope) -> Search<'_> {
        let found = SearchResult {
            states: 0,
            transitions: 0,
            longest: 0,
            counts: Counts::default(),
            broken: None,
        };
        let (seen, following) = (HashMap::new(), HashMap::new());
        Search { scope, seen, following, history: Vec::new(), found }
    }

    pub(super) fn run(mut self) -> SearchResult {
        let begin = State::new(self.scope);
        let key = fold(&begin, self.scope);
        let mut ended = self.enter(begin, key);
        while ended.is_ok() && !self.history.is_empty() {
            ended = self.go_on();
        }
        if let Err(why) = ended {
            self.found.broken = Some(format!("{why}\n{}", self.tell_history()));
        }
        self.found.states = self.seen.len();
        self.found
    }

    /// Begins to look at the states that follow from a new one.
    fn enter(&mut self, state: State, key: u128) -> Result<(), String> {
        self.seen.insert(key, None);
        let choices = state.choices(self.scope);
        let is_late = state.now > self.scope.horizon() || self.history.len() > STEPS_MAX;
        let ended = if choices.is_empty() { state.check_end() } else { Ok(()) };
        self.history.push(Frame { state, key, choices, next: 0, longest: 0 });
        if is_late { Err("somebody waits for too long".to_owned()) } else { ended }
    }

    /// Looks at the next choice of the last state, or goes back.
    fn go_on(&mut self) -> Result<(), String> {
        let Some(frame) = self.history.last_mut() else { return Ok(()) };
        let Some(choice) = frame.choices.get(frame.next).copied() else {
            let (key, longest, now) = (frame.key, frame.longest, frame.state.now);
            self.seen.insert(key, Some(longest));
            self.history.pop();
            match self.history.last_mut() {
                Some(before) => {
                    before.longest = before.longest.max(longest + now - before.state.now);
                }
                None => self.found.longest = longest,
            }
            return Ok(());
        };
        frame.next += 1;
        let mut state = frame.state.clone();
        self.found.transitions += 1;
        state.perform(choice, &mut self.found.counts)?;
        let key = fold(&state, self.scope);
        if self.scope.is_tried {
            self.compare(&state, key)?;
        }
        match self.seen.get(&key) {
            None => self.enter(state, key),
            Some(None) => Err("this has been before: somebody waits for ever".to_owned()),
            Some(Some(longest)) => {
                if let Some(frame) = self.history.last_mut() {
                    frame.longest = frame.longest.max(longest + state.now - frame.state.now);
                }
                Ok(())
            }
        }
    }

    /// Checks that the same states follow from this state as from the one that it is merged with.
    fn compare(&mut self, state: &State, key: u128) -> Result<(), String> {
        let mut keys = Vec::new();
        for choice in state.choices(self.scope) {
            let mut after = state.clone();
            // A rule that is broken there is reported when that state is visited.
            let is_right = after.perform(choice, &mut Counts::default()).is_ok();
            keys.push((fold(&after, self.scope), after.now - state.now, is_right));
        }
        keys.sort_unstable();
        keys.dedup();
        if *self.following.entry(key).or_insert_with(|| keys.clone()) == keys {
            return Ok(());
        }
        Err("two states that differ are merged".to_owned())
    }

    /// Describes the history, with the times in thousandths of R.
    fn tell_history(&self) -> String {
        let mut text = String::new();
        for frame in &self.history {
            let choice = frame.next.checked_sub(1).and_then(|at| frame.choices.get(at));
            if let Some(choice) = choice.filter(|choice| !matches!(choice, Choice::Pass(_))) {
                let now = (frame.state.now - super::BEGIN) * 1000 / super::R;
                let _ = writeln!(text, "{now:>6} {choice:?}");
            }
        }
        text
    }
}
