//! The shipped pump and the shipped guard as automata that are found as they are
//! walked: every state of theirs that differs has a number, and every step from one
//! is made once.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use putex::core::time::Instant;
use putex::core::timing::Timing;

use super::canon::{Frame, canon};
use super::quick::Quick;

/// Now, for an automaton that begins: so late that every instant is in whole seconds.
pub(crate) const BEGIN: i64 = 10_000_000_000;

/// The revision that an automaton counts from that knows none.
pub(crate) const FIRST: u64 = 1000;

/// A state, as it was when it was found.
pub(crate) struct Node<M> {
    pub(crate) machine: Rc<M>,
    pub(crate) frame: Frame,
    /// When it wants a tick, from now.
    pub(crate) deadline: Option<i32>,
}

/// The outcome of an input.
pub(crate) struct Step<O> {
    /// The state after it.
    pub(crate) id: u32,
    /// By how much the revision that it counts from has grown.
    pub(crate) grown: i16,
    /// By how many the attempts of a pump have, or the messages that a guard has received.
    pub(crate) counted: u8,
    pub(crate) wanted: Vec<O>,
}

/// All states of one kind of automaton that were found.
pub(crate) struct Automaton<M, I, O> {
    nodes: Vec<Node<M>>,
    numbers: HashMap<u128, u32>,
    pub(crate) steps: HashMap<(u32, I), Rc<Step<O>>, Quick>,
    pub(crate) timing: Timing,
    /// How often a state was found that was known.
    pub(crate) merged: u64,
}

impl<M, I, O> Automaton<M, I, O> {
    pub(crate) fn new(timing: Timing) -> Automaton<M, I, O> {
        Automaton {
            nodes: Vec::new(),
            numbers: HashMap::new(),
            steps: HashMap::default(),
            timing,
            merged: 0,
        }
    }

    pub(crate) fn get(&self, id: u32) -> &Node<M> {
        &self.nodes[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn begin_frame(&self) -> Frame {
        let past = self.timing.lock_time() + self.timing.confirmation();
        Frame {
            now: BEGIN,
            base: FIRST,
            past: i64::try_from(past.as_micros()).expect("short"),
            nonce: 0,
            messages: 0,
            link: 0,
        }
    }

    /// Returns the number of a state, and the state that was kept under it before.
    pub(crate) fn keep(&mut self, node: Node<M>, text: &str) -> (u32, Option<Node<M>>) {
        let key = canon(text, node.frame);
        let next = u32::try_from(self.nodes.len()).expect("fewer states than that");
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.nodes.push(node);
            return (number, None);
        }
        self.merged += 1;
        (number, Some(node))
    }
}

/// Returns an instant that lies `from_now` microseconds after `now`.
pub(crate) fn at(now: i64, from_now: i32) -> Instant {
    let at = u64::try_from(now + i64::from(from_now)).expect("after boot");
    Instant::from_boot(Duration::from_micros(at))
}

/// Returns how many microseconds after now an instant lies; all long past instants are alike.
pub(crate) fn from(frame: Frame, at: Instant) -> i32 {
    let at = i64::try_from(at.since_boot().as_micros()).expect("not for ever");
    i32::try_from((at - frame.now).max(-frame.past)).expect("within minutes")
}
