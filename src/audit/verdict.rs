//! The result of an audit: one line for all that was read, and the exit status. Pure.

use super::judge::Judgement;

/// The exit status if there is an overlap.
const OVERLAP: u8 = 1;

/// The exit status if it is not known whether there is one.
const NOT_KNOWN: u8 = 75;

/// What was found in the logs, or in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Findings {
    overlaps: usize,
    /// There are more overlaps than these.
    is_cut: bool,
    /// So many terms that another followed have an end that was not reported.
    unreported: usize,
    /// So many things are not known.
    doubts: usize,
}

/// All that was found. An overlap counts wherever it was found, whatever else is not known. Without
/// one, the logs tell the result, if there are any: a bucket cannot say more than they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) logs: Option<Findings>,
    pub(super) bucket: Option<Findings>,
    /// The exit status for a bucket that was not read.
    pub(super) failed: Option<u8>,
}

impl Findings {
    pub(super) fn of(judgement: &Judgement, doubts: usize) -> Findings {
        let Judgement { is_cut, unreported, .. } = *judgement;
        Findings { overlaps: judgement.overlaps.len(), is_cut, unreported, doubts }
    }

    fn overlaps(&self) -> String {
        match self.overlaps {
            0 => "no overlap".to_owned(),
            1 => "1 overlap".to_owned(),
            count if self.is_cut => format!("more than {count} overlaps"),
            count => format!("{count} overlaps"),
        }
    }
}

impl Verdict {
    /// Returns the last line of the report.
    pub(super) fn text(&self) -> String {
        match (self.status(), self.logs, self.bucket) {
            (OVERLAP, Some(logs), Some(bucket)) => {
                format!("{} in the logs, {} in the bucket", logs.overlaps(), bucket.overlaps())
            }
            (NOT_KNOWN, ..) if self.failed.is_none() => {
                "no overlap shows, but not everything is known".to_owned()
            }
            (_, Some(logs), None) if logs.overlaps == 0 && self.failed.is_some() => {
                "no overlap shows, but the bucket was not read".to_owned()
            }
            (_, Some(logs), _) => logs.overlaps() + &condition(logs, "log"),
            (_, None, Some(bucket)) => bucket.overlaps() + &condition(bucket, "record"),
            (_, None, None) => "nothing was read".to_owned(),
        }
    }

    /// Returns the exit status.
    pub(super) fn status(&self) -> u8 {
        let all = [self.logs, self.bucket];
        if all.iter().flatten().any(|found| found.overlaps > 0) {
            return OVERLAP;
        }
        let known = self.logs.or(self.bucket).is_some_and(|found| found.doubts == 0);
        self.failed.unwrap_or(if known { 0 } else { NOT_KNOWN })
    }
}

/// Returns what has to be true so that there is no overlap. `what` would show the ends.
fn condition(found: Findings, what: &str) -> String {
    match (found.overlaps, found.unreported) {
        (0, 1) => {
            format!(", if the service whose end no {what} shows was stopped as the rules say")
        }
        (0, count @ 2..) => format!(
            ", if the {count} services whose end no {what} shows were stopped as the rules say"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Findings = Findings { overlaps: 0, is_cut: false, unreported: 0, doubts: 0 };
    const DOUBTS: Findings = Findings { doubts: 2, unreported: 1, ..NONE };
    const ONE: Findings = Findings { overlaps: 1, unreported: 3, ..NONE };
    const MANY: Findings = Findings { overlaps: 1000, is_cut: true, ..DOUBTS };
    const LATER: Findings = Findings { unreported: 1, ..NONE };
    const THREE_LATER: Findings = Findings { unreported: 3, ..NONE };

    #[track_caller]
    fn assert_result(
        logs: Option<Findings>,
        bucket: Option<Findings>,
        failed: Option<u8>,
        status: u8,
        text: &str,
    ) {
        let verdict = Verdict { logs, bucket, failed };
        assert_eq!((verdict.status(), &*verdict.text()), (status, text));
    }

    #[test]
    fn the_logs_tell_the_result_if_there_are_any_and_else_the_bucket() {
        let open = "no overlap shows, but not everything is known";
        assert_result(Some(NONE), None, None, 0, "no overlap");
        assert_result(None, Some(NONE), None, 0, "no overlap");
        assert_result(Some(DOUBTS), None, None, 75, open);
        assert_result(None, Some(DOUBTS), None, 75, open);
        assert_result(Some(NONE), Some(DOUBTS), None, 0, "no overlap");
        assert_result(Some(DOUBTS), Some(NONE), None, 75, open);
    }

    #[test]
    fn an_overlap_counts_wherever_it_was_found() {
        assert_result(Some(ONE), None, None, 1, "1 overlap");
        assert_result(None, Some(MANY), None, 1, "more than 1000 overlaps");
        let both = "no overlap in the logs, 1 overlap in the bucket";
        assert_result(Some(DOUBTS), Some(ONE), None, 1, both);
        let both = "1 overlap in the logs, no overlap in the bucket";
        assert_result(Some(ONE), Some(DOUBTS), None, 1, both);
        assert_result(Some(ONE), None, Some(69), 1, "1 overlap");
    }

    #[test]
    fn a_bucket_that_was_not_read_is_told_with_its_status() {
        let last = "no overlap shows, but the bucket was not read";
        for failed in [69, 75, 77] {
            assert_result(Some(NONE), None, Some(failed), failed, last);
            assert_result(Some(DOUBTS), None, Some(failed), failed, last);
        }
    }

    #[test]
    fn ends_that_were_not_reported_are_a_condition_for_no_overlap() {
        let one = "no overlap, if the service whose end no log shows was stopped as the rules say";
        assert_result(Some(LATER), None, None, 0, one);
        assert_result(Some(LATER), Some(THREE_LATER), None, 0, one);
        let three =
            "no overlap, if the 3 services whose end no log shows were stopped as the rules say";
        assert_result(Some(THREE_LATER), Some(DOUBTS), None, 0, three);
        let of_bucket =
            "no overlap, if the service whose end no record shows was stopped as the rules say";
        assert_result(None, Some(LATER), None, 0, of_bucket);
    }
}
