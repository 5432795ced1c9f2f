//! The settings of all origins: the command line, the environment, the configuration file and the
//! context of the nats command. Of several values of one setting the one with the highest
//! precedence is kept, together with its origin, which refusals and `putex check` show.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;

use super::table::{FLAGS, Name};
use super::{Lookup, clean, usage};
use crate::exit::{Exit, Refusal};

/// The precedence of an origin, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// A context of the nats command.
    Context,
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
pub struct Settings {
    pub(crate) by_name: BTreeMap<Name, Setting>,
}

impl Settings {
    /// Sets an option. The last one of a name counts; `-v` and `-q` count up.
    pub(super) fn set(&mut self, name: Name, setting: Setting) {
        name.opposite().map(|opposite| self.by_name.remove(&opposite));
        match self.by_name.get_mut(&name) {
            Some(first) if name.counts_up() => first.text = "twice".to_owned(),
            Some(_) | None => drop(self.by_name.insert(name, setting)),
        }
    }

    /// Adds the settings that are not set.
    pub(super) fn add(&mut self, settings: Settings) {
        for (name, setting) in settings.by_name {
            self.by_name.entry(name).or_insert(setting);
        }
    }

    /// Returns whether the lock is in a directory: that of `--nats`, `--dir` and `--context` which
    /// has the highest precedence counts.
    pub(super) fn is_in_directory(&self) -> bool {
        let [nats, dir, context] =
            [Name::Nats, Name::Dir, Name::Context].map(|name| self.precedence(name));
        dir > nats && dir >= context
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
                self.by_name.entry(flag.name).or_insert(setting);
            }
        }
        Ok(())
    }

    /// Returns a setting; `None` if it is not set.
    pub fn get(&self, name: Name) -> Option<&Setting> {
        self.by_name.get(&name)
    }

    /// Returns the value of a setting; `None` if it is not set.
    pub fn text(&self, name: Name) -> Option<&str> {
        self.get(name).map(|setting| setting.text.as_str())
    }

    /// Parses the value of a setting, or its default; `None` if it has neither.
    pub(super) fn parse<T, E: Display>(
        &self,
        name: Name,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Refusal> {
        let text = self.text(name).or_else(|| name.flag().default_value());
        let parse = |text: &str| match text.trim() {
            "" => Err(self.empty(name)),
            _ => parse(text).map_err(|why| self.usage(name, &format!("{text}: {why}"))),
        };
        text.map(parse).transpose()
    }

    /// Parses the value of a setting, or its default. A setting that has neither has to be given,
    /// as in `usual`.
    pub(super) fn value<T, E: Display>(
        &self,
        name: Name,
        usual: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        let missing = || self.usage(name, &format!("is missing; write {usual}"));
        self.parse(name, parse)?.ok_or_else(missing)
    }

    /// Returns the value of a setting that must not be blank; `None` if it is not set.
    pub(super) fn nonblank(&self, name: Name) -> Result<Option<String>, Refusal> {
        self.parse(name, |text| Ok::<_, &str>(text.to_owned()))
    }

    /// Returns the refusal of a blank value. Only a command line has such: a blank variable counts
    /// as not set, and a line of a file without a value is refused before.
    fn empty(&self, name: Name) -> Refusal {
        let with_value = name.flag().with_value(&self.written(name));
        self.usage(name, &format!("is empty; write {with_value}"))
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
        let of_file = self.get(name).filter(|setting| setting.precedence <= Precedence::File);
        let exit = if of_file.is_some() { Exit::Unsafe } else { exit };
        let note = of_file.map_or("", |setting| comment_note(&setting.text));
        Refusal::new(exit, format!("{}: {}{note}", self.written(name), clean(why)))
    }

    /// Returns the refusal of a malformed setting.
    pub(super) fn usage(&self, name: Name, why: &str) -> Refusal {
        self.refusal(name, Exit::Usage, why)
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

/// Returns the value of an environment variable; `None` if it is unset or blank.
pub(super) fn variable(name: &str, var: Lookup<'_>) -> Result<Option<String>, Refusal> {
    let text = var(name).map(OsString::into_string).transpose();
    let text = text.map_err(|_| usage(format!("{name}: its value is not UTF-8")))?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// The faults that were found in settings.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<Refusal>);

impl Faults {
    /// Returns the value of a result; adds its refusal to the list.
    pub(super) fn note<T>(&mut self, result: Result<T, Refusal>) -> Option<T> {
        result.map_err(|refusal| self.0.push(refusal)).ok()
    }

    /// Parses the value of a setting, or its default; `None` if it has neither or is faulty.
    pub(super) fn parse<T, E: Display>(
        &mut self,
        settings: &Settings,
        name: Name,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.note(settings.parse(name, parse)).flatten()
    }

    /// Returns the value of a setting that must not be blank; `None` if it is not set or blank.
    pub(super) fn nonblank(&mut self, settings: &Settings, name: Name) -> Option<String> {
        self.note(settings.nonblank(name)).flatten()
    }

    /// Returns a value, or the first fault. Without a value there is a fault.
    pub(super) fn or_first<T>(self, value: Option<T>) -> Result<T, Refusal> {
        let first = self.0.into_iter().next();
        first.map_or_else(|| Ok(value.expect("a value or a fault")), Err)
    }
}
