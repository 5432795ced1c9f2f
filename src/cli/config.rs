//! The configuration file: lines of `key = value`. A key is the long name of an option. A
//! value extends to the end of its line; there is no quoting.

use std::collections::BTreeMap;
use std::path::Path;

use super::clean;
use super::settings::{Precedence, Setting, Settings, comment_note};
use super::table::{FLAGS, Flag, Name, nearest};
use crate::core::sanitize;
use crate::exit::{Exit, Refusal};
use crate::nats::file::TrustedFile;

/// The file that is read if no other is named.
pub const DEFAULT: &str = "/etc/putex/putex.conf";

/// Longest line, in bytes. A longer command belongs into a script.
pub const LINE_BYTES_MAX: usize = 8192;

/// Some editors write it at the beginning of a file. It is invisible and means nothing in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a file that other users must not be able to write; `None` if there is no such
/// file.
pub type ReadConfig<'a> = &'a dyn Fn(&Path) -> Result<Option<TrustedFile>, String>;

/// The settings of a file, and its faults.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The path of the file, if there is one.
    pub(crate) path: Option<String>,
    pub(crate) settings: Settings,
    pub(crate) faults: Vec<Refusal>,
}

/// Reads the file that the command line or the environment names, otherwise the default
/// one if it exists.
pub(super) fn load(settings: &Settings, read: ReadConfig<'_>) -> Config {
    let named = settings.text(Name::Config);
    let path = Path::new(named.unwrap_or(DEFAULT));
    let why = match read(path) {
        Ok(Some(file)) => return parse_file(path, &file),
        Ok(None) if named.is_none() => return Config::default(),
        Ok(None) => format!("{}: no such file", path.display()),
        Err(why) => why,
    };
    let faults = vec![settings.refusal(Name::Config, Exit::Unsafe, &why)];
    Config { faults, ..Config::default() }
}

/// Parses a file. Every faulty line is a fault of its own.
pub(crate) fn parse_file(path: &Path, file: &TrustedFile) -> Config {
    let path = sanitize(&path.display().to_string());
    let mut config = Config { path: Some(path.clone()), ..Config::default() };
    let bytes = file.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&file.bytes);
    let mut lines = BTreeMap::new();
    for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let shown = format!("{path}:{line}");
        let parsed = parse_line(bytes).and_then(|setting| {
            let Some((flag, text)) = setting else { return Ok(()) };
            let key = flag.long;
            let first = *lines.entry(flag.name).or_insert(line);
            if first != line {
                return Err(format!("{key}: stands in line {first} already"));
            }
            // Before the @ of a URL stands a password or a token.
            let shows_secret = flag.name == Name::Nats && text.contains('@') && file.others_read;
            let (origin, written) = (shown.clone(), format!("{shown}: {key}"));
            let setting = Setting { text, precedence: Precedence::File, origin, written };
            config.settings.set(flag.name, setting);
            match shows_secret {
                false => Ok(()),
                true => Err(format!("{key}: others can read this secret; chmod o= {path}")),
            }
        });
        if let Err(why) = parsed {
            let text = format!("{shown}: {}", clean(&why));
            config.faults.push(Refusal::new(Exit::Unsafe, text));
        }
    }
    config
}

/// Parses a line; `None` if it is blank or a comment.
fn parse_line(bytes: &[u8]) -> Result<Option<(&'static Flag, String)>, String> {
    if bytes.len() > LINE_BYTES_MAX {
        return Err(format!("is longer than {LINE_BYTES_MAX} bytes"));
    }
    if bytes.contains(&0) {
        return Err("has a NUL in it".to_owned());
    }
    let text = str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let Some((key, value)) = text.split_once('=') else {
        return Err("is neither 'key = value' nor a comment, which begins with #".to_owned());
    };
    let (key, value) = (key.trim_end(), value.trim_start());
    let Some(flag) = FLAGS.iter().find(|flag| flag.key() == Some(key)) else {
        let nearest = nearest(key, FLAGS.iter().filter_map(Flag::key).map(str::to_owned));
        return Err(format!("{key}: no such key{nearest}; see putex.conf(5)"));
    };
    if value.is_empty() {
        let value =
            if flag.value.is_empty() { "yes".to_owned() } else { flag.value.to_uppercase() };
        return Err(format!("{key}: has no value; write {key} = {value}"));
    }
    if flag.value.is_empty() {
        let counts_up = flag.name.counts_up();
        if !(["yes", "no"].contains(&value) || counts_up && value == "twice") {
            let words = if counts_up { "yes, no or twice" } else { "yes or no" };
            return Err(format!("{key}: {value}: write {words}{}", comment_note(value)));
        }
    }
    Ok(Some((flag, value.to_owned())))
}

#[cfg(test)]
mod tests;
