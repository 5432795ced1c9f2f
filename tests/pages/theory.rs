//! Holds putex(7) true: its states, its headers and its times are the program's.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use putex::core::AgentState;
use putex::core::time::Ms;
use putex::core::timing::{DRIFT_PPM_DEFAULT, Timing};

use crate::mdoc::{items, read, root, section};

fn page() -> String {
    read("man/putex.7")
}

/// Returns the `old -> new` with which each line of a text begins, if it does.
fn changes(text: &str) -> BTreeSet<(String, String)> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.len() > 2 && words[1] == "->")
        .map(|words| {
            let new = words[2].trim_end_matches(':');
            (words[0].to_owned(), new.to_owned())
        })
        .collect()
}

#[test]
fn the_states_are_those_of_the_pump() {
    let names = AgentState::ALL.map(|state| state.to_string());
    let known: BTreeSet<_> = names.iter().map(String::as_str).collect();
    let text = section(&page(), "THE AGENT");
    let heads: Vec<_> = items(&text).into_iter().map(|item| item.head).collect();
    let told: BTreeSet<_> = heads.iter().filter_map(|head| head.strip_prefix("Em ")).collect();
    assert_eq!(told, known, "left: the page; right: the program");
    for (old, new) in changes(&text) {
        assert!(known.contains(&*old) && known.contains(&*new), "{old} -> {new}");
    }
}

#[test]
fn every_change_of_state_that_a_story_tells_is_in_the_page() {
    let told = changes(&section(&page(), "THE AGENT"));
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/core/golden")).unwrap() {
        let story = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in story.lines() {
            if let Some(at) = line.find(" -> ") {
                let old = line[..at].rsplit(' ').next().unwrap();
                seen.extend(changes(&format!("{old}{}", &line[at..])));
            }
        }
    }
    assert!(seen.len() > 8, "{seen:?}");
    let missing: Vec<_> = seen.difference(&told).collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
}

#[test]
fn the_record_has_the_headers_that_are_written() {
    let source = read("src/store/record.rs");
    let source = source.split("#[cfg(test)]").next().unwrap();
    let header = |word: &&str| word.starts_with("Putex-");
    let known: BTreeSet<_> = source.split('"').filter(header).collect();
    let heads: Vec<_> =
        items(&section(&page(), "THE RECORD")).into_iter().map(|item| item.head).collect();
    let told: BTreeSet<_> = heads
        .iter()
        .flat_map(|head| head.split([' ', ',']))
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(told, known, "left: the page; right: the program");
}

#[test]
fn the_subjects_are_those_that_are_used() {
    let page = section(&page(), "THE BUCKET");
    let source = [read("src/store/nats.rs"), read("src/store/nats/open.rs")].concat();
    for word in ["putex.epoch", "putex.hint."] {
        assert!(page.contains(word), "{word} in the page");
        assert!(source.contains(word), "{word} in the program");
    }
}

/// Returns an attribute of the element of the drawing with this id.
fn attribute(drawing: &str, id: &str, name: &str) -> f64 {
    let (_, element) = drawing.split_once(&format!(" id=\"{id}\"")).expect(id);
    let element = element.split('>').next().unwrap();
    let (_, value) = element.split_once(&format!(" {name}=\"")).expect(name);
    value.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn the_picture_and_the_drawing_show_the_times_of_the_defaults() {
    let text = section(&page(), "TIMING");
    let picture = text.split(".Ed").next().unwrap();
    let drawing = read("man/failover.svg");
    let timing = Timing::new(Duration::from_secs(3), 3, 2, DRIFT_PPM_DEFAULT).unwrap();
    let (v, take) = (timing.validity(), timing.takeover_wait(timing.lock_time()));
    let start = take + timing.confirmation();
    for (id, name, at) in [
        ("last_renewal", "cx", Duration::ZERO),
        ("v", "x1", v),
        ("take", "cx", take),
        ("confirmation", "x", take),
        ("down_by", "x1", v + timing.stop_budget()),
        ("start", "x", start),
    ] {
        let place = 20.0 + 23.0 * at.as_secs_f64();
        let drawn = attribute(&drawing, id, name);
        assert!((drawn - place).abs() < 0.1, "{id} is at {drawn}, not at {place}");
    }
    for at in [v, v + timing.stop_budget(), take, start] {
        assert!(picture.contains(&format!(" {}", Ms(at))), "{} in {picture}", Ms(at));
        assert!(drawing.matches(&format!(" {}<", Ms(at))).count() == 1, "{}", Ms(at));
        assert!(
            drawing.contains(&format!(" at {}", Ms(at)))
                || drawing.contains(&format!(" by {}", Ms(at)))
        );
    }
}
