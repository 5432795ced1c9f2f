//! The results of all cases.

use std::fmt;

use crate::case::Case;
use crate::exceptions::EXCEPTIONS;
use crate::play::{Outcome, Verdict};

/// The share of cases, in percent, whose call was not made again that shows a broken suite.
/// Threads that end with their process make some of their calls or not.
const NOT_REACHED_MAX: usize = 30;

/// The counts.
#[derive(Debug)]
pub(crate) struct Tally {
    cases: usize,
    counted: usize,
    held: usize,
    not_reached: usize,
    violated: usize,
    unclear: usize,
    restarts: usize,
    /// Cases of each exception that have done harm, and that have not.
    exceptions: [(usize, usize); EXCEPTIONS.len()],
}

impl Tally {
    pub(crate) fn new(cases: usize) -> Tally {
        Tally {
            cases,
            counted: 0,
            held: 0,
            not_reached: 0,
            violated: 0,
            unclear: 0,
            restarts: 0,
            exceptions: [(0, 0); EXCEPTIONS.len()],
        }
    }

    /// Counts a case and prints what is wrong with it.
    pub(crate) fn count(&mut self, case: &Case, outcome: Outcome) {
        self.counted += 1;
        if outcome.restarts > 0 {
            self.restarts += 1;
            println!("{case}: an agent has ended by itself");
        }
        match outcome.verdict {
            Verdict::Holds => {
                self.held += 1;
                if let Some(at) = outcome.exception {
                    self.exceptions[at].1 += 1;
                }
            }
            Verdict::Listed => {
                if let Some(at) = outcome.exception {
                    self.exceptions[at].0 += 1;
                }
            }
            Verdict::NotReached => self.not_reached += 1,
            Verdict::Violated { wrong, log } => {
                self.violated += 1;
                println!("{case}: VIOLATED: {}\n{log}", wrong.join("; "));
            }
            Verdict::Unclear(why) => {
                self.unclear += 1;
                println!("{case}: unclear: {why}");
            }
        }
        if self.counted.is_multiple_of(100) {
            println!("... {} of {}", self.counted, self.cases);
        }
    }

    fn few_reached(&self) -> bool {
        self.not_reached * 100 > self.cases * NOT_REACHED_MAX
    }

    /// Returns whether all holds that can.
    pub(crate) fn is_clean(&self) -> bool {
        self.violated + self.unclear == 0 && !self.few_reached()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: usize = self.exceptions.iter().map(|(harm, _)| harm).sum();
        writeln!(
            f,
            "syscalls: {} cases: {} hold, {listed} cannot be met, {} not reached, {} violated, {} \
             unclear; in {} an agent has ended by itself",
            self.cases, self.held, self.not_reached, self.violated, self.unclear, self.restarts
        )?;
        for (exception, (harm, none)) in EXCEPTIONS.iter().zip(self.exceptions) {
            if harm > 0 {
                let (of, why) = (harm + none, exception.why);
                writeln!(f, "  {harm} of {of}, {:?}: {why}", exception.harm)?;
            }
        }
        if self.few_reached() {
            writeln!(f, "  VIOLATED: too few cases have met their call")?;
        }
        let end = if self.is_clean() { "all holds that can" } else { "VIOLATED" };
        f.write_str(end)
    }
}
