//! The settings of all origins: the command line, the environment and the configuration
//! file. Of several values of one setting the one with the highest precedence is kept,
//! together with its origin, which refusals and `putex check` show.

use std::ffi::OsString;
use std::fmt;

use super::config::{Config, Entry};
use super::table::{FLAGS, Flag, Name};
use super::{Lookup, Refusal, clean, usage};
use crate::exit::Exit;

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a configuration file.
    File {
        /// The path of the file.
        path: String,
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// This environment variable.
    Env(&'static str),
    /// An option, as the user wrote it.
    Flag(String),
    /// One of the four arguments.
    Argument,
}

/// The precedence of an origin, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// A configuration file.
    File,
    /// The environment.
    Env,
    /// The command line.
    CommandLine,
}

impl Origin {
    /// Returns the precedence of the origin.
    #[must_use]
    pub fn precedence(&self) -> Precedence {
        match self {
            Origin::File { .. } => Precedence::File,
            Origin::Env(_) => Precedence::Env,
            Origin::Flag(_) | Origin::Argument => Precedence::CommandLine,
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

/// The value of a setting and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The value as the user wrote it; of a switch `yes`, `no` or `twice`.
    pub text: String,
    /// The origin.
    pub origin: Origin,
}

/// A fault in the value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    name: Name,
    why: String,
    exit: Exit,
}

impl Fault {
    /// The value is malformed.
    pub(super) fn usage(name: Name, why: impl Into<String>) -> Fault {
        let (why, exit) = (why.into(), Exit::Usage);
        Fault { name, why, exit }
    }

    /// The value cannot be safe.
    pub(super) fn unsafe_to_use(name: Name, why: impl Into<String>) -> Fault {
        let (why, exit) = (why.into(), Exit::Unsafe);
        Fault { name, why, exit }
    }
}

/// The settings, one entry a name: the one with the highest precedence.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(Name, Setting)>);

impl Settings {
    /// Gathers the options of the command line, in their order, and the environment.
    ///
    /// # Errors
    ///
    /// A variable is not UTF-8. It is not ignored: it was set on purpose.
    pub(super) fn gather(
        options: Vec<(Name, Setting)>,
        var: Lookup<'_>,
    ) -> Result<Settings, Refusal> {
        let mut settings = Settings::default();
        for (name, setting) in options {
            settings.set(name, setting);
        }
        for flag in FLAGS.iter().filter(|flag| !flag.env.is_empty()) {
            let origin = Origin::Env(flag.env);
            if let Some(text) = variable(flag.env, var)? {
                settings.set_if_absent(flag.name, Setting { text, origin });
            }
        }
        for name in SECRET_VARIABLES {
            variable(name, var)?;
        }
        Ok(settings)
    }

    /// Sets an option of the command line. The last one of a name counts; `-v` and `-q`
    /// count up.
    fn set(&mut self, name: Name, setting: Setting) {
        let counts_up = matches!(name, Name::Verbose | Name::Quiet);
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, first)) if counts_up => first.text = "twice".to_owned(),
            Some((_, first)) => *first = setting,
            None => self.0.push((name, setting)),
        }
    }

    /// Adds the settings of a file that are not set otherwise.
    pub(super) fn add_file(&mut self, config: &Config) {
        for Entry { name, text, line } in &config.entries {
            let (text, line) = (text.clone(), *line);
            let path = config.path.clone().unwrap_or_default();
            let origin = Origin::File { path, line };
            self.set_if_absent(*name, Setting { text, origin });
        }
    }

    fn set_if_absent(&mut self, name: Name, setting: Setting) {
        if self.get(name).is_none() {
            self.0.push((name, setting));
        }
    }

    /// Returns a setting; `None` if it is not set.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<&Setting> {
        let mut found = self.0.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, setting)| setting)
    }

    /// Returns the value of a setting; `None` if it is not set.
    #[must_use]
    pub fn text(&self, name: Name) -> Option<&str> {
        self.get(name).map(|setting| setting.text.as_str())
    }

    /// Returns the precedence of a setting; `None` if it is not set.
    #[must_use]
    pub fn precedence(&self, name: Name) -> Option<Precedence> {
        self.get(name).map(|setting| setting.origin.precedence())
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: Name) -> bool {
        self.text(name).is_some_and(|text| text != "no")
    }

    /// Makes a refusal of a fault. It begins with the origin of the setting, as the user
    /// wrote it there.
    pub(super) fn refusal(&self, fault: Fault) -> Refusal {
        let why = clean(&fault.why);
        let flag = FLAGS.iter().find(|flag| flag.name == fault.name);
        let (origin, exit) = match self.get(fault.name).map(|setting| &setting.origin) {
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
        let text = format!("{origin}: {why}");
        Refusal { text, exit }
    }
}

/// Variables that hold a secret. No option or key stands for them.
const SECRET_VARIABLES: [&str; 2] = ["NATS_PASSWORD", "NATS_TOKEN"];

/// Returns the value of an environment variable; `None` if it is unset or blank.
pub(super) fn variable(name: &str, var: Lookup<'_>) -> Result<Option<String>, Refusal> {
    let text = var(name).map(OsString::into_string).transpose();
    let text = text.map_err(|_| usage(format!("{name}: its value is not UTF-8")))?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// Settings, and the faults that were found in them.
pub(super) struct Faults<'a> {
    pub(super) settings: &'a Settings,
    pub(super) found: Vec<Refusal>,
}

impl<'a> Faults<'a> {
    /// Makes a list of faults that begins with `found`.
    pub(super) fn new(settings: &'a Settings, found: Vec<Refusal>) -> Faults<'a> {
        Faults { settings, found }
    }

    /// Returns the value of a result; adds its fault to the list.
    pub(super) fn collect<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.found.push(self.settings.refusal(fault));
                None
            }
        }
    }

    /// Parses the value of a setting; `None` if it is not set or faulty.
    pub(super) fn parse<T>(
        &mut self,
        name: Name,
        parse: fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        let text = self.settings.text(name)?;
        let value = parse(text).map_err(|why| Fault::usage(name, format!("{text}: {why}")));
        self.collect(value)
    }

    /// Returns the value of a setting that must not be blank; `None` if it is not set or
    /// faulty.
    pub(super) fn text(&mut self, name: Name) -> Option<String> {
        let text = self.settings.text(name)?;
        match text.trim().is_empty() {
            true => self.collect(Err(Fault::usage(name, "is empty"))),
            false => Some(text.to_owned()),
        }
    }
}
