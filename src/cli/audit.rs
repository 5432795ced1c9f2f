//! The command line of `putex audit`.

use super::settings::{Faults, Precedence, Settings};
use super::table::Name;
use super::{BucketArgs, Environment, Invocation, resolve, usage};
use crate::audit::Request;
use crate::exit::Refusal;

/// The arguments of `putex audit`, each of them valid.
#[derive(Debug)]
pub struct AuditArgs {
    /// The bucket; `None` if only logs are read.
    pub bucket: Option<BucketArgs>,
    /// What is asked for.
    pub request: Request,
}

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    settings: Settings,
    words: Vec<String>,
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    let key = match &words[..] {
        [key] => key.clone(),
        [] => return Err(usage("KEY is missing; write putex audit [--log FILE] KEY".to_owned())),
        [file, ..] => {
            let why = format!("{file}: more than one KEY; write --log before each file");
            return Err(usage(why));
        }
    };
    resolve::agents_key(&key)?;
    let resolve = |faults: &mut Faults<'_>| resolve(faults, key, environment);
    let args = resolve::all(settings, environment, resolve)?;
    Ok(Invocation::Audit(Box::new(args)))
}

/// Resolves the settings; `None` if there is a fault.
fn resolve(
    faults: &mut Faults<'_>,
    key: String,
    environment: &Environment<'_>,
) -> Option<AuditArgs> {
    let logs = logs(faults);
    // With logs, a bucket that only the file names is not wanted: it may be what is broken.
    let is_named = [Name::Nats, Name::Dir, Name::Context]
        .iter()
        .any(|name| faults.settings.precedence(*name) > Some(Precedence::File));
    let logs_only = faults.settings.get(Name::Log).is_some() && !is_named;
    let bucket = match logs_only {
        true => Some(None),
        false => resolve::existing_bucket(faults, environment.var).map(|(bucket, _)| Some(bucket)),
    };
    let (logs, bucket) = (logs?, bucket?);
    let name = bucket.as_ref().map_or_else(String::new, |bucket| bucket.name.clone());
    Some(AuditArgs { bucket, request: Request { key, logs, bucket: name } })
}

/// Resolves the logs, each with the files that are its parts.
fn logs(faults: &mut Faults<'_>) -> Option<Vec<Vec<String>>> {
    let Some(text) = faults.settings.text(Name::Log) else { return Some(Vec::new()) };
    let parts = |log: &str| log.split(',').map(str::to_owned).collect();
    let logs: Vec<Vec<String>> = text.split('\n').map(parts).collect();
    let files = || logs.iter().flatten();
    if files().any(String::is_empty) {
        return faults.usage(Name::Log, "the name of a file is empty");
    }
    if files().filter(|file| *file == "-").count() > 1 {
        return faults.usage(Name::Log, "-: standard input can be read once");
    }
    Some(logs)
}

#[cfg(test)]
mod tests;
