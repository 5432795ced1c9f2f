//! `putex check`: what is set, and everything that is wrong with it, found by what an
//! agent uses itself. Nothing is started, made or written.

mod show;

use std::time::Duration;

use crate::cli::settings::Rank;
use crate::cli::table::Name;
use crate::cli::{AgentArgs, CheckArgs, Lookup, Refusal};
use crate::exit::Exit;
use crate::guard::look_at_device;
use crate::nats::{Server, unknown_names};
use crate::reach::{self, Reach, Servers};
use crate::store::{OpenError, holder_in_words};
use crate::sys;

/// Longest that names are looked up. A script that starts an agent waits for it.
const NAMES_MAX: Duration = Duration::from_secs(2);

/// Longest that servers are asked.
const SERVERS_MAX: Duration = Duration::from_secs(5);

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is set, line by line, and that it is right if it is.
    pub shown: String,
    /// What an agent would warn of, or can do without.
    pub warnings: Vec<String>,
    /// What ends an agent, or keeps it from ever being active; the first says how it
    /// ends.
    pub problems: Vec<Refusal>,
}

/// Checks what an agent would be asked for.
#[must_use]
pub fn check(args: &CheckArgs, var: Lookup<'_>, host: &str) -> Findings {
    let asked = &args.asked;
    let mut findings = Findings {
        problems: asked.faults.clone(),
        ..Findings::default()
    };
    let way = asked.way.as_ref();
    let (reach, faults) = match way {
        Some((place, access)) => reach::reach(place, access, var),
        None => (None, Vec::new()),
    };
    findings.problems.extend(faults);
    findings
        .warnings
        .extend(way.and_then(|(place, _)| reach::unasked(place)));
    findings.shown = show::settings(args, reach.as_ref(), host);
    look_for_device(asked.device.as_ref(), &mut findings);
    if let Some(Reach::Nats(servers)) = &reach {
        match unknown_names(&servers.servers, sys::now().after(NAMES_MAX)) {
            Ok(unknown) => findings.warnings.extend(unknown),
            Err(error) => findings.warnings.push(format!("no names: {error}")),
        }
    }
    let reach = reach.filter(|_| findings.problems.is_empty());
    if let (Some(agent), Some(reach)) = (&asked.args, reach) {
        let connect = args.settings.is_on(Name::Connect);
        look_at_store(agent, reach, connect, &mut findings);
    }
    if let (Some(agent), []) = (&asked.args, &findings.problems[..]) {
        let right = format!("{}: the options are right\n", agent.key);
        findings.shown.push_str(&right);
    }
    let quiet = &args.settings;
    // What the file says of the log is for the agent.
    if quiet.is_on(Name::Quiet) && quiet.rank(Name::Quiet) == Some(Rank::Line) {
        findings.shown.clear();
    }
    findings
}

fn look_for_device(device: Option<&(String, bool)>, findings: &mut Findings) {
    let Some((path, required)) = device else {
        return;
    };
    match (look_at_device(path), required) {
        (Ok(()), _) => {}
        (Err(text), false) => findings.warnings.push(text),
        (Err(text), true) => {
            let exit = Exit::Unsafe;
            findings.problems.push(Refusal { text, exit });
        }
    }
}

/// Asks every server: each of them must have the same bucket, and an agent may come to any.
///
/// # Errors
///
/// What is wrong with one of them; that none can be reached, if so.
fn survey(
    agent: &AgentArgs,
    servers: &Servers,
    findings: &mut Findings,
) -> Result<Vec<String>, OpenError> {
    let (mut remarks, mut missed) = (Vec::new(), Vec::new());
    let mut first: Option<(&Server, Option<String>)> = None;
    let until = sys::now().after(SERVERS_MAX);
    for (at, server) in servers.servers.iter().enumerate() {
        let alone = Servers {
            servers: vec![server.clone()],
            ..servers.clone()
        };
        // What one of them does not use is for the others.
        let now = sys::now();
        let left = u32::try_from(servers.servers.len() - at).unwrap_or(u32::MAX);
        let turn = now.after(until.since(now) / left);
        let found = match reach::nats_store(agent, alone).survey(turn) {
            Ok(found) => found,
            Err(OpenError::Unreachable(why)) => {
                missed.push(why);
                continue;
            }
            Err(error) => return Err(error),
        };
        match &first {
            None => {
                findings.warnings.extend(found.warnings);
                remarks = found.remarks;
                first = Some((server, found.created));
            }
            Some((other, created)) if *created != found.created => {
                let bucket = &agent.bucket;
                return Err(OpenError::Unsafe(format!(
                    "{other} and {server} are not of one cluster: bucket {bucket} of one is \
                     not that of the other"
                )));
            }
            Some(_) => remarks.extend(found.remarks.into_iter().next()),
        }
    }
    if first.is_none() {
        return Err(OpenError::Unreachable(missed.join("; ")));
    }
    findings.warnings.extend(missed);
    Ok(remarks)
}

/// Looks at the bucket: in a directory always, on servers when that is asked for.
fn look_at_store(agent: &AgentArgs, reach: Reach, connect: bool, findings: &mut Findings) {
    let outcome = match reach {
        Reach::Dir(base) => {
            reach::dir_store(agent, base)
                .survey()
                .map(|key_state| match key_state {
                    Some(key_state) => vec![holder_in_words(&agent.key, &key_state)],
                    None => vec![format!("bucket {}: does not exist yet", agent.bucket)],
                })
        }
        Reach::Nats(servers) if connect => survey(agent, &servers, findings),
        Reach::Nats(_) => return,
    };
    match outcome {
        Ok(remarks) => {
            for remark in remarks {
                findings.shown.push_str(&format!("{remark}\n"));
            }
        }
        Err(error) => {
            let exit = match &error {
                OpenError::Unreachable(_) => Exit::Unreachable,
                OpenError::Credentials(_) => Exit::Credentials,
                OpenError::Unsafe(_) => Exit::Unsafe,
            };
            let text = error.to_string();
            findings.problems.push(Refusal { text, exit });
        }
    }
}
