//! Golden transcripts: stories of events in, state and effects out.
//!
//! Each of `tests/core/golden/*.txt` holds a story, or a few about one thing, each with a `setup`
//! of its own. A line that begins with a time is an event; what follows its `----` is what the
//! pump makes of it. To rewrite them after a change that you understand:
//! `PUTEX_REWRITE=1 cargo test --test core golden`, then read the difference.

use std::fs;
use std::path::Path;

#[test]
fn every_story_goes_as_it_is_told() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/golden");
    let rewrite = std::env::var_os("PUTEX_REWRITE").is_some();
    let mut told = 0;
    let mut wrong = Vec::new();
    let mut paths: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        told += 1;
        let happened = match crate::story::tell(&text) {
            Ok(happened) => happened,
            Err(why) => {
                wrong.push(format!("{}:\n  {why}", path.display()));
                continue;
            }
        };
        if happened != text && rewrite {
            fs::write(&path, &happened).unwrap();
        } else if happened != text {
            wrong.push(format!("{}:\n{}", path.display(), first_difference(&text, &happened)));
        }
    }
    assert!(told >= 20, "only {told} stories found in {}", folder.display());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn first_difference(expected: &str, happened: &str) -> String {
    let (mut old, mut new) = (expected.lines(), happened.lines());
    for number in 1.. {
        let (left, right) = (old.next(), new.next());
        if left != right {
            let (left, right) = (left.unwrap_or("(end)"), right.unwrap_or("(end)"));
            return format!("  line {number}\n  told:     {left}\n  happened: {right}");
        }
    }
    String::new()
}
