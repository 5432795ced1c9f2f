//! The command line of `putex switchover`.

use log::Level;

use super::settings::{Faults, Settings};
use super::table::Name;
use super::value::wait;
use super::{BucketArgs, Environment, Invocation, resolve};
use crate::exit::Refusal;
use crate::store::name::valid_token;
use crate::switchover::Request;

/// The arguments of `putex switchover`, each of them valid.
#[derive(Debug)]
pub struct SwitchoverArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub request: Request,
}

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let key = resolve::only_key(&words, "putex switchover [--to WHO] KEY")?;
    let resolve = |faults: &mut Faults<'_>| resolve(faults, key, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Switchover(Box::new(args)))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    key: String,
    environment: &Environment<'_>,
) -> Option<SwitchoverArgs> {
    let bucket = resolve::existing_bucket(faults, environment.var);
    let [from, to] = [Name::From, Name::To].map(|name| who(faults, name));
    if let (Some(Some(from)), Some(Some(to))) = (&from, &to)
        && from == to
    {
        return faults.usage(Name::To, &format!("{to}: is also --from; write another agent"));
    }
    let wait = faults.parse(Name::SwitchoverWait, wait);
    let level = resolve::level(faults.settings, Level::Warn);
    let (bucket, source) = bucket?;
    let by = resolve::requester(environment);
    let request = Request { source, key, from: from?, to: to?, wait: wait?, by, level };
    Some(SwitchoverArgs { bucket, request })
}

/// Resolves a token; `None` in it if none is given.
fn who(faults: &mut Faults<'_>, name: Name) -> Option<Option<String>> {
    let Some(token) = faults.settings.text(name).filter(|_| faults.settings.get(name).is_some())
    else {
        return Some(None);
    };
    faults.collect(name, valid_token(token)).map(Some)
}

#[cfg(test)]
mod tests;
