//! `putex help TOPIC`: the manual pages, for hosts that have no `man`.
//!
//! The text is the output of mandoc for the pages in `man`, in plain ASCII. After a
//! change of a page, `PUTEX_REWRITE=1 cargo test --test pages` writes it again.

use miniz_oxide::inflate;

use super::instead::rows_of;
use super::table::{Subcommand, nearest};
use super::{shown, usage};
use crate::exit::Refusal;

/// The texts of all pages, as `build.rs` compresses them.
const MANUAL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/manual"));

/// Returns the text of the manual page that is this file in `man`.
///
/// # Panics
///
/// When the manual has no such page.
pub fn page_text(file: &str) -> String {
    let manual = inflate::decompress_to_vec(MANUAL).unwrap_or_default();
    let manual = String::from_utf8_lossy(&manual);
    let page = |named: &str| Some(named.strip_prefix(file)?.strip_prefix('\n')?.to_owned());
    manual.split('\0').find_map(page).expect("the manual has a text of each page")
}

/// A topic of `putex help`.
pub struct Topic {
    /// Its name on the command line.
    pub name: &'static str,
    /// The page that has it: the name of its file in `man`.
    pub page: &'static str,
    /// The beginning of its first line in the page, indentation included; blank for the
    /// whole page.
    pub head: &'static str,
    /// Its summary, in one line.
    pub about: &'static str,
}

const fn topic(
    name: &'static str,
    page: &'static str,
    head: &'static str,
    about: &'static str,
) -> Topic {
    Topic { name, page, head, about }
}

/// All topics, in the order of the help text: first those that are commands. Each page is one of
/// them as a whole.
pub const TOPICS: &[Topic] = &[
    topic("agent", "putex.8", "", "all of the agent"),
    topic("check", "putex.8", "     check   ", "what check looks at"),
    topic("finish", "putex.8", "     finish  ", "what finish does"),
    topic("timing", "putex.7", "TIMING", "R, F, C, and the times that follow from them"),
    topic("lock", "putex-lock.1", "", "run a command while a lock is held"),
    topic("grab", "putex-grab.1", "", "grab and release, locks for scripts"),
    topic("lease", "putex-lease.1", "", "leases, and put"),
    topic("status", "putex-status.1", "", "who holds which lock or lease"),
    topic("switchover", "putex-switchover.1", "", "move a service to another agent"),
    topic("pause", "putex-pause.1", "", "pause and resume"),
    topic("doctor", "putex-doctor.1", "", "are servers, agents and this host fit"),
    topic("store", "putex.8", "WHERE THE BUCKET IS", "servers, logins, TLS, directories"),
    topic("config", "putex.conf.5", "", "settings in a file"),
    topic("examples", "putex.8", "EXAMPLES", "command lines for common tasks"),
    topic("trouble", "putex.8", "TROUBLESHOOTING", "what to do if nobody runs the service"),
    topic("messages", "putex-messages.7", "", "what the log says, and what to do"),
    topic("commands", "putex.8", "COMMANDS RUN", "what start, stop and health check have to do"),
    topic("managers", "putex.8", "SERVICE MANAGERS", "OpenRC, runit, s6, systemd, BusyBox init"),
    topic("theory", "putex.7", "", "why at most one copy runs, and when not"),
    topic("limits", "putex.7", "WHAT IS NOT COVERED", "what can break the promise"),
];

impl Topic {
    /// Returns the topic that explains a command; `None` for one that no user runs.
    pub fn of(subcommand: Subcommand) -> Option<&'static Topic> {
        let name = match subcommand.name() {
            "init" => "store",
            "release" => "grab",
            "put" => "lease",
            "resume" => "pause",
            name => name,
        };
        TOPICS.iter().find(|topic| topic.name == name)
    }

    /// Returns its text: the lines of the page from the one that begins with `head` to the
    /// next one with the same indentation or less; `None` if the page has no such line.
    pub fn text(&self) -> Option<String> {
        let page = page_text(self.page);
        if self.head.is_empty() {
            return Some(page);
        }
        let depth = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let mut lines = page.lines().skip_while(|line| !line.starts_with(self.head));
        let first = lines.next()?;
        let is_inside = |line: &&str| line.is_empty() || depth(line) > depth(first);
        let rest: Vec<&str> = lines.take_while(is_inside).collect();
        Some(format!("{}\n", format!("{first}\n{}", rest.join("\n")).trim_end()))
    }
}

/// Where a user finds what words mean that are no topics, and those words.
const INSTEAD: [(&str, &str); 5] = [
    ("putex help doctor, and METRICS in putex help agent", "alert metrics monitor"),
    ("putex help pause and putex help switchover", "maintenance"),
    ("putex help store", "auth bucket login nats tls"),
    ("contrib/tutorial/README.md of the source, and putex help examples", "postgresql tutorial"),
    ("putex help trouble", "troubleshooting"),
];

/// Returns the text of the topic of this name, or that a user means by it.
pub(super) fn text_of(name: &str) -> Result<String, Refusal> {
    let wanted = name.to_ascii_lowercase();
    if let Some(text) = find(&wanted).and_then(Topic::text) {
        return Ok(text);
    }
    if let Some(topics) = rows_of(&INSTEAD, &wanted).next() {
        return Err(usage(format!("{name}: no such topic; see {topics}")));
    }
    let nearest = nearest(&wanted, TOPICS.iter().map(|topic| topic.name.to_owned()));
    Err(usage(format!("{}: no such topic{nearest}; see putex help", shown(name))))
}

/// Returns the topic of this name, or of the page that man(1) finds by it: `conf`, `putex.conf`,
/// `putex.conf.5` or `putex.conf(5)`.
fn find(wanted: &str) -> Option<&'static Topic> {
    let file = wanted.replace('(', ".").replace(')', "");
    let short = file.strip_prefix("putex-").unwrap_or(&file);
    let is_page = |topic: &&Topic| {
        let stem = topic.page.rsplit_once('.').map_or("", |(stem, _)| stem);
        let is_named = |name: &str| name == file || name.strip_prefix("putex.") == Some(short);
        topic.head.is_empty() && [topic.page, stem].into_iter().any(is_named)
    };
    let topic = TOPICS.iter().find(|topic| topic.name == short);
    Subcommand::find(short).and_then(Topic::of).or(topic).or_else(|| TOPICS.iter().find(is_page))
}
