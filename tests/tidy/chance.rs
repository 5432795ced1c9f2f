//! No test of the first tier, or of a unit, is red by chance: none judges by the time that
//! something took, none draws a seed, none sleeps instead of waiting for an event. `support::clock`
//! and `sys::until` wait for events.

use std::collections::BTreeSet;

use super::{Source, bare, report, sources, tests_at};

/// The folders of the first tier, beside the unit tests.
const FIRST_TIER: &[&str] = &[
    "tests/command_line", "tests/core", "tests/fuzz", "tests/pages", "tests/store", "tests/stories",
];

/// Code that draws a number or reads a clock that somebody sets.
const DRAWS: &[&str] = &["RandomState", "SystemTime::now", "getrandom", "rand::", "sys::random"];

/// Code that sleeps.
const SLEEPS: &[&str] = &["observe_for", "park_timeout", "thread::sleep"];

/// The name of a comparison that is false when something took too long.
const UPPER_BOUND: &str = "upper bound on time";

/// Code that gives the time since an instant, and the time until one.
const SINCE: &[&str] = &[".elapsed()", "now() - ", "now().since("];
const UNTIL: &[&str] = &[" - now()", " - sys::now()", ".since(now())", ".since(sys::now())"];

/// Code that may stand: the beginning of the paths, the code, the reason.
type Exception = (&'static str, &'static str, &'static str);

const EXCEPTIONS: &[Exception] = &[
    ("tests/core/sim/campaign.rs", "RandomState", "tests/all draws a seed, and prints it"),
    ("src/nats/tests/fake.rs", "thread::sleep", "a server that sends slowly"),
];

/// A place that could make a test red by chance.
#[derive(Debug, PartialEq, Eq)]
struct Chance {
    path: String,
    line: usize,
    word: &'static str,
}

impl Chance {
    fn is_of(&self, (path, word, _): &Exception) -> bool {
        self.path.starts_with(path) && self.word == *word
    }
}

/// Lists what could make the tests of a file red by chance.
fn chances(file: &Source) -> Vec<Chance> {
    let code = bare(&file.text);
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut places: Vec<(usize, &'static str)> = Vec::new();
    for word in DRAWS.iter().chain(SLEEPS) {
        let found = code.match_indices(word).map(|(at, _)| at);
        let found = found.filter(|at| !code[..*at].ends_with(is_of_name));
        places.extend(found.map(|at| (at, *word)));
    }
    places.extend(upper_bounds(&code).into_iter().map(|at| (at, UPPER_BOUND)));
    places.sort_unstable();
    let path = &file.path;
    let lines = places.into_iter().map(|(at, word)| {
        let line = code[..at].matches('\n').count() + 1;
        Chance { path: path.clone(), line, word }
    });
    lines.collect()
}

/// Returns where a code compares the time since an instant with a longest, or the time until one
/// with a shortest, unless with the patience of all tests.
fn upper_bounds(code: &str) -> Vec<usize> {
    let (since, until) = (names_of(code, SINCE), names_of(code, UNTIL));
    let mut found = Vec::new();
    for sign in [" < ", " <= ", " > ", " >= "] {
        for (at, _) in code.match_indices(sign) {
            let (left, right) =
                (left_operand(&code[..at]), right_operand(&code[at + sign.len()..]));
            let (less, more) = if sign.contains('<') { (left, right) } else { (right, left) };
            let is_late = has(less, SINCE, &since) && !more.contains("PATIENCE")
                || has(more, UNTIL, &until) && !less.contains("PATIENCE");
            found.extend(is_late.then_some(at));
        }
    }
    let range = ".contains(&";
    for (at, _) in code.match_indices(range) {
        let (bounds, value) = (left_operand(&code[..at]), right_operand(&code[at + range.len()..]));
        let is_late = has(value, SINCE, &since) && !bounds.contains("PATIENCE");
        found.extend(is_late.then_some(at));
    }
    found
}

/// Returns the variables whose value is made with one of `calls`.
fn names_of<'a>(code: &'a str, calls: &[&str]) -> BTreeSet<&'a str> {
    let bindings = code.split("let ").skip(1).filter_map(|rest| {
        let (name, value) = rest.split(';').next()?.split_once(" = ")?;
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        (is_name && calls.iter().any(|call| value.contains(call))).then_some(name)
    });
    bindings.collect()
}

/// Whether an operand has one of `calls` or of the variables in it.
fn has(operand: &str, calls: &[&str], names: &BTreeSet<&str>) -> bool {
    let mut words = operand.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    calls.iter().any(|call| operand.contains(call)) || words.any(|word| names.contains(word))
}

/// Whether an operand ends here, outside of the brackets that are open.
fn ends_operand(c: char) -> bool {
    ",;=&|{}".contains(c)
}

/// Returns the operand that a code ends with.
fn left_operand(code: &str) -> &str {
    let mut open = 0;
    let begin = code.rfind(|c: char| {
        open += i32::from(")]".contains(c)) - i32::from("([".contains(c));
        open < 0 || open == 0 && ends_operand(c)
    });
    &code[begin.map_or(0, |at| at + 1)..]
}

/// Returns the operand that a code begins with.
fn right_operand(code: &str) -> &str {
    let mut open = 0;
    let end = code.find(|c: char| {
        open += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        open < 0 || open == 0 && ends_operand(c)
    });
    &code[..end.unwrap_or(code.len())]
}

fn found_in_the_first_tier() -> Vec<Chance> {
    let mut units = sources("src");
    for file in &mut units {
        // As many lines, so that places are told by their number.
        let (shipped, tests) = file.text.split_at(tests_at(file));
        file.text = "\n".repeat(shipped.matches('\n').count()) + tests;
    }
    let files = FIRST_TIER.iter().flat_map(|folder| sources(folder)).chain(units);
    files.flat_map(|file| chances(&file)).collect()
}

#[test]
fn no_test_of_the_first_tier_is_red_by_chance() {
    let mut found = found_in_the_first_tier();
    found.retain(|chance| !EXCEPTIONS.iter().any(|exception| chance.is_of(exception)));
    let show = |chance: &Chance| format!("{}:{}: {}", chance.path, chance.line, chance.word);
    report(&found.iter().map(show).collect::<Vec<_>>());
}

#[test]
fn every_exception_is_needed() {
    let found = found_in_the_first_tier();
    let is_needless = |exception: &&Exception| !found.iter().any(|chance| chance.is_of(exception));
    let needless = EXCEPTIONS.iter().filter(is_needless);
    report(&needless.map(|(path, word, _)| format!("{path}: {word}")).collect::<Vec<_>>());
}

#[test]
fn what_could_be_red_by_chance_is_found() {
    let words = |text: &str| {
        let file = Source { path: "tests/store/x.rs".to_owned(), text: text.to_owned() };
        chances(&file).into_iter().map(|chance| (chance.line, chance.word)).collect::<Vec<_>>()
    };
    for (text, word) in [
        ("thread::sleep(POLL);", "thread::sleep"),
        ("use std::thread::sleep;", "thread::sleep"),
        ("observe_for(R);", "observe_for"),
        ("let seed = sys::random()?;", "sys::random"),
        ("rand::rng();", "rand::"),
        ("RandomState::new().hash_one(0)", "RandomState"),
        ("assert!(began.elapsed() < R * 2, \"{x}\");", UPPER_BOUND),
        ("assert!(is_up\n    && now() - began\n        <= R);", UPPER_BOUND),
        ("assert!(R > sys::now().since(began));", UPPER_BOUND),
        ("let took = now() - began;\nassert!(took >= V && took < V + R);", UPPER_BOUND),
        ("let took = now() - began;\nassert!((V..V + R).contains(&took));", UPPER_BOUND),
        ("assert!(valid_until.since(sys::now()) > R);", UPPER_BOUND),
    ] {
        assert_eq!(words(text).iter().map(|(_, word)| *word).collect::<Vec<_>>(), [word], "{text}");
    }
    assert_eq!(words("a();\nassert!(f(b) && c.elapsed() < R);"), [(2, UPPER_BOUND)]);
    for text in [
        "// thread::sleep\nlet a = \"sys::random\";",
        "operand::read(); Instant::now();",
        "assert!(began.elapsed() >= R && sys::now().since(begun) > hold);",
        "let took = now() - began;\nassert!(V <= took && a < b(took, c), \"{took:?} < R\");",
        "assert!(now() - began < PATIENCE);",
        "let took = v().since(ms(10));\nassert!(took < ms(20));",
    ] {
        assert_eq!(words(text), [], "{text}");
    }
}
