//! `putex check`: shows the settings and every fault in them, with the code that an agent
//! uses itself. Runs no command, but asks the shell about each; creates and writes nothing.

mod commands;
pub(crate) mod servers;
mod show;

use std::path::Path;

use crate::agent::metrics_file::MetricsFile;
use crate::cli::connect;
use crate::cli::settings::Precedence;
use crate::cli::table::Name;
use crate::cli::{AgentArgs, CheckArgs, Location, Lookup};
use crate::core::Incarnation;
use crate::exit::{Exit, Refusal};
use crate::guard::inspect_device;
use crate::nats::Login;
use crate::status::ANSWER_MAX;
use crate::store::dir::DirStore;
use crate::store::{Bucket as _, StoreError, open_existing};
use crate::sys;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// The settings, a line each, and a last line if there are no problems.
    pub shown: String,
    /// Faults with which an agent runs.
    pub warnings: Vec<String>,
    /// Faults that end an agent or keep it from ever being active. The exit status is that
    /// of the first.
    pub problems: Vec<Refusal>,
}

/// Checks the settings of an agent.
pub fn check(args: &CheckArgs, var: Lookup<'_>, host: &str) -> Findings {
    let CheckArgs { settings, resolved, .. } = args;
    let mut findings = Findings { problems: resolved.faults.clone(), ..Findings::default() };
    // An agent waits for a file that is missing. Nobody waits here.
    let faults = resolved.location.iter().flat_map(Location::faults);
    findings.problems.extend(faults.map(|fault| Refusal::new(Exit::Unsafe, fault.text)));
    findings.shown = show::settings(args, var, host);
    if let Some(Location::Nats(access)) = &resolved.location
        && settings.precedence(Name::Nats) == Some(Precedence::CommandLine)
        && access.servers.iter().any(|server| server.login != Login::None)
    {
        let why = "every user of this host sees its password or token in the list of processes";
        findings.warnings.push(format!("--nats: {why}; see --user and --auth-token-file"));
    }
    match resolved.device.as_ref().map(|(path, required)| (inspect_device(path), required)) {
        None | Some((Ok(()), _)) => {}
        Some((Err(text), false)) => findings.warnings.push(text),
        Some((Err(text), true)) => findings.problems.push(Refusal::new(Exit::Unsafe, text)),
    }
    if let Some(agent) = &resolved.args {
        // Its folder may be made later.
        if let Some(Err(error)) = agent.metrics_file.as_deref().map(MetricsFile::inspect) {
            findings.warnings.push(format!("{}: {error}", settings.written(Name::MetricsFile)));
        }
        findings.warnings.extend(commands::faults(&[Name::OnChange], settings));
    }
    if let (Some(agent), [], true) =
        (&resolved.args, &findings.problems[..], settings.is_on(Name::Connect))
    {
        let remarks = match &agent.bucket.location {
            Location::Dir(base) => inspect_dir(agent, base).map(|state| vec![state]),
            Location::Nats(access) => {
                let keys = agent.keys();
                let keys: Vec<_> = keys.iter().map(String::as_str).collect();
                let store_at = |at: &_| connect::agent_nats_store(agent, at, Incarnation(0));
                let inspected = servers::inspect(access, &keys, &store_at);
                servers::merge(inspected, &agent.bucket.name).map(|found| {
                    findings.warnings.extend(found.warnings);
                    found.remarks
                })
            }
        };
        match remarks {
            Ok(remarks) => findings.shown.extend(remarks.into_iter().map(|line| line + "\n")),
            Err(error) => findings.problems.push(error.into()),
        }
    }
    let faults = commands::faults(&commands::OF_SERVICE, settings);
    findings.problems.extend(faults.map(|why| Refusal::new(Exit::Unsafe, why)));
    if let (Some(agent), []) = (&resolved.args, &findings.problems[..]) {
        findings.shown.push_str(&format!("{}: the options are right\n", agent.guard.commands.key));
    }
    // `quiet` in a file is meant for the log of the agent.
    if settings.is_on(Name::Quiet)
        && settings.precedence(Name::Quiet) == Some(Precedence::CommandLine)
    {
        findings.shown.clear();
    }
    findings
}

/// Opens a bucket in a directory and reads the keys; creates nothing. Returns the state of the
/// bucket.
fn inspect_dir(agent: &AgentArgs, base: &Path) -> Result<String, StoreError> {
    let bucket = &agent.bucket.name;
    let mut store = DirStore::new(base.to_owned(), bucket);
    let deadline = sys::now().after(ANSWER_MAX);
    if open_existing(&mut store, deadline)?.is_none() {
        return Ok(format!("bucket {bucket}: does not exist yet"));
    }
    agent.keys().iter().try_for_each(|key| store.get(key, deadline).map(drop))?;
    Ok(format!("bucket {bucket}: exists and is fit for a lock"))
}
