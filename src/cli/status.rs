//! The command line of `putex status`.

use std::time::Duration;

use super::settings::{Faults, Settings};
use super::table::{Name, nearest};
use super::value::seconds;
use super::{BucketArgs, Environment, Invocation, resolve, usage};
use crate::exit::Refusal;
use crate::status::{Field, Form, Question, Request};
use crate::store::name::valid_key;

/// The arguments of `putex status`, each of them valid.
#[derive(Debug)]
pub struct StatusArgs {
    /// The bucket.
    pub bucket: BucketArgs,
    /// What is asked for.
    pub request: Request,
}

/// The shortest time after which the status is shown again.
const WATCH_MIN: Duration = Duration::from_millis(100);

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    if let Some(word) = words.iter().find(|word| word.trim().is_empty()) {
        return Err(usage(format!("KEY: {word:?}: is empty; write none for all keys")));
    }
    // Every name of a lock or lease is a valid key too.
    for word in &words {
        valid_key(word).map_err(|why| usage(format!("KEY: {why}")))?;
    }
    let resolve = |faults: &mut Faults<'_>| resolve(faults, words, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Status(Box::new(args)))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    keys: Vec<String>,
    environment: &Environment<'_>,
) -> Option<StatusArgs> {
    let bucket = resolve::existing_bucket(faults, environment.var);
    let form = form(faults, &keys, environment);
    let every = every(faults);
    let (bucket, source) = bucket?;
    let request = Request { source, keys, form: form?, every: every? };
    Some(StatusArgs { bucket, request })
}

/// Resolves the form of the answer.
fn form(faults: &mut Faults<'_>, keys: &[String], environment: &Environment<'_>) -> Option<Form> {
    let settings = faults.settings;
    let is_set = |name: &Name| settings.get(*name).is_some();
    let forms: Vec<Name> = [Name::Is, Name::Print, Name::Json].into_iter().filter(is_set).collect();
    if let [first, second, ..] = forms[..] {
        let other = settings.written(second);
        return faults.usage(first, &format!("cannot be with {other}; write one of them"));
    }
    if settings.get(Name::As).is_some()
        && !matches!(settings.text(Name::Is), Some("mine" | "active"))
    {
        let why = "says who asks -e mine or -e active; write holder=TOKEN instead";
        return faults.usage(Name::As, why);
    }
    let Some(form) = forms.first().copied() else { return Some(Form::Table) };
    if form == Name::Json {
        return Some(Form::Json);
    }
    if keys.len() != 1 {
        return faults.usage(form, "write one KEY with it");
    }
    let text = faults.text(form)?;
    if form == Name::Print {
        let field = Field::ALL.into_iter().find(|field| field.name() == text);
        let names = Field::ALL.map(|field| field.name().to_owned());
        let why = || format!("{text}: write holder, host, state or term{}", nearest(&text, names));
        return faults.collect(form, field.ok_or_else(why)).map(Form::Print);
    }
    let question = match &*text {
        "held" => Question::Held,
        "free" => Question::Free,
        "paused" => Question::Paused,
        "mine" => Question::Holder(resolve::who(faults, Name::As, environment)?),
        "active" => Question::Active(resolve::who(faults, Name::As, environment)?),
        _ => match text.strip_prefix("holder=") {
            Some(token) if !token.is_empty() => Question::Holder(token.to_owned()),
            _ => {
                let why = format!("{text}: write held, free, mine, active, paused or holder=TOKEN");
                return faults.usage(form, &why);
            }
        },
    };
    if is_set(&Name::Watch) {
        return faults.usage(Name::Watch, "cannot be with -e, which answers once");
    }
    Some(Form::Exit(question))
}

/// Resolves how often the status is shown; `None` in it for once.
fn every(faults: &mut Faults<'_>) -> Option<Option<Duration>> {
    if faults.settings.get(Name::Watch).is_none() {
        return Some(None);
    }
    let every = faults.parse(Name::Watch, seconds)?;
    if every < WATCH_MIN {
        return faults.usage(Name::Watch, "write 100ms or more");
    }
    Some(Some(every))
}

#[cfg(test)]
mod tests;
