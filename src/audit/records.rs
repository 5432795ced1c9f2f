//! What the bucket still has of a key: the terms in its revisions, by the clock of the store.
//!
//! A holder's service may run from the first record that calls it active. It was down before its
//! release, or else by T and the stop budget after its last renewal. So a term that begins
//! earlier than the record before allows overlaps with the one before.

use std::time::Duration;

use super::event::Times;
use super::judge::{End, Term};
use crate::core::{
    DRIFT_PPM_DEFAULT, KeyState, KeyValue, Lease, RecordState, Revision, Timing, sanitize_field,
};

/// The terms of the revisions of one key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    /// The terms, each with a source of its own.
    pub(super) terms: Vec<Term>,
    /// The number of revisions.
    pub(super) revisions: usize,
    /// Those with a token and nothing else: putex 0.2.0 or a person has written them. They do not
    /// say when the service starts.
    pub(super) plain: usize,
}

impl Records {
    /// Adds the revisions of the key of a seat in their order, each with the time when it was
    /// stored.
    pub(super) fn add(&mut self, seat: u32, revisions: &[(KeyState, Duration)]) {
        let mut open: Option<(Term, Lease)> = None;
        let mut taking = None;
        for (KeyState { revision, value }, at) in revisions {
            self.revisions += 1;
            let KeyValue::Record(record) = value else { continue };
            let Some(lease) = &record.lease else {
                self.plain += usize::from(!record.is_blank());
                continue;
            };
            let goes_on =
                |(term, last): &(Term, Lease)| goes_on(term, last, lease) && lease.term.is_some();
            if lease.state == RecordState::Released {
                if let Some((term, _)) = open.take_if(|open| goes_on(open)) {
                    let (until, released) = (Some(*at), Some(revision.0));
                    let why = "released".to_owned();
                    let end = End::Reported;
                    self.terms.push(Term { until, released, why, end, ..term });
                }
                continue;
            }
            if !open.as_ref().is_some_and(goes_on) {
                self.terms.extend(open.take().map(|(term, _)| term));
            }
            if lease.state != RecordState::Active {
                taking = Some(lease.incarnation);
                continue;
            }
            let from_is_known = lease.term.is_none() || taking == Some(lease.incarnation);
            let times = times(lease);
            let until = Some(at.saturating_add(times.sum()));
            let term = match open.take() {
                Some((term, _)) => Term { until, ..term },
                None => {
                    let term = self.term(seat, &record.token, *revision, lease, *at);
                    Term { from_is_known, ..term }
                }
            };
            open = Some((Term { until, times: Some(times), ..term }, lease.clone()));
        }
        // Nobody has written over the last record.
        let last = open.map(|(term, _)| Term { until: None, end: End::Unknown, ..term });
        self.terms.extend(last);
    }

    fn term(&self, seat: u32, token: &str, at: Revision, lease: &Lease, from: Duration) -> Term {
        let (token, host) = (sanitize_field(token), sanitize_field(&lease.host));
        let number = lease.term.unwrap_or(at);
        Term {
            seat,
            number: Some(number.0),
            agent: if host.is_empty() || host == token {
                token
            } else {
                format!("{token} on {host}")
            },
            source: self.terms.len(),
            line: at.0,
            from,
            from_is_known: true,
            until: None,
            end: End::ByRules,
            ran_until: Duration::ZERO,
            why: String::new(),
            released: None,
            take: None,
            times: None,
        }
    }
}

/// Returns whether a record is of the same term as the last one.
fn goes_on(term: &Term, last: &Lease, lease: &Lease) -> bool {
    let number = lease.term.map(|Revision(term)| term);
    // Another instance of the same agent may have adopted the term.
    term.number == number && (last.incarnation == lease.incarnation || last.host == lease.host)
}

/// Returns the times of a lease, with the usual bound on the rates of clocks, which the record does
/// not say.
fn times(lease: &Lease) -> Times {
    let Lease { renewal, failures, confirmations, .. } = *lease;
    match Timing::new(renewal, failures, confirmations, DRIFT_PPM_DEFAULT) {
        Ok(timing) => Times {
            lock_time: timing.validity_of(lease.lock_time),
            stop_budget: timing.stop_budget(),
        },
        Err(_) => {
            Times { lock_time: lease.lock_time, stop_budget: renewal.saturating_mul(confirmations) }
        }
    }
}

#[cfg(test)]
mod tests;
