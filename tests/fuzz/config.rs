//! The configuration file, which a person wrote.

use std::collections::BTreeSet;
use std::path::Path;

use super::line::{check_args, environment, refused};
use crate::cli::config::{Config, LINE_BYTES_MAX, parse_file};
use crate::cli::settings::{Precedence, Setting};
use crate::cli::table::Name;
use crate::cli::{self, Environment, Invocation};
use crate::nats::file::TrustedFile;

const PATH: &str = "/etc/putex/db.conf";

/// A whole file: each of its lines is refused by file and number, in one line and without the
/// password of a URL, or is a setting that can be written out and means the same. The arguments of
/// an agent in it are right, or refused, just as on a command line.
pub fn config(data: &[u8]) -> bool {
    let found = read(data, false);
    let lines = data.split(|byte| *byte == b'\n').count();
    let mut written = String::new();
    let mut used = BTreeSet::new();
    for (name, Setting { text, precedence, origin, written: _ }) in &found.settings.by_name {
        assert_eq!(*precedence, Precedence::File);
        let line = origin.strip_prefix(PATH).and_then(|rest| rest.strip_prefix(':'));
        let line = line.and_then(|line| line.parse().ok()).expect("the file and a line");
        assert!((1..=lines).contains(&line) && used.insert(line), "line {line}");
        assert!(!text.is_empty() && text.trim() == text && text.len() <= LINE_BYTES_MAX);
        assert!(!text.contains(['\n', '\0']));
        let key = name.flag().key().expect("it has a key");
        written += &format!("{key}={text}\n");
    }
    for fault in &found.faults {
        refused(fault);
        let rest = fault.text.strip_prefix(PATH).expect("the file");
        let line = rest.split(':').nth(1).and_then(|line| line.parse().ok());
        assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{rest}");
    }
    let again = read(written.as_bytes(), false);
    assert_eq!(again.faults, []);
    assert_eq!(settings(&again), settings(&found));
    // A secret that others can read is one fault more, and no other setting.
    let exposed = read(data, true);
    assert_eq!(settings(&exposed), settings(&found));
    let secret = found.settings.text(Name::Nats).is_some_and(|nats| nats.contains('@'));
    assert_eq!(exposed.faults.len(), found.faults.len() + usize::from(secret));
    made_of_it(data, &found)
}

fn read(data: &[u8], others_read: bool) -> Config {
    let bytes = data.to_vec();
    parse_file(Path::new(PATH), &TrustedFile { bytes, others_read })
}

fn settings(config: &Config) -> Vec<(Name, &str)> {
    config.settings.by_name.iter().map(|(name, setting)| (*name, setting.text.as_str())).collect()
}

/// Returns whether an agent could run by it.
fn made_of_it(data: &[u8], found: &Config) -> bool {
    let file = |_: &Path| {
        let (bytes, others_read) = (data.to_vec(), false);
        Ok(Some(TrustedFile { bytes, others_read }))
    };
    let environment = Environment { read: &file, ..environment(&|_| None, "alpha") };
    let words = ["check", "--config", PATH].map(Into::into);
    let Ok(Invocation::Check(check)) = cli::parse(words, &environment) else {
        panic!("no check");
    };
    assert_eq!(check.config.as_deref(), Some(PATH));
    let faults = &check.resolved.faults;
    faults.iter().for_each(refused);
    assert_eq!(faults[..found.faults.len()], found.faults);
    let words = ["agent", "--config", PATH].map(Into::into);
    match (cli::parse(words, &environment), &check.resolved.args) {
        (Ok(Invocation::Agent(args)), Some(same)) => {
            assert_eq!(format!("{args:?}"), format!("{same:?}"));
            check_args(&args);
            true
        }
        (Err(refusal), _) => {
            assert_eq!(Some(&refusal), faults.first());
            false
        }
        other => panic!("check and agent disagree: {other:?}"),
    }
}
