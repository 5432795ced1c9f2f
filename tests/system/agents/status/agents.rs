//! How many agents answer, and how many there are to be.

use super::{Site, server};
use crate::support::clock::until_true;

/// A host whose cable was cut was forgotten: two agents were listed, and nothing told of a third.
#[test]
fn fewer_agents_than_there_are_to_be_are_a_warning_in_status_and_doctor() {
    let Some(server) = server() else { return };
    let site = Site::on(&server);
    let words = ["--key", "web", "--agents", "3"];
    let _first = site.active_agent("h1", &words);
    let _second = site.agent("h2", &words);
    let shown = || site.run(&["status", "web"]).shown;
    until_true("two agents", || shown().contains(", 2 agents answer"));
    let text = shown();
    assert!(text.ends_with("WARNING: 2 of 3 agents answer\n"), "{text}");
    let doctor = || site.run(&["doctor", "--samples", "10", "web"]).shown;
    let found = doctor();
    assert!(found.contains("warning  agents    web: 2 of 3 agents answer: h1 h2\n"), "{found}");
    let third = site.agent("h3", &words);
    until_true("three agents", || shown().contains(", 3 agents answer"));
    assert!(!shown().contains("WARNING"), "{}", shown());
    third.kill();
    until_true("two agents", || shown().ends_with("WARNING: 2 of 3 agents answer\n"));
}
