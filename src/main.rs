//! putex: at most one copy of a service over several hosts. Parses the command line, runs
//! a command, returns its exit status.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use putex::agent::service_manager::ServiceManager;
use putex::agent::signals::Signals;
use putex::agent::{self, Setup};
use putex::check::{self, Findings};
use putex::cli::{
    self, AgentArgs, BucketArgs, CheckArgs, DoctorArgs, Environment, Invocation, Location, Request,
    connect,
};
use putex::core::{AgentId, Incarnation, REACH_MAX};
use putex::exit::{Exit, Refusal};
use putex::guard::{self, Identity};
use putex::lock::{self, LockLocation};
use putex::log::{Destination, LogQueue};
use putex::nats::file;
use putex::operation::Operation;
use putex::store::name::no_such_bucket;
use putex::store::open_existing;
use putex::sys::signals::Endings;
use putex::{doctor, grab, init, lease, pause, status, switchover, sys};

fn main() -> ExitCode {
    // Where SIGCHLD is ignored, ended children vanish: no command could be seen to succeed.
    sys::raw::restore_default(libc::SIGCHLD);
    // Without the handler putex runs too, until a file of the log is full.
    let _ = sys::signals::outlive_full_files();
    let stderr = Destination::of_stderr(env::var("JOURNAL_STREAM").ok().as_deref());
    let invocation = parse();
    let destination = match &invocation {
        Ok(Invocation::Agent(args) | Invocation::Finish(args, _)) => {
            stderr.or_syslog(args.guard.syslog)
        }
        Ok(_) | Err(_) => stderr,
    };
    // An agent and a guard take the signals themselves, and no other is to end them: with the first
    // process of a container the service is killed.
    if !matches!(invocation, Ok(Invocation::Agent(_) | Invocation::Guard)) {
        // Without the handler a signal has no effect, but all else goes on.
        let _ = sys::signals::end_first_process();
    }
    let number = |exit: Exit| exit as u8;
    let ended = invocation.and_then(|invocation| match invocation {
        Invocation::Print(text) => print(&text).map(number),
        Invocation::Agent(args) => run_agent(*args, destination).map(number),
        Invocation::Check(args) => check(&args, destination).map(number),
        Invocation::Finish(args, faults) => {
            for fault in faults {
                destination.refuse(&fault);
            }
            finish(&args, destination).map(number)
        }
        Invocation::Once(bucket, request) => once(&bucket, &request, destination),
        Invocation::Doctor { is_json, args } => run_doctor(is_json, *args, destination),
        Invocation::Guard => guard::run(stderr).map(number),
    });
    ExitCode::from(ended.unwrap_or_else(|refusal| destination.refuse(&refusal) as u8))
}

fn parse() -> Result<Invocation, Refusal> {
    let environment =
        Environment { var: &variable, host: &sys::host_name(), read: &file::read_trusted };
    cli::parse(env::args_os().skip(1), &environment)
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Prints the settings of an agent and every fault in them.
fn check(args: &CheckArgs, destination: Destination) -> Result<Exit, Refusal> {
    let Findings { shown, warnings, problems } = check::check(args, &variable, &sys::host_name());
    let printed = print(&shown).unwrap_or_else(|refusal| destination.refuse(&refusal));
    warnings.iter().for_each(|text| destination.warn(text));
    let statuses: Vec<_> = problems.iter().map(|fault| destination.refuse(fault)).collect();
    Ok(statuses.first().copied().unwrap_or(printed))
}

fn print(text: &str) -> Result<Exit, Refusal> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has closed the pipe needs no more of it.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // The text tells of an effect, which lasts.
            let first = text.lines().next().unwrap_or_default();
            Err(Refusal::new(Exit::System, format!("cannot print: {error}: {first}")))
        }
        Ok(()) | Err(_) => Ok(Exit::Success),
    }
}

/// Returns the identity of this agent by its settings as they are now, if they can be used.
fn identity_now() -> Option<Identity> {
    match parse() {
        Ok(Invocation::Agent(args)) => Some(connect::identity(&args)),
        Ok(_) | Err(_) => None,
    }
}

fn run_agent(args: AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    // The descriptor is taken first: this process may open another one of that number.
    let service_manager = ServiceManager::of_environment(args.notify_fd, &variable)
        .map_err(|text| Refusal::new(Exit::Usage, text))?;
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let incarnation = Incarnation(number);
    let store = connect::agent_store(&args, incarnation)?;
    let signals = Signals::open().map_err(Refusal::system("no signals: "))?;
    let log_queue = LogQueue::start(&args.guard.commands.key, args.guard.level, destination)
        .map_err(Refusal::system("no log thread: "))?;
    let identity = connect::identity(&args);
    let is_local = args.bucket.is_local();
    let AgentArgs { config, guard, metrics_file, .. } = args;
    let setup = Setup {
        config,
        id: AgentId {
            token: guard.commands.token.clone(),
            incarnation,
            host: sys::host_name(),
            boot: sys::boot_id().map_err(Refusal::system("cannot start: "))?,
        },
        guard,
        metrics_file,
        log: &log_queue,
        base: connect::runtime_base(),
        identity,
        identity_now,
        store,
        is_local,
        service_manager,
        signals,
    };
    let ended = agent::run(setup);
    drop(log_queue);
    ended.map_err(Refusal::system("cannot start: "))
}

/// Carries out the request of a command that ends by itself; returns the exit status.
fn once(bucket: &BucketArgs, request: &Request, destination: Destination) -> Result<u8, Refusal> {
    let store = || connect::store(bucket, request);
    let existing_if = |is_needed: bool| {
        let mut store = store()?;
        if is_needed && open_existing(&mut *store, sys::now().after(REACH_MAX))?.is_none() {
            return Err(Refusal::new(Exit::Unsafe, no_such_bucket(&bucket.name)));
        }
        Ok(store)
    };
    let signals = || Endings::open().map_err(Refusal::system("no signals: "));
    let (name, source) = (&bucket.name, connect::source(bucket));
    let operation = |key, level| -> Result<_, Refusal> {
        Ok(Operation::new(key, level, &source, store()?, destination))
    };
    let (text, status) = match (request, &bucket.location) {
        (Request::Lock(request), Location::Dir(base)) => {
            return lock::run(request, LockLocation::Dir { base, bucket: name }, destination);
        }
        (Request::Lock(request), Location::Nats(_)) => {
            return lock::run(request, LockLocation::Nats(store()), destination);
        }
        (Request::Grab(request), Location::Dir(base)) => {
            grab::run_local(request, base, name, destination)?
        }
        (Request::Grab(request), Location::Nats(_)) => {
            grab::run(request, existing_if(request.needs_bucket())?, destination)?
        }
        (Request::Lease(request), _) => {
            lease::run(request, existing_if(request.needs_bucket())?, &source.base, destination)?
        }
        (Request::Put(put), _) => lease::run_put(put, existing_if(true)?, destination)?,
        (Request::Init, _) => (init::run(&mut *store()?, name, bucket.replicas)?, 0),
        (Request::Status(request), _) => status::run(request, &source, store()?)?,
        (Request::Switchover(request), _) => {
            switchover::run(request, operation(&request.key, request.level)?, signals()?)?
        }
        (Request::Pause(request), _) => {
            pause::run(request, operation(&request.key, request.level)?, signals()?)?
        }
    };
    print(&text).map(|_| status)
}

/// Measures whether all is fit; returns the exit status.
fn run_doctor(
    is_json: bool,
    args: Result<DoctorArgs, Refusal>,
    destination: Destination,
) -> Result<u8, Refusal> {
    let measured = args.and_then(|args| doctor::run(&args));
    let (text, status) = match measured {
        Ok(report) if is_json => (status::json(&report)?, report.status()),
        Ok(report) => (report.text(), report.status()),
        Err(refusal) if is_json => {
            destination.refuse(&refusal);
            return Ok(doctor::NOT_MEASURED);
        }
        Err(refusal) => (doctor::not_measured(&refusal), doctor::NOT_MEASURED),
    };
    print(&text).map(|_| status)
}

/// Makes sure that an agent which has ended left no service behind.
fn finish(args: &AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    let AgentArgs { guard, .. } = args;
    LogQueue::start(&guard.commands.key, guard.level, destination)
        .and_then(|log| {
            let identity = connect::identity(args);
            guard::finish(guard, &connect::runtime_base(), &identity, log)
        })
        .map_err(Refusal::system("cannot finish: "))
}
