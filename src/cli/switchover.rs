//! The command line of `putex switchover`.

use super::line::Line;
use super::table::Name;
use super::value::wait;
use crate::exit::Refusal;
use crate::store::name::valid_token;
use crate::switchover::Request;

/// Returns what the line asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    let settings = &line.settings;
    // First the options: one that takes a value may have taken the key.
    let wait = settings.value(Name::SwitchoverWait, "", wait)?;
    let key = line.agents_key("putex switchover [--to WHO] KEY")?;
    let [from, to] = [Name::From, Name::To].map(|name| settings.parse(name, valid_token));
    let (from, to) = (from?, to?);
    if let Some(to) = to.as_ref().filter(|_| from == to) {
        let why = format!("{to}: is also --from; write another agent");
        return Err(settings.usage(Name::To, &why));
    }
    Ok(Request { key, from, to, wait, by: line.requester(), level: line.level() })
}

#[cfg(test)]
mod tests;
