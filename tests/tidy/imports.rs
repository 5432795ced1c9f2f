//! Imports point one way: no circle between the rooms of the program, none between the
//! rooms of its core. The graph is read from the text of the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, for_tests, report, sources};

/// An import that closes a circle, and the reason that it stays: from, to, reason.
type Exception = (&'static str, &'static str, &'static str);

/// Exceptions between the rooms of `src/core`.
const OF_THE_CORE: &[Exception] = &[];

/// A room and those that it imports from.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the imports between the rooms below the module `base`. A room is a file of its
/// folder together with the folder of the same name: a module and its children may know
/// each other.
fn imports(files: &[Source], base: &[&str]) -> Graph {
    let mut modules = Vec::new();
    for file in files.iter().filter(|file| !for_tests(&file.path)) {
        let module = module_of(&file.path);
        if module.len() > base.len() && module.iter().zip(base).all(|(a, b)| a == b) {
            modules.push((module, without_tests(&file.text)));
        }
    }
    let room = |path: &[String]| path.get(base.len()).cloned();
    let rooms: BTreeSet<_> = modules.iter().filter_map(|(path, _)| room(path)).collect();
    let mut graph: Graph = rooms.iter().map(|room| (room.clone(), BTreeSet::new())).collect();
    for (module, text) in &modules {
        let from = &module[base.len()];
        for path in paths(&super::bare(text)) {
            let path = absolute(module, &path);
            let inside = path.len() > base.len() && path.iter().zip(base).all(|(a, b)| a == b);
            let to = room(&path).filter(|to| inside && to != from && rooms.contains(to));
            graph.entry(from.clone()).or_default().extend(to);
        }
    }
    graph
}

/// Returns the path of a source's module: `src/cli/mod.rs` is `cli`. The files of the
/// crate itself have none.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    if ["lib", "main"].contains(&path) {
        return Vec::new();
    }
    path.trim_end_matches("/mod").split('/').map(str::to_owned).collect()
}

/// Returns a source up to its module of tests, which is the last item.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// Returns every path of a code that begins with `crate` or `super`, groups expanded.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            // The second `super` of a path belongs to the first.
            if !before.is_some_and(|c| is_of_word(c) || c == ':') {
                expand(&code[at..], &[], &mut found);
            }
        }
    }
    found
}

/// Adds the paths that `code` begins with, each behind `prefix`; returns the rest.
fn expand<'a>(code: &'a str, prefix: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut path = prefix.to_vec();
    let mut rest = code;
    loop {
        let word = rest.split(|c| !is_of_word(c)).next().unwrap_or_default();
        if !word.is_empty() {
            path.push(word.to_owned());
        }
        rest = &rest[word.len()..];
        match rest.strip_prefix("::") {
            Some(more) if more.starts_with('{') => {
                rest = &more[1..];
                loop {
                    rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                    if let Some(after) = rest.strip_prefix('}') {
                        return after;
                    }
                    let before = rest.len();
                    rest = expand(rest, &path, found);
                    // A token that is no path, such as `as` and `*`, is skipped.
                    if rest.len() == before {
                        rest = rest.get(1..).unwrap_or_default();
                    }
                    if rest.is_empty() {
                        return rest;
                    }
                }
            }
            Some(more) if more.starts_with(is_of_word) => rest = more,
            Some(_) | None => {
                found.push(path);
                return rest;
            }
        }
    }
}

/// Returns a path of a module from the root of the crate.
fn absolute(module: &[String], path: &[String]) -> Vec<String> {
    let ups = path.iter().take_while(|word| *word == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        _ => {
            let kept = module.len().saturating_sub(ups);
            module[..kept].iter().chain(&path[ups..]).cloned().collect()
        }
    }
}

/// Returns the shortest way along the imports, both ends included.
fn shortest_path(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::from([from.to_owned()]);
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in &ways {
            for next in way.last().and_then(|last| graph.get(last)).into_iter().flatten() {
                let mut way = way.clone();
                way.push(next.clone());
                if next == to {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Lists the circles of a graph, and the exceptions that close none.
fn circles(mut graph: Graph, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    for (from, to, reason) in exceptions {
        let imported = graph.get_mut(*from).is_some_and(|rooms| rooms.remove(*to));
        if !imported || shortest_path(&graph, to, from).is_none() {
            found.push(format!("{from} -> {to} closes no circle any more: {reason}"));
        }
    }
    for (room, rooms) in &graph {
        for next in rooms.iter().filter(|next| *next >= room) {
            if let Some(back) = shortest_path(&graph, next, room) {
                found.push(format!("{room} -> {}", back.join(" -> ")));
            }
        }
    }
    found
}

#[test]
fn no_circle_of_imports_between_the_rooms() {
    let graph = imports(&sources("src"), &[]);
    assert!(graph.len() > 8, "{graph:?}");
    assert!(graph["cli"].contains("core") && graph["check"].contains("cli"));
    report(&circles(graph, &[]));
}

/// Returns the rooms in the table of `src/lib.rs`, from the first to the last.
fn reading_order() -> Vec<String> {
    let files = sources("src");
    let text = files.iter().find(|file| file.path == "src/lib.rs").unwrap();
    let rows = text.text.lines().filter_map(|line| line.strip_prefix("//! | [`"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn the_rooms_stand_in_their_reading_order() {
    let order = reading_order();
    let graph = imports(&sources("src"), &[]);
    let mut listed = order.clone();
    listed.sort();
    assert!(listed.iter().eq(graph.keys()), "left: lib.rs; right: src\n{listed:?}\n{graph:?}");
    let at = |room: &str| order.iter().position(|listed| listed == room);
    let mut found = Vec::new();
    for (room, rooms) in &graph {
        let below = rooms.iter().filter(|other| at(other) > at(room));
        found.extend(below.map(|other| format!("{room} imports from {other}, a room below it")));
    }
    report(&found);
}

#[test]
fn the_files_and_functions_that_the_first_page_names_exist() {
    let files = sources("src");
    let text = files.iter().find(|file| file.path == "src/lib.rs").unwrap();
    let quoted = |line: &str| -> Vec<String> {
        line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut missing = Vec::new();
    let (mut rules, mut questions) = (0, 0);
    for line in text.text.lines().filter(|line| line.contains("`src/")) {
        let (paths, functions): (Vec<String>, Vec<String>) =
            Iterator::partition(quoted(line).into_iter(), |word| word.starts_with("src/"));
        rules += usize::from(!line.starts_with("//! | "));
        questions += usize::from(line.starts_with("//! | "));
        for path in &paths {
            let Some(file) = files.iter().find(|file| file.path == *path) else {
                missing.push(path.clone());
                continue;
            };
            let is_missing = |name: &&String| !file.text.contains(&format!("fn {name}("));
            missing
                .extend(functions.iter().filter(is_missing).map(|name| format!("{path}: {name}")));
        }
    }
    assert!(rules >= 11 && questions >= 10, "{rules} rules, {questions} questions");
    report(&missing);
}

#[test]
fn no_circle_of_imports_in_the_core() {
    let graph = imports(&sources("src"), &["core"]);
    assert!(graph["pump"].contains("timing") && graph["timing"].contains("time"));
    report(&circles(graph, OF_THE_CORE));
}

#[test]
fn a_circle_of_imports_is_found() {
    let file =
        |path: &str, text: &str| Source { path: format!("src/{path}"), text: text.to_owned() };
    let files = [
        file("a.rs", "use crate::{b::{self, X as Y}, c};\n#[cfg(test)]\nmod tests { crate::d }"),
        file("b/mod.rs", "mod in_b;\n// use crate::a;\n"),
        file("b/in_b.rs", "use super::Z;\nfn f() { super::super::c::g() }"),
        file("c.rs", "use crate::d::W;\nconst TEXT: &str = \"crate::a\";"),
        file("d.rs", "use super::b::Z;"),
        file("d/tests.rs", "use crate::a;"),
        file("lib.rs", "use crate::a;"),
    ];
    let graph = imports(&files, &[]);
    let edges = |room: &str| graph[room].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(edges("a"), ["b", "c"]);
    assert_eq!((edges("b"), edges("c"), edges("d")), (vec!["c"], vec!["d"], vec!["b"]));
    let circle = ["b -> c -> d -> b".to_owned()];
    assert_eq!(circles(graph.clone(), &[])[..1], circle);
    assert_eq!(circles(graph.clone(), &[("d", "b", "")]), [""; 0]);
    let stale = circles(graph, &[("d", "b", ""), ("a", "b", "why")]);
    assert_eq!(stale, ["a -> b closes no circle any more: why"]);
    let files = [file("core/x.rs", "use super::y;"), file("core/y/z.rs", "use super::super::x;")];
    assert_eq!(circles(imports(&files, &["core"]), &[]), ["x -> y -> x"]);
}
