//! The events of a simulation, and how often each has happened.

/// How often each event has happened.
#[derive(Debug, Default)]
pub(super) struct Counts([u64; 13]);

const NAMES: [&str; 13] = [
    "claimed", "over", "taken", "young", "extended", "not had", "expired", "too early", "absent",
    "held", "unsure", "not held", "refused",
];

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    pub(super) fn are_all_above(&self, least: u64) -> bool {
        self.0.iter().all(|count| *count > least)
    }

    pub(super) fn count(&mut self, name: &str) {
        let at = NAMES.iter().position(|it| *it == name).expect("a known name");
        self.0[at] += 1;
    }
}
