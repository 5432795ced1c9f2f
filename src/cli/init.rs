//! The command line of `putex init`.

use super::settings::Settings;
use super::{BucketArgs, Environment, Invocation, resolve, usage};
use crate::exit::Refusal;

/// Returns the invocation with these options and words.
pub(super) fn invocation(
    settings: Settings,
    words: &[String],
    environment: &Environment<'_>,
) -> Result<Invocation, Refusal> {
    if let Some(word) = words.first() {
        return Err(usage(format!("{word}: write --bucket {word}")));
    }
    let args: BucketArgs =
        resolve::all(settings, environment, |faults| resolve::bucket(faults, environment.var))?;
    Ok(Invocation::Init(Box::new(args)))
}
