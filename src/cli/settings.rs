//! Where the origins of a setting meet: the command line, the environment and the
//! file. What wins keeps where it is from, for refusals and for `putex check`.

use std::ffi::OsString;
use std::fmt;

use super::config::{Config, Entry};
use super::table::{FLAGS, Flag, Name};
use super::{Lookup, Refusal, clean, usage};
use crate::exit::Exit;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a line of a configuration file.
    File {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// In this variable of the environment.
    Env(&'static str),
    /// Behind an option, written like this.
    Flag(String),
    /// Among the arguments.
    Argument,
}

/// What comes before what: the later, the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// A configuration file.
    File,
    /// The environment.
    Env,
    /// The command line.
    Line,
}

impl Origin {
    /// Returns how strong a value from there is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        match self {
            Origin::File { .. } => Rank::File,
            Origin::Env(_) => Rank::Env,
            Origin::Flag(_) | Origin::Argument => Rank::Line,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Env(variable) => f.write_str(variable),
            Origin::Flag(_) => f.write_str("flag"),
            Origin::Argument => f.write_str("argument"),
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The value as it was written; of a switch `yes`, `no` or `twice`.
    pub text: String,
    /// Where.
    pub origin: Origin,
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    name: Name,
    why: String,
    exit: Exit,
}

impl Fault {
    /// It is not written as it should be.
    pub(super) fn usage(name: Name, why: impl Into<String>) -> Fault {
        let (why, exit) = (why.into(), Exit::Usage);
        Fault { name, why, exit }
    }

    /// It cannot be safe.
    pub(super) fn unsafe_to_use(name: Name, why: impl Into<String>) -> Fault {
        let (why, exit) = (why.into(), Exit::Unsafe);
        Fault { name, why, exit }
    }
}

/// What was set, wherever, the strongest of each name.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(Name, Given)>);

impl Settings {
    /// Takes in the command line, in its order, and the environment.
    ///
    /// # Errors
    ///
    /// Which variable is no text: whoever set it would not expect it to be passed over.
    pub(super) fn gather(line: Vec<(Name, Given)>, var: Lookup<'_>) -> Result<Settings, Refusal> {
        let mut settings = Settings::default();
        for (name, given) in line {
            settings.type_in(name, given);
        }
        for flag in FLAGS.iter().filter(|flag| !flag.env.is_empty()) {
            let origin = Origin::Env(flag.env);
            if let Some(text) = variable(flag.env, var)? {
                settings.add(flag.name, Given { text, origin });
            }
        }
        for name in WORDS {
            variable(name, var)?;
        }
        Ok(settings)
    }

    /// The last word on the command line counts, but for those that add up.
    fn type_in(&mut self, name: Name, given: Given) {
        let adds_up = matches!(name, Name::Verbose | Name::Quiet);
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, first)) if adds_up => first.text = "twice".to_owned(),
            Some((_, first)) => *first = given,
            None => self.0.push((name, given)),
        }
    }

    /// Takes in what a file says of what is not set otherwise.
    pub(super) fn fill(&mut self, config: &Config) {
        for Entry { name, text, line } in &config.entries {
            let (text, line) = (text.clone(), *line);
            let path = config.path.clone().unwrap_or_default();
            let origin = Origin::File { path, line };
            self.add(*name, Given { text, origin });
        }
    }

    /// Takes in what is weaker than all that is there.
    fn add(&mut self, name: Name, given: Given) {
        if self.get(name).is_none() {
            self.0.push((name, given));
        }
    }

    /// Returns what was set, if anything was.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<&Given> {
        let mut found = self.0.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, given)| given)
    }

    /// Returns the value, if there is one.
    #[must_use]
    pub fn text(&self, name: Name) -> Option<&str> {
        self.get(name).map(|given| given.text.as_str())
    }

    /// Returns how strong it is, if it was set.
    #[must_use]
    pub fn rank(&self, name: Name) -> Option<Rank> {
        self.get(name).map(|given| given.origin.rank())
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: Name) -> bool {
        self.text(name).is_some_and(|text| text != "no")
    }

    /// Says where the fault is, as the user wrote it there.
    pub(super) fn refusal(&self, fault: Fault) -> Refusal {
        let why = clean(&fault.why);
        let flag = FLAGS.iter().find(|flag| flag.name == fault.name);
        let (place, exit) = match self.get(fault.name).map(|given| &given.origin) {
            Some(Origin::File { path, line }) => {
                let key = flag.and_then(Flag::key).unwrap_or_default();
                (format!("{path}:{line}: {key}"), Exit::Unsafe)
            }
            Some(Origin::Env(variable)) => ((*variable).to_owned(), fault.exit),
            Some(Origin::Flag(written)) => (written.clone(), fault.exit),
            Some(Origin::Argument) | None => {
                (flag.map(Flag::shown).unwrap_or_default(), fault.exit)
            }
        };
        let text = format!("{place}: {why}");
        Refusal { text, exit }
    }
}

/// Variables with what is no setting of its own: a password, a token.
const WORDS: [&str; 2] = ["NATS_PASSWORD", "NATS_TOKEN"];

/// Looks a variable up; one that is blank is as good as none.
pub(super) fn variable(name: &str, var: Lookup<'_>) -> Result<Option<String>, Refusal> {
    let text = var(name).map(OsString::into_string).transpose();
    let text = text.map_err(|_| usage(format!("{name}: its value is not UTF-8")))?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// The faults of settings, gathered one after the other.
pub(super) struct Faults<'a> {
    pub(super) settings: &'a Settings,
    pub(super) found: Vec<Refusal>,
}

impl Faults<'_> {
    /// Keeps a fault in mind.
    pub(super) fn take<T>(&mut self, outcome: Result<T, Fault>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(fault) => {
                self.found.push(self.settings.refusal(fault));
                None
            }
        }
    }

    /// Reads a value by `read`; `None` when there is none, or a fault.
    pub(super) fn read<T>(
        &mut self,
        name: Name,
        read: fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let text = self.settings.text(name)?;
        let value = read(text).map_err(|why| Fault::usage(name, format!("{text}: {why}")));
        self.take(value)
    }

    /// Returns a value that must not be blank; `None` when there is none, or a fault.
    pub(super) fn text(&mut self, name: Name) -> Option<String> {
        let text = self.settings.text(name)?;
        match text.trim().is_empty() {
            true => self.take(Err(Fault::usage(name, "is empty"))),
            false => Some(text.to_owned()),
        }
    }
}
