use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a term of a log, reported from `from` until `until`; a later one has a larger number.
fn term(source: usize, from: u64, until: u64) -> Term {
    Term {
        seat: 0,
        number: Some(1000 + from),
        agent: format!("h{source}"),
        source,
        line: 1,
        from: at(from),
        from_is_known: true,
        until: Some(at(until)),
        end: End::Reported,
        ran_until: Duration::ZERO,
        why: String::new(),
        released: None,
        take: None,
        times: None,
    }
}

fn open(source: usize, from: u64) -> Term {
    Term { until: None, end: End::Unknown, ..term(source, from, from) }
}

fn taken(term: Term, released: bool, stood: u64, confirmed_for: u64) -> Term {
    let confirmed_for = at(confirmed_for);
    let take = Take {
        at: term.from.saturating_sub(confirmed_for),
        released,
        stood: at(stood),
        confirmed_for,
    };
    Term { take: Some(take), ..term }
}

fn pairs(terms: &[Term]) -> Vec<(usize, usize, u64, Option<u64>)> {
    let judgement = judge(terms);
    assert!(!judgement.is_cut);
    let pair = |it: &Overlap| {
        (it.first, it.second, it.from.as_secs(), it.until.map(|until| until.as_secs()))
    };
    judgement.overlaps.iter().map(pair).collect()
}

#[test]
fn terms_of_two_logs_that_have_an_instant_in_common_overlap() {
    assert_eq!(pairs(&[term(0, 1, 5), term(1, 4, 9)]), [(0, 1, 4, Some(5))]);
    assert_eq!(pairs(&[term(1, 4, 5), term(0, 1, 9)]), [(1, 0, 4, Some(5))]);
    assert_eq!(pairs(&[term(0, 1, 4), term(1, 4, 9)]), []);
    assert_eq!(pairs(&[term(0, 1, 5), term(0, 4, 9)]), [], "one agent has one service");
    assert_eq!(pairs(&[open(0, 1), term(1, 4, 9), open(1, 9)]).len(), 2);
    assert_eq!(pairs(&[open(0, 1), open(1, 4)]), [(0, 1, 4, None)]);
    let elsewhere = Term { seat: 1, ..term(1, 4, 9) };
    assert_eq!(pairs(&[term(0, 1, 5), elsewhere]), [], "each seat has a service of its own");
}

#[test]
fn each_pair_is_found_and_no_other() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut found = 0;
    for _ in 0..20_000 {
        let terms: Vec<Term> = (0..random(8))
            .map(|_| {
                let (source, from) = (random(3) as usize, random(12));
                let seat = random(2) as u32;
                let known = Term { seat, number: None, ..term(source, from, from + random(5)) };
                if random(6) == 0 { Term { until: None, ..known } } else { known }
            })
            .collect();
        // Instant by instant; a term that does not end runs at the last one.
        let runs = |term: &Term, now: u64| {
            term.from <= at(now) && term.until.is_none_or(|until| at(now) < until)
        };
        let mut all = Vec::new();
        for (first, one) in terms.iter().enumerate() {
            for (second, other) in terms.iter().enumerate().skip(first + 1) {
                let apart = one.source == other.source || one.seat != other.seat;
                let both: Vec<u64> =
                    (0..20).filter(|now| runs(one, *now) && runs(other, *now)).collect();
                if let (false, Some(from), Some(last)) = (apart, both.first(), both.last()) {
                    let until = if *last == 19 { None } else { Some(last + 1) };
                    all.push((first, second, *from, until));
                }
            }
        }
        let sorted = |(one, other, from, until): (usize, usize, u64, Option<u64>)| {
            (one.min(other), one.max(other), from, until)
        };
        let mut known: Vec<_> = pairs(&terms).into_iter().map(sorted).collect();
        known.sort();
        all.sort();
        assert_eq!(known, all, "{terms:#?}");
        found += all.len();
    }
    assert!(found > 10_000, "{found}");
}

#[test]
fn what_the_store_has_ordered_tells_of_the_clocks_and_is_no_overlap() {
    let released = Term { released: Some(1003), ..term(0, 1, 6) };
    let terms = [released.clone(), term(1, 4, 9)];
    let judgement = judge(&terms);
    assert_eq!((judgement.overlaps.len(), judgement.closest), (0, None));
    let apart = Distance { time: at(2), first: 0, second: 1 };
    assert_eq!(judgement.clocks_apart, Some(apart));
    // The release came after the take.
    let late = [Term { released: Some(1005), ..released.clone() }, term(1, 4, 9)];
    assert_eq!(pairs(&late), [(0, 1, 4, Some(6))]);
    let unknown = [released, Term { number: None, ..term(1, 4, 9) }];
    assert_eq!(pairs(&unknown), [(0, 1, 4, Some(6))]);
}

#[test]
fn the_closest_terms_are_those_that_the_clocks_have_ordered() {
    let released = |term: Term, revision| Term { released: Some(revision), ..term };
    let terms = [
        term(0, 0, 10),
        released(term(1, 12, 20), 1020),
        term(0, 21, 30),
        term(0, 30, 40),
        term(1, 47, 50),
    ];
    let judgement = judge(&terms);
    assert_eq!(judgement.closest, Some(Distance { time: at(2), first: 0, second: 1 }));
    assert_eq!(judgement.closest_release, Some(Distance { time: at(1), first: 1, second: 2 }));
    // An end that was not reported tells nothing of clocks.
    let by_rules = [Term { end: End::ByRules, ..term(0, 0, 10) }, term(1, 12, 20)];
    assert_eq!(judge(&by_rules).closest, None);
}

#[test]
fn a_term_without_an_end_has_ended_by_the_rules_when_another_took_the_lock() {
    let times = Some(Times { lock_time: at(9), stop_budget: at(5) });
    let mut terms = vec![Term { times, ..open(0, 1) }, taken(term(1, 110, 120), false, 9, 6)];
    end_by_rules(&mut terms);
    // Renewed for the last time at 95.
    assert_eq!((terms[0].until, terms[0].end), (Some(at(109)), End::ByRules));
    assert_eq!(pairs(&terms), []);

    // Its lock was valid for longer, in a pause.
    let mut paused = vec![Term { times, ..open(0, 1) }, taken(term(1, 110, 120), false, 50, 6)];
    end_by_rules(&mut paused);
    assert_eq!(paused[0].until, Some(at(109)));

    // Without the wait of C * R the service began too early.
    let mut early = vec![Term { times, ..open(0, 1) }, taken(term(1, 110, 120), false, 9, 0)];
    end_by_rules(&mut early);
    assert_eq!(pairs(&early), [(0, 1, 110, Some(115))]);

    // The times of the holder are not known: those that the other agent has waited are.
    let mut unknown = vec![open(0, 1), taken(term(1, 110, 120), false, 9, 6)];
    end_by_rules(&mut unknown);
    assert_eq!((unknown[0].until, pairs(&unknown)), (Some(at(110)), vec![]));

    // A release says that the service was down.
    let mut released = vec![Term { times, ..open(0, 1) }, taken(term(1, 110, 120), true, 0, 0)];
    end_by_rules(&mut released);
    assert_eq!((released[0].until, pairs(&released)), (Some(at(110)), vec![]));
}

#[test]
fn no_rule_ends_a_service_before_the_guard_that_follows_a_dead_one() {
    let times = Some(Times { lock_time: at(9), stop_budget: at(5) });
    for (ran_until, until, end, overlap) in [
        (0, 109, End::ByRules, None),
        (109, 109, End::ByRules, None),
        (110, 110, End::GuardDead, None),
        (117, 117, End::GuardDead, Some(117)),
        (300, 300, End::GuardDead, Some(120)),
    ] {
        let ran_until = at(ran_until);
        for released in [false, true] {
            let first = Term { times, ran_until, ..open(0, 1) };
            let mut terms = vec![first, taken(term(1, 110, 120), released, 9, 6)];
            end_by_rules(&mut terms);
            if !released {
                assert_eq!((terms[0].until, terms[0].end), (Some(at(until)), end));
            }
            let pair = overlap.map(|until| (0, 1, 110, Some(until)));
            assert_eq!(pairs(&terms), pair.into_iter().collect::<Vec<_>>());
            let found = judge(&terms);
            assert!(found.overlaps.iter().all(|overlap| !overlap.is_certain(&terms)));
        }
    }
    // Where nothing tells of an end there is none.
    let mut alone = vec![Term { ran_until: at(50), ..open(0, 1) }];
    end_by_rules(&mut alone);
    assert_eq!((alone[0].until, alone[0].end), (None, End::Unknown));
    // A report counts more.
    let mut reported = vec![Term { ran_until: at(50), ..term(0, 1, 20) }];
    end_by_rules(&mut reported);
    assert_eq!((reported[0].until, reported[0].end), (Some(at(20)), End::Reported));
}

#[test]
fn terms_without_a_reported_end_are_counted_where_another_agent_was_the_next() {
    let unreported = |terms: &[Term]| judge(terms).unreported;
    let ended = |end, term| Term { end, ..term };
    let next = term(1, 30, 40);
    for (end, count) in [
        (End::ByRules, 1),
        (End::GuardDead, 1),
        (End::Reported, 0),
        (End::Unknown, 0),
        (End::MayStillRun, 0),
    ] {
        assert_eq!(unreported(&[next.clone(), ended(end, term(0, 1, 6))]), count, "{end:?}");
    }
    let first = ended(End::ByRules, term(0, 1, 6));
    assert_eq!(unreported(std::slice::from_ref(&first)), 0);
    let own = ended(End::ByRules, term(0, 10, 16));
    assert_eq!(unreported(&[first.clone(), own.clone()]), 0, "its own guard has stopped it");
    assert_eq!(unreported(&[first.clone(), own, next.clone()]), 1);
    let elsewhere = Term { seat: 1, ..next };
    assert_eq!(unreported(&[first, elsewhere]), 0);
}

#[test]
fn nothing_ends_a_service_that_may_still_run_but_a_report() {
    let still = Term { end: End::MayStillRun, ..open(0, 1) };
    let mut terms = vec![still, taken(term(1, 110, 120), false, 9, 6)];
    end_by_rules(&mut terms);
    assert_eq!(pairs(&terms), [(0, 1, 110, Some(120))]);
    // Nor does a take before it, or in another seat.
    for other in [
        taken(term(1, 1, 3), false, 0, 0),
        Term { seat: 1, ..taken(term(1, 110, 120), false, 9, 6) },
    ] {
        let mut terms = vec![open(0, 2), other];
        end_by_rules(&mut terms);
        assert_eq!((terms[0].until, terms[0].end), (None, End::Unknown));
    }
}

#[test]
fn hostile_terms_cost_no_more_than_a_bound() {
    let terms: Vec<Term> = (0..300).map(|source| open(source, 1)).collect();
    let judgement = judge(&terms);
    assert_eq!((judgement.overlaps.len(), judgement.is_cut), (OVERLAPS_MAX, true));
}

#[test]
fn an_overlap_is_certain_if_the_first_was_reported_down_after_the_second_began() {
    let by_rules = Term { end: End::ByRules, ..term(0, 1, 6) };
    let unknown = Term { from_is_known: false, ..term(1, 4, 9) };
    for (first, second, certain) in [
        (term(0, 1, 6), term(1, 4, 9), true),
        (term(0, 1, 6), open(1, 4), true),
        (term(0, 1, 6), unknown, false),
        (by_rules, term(1, 4, 9), false),
        (open(0, 1), term(1, 4, 9), false),
    ] {
        let terms = [first, second];
        assert_eq!(judge(&terms).overlaps[0].is_certain(&terms), certain, "{terms:#?}");
    }
}

#[test]
fn a_term_that_is_in_two_logs_is_told_and_does_not_overlap_with_itself() {
    let one = term(0, 1, 6);
    let copy = Term { source: 1, ..one.clone() };
    let judgement = judge(&[one.clone(), copy.clone()]);
    assert_eq!((judgement.overlaps.len(), judgement.double), (0, Some(0)));
    for other in [
        Term { agent: "h9".to_owned(), ..copy.clone() },
        Term { number: Some(5), ..copy.clone() },
        Term { from: at(2), ..copy },
    ] {
        let judgement = judge(&[one.clone(), other]);
        assert_eq!((judgement.overlaps.len(), judgement.double), (1, None));
    }
}
