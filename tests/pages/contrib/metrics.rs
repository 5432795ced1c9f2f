//! The alerts and the dashboard use metrics that an agent writes, and can be read. `promtool` runs
//! the tests of the alerts.

use std::collections::BTreeSet;
use std::process::Command;

use putex::core::Metrics;
use serde_json::Value;

use crate::mdoc::{items, read, root, section};
use crate::support::programs;

const RULES: &str = "contrib/prometheus/putex.rules.yml";

const TESTS: &str = "contrib/prometheus/putex.test.yml";

const DASHBOARD: &str = "contrib/grafana/putex.json";

/// The only metric that others write: the node exporter, of each file.
const AGE: &str = "node_textfile_mtime_seconds";

/// Returns the names of the samples that an agent writes.
fn names() -> BTreeSet<String> {
    let of = |(name, kind): (&str, &str)| match kind {
        "summary" => vec![format!("{name}_sum"), format!("{name}_count")],
        _ => vec![name.to_owned()],
    };
    let text = Metrics::new("bucket", "key", "token").render();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.flat_map(of).collect()
}

/// Returns what looks like the name of a metric.
fn used(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| {
        (word.starts_with("putex_") || word.starts_with("node_")) && !word.ends_with('_')
    });
    words.map(str::to_owned).collect()
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    dashboard["panels"].as_array().expect("panels").clone()
}

/// Returns the queries of all panels.
fn queries() -> Vec<String> {
    let of = |panel: &Value| panel["targets"].as_array().expect("targets").clone();
    let query = |target: &Value| target["expr"].as_str().expect("a query").to_owned();
    panels().iter().flat_map(of).map(|target| query(&target)).collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_of_the_program_and_the_manual_names_each() {
    let known = names();
    for (path, text) in
        [(RULES, read(RULES)), (TESTS, read(TESTS)), (DASHBOARD, queries().join("\n"))]
    {
        let used = used(&text);
        let unknown: Vec<_> = used.iter().filter(|name| !known.contains(*name)).collect();
        assert_eq!(unknown, [AGE], "{path}");
        assert!(used.len() > 8, "{path}: {used:?}");
    }
    let page = section(&read("man/putex.8"), "METRICS");
    let heads = items(&page).into_iter().map(|item| item.head);
    let named: Vec<_> = heads.flat_map(|head| used(&head)).collect();
    assert_eq!(named.iter().cloned().collect::<BTreeSet<_>>(), known);
    assert_eq!(named.len(), known.len(), "one of them twice");
}

#[test]
fn the_panels_of_the_dashboard_have_queries_and_do_not_cover_each_other() {
    let mut cells = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for panel in panels() {
        let title = panel["title"].as_str().expect("a title");
        assert!(numbers.insert(panel["id"].as_u64().expect("a number")), "{title}");
        let place = ["x", "y", "w", "h"].map(|it| panel["gridPos"][it].as_u64().expect("a place"));
        let [x, y, w, h] = place;
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: {place:?}");
        let area = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        assert!(area.into_iter().all(|cell| cells.insert(cell)), "{title}: it covers another");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            let count = |c: char| query.matches(c).count();
            assert!(count('(') == count(')') && count('{') == count('}'), "{title}: {query}");
        }
    }
    assert!(numbers.len() >= 10, "{numbers:?}");
}

/// Returns the part of a line of YAML behind the marks of list items, or why it cannot be read:
/// the files have maps, lists and texts of one line alone.
fn content(line: &str) -> Result<&str, &'static str> {
    let text = line.trim_start_matches(' ');
    if !(line.len() - text.len()).is_multiple_of(2) || text.starts_with('\t') {
        return Err("indentation");
    }
    let mut text = text;
    while let Some(item) = text.strip_prefix("- ") {
        text = item;
    }
    let value = match text.split_once(": ") {
        Some((key, value)) if !key.contains(['"', ' ']) => value,
        _ => text.strip_suffix(':').unwrap_or(text),
    };
    let quoted = value.strip_prefix('"');
    let is_fit = match quoted.map(|rest| rest.strip_suffix('"')) {
        Some(Some(inner)) => {
            let plain = inner.replace("\\\\", "").replace("\\\"", "");
            !plain.contains(['"', '\\'])
        }
        Some(None) => false,
        None => value == "[]" || !value.contains(": ") && !value.contains(" #") && is_plain(value),
    };
    if is_fit { Ok(text) } else { Err("value") }
}

/// Returns whether YAML takes a value without quotes for a text or a number.
fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && !value.starts_with(['[', '{', '&', '*', '!', '|', '>', '%', '@', '`', '\''])
}

/// Returns the contents of the lines of a file.
fn lines(path: &str) -> Vec<String> {
    let text = read(path);
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    let content = |(at, line)| match content(line) {
        Ok(text) => text.to_owned(),
        Err(why) => panic!("{path}:{}: {why}: {line}", at + 1),
    };
    lines.map(content).collect()
}

#[test]
fn every_alert_is_explained_and_is_tested_to_come() {
    let rules = lines(RULES).join("\n");
    let alerts: Vec<_> = rules.split("\nalert: ").skip(1).collect();
    let tests = lines(TESTS).join("\n");
    for alert in &alerts {
        let name = alert.lines().next().expect("a name");
        for part in ["\nexpr: ", "\nseverity: ", "\nsummary: \"", "\ndescription: \""] {
            assert_eq!(alert.matches(part).count(), 1, "{name}: {part:?}");
        }
        let severities = ["\nseverity: critical\n", "\nseverity: warning\n"];
        assert!(severities.iter().any(|severity| alert.contains(severity)), "{name}");
        assert!(tests.contains(&format!("alertname: {name}\nexp_alerts:\nexp_labels:")), "{name}");
    }
    assert!(alerts.len() >= 8, "{}", alerts.len());
}

#[test]
fn the_tests_of_the_alerts_pass() {
    let Some(promtool) = programs::tool("promtool") else { return };
    for (what, file) in [("check", RULES), ("test", TESTS)] {
        let mut command = Command::new(&promtool);
        let output = command.args([what, "rules", file]).current_dir(root()).output();
        let output = output.expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
