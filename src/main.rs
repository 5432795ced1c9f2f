//! putex: at most one copy of a service over several hosts. Parses the command line, runs
//! a command, returns its exit status.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use log::Level;
use putex::agent::service_manager::{ManagerEnvironment, ServiceManager};
use putex::agent::{self, Setup};
use putex::check::{self, Findings};
use putex::cli::connect;
use putex::cli::{self, AgentArgs, CheckArgs, Environment, Invocation, Location, Refusal};
use putex::command::Commands;
use putex::core::pump::{AgentId, Config};
use putex::core::record::Incarnation;
use putex::core::time::Ms;
use putex::exit::Exit;
use putex::guard::protocol::Settings;
use putex::guard::{self, Identity};
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
    match cli::parse(words, &environment) {
        Ok(Invocation::Print(text)) => print(&text, stderr),
        Ok(Invocation::Agent(args)) => {
            let destination = stderr.or_syslog(args.syslog);
            run_agent(*args, destination)
                .unwrap_or_else(|(text, exit)| destination.refuse(&text, exit))
        }
        Ok(Invocation::Check(args)) => check(&args, stderr),
        Ok(Invocation::Finish(args, faults)) => {
            let destination = stderr.or_syslog(args.syslog);
            for Refusal { text, exit } in faults {
                destination.refuse(&text, exit);
            }
            finish(*args, destination).unwrap_or_else(|error| {
                destination.refuse(&format!("cannot finish: {error}"), Exit::System)
            })
        }
        Ok(Invocation::Guard) => {
            guard::run(stderr).unwrap_or_else(|(text, exit)| stderr.refuse(&text, exit))
        }
        Err(refusal) => stderr.refuse(&refusal.text, refusal.exit),
    }
    .into()
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Prints the settings of an agent and every fault in them.
fn check(args: &CheckArgs, destination: Destination) -> Exit {
    let Findings { shown, warnings, problems } = check::check(args, &variable, &sys::host_name());
    let printed = print(&shown, destination);
    for text in &warnings {
        destination.warn(text);
    }
    for Refusal { text, exit } in &problems {
        destination.refuse(text, *exit);
    }
    problems.first().map_or(printed, |first| first.exit)
}

fn print(text: &str, destination: Destination) -> Exit {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has closed the pipe needs no more of the text.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            destination.refuse(&format!("cannot print: {error}"), Exit::System)
        }
        Ok(()) | Err(_) => Exit::Success,
    }
}

fn run_agent(args: AgentArgs, destination: Destination) -> Result<Exit, (String, Exit)> {
    // First of all: a descriptor of that number may be opened otherwise.
    let service_manager = service_manager(args.notify_fd).map_err(|text| (text, Exit::Usage))?;
    let store = connect::store(&args, &variable).map_err(|refusal| (refusal.text, refusal.exit))?;
    let lacking = |what: &str, error| (format!("{what}: {error}"), Exit::System);
    let number = sys::random().map_err(|error| lacking("no random numbers", error))?;
    let incarnation = Incarnation(number);
    let log_queue = LogQueue::start(&args.key, args.level as u64, destination)
        .map_err(|error| lacking("no log thread", error))?;
    let greeting = introduce(&args);
    let id = AgentId {
        token: args.token.clone(),
        incarnation,
        host: sys::host_name(),
        boot: sys::boot_id(),
    };
    let config = Config {
        timing: args.timing,
        check: args.check.is_some(),
        start_grace: args.start_grace,
        check_failures: args.check_failures,
        last_resort: args.last_resort.is_some(),
        device: guard::protocol::device_use(args.device.as_ref()),
    };
    let setup = Setup {
        config,
        id,
        guard: guard_settings(&args),
        realtime: args.realtime,
        log: &log_queue,
        destination,
        base: connect::runtime_base(),
        identity: identity(&args),
        store,
        service_manager,
        greeting,
    };
    let ended = agent::run(setup);
    drop(log_queue);
    ended.map_err(|error| lacking("cannot start", error))
}

/// Returns what agent and guard have to know, but for their directory.
fn guard_settings(args: &AgentArgs) -> Settings {
    Settings {
        dir: String::new(),
        timing: args.timing,
        commands: Commands {
            check: args.check.clone(),
            start: args.start.clone(),
            stop: args.stop.clone(),
            last_resort: args.last_resort.clone(),
            key: args.key.clone(),
            token: args.token.clone(),
        },
        device: args.device.clone(),
        realtime: args.realtime,
        level: args.level as u64,
        syslog: args.syslog,
    }
}

fn identity(args: &AgentArgs) -> Identity {
    Identity {
        location: connect::location_id(&args.location, &variable),
        bucket: args.bucket.clone(),
        key: args.key.clone(),
        token: args.token.clone(),
    }
}

/// Sees that an agent which has ended left no service behind.
fn finish(args: AgentArgs, destination: Destination) -> io::Result<Exit> {
    let log = LogQueue::start(&args.key, args.level as u64, destination)?;
    let base = connect::runtime_base();
    guard::finish(&guard_settings(&args), &base, &identity(&args), log)
}

/// The service manager that started this process.
fn service_manager(notify_fd: Option<i32>) -> Result<ServiceManager, String> {
    let descriptor = notify_fd.map(|number| {
        sys::raw::inherited(number).map_err(|error| format!("--notify-fd: {number}: {error}"))
    });
    let environment = ManagerEnvironment {
        socket: env::var_os("NOTIFY_SOCKET"),
        watchdog: env::var("WATCHDOG_USEC").ok(),
        watchdog_pid: env::var("WATCHDOG_PID").ok(),
    };
    ServiceManager::new(&environment, descriptor.transpose()?)
}

/// What this agent is, and what an operator may not expect of it.
fn introduce(args: &AgentArgs) -> Vec<(Level, String)> {
    let timing = args.timing;
    let (r, f, c) = (Ms(timing.renewal()), timing.failures(), timing.confirmations());
    let budget = Ms(timing.stop_budget());
    let version = env!("CARGO_PKG_VERSION");
    let hello =
        format!("putex {version}, agent {}, R {r}, F {f}, C {c}, stop budget {budget}", args.token);
    let mut lines = vec![(Level::Info, hello)];
    if args.check.is_none() {
        let text = "no --healthcheck: a host that is up counts as fit".to_owned();
        lines.push((Level::Info, text));
    }
    if matches!(args.location, Location::Dir(_)) {
        let text = "the lock is kept in a directory: it covers agents on this host only".to_owned();
        lines.push((Level::Info, text));
    }
    lines.extend(connect::default_dir_warning(&args.location).map(|text| (Level::Warn, text)));
    lines
}
