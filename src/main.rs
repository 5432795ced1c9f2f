//! putex: at most one copy of a service over several hosts. Parses the command line, runs
//! a command, returns its exit status.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use log::Level;
use putex::agent::service_manager::{ManagerEnvironment, ServiceManager};
use putex::agent::signals::Signals;
use putex::agent::{self, Setup};
use putex::check::{self, Findings};
use putex::cli::connect;
use putex::cli::{self, AgentArgs, CheckArgs, Environment, Invocation, Location, Refusal};
use putex::core::pump::{AgentId, Config};
use putex::core::record::Incarnation;
use putex::core::time::Ms;
use putex::exit::Exit;
use putex::guard;
use putex::log::{Destination, LogQueue};
use putex::nats::file;
use putex::sys;

fn main() -> ExitCode {
    sys::raw::hear_of_children();
    // Where it cannot be had, all else goes on.
    let _ = sys::signals::outlive_full_files();
    let stderr = Destination::of_stderr(env::var("JOURNAL_STREAM").ok().as_deref());
    let words = env::args_os().skip(1);
    let environment =
        Environment { var: &variable, host: &sys::host_name(), read: &file::read_trusted };
    let invocation = cli::parse(words, &environment);
    let destination = match &invocation {
        Ok(Invocation::Agent(args) | Invocation::Finish(args, _)) => {
            stderr.or_syslog(args.guard.syslog)
        }
        Ok(Invocation::Check(_) | Invocation::Guard | Invocation::Print(_)) | Err(_) => stderr,
    };
    let ended = invocation.and_then(|invocation| match invocation {
        Invocation::Print(text) => print(&text),
        Invocation::Agent(args) => run_agent(*args, destination),
        Invocation::Check(args) => check(&args, destination),
        Invocation::Finish(args, faults) => {
            for fault in faults {
                refuse(destination, fault);
            }
            finish(&args, destination)
        }
        Invocation::Guard => guard::run(stderr).map_err(|(text, exit)| Refusal { text, exit }),
    });
    ended.unwrap_or_else(|refusal| refuse(destination, refusal)).into()
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Says why the process ends at once, or would end; returns the exit status.
fn refuse(destination: Destination, Refusal { text, exit }: Refusal) -> Exit {
    destination.refuse(&text, exit)
}

/// Prints the settings of an agent and every fault in them.
fn check(args: &CheckArgs, destination: Destination) -> Result<Exit, Refusal> {
    let Findings { shown, warnings, problems } = check::check(args, &variable, &sys::host_name());
    let printed = print(&shown).unwrap_or_else(|refusal| refuse(destination, refusal));
    warnings.iter().for_each(|text| destination.warn(text));
    let statuses: Vec<_> = problems.into_iter().map(|fault| refuse(destination, fault)).collect();
    Ok(statuses.first().copied().unwrap_or(printed))
}

fn print(text: &str) -> Result<Exit, Refusal> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has closed the pipe needs no more of the text.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(system("cannot print", error)),
        Ok(()) | Err(_) => Ok(Exit::Success),
    }
}

/// Returns the refusal of a system that lacks something.
fn system(what: &str, error: io::Error) -> Refusal {
    Refusal::new(Exit::System, format!("{what}: {error}"))
}

fn run_agent(args: AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    // First of all: a descriptor of that number may be opened otherwise.
    let service_manager = service_manager(args.notify_fd)?;
    let store = connect::store(&args, &variable)?;
    let number = sys::random().map_err(|error| system("no random numbers", error))?;
    let signals = Signals::open().map_err(|error| system("no signals", error))?;
    let log_queue = LogQueue::start(&args.guard.commands.key, args.guard.level, destination)
        .map_err(|error| system("no log thread", error))?;
    let (greeting, identity) = (introduce(&args), connect::identity(&args, &variable));
    let AgentArgs { guard, start_grace, check_failures, .. } = args;
    let config = Config {
        timing: guard.timing,
        check: guard.commands.check.is_some(),
        start_grace,
        check_failures,
        last_resort: guard.commands.last_resort.is_some(),
        device: guard::protocol::device_use(guard.device.as_ref()),
    };
    let ended = agent::run(Setup {
        config,
        id: AgentId {
            token: guard.commands.token.clone(),
            incarnation: Incarnation(number),
            host: sys::host_name(),
            boot: sys::boot_id(),
        },
        realtime: guard.realtime,
        guard,
        log: &log_queue,
        destination,
        base: connect::runtime_base(),
        identity,
        store,
        service_manager,
        signals,
        greeting,
    });
    drop(log_queue);
    ended.map_err(|error| system("cannot start", error))
}

/// Sees that an agent which has ended left no service behind.
fn finish(args: &AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    let AgentArgs { guard, .. } = args;
    LogQueue::start(&guard.commands.key, guard.level, destination)
        .and_then(|log| {
            let identity = connect::identity(args, &variable);
            guard::finish(guard, &connect::runtime_base(), &identity, log)
        })
        .map_err(|error| Refusal::new(Exit::System, format!("cannot finish: {error}")))
}

/// The service manager that started this process.
fn service_manager(notify_fd: Option<i32>) -> Result<ServiceManager, Refusal> {
    let refuse = |text: String| Refusal::new(Exit::Usage, text);
    let descriptor = notify_fd.map(|number| {
        let descriptor = sys::raw::inherited(number);
        descriptor.map_err(|error| refuse(format!("--notify-fd: {number}: {error}")))
    });
    let environment = ManagerEnvironment {
        socket: env::var_os("NOTIFY_SOCKET"),
        watchdog: env::var("WATCHDOG_USEC").ok(),
        watchdog_pid: env::var("WATCHDOG_PID").ok(),
    };
    ServiceManager::new(&environment, descriptor.transpose()?).map_err(refuse)
}

/// Returns what this agent is, and what an operator may not expect of it.
fn introduce(args: &AgentArgs) -> Vec<(Level, String)> {
    let AgentArgs { location, guard, .. } = args;
    let (timing, token) = (guard.timing, &guard.commands.token);
    let (r, f, c) = (Ms(timing.renewal()), timing.failures(), timing.confirmations());
    let (version, budget) = (env!("CARGO_PKG_VERSION"), Ms(timing.stop_budget()));
    let hello =
        format!("putex {version}, agent {token}, R {r}, F {f}, C {c}, stop budget {budget}");
    let mut lines = vec![(Level::Info, hello)];
    if guard.commands.check.is_none() {
        lines.push((Level::Info, "no --healthcheck: a host that is up counts as fit".to_owned()));
    }
    if matches!(location, Location::Dir(_)) {
        let text = "the lock is kept in a directory: it covers agents on this host only".to_owned();
        lines.push((Level::Info, text));
    }
    lines.extend(connect::default_dir_warning(location).map(|text| (Level::Warn, text)));
    lines
}
