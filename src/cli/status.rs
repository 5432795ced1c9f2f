//! The command line of `putex status`.

use super::line::Line;
use super::table::Name;
use super::usage;
use crate::exit::Refusal;
use crate::status::{FIELDS, Form, Question, Request};
use crate::store::name::valid_key;

/// Returns what the line asks for.
pub(super) fn request(line: &Line<'_>) -> Result<Request, Refusal> {
    for word in &line.words {
        // Every name of a lock or lease is a valid key too.
        valid_key(word).map_err(|why| usage(format!("KEY: {why}")))?;
    }
    Ok(Request { keys: line.words.clone(), form: form(line)? })
}

fn form(line: &Line<'_>) -> Result<Form, Refusal> {
    let settings = &line.settings;
    let forms = [Name::Is, Name::Print, Name::Json].into_iter().filter(|name| line.has(*name));
    let forms: Vec<Name> = forms.collect();
    if let [first, second, ..] = forms[..] {
        let why = format!("cannot be with {}; write one of them", settings.written(second));
        return Err(settings.usage(first, &why));
    }
    if line.has(Name::As) && !matches!(settings.text(Name::Is), Some("mine" | "active")) {
        let why = "says who asks -e mine or -e active; write -e holder=TOKEN";
        return Err(settings.usage(Name::As, why));
    }
    let form = match forms[..] {
        [form] if form != Name::Json => form,
        [] => return Ok(Form::Table),
        _ => return Ok(Form::Json),
    };
    let one_key = || match line.words.len() {
        1 => Ok(()),
        _ => Err(settings.usage(form, "write one KEY with it")),
    };
    if form == Name::Print {
        let field = |text: &str| {
            let field = FIELDS.into_iter().find(|(name, _)| *name == text);
            field.ok_or("write holder, host or term")
        };
        let field = settings.value(form, "", field)?;
        return one_key().map(|()| Form::Print(field));
    }
    let question = match settings.text(form).unwrap_or_default() {
        "held" => Question::Held,
        "free" => Question::Free,
        "paused" => Question::Paused,
        "mine" => Question::Holder(line.who()?),
        "active" => Question::Active(line.who()?),
        text => match text.strip_prefix("holder=").filter(|token| !token.is_empty()) {
            Some(token) => Question::Holder(token.to_owned()),
            None => {
                let why = format!("{text}: write held, free, mine, active, paused or holder=TOKEN");
                return Err(settings.usage(form, &why));
            }
        },
    };
    one_key().map(|()| Form::Exit(question))
}

#[cfg(test)]
mod tests;
