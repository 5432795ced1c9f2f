//! Every file is part of a crate: a test that no binary has would never run, and nobody would
//! notice.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::{Source, all_sources, bare, report};

/// Whether cargo or a fuzzer begins at a file of this path.
fn is_root(path: &str) -> bool {
    let folders = ["src/lib.rs", "src/main.rs", "fuzz/targets/"];
    let of_tests = path.starts_with("tests/") && path.ends_with("/main.rs");
    let without_folder = ["tests/system/acceptance.rs", "tests/system/simulate.rs"];
    folders.iter().any(|folder| path.starts_with(folder))
        || of_tests
        || without_folder.contains(&path)
}

/// Returns the folder in which the modules of a file lie.
fn folder_of_modules(path: &Path) -> PathBuf {
    let name = path.file_stem().unwrap_or_default();
    if is_root(&path.to_string_lossy()) || name == "mod" {
        path.parent().unwrap_or(Path::new("")).to_owned()
    } else {
        path.with_extension("")
    }
}

/// Returns `path` without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Returns where the modules of a file may lie: each at one of two places, or where its attribute
/// says.
fn modules_of(file: &Source) -> Vec<PathBuf> {
    let path = Path::new(&file.path);
    let folder = folder_of_modules(path);
    let mut places = Vec::new();
    let mut named = None;
    for (text, code) in file.text.lines().zip(bare(&file.text).lines()) {
        let attribute = text.trim().strip_prefix("#[path = \"");
        if let Some(place) = attribute.and_then(|rest| rest.strip_suffix("\"]")) {
            named = Some(path.with_file_name("").join(place));
        }
        let declared = code.trim().strip_suffix(';').and_then(|line| {
            let (before, name) = line.rsplit_once("mod ")?;
            (before.is_empty() || before.starts_with("pub")).then_some(name)
        });
        if let Some(name) = declared {
            match named.take() {
                Some(place) => places.push(plain(&place)),
                None => {
                    places.push(folder.join(format!("{name}.rs")));
                    places.push(folder.join(name).join("mod.rs"));
                }
            }
        }
    }
    places
}

/// Returns the paths of the files that no crate has.
fn without_crate(files: &[Source]) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Source> = files.iter().filter(|file| is_root(&file.path)).collect();
    while let Some(file) = next.pop() {
        if reached.insert(&file.path) {
            let places = modules_of(file);
            let is_module = |other: &&Source| places.iter().any(|place| *place == *other.path);
            next.extend(files.iter().filter(is_module));
        }
    }
    files.iter().map(|file| &file.path).filter(|path| !reached.contains(path)).cloned().collect()
}

#[test]
fn every_file_is_part_of_a_crate() {
    report(&without_crate(&all_sources()));
}

#[test]
fn a_file_that_no_file_names_is_found() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file(
            "tests/one/main.rs",
            "mod first;\n#[path = \"../two/mod.rs\"]\nmod two;\n// mod gone;",
        ),
        file("tests/one/first.rs", "pub(crate) mod part;"),
        file("tests/one/first/part.rs", ""),
        file("tests/two/mod.rs", "mod other;"),
        file("tests/two/other.rs", ""),
        file("tests/one/gone.rs", ""),
    ];
    assert_eq!(without_crate(&files), ["tests/one/gone.rs"]);
}
