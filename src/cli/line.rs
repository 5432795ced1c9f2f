//! A command line with the settings of all origins, as the parsers of the commands read it.

use std::ffi::OsString;

use log::Level;

use super::config::{self, Config};
use super::context;
use super::settings::{Faults, Settings, variable};
use super::table::{Name, Subcommand};
use super::{BucketArgs, Environment, resolve, unexpected, usage};
use crate::exit::Refusal;
use crate::store::name::valid_agents_key;
use crate::sys;

pub(super) struct Line<'a> {
    pub(super) of: Subcommand,
    /// The settings: those of the command line until it is complete.
    pub(super) settings: Settings,
    /// The words that are no options.
    pub(super) words: Vec<String>,
    /// The words behind the name of a lock.
    pub(super) rest: Vec<OsString>,
    /// The environment, on which the meaning of the line depends too.
    pub(super) environment: &'a Environment<'a>,
}

/// Adds to the settings of a command line those of the environment, of the configuration file and
/// of the context that these name. Returns the path of the file, and the faults of file and
/// context.
///
/// # Errors
///
/// Those of [`Settings::add_environment`].
pub(super) fn add_origins(
    settings: &mut Settings,
    environment: &Environment<'_>,
) -> Result<(Option<String>, Vec<Refusal>), Refusal> {
    settings.add_environment(environment.var)?;
    let Config { path, settings: of_file, mut faults } = config::load(settings, environment.read);
    settings.add(of_file);
    match context::load(settings, environment) {
        Ok(of_context) => settings.add(of_context),
        Err(refusal) => faults.push(refusal),
    }
    Ok((path, faults))
}

impl Line<'_> {
    /// Adds the settings of the other origins.
    ///
    /// # Errors
    ///
    /// The first fault of a file: the settings that seem to be missing are in it.
    pub(super) fn complete(mut self) -> Result<Self, Refusal> {
        let (_, faults) = add_origins(&mut self.settings, self.environment)?;
        Faults(faults).or_first(Some(self))
    }

    /// Returns the bucket. A command that can make none only looks: one in memory is as good.
    pub(super) fn bucket(&self) -> Result<BucketArgs, Refusal> {
        let mut faults = Faults::default();
        let location = resolve::location(&self.settings, &mut faults);
        let bucket = resolve::bucket_at(location, &self.settings, &mut faults);
        let bucket = faults.or_first(bucket)?;
        let only_looks = !Name::AllowMemory.flag().subcommands.contains(&self.of);
        Ok(BucketArgs { allow_memory: bucket.allow_memory || only_looks, ..bucket })
    }

    /// Returns the word that has to be the only one: `what` it is, and a line as it is written.
    pub(super) fn only_word(&self, what: &str, usual: &str) -> Result<&str, Refusal> {
        match &self.words[..] {
            [word] => Ok(word),
            [] => Err(usage(format!("{what} is missing; write {usual}"))),
            [_, more, ..] => Err(unexpected(more, &format!("write {usual}"))),
        }
    }

    /// Returns the key of agents that is the only word.
    pub(super) fn agents_key(&self, usual: &str) -> Result<String, Refusal> {
        let key = self.only_word("KEY", usual)?;
        valid_agents_key(key).map_err(|why| usage(format!("KEY: {why}")))?;
        Ok(key.to_owned())
    }

    /// Returns whether an option of the command line is given, or a key of the file.
    pub(super) fn has(&self, name: Name) -> bool {
        self.settings.get(name).is_some()
    }

    /// Returns the name of the host or script that asks: that of the option, or the token.
    pub(super) fn who(&self) -> Result<String, Refusal> {
        let name =
            if self.has(Name::As) || !self.has(Name::Token) { Name::As } else { Name::Token };
        resolve::token(&self.settings, name, self.environment.host)
    }

    /// Returns who asks, for people.
    pub(super) fn requester(&self) -> String {
        let user = variable("USER", self.environment.var).ok().flatten();
        let user = user.unwrap_or_else(|| match sys::user_id() {
            0 => "root".to_owned(),
            other => format!("user {other}"),
        });
        format!("{user}@{}", self.environment.host)
    }

    /// Returns the number of the log level.
    pub(super) fn level(&self) -> u64 {
        resolve::level(&self.settings, Level::Warn)
    }
}
