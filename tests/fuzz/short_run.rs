//! Every target, with every file of its corpus and the same damaged ones each time.
//!
//! `PUTEX_MUTATIONS` sets how many damaged ones are made of each file.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use super::Noise;

/// A target of fuzzing.
struct Target {
    name: &'static str,
    run: fn(&[u8]) -> bool,
    /// How many files of its corpus mean something.
    whole: usize,
    /// How many damaged inputs are made of each file: less than 1 s for each target.
    damaged: usize,
}

const fn target(
    name: &'static str,
    run: fn(&[u8]) -> bool,
    whole: usize,
    damaged: usize,
) -> Target {
    Target { name, run, whole, damaged }
}

const TARGETS: [Target; 14] = [
    target("answers", super::answers, 24, 200),
    target("bucket", super::bucket, 7, 10),
    target("cli", super::cli, 13, 300),
    target("config", super::config, 7, 50),
    target("decoder", super::decoder, 15, 60),
    target("folder", super::folder, 12, 200),
    target("frames", super::frames, 12, 500),
    target("holder", super::holder, 4, 400),
    target("info", super::info, 19, 800),
    target("messages", super::messages, 26, 80),
    target("note", super::note, 7, 1000),
    target("record", super::record, 5, 100),
    target("servers", super::servers, 7, 3000),
    target("ticket", super::ticket, 8, 1000),
];

fn here(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{folder:?}: {why}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Shows the input that a target panicked over.
struct Case<'a> {
    from: &'a Path,
    input: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("from {}: {}", self.from.display(), self.input.escape_ascii());
        }
    }
}

fn short_run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let damaged = std::env::var("PUTEX_MUTATIONS").map(|text| text.parse().expect("a number"));
    let damaged = damaged.unwrap_or(target.damaged);
    let words = dictionary(name);
    let paths = files(&here("corpus").join(name));
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("a file")).collect();
    let mut noise = Noise::of(name.as_bytes());
    let (mut whole, mut broken) = (0, 0);
    for (from, input) in paths.iter().zip(&corpus) {
        whole += usize::from((target.run)(Case { from, input }.input));
        for _ in 0..damaged {
            let mut input = input.clone();
            for _ in 0..=noise.below(4) {
                let other = &corpus[noise.below(corpus.len())];
                noise.damage(&mut input, &words, other);
            }
            let case = Case { from, input: &input };
            broken += usize::from((target.run)(case.input));
        }
    }
    let made = damaged * corpus.len();
    println!("{name}: {whole} of {} files, {broken} of {made} damaged", corpus.len());
    // An input that means nothing any more tests nothing.
    assert_eq!(whole, target.whole, "files of {name} that mean something");
    assert!(100 * broken >= made, "few damaged inputs of {name} mean anything");
}

impl Noise {
    /// Changes an input a little, as a fuzzer does.
    fn damage(&mut self, input: &mut Vec<u8>, words: &[Vec<u8>], other: &[u8]) {
        let at = self.below(input.len() + 1);
        let until = (at + 1 + self.below(16)).min(input.len()).max(at);
        let piece = match self.below(8) {
            0 if at < input.len() => return input[at] ^= 1 << self.below(8),
            1 if at < input.len() => return input[at] = self.number().to_le_bytes()[3],
            2 => return drop(input.drain(at..until)),
            3 if self.below(4) == 0 => return input.truncate(at),
            3 | 4 => input[at..until].to_vec(),
            5 => {
                let from = self.below(other.len() + 1);
                let most = (other.len() - from).min(1 + self.below(64));
                other[from..from + most].to_vec()
            }
            _ => words[self.below(words.len())].clone(),
        };
        // In the place of what is there, or before it.
        let until = if self.below(2) == 0 { until } else { at };
        input.splice(at..until, piece);
    }
}

/// Reads a dictionary as libFuzzer writes it: `"text"` with `\xNN`, one a line.
fn dictionary(name: &str) -> Vec<Vec<u8>> {
    let path = here("words").join(format!("{name}.dict"));
    let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path:?}: {why}"));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| unquote(line).unwrap_or_else(|| panic!("{path:?}: {line}"))).collect()
}

fn unquote(line: &str) -> Option<Vec<u8>> {
    let mut rest = line.strip_prefix('"')?.strip_suffix('"')?.bytes();
    let mut out = Vec::new();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next()? } else { byte };
        out.push(match (byte, escaped) {
            (b'\\', b'x') => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
            }
            (_, other) => other,
        });
    }
    Some(out)
}

#[test]
fn answers() {
    short_run("answers");
}

#[test]
fn bucket() {
    short_run("bucket");
}

#[test]
fn cli() {
    short_run("cli");
}

#[test]
fn config() {
    short_run("config");
}

#[test]
fn decoder() {
    short_run("decoder");
}

#[test]
fn folder() {
    short_run("folder");
}

#[test]
fn frames() {
    short_run("frames");
}

#[test]
fn holder() {
    short_run("holder");
}

#[test]
fn info() {
    short_run("info");
}

#[test]
fn messages() {
    short_run("messages");
}

#[test]
fn note() {
    short_run("note");
}

#[test]
fn record() {
    short_run("record");
}

#[test]
fn servers() {
    short_run("servers");
}

#[test]
fn ticket() {
    short_run("ticket");
}

#[test]
fn every_target_has_a_corpus_a_dictionary_and_a_fuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |folder: PathBuf| -> Vec<String> {
        let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.display().to_string());
        files(&folder).iter().filter_map(stem).collect()
    };
    let targets: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names(here("corpus")), targets);
    assert_eq!(names(here("words")), targets);
    assert_eq!(names(root.join("fuzz/targets")), targets);
    let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).expect("a manifest");
    for name in targets {
        let line = format!("path = \"targets/{name}.rs\"");
        assert!(manifest.contains(&line), "fuzz/Cargo.toml: {name}");
    }
}
