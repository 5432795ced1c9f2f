//! The settings of all origins: the command line, the environment and the configuration
//! file. Of several values of one setting the one with the highest precedence is kept,
//! together with its origin, which refusals and `putex check` show.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;

use super::table::{FLAGS, Name};
use super::{Lookup, clean, usage};
use crate::exit::{Exit, Refusal};

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

/// The value of a setting and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The value as the user wrote it; of a switch `yes`, `no` or `twice`.
    pub text: String,
    /// The precedence of its origin.
    pub precedence: Precedence,
    /// The origin as `putex check` shows it: the line of a file, a variable, `flag`, `argument`.
    pub origin: String,
    /// The name of the setting as the user wrote it there, with which a refusal begins.
    pub written: String,
}

/// The settings, one entry a name: the one with the highest precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(pub(crate) BTreeMap<Name, Setting>);

impl Settings {
    /// Sets an option of the command line. The last one of a name counts; `-v` and `-q`
    /// count up.
    pub(super) fn set(&mut self, name: Name, setting: Setting) {
        name.opposite().map(|opposite| self.0.remove(&opposite));
        match self.0.get_mut(&name) {
            Some(first) if name.counts_up() => first.text = "twice".to_owned(),
            Some(_) | None => drop(self.0.insert(name, setting)),
        }
    }

    /// Adds the settings that are not set.
    pub(super) fn add(&mut self, settings: Settings) {
        for (name, setting) in settings.0 {
            self.0.entry(name).or_insert(setting);
        }
    }

    /// Adds the variables of the environment whose settings are not set.
    ///
    /// # Errors
    ///
    /// A variable is not UTF-8. It is not ignored: the user set it on purpose.
    pub(super) fn add_environment(&mut self, var: Lookup<'_>) -> Result<(), Refusal> {
        for flag in FLAGS.iter().filter(|flag| !flag.env.is_empty()) {
            if let Some(text) = variable(flag.env, var)? {
                let (origin, written) = (flag.env.to_owned(), flag.env.to_owned());
                let setting = Setting { text, precedence: Precedence::Env, origin, written };
                self.0.entry(flag.name).or_insert(setting);
            }
        }
        SECRET_VARIABLES.into_iter().try_for_each(|name| variable(name, var).map(drop))
    }

    /// Returns a setting; `None` if it is not set.
    pub fn get(&self, name: Name) -> Option<&Setting> {
        self.0.get(&name)
    }

    /// Returns the value of a setting; `None` if it is not set.
    pub fn text(&self, name: Name) -> Option<&str> {
        self.get(name).map(|setting| setting.text.as_str())
    }

    /// Returns the value of a setting, or its default; `None` if it has neither.
    pub fn text_or_default(&self, name: Name) -> Option<&str> {
        self.text(name).or_else(|| name.flag().default_value())
    }

    /// Returns the precedence of a setting; `None` if it is not set.
    pub fn precedence(&self, name: Name) -> Option<Precedence> {
        self.get(name).map(|setting| setting.precedence)
    }

    /// Returns whether the setting that excludes this one has a higher precedence.
    pub fn is_overridden(&self, name: Name) -> bool {
        let is_above = |other: &Name| self.precedence(*other) > self.precedence(name);
        EXCLUSIVE.iter().any(|pair| pair.contains(&name) && pair.iter().any(is_above))
    }

    /// Returns whether a switch is on.
    pub fn is_on(&self, name: Name) -> bool {
        self.text(name).is_some_and(|text| text != "no")
    }

    /// Returns the refusal of a setting. It begins with the name of the setting as the user
    /// wrote it. The exit status for a line of a file is always the same.
    pub(super) fn refusal(&self, name: Name, exit: Exit, why: &str) -> Refusal {
        let exit =
            if self.precedence(name) == Some(Precedence::File) { Exit::Unsafe } else { exit };
        let of_file = self.get(name).filter(|setting| setting.precedence == Precedence::File);
        let note = of_file.map_or("", |setting| comment_note(&setting.text));
        Refusal::new(exit, format!("{}: {}{note}", self.written(name), clean(why)))
    }

    /// Returns the name of a setting as the user wrote it, with the line if that is in a file.
    pub fn written(&self, name: Name) -> String {
        let written = self.get(name).map(|setting| setting.written.clone());
        written.unwrap_or_else(|| name.flag().shown())
    }
}

/// Returns what is said of the refused value of a file: it may have a comment behind it, which is a
/// part of it.
pub(super) fn comment_note(value: &str) -> &'static str {
    match value.contains(" #") || value.contains("\t#") {
        true => "; a # begins no comment behind a value",
        false => "",
    }
}

/// Settings that exclude each other: only the one with the higher precedence is in force.
const EXCLUSIVE: [[Name; 2]; 2] =
    [[Name::Verbose, Name::Quiet], [Name::JsDomain, Name::JsApiPrefix]];

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

impl Faults<'_> {
    /// Adds a fault to the list: a setting is refused. Returns `None`.
    pub(super) fn refuse<T>(&mut self, name: Name, exit: Exit, why: &str) -> Option<T> {
        self.found.push(self.settings.refusal(name, exit, why));
        None
    }

    /// Adds a fault to the list: the value of a setting is malformed. Returns `None`.
    pub(super) fn usage<T>(&mut self, name: Name, why: &str) -> Option<T> {
        self.refuse(name, Exit::Usage, why)
    }

    /// Returns the value of a result; adds its error to the list, a malformed value.
    pub(super) fn collect<T>(&mut self, name: Name, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(why) => self.usage(name, &why.to_string()),
        }
    }

    /// Parses the value of a setting, or its default; `None` if it has neither or is faulty.
    pub(super) fn parse<T, E: Display>(
        &mut self,
        name: Name,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.settings.text_or_default(name)?;
        if text.is_empty() {
            return self.usage(name, "is empty");
        }
        self.collect(name, parse(text).map_err(|why| format!("{text}: {why}")))
    }

    /// Returns the value of a setting that must not be blank; `None` if it is not set or
    /// faulty.
    pub(super) fn text(&mut self, name: Name) -> Option<String> {
        let text = self.settings.text(name)?;
        match text.trim().is_empty() {
            true => self.usage(name, "is empty"),
            false => Some(text.to_owned()),
        }
    }
}
