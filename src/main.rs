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
use putex::cli::connect::{self, Use};
use putex::cli::lease::Action;
use putex::cli::{
    self, AgentArgs, BucketArgs, CheckArgs, DoctorArgs, Environment, GrabArgs, Invocation,
    LeaseArgs, Location, LockArgs, PauseArgs, StatusArgs, SwitchoverArgs,
};
use putex::core::{AgentId, Config, GuardConfig, Incarnation, REACH_MAX};
use putex::doctor;
use putex::exit::{Exit, Refusal};
use putex::grab;
use putex::guard::{self, Identity};
use putex::init;
use putex::lease;
use putex::lock;
use putex::log::{Destination, LogQueue};
use putex::nats::file;
use putex::pause;
use putex::status;
use putex::store::Bucket;
use putex::store::name::no_such_bucket;
use putex::switchover;
use putex::sys;

fn main() -> ExitCode {
    sys::raw::hear_of_children();
    // Without the handler putex runs too, until a file of the log is full.
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
        Ok(
            Invocation::Check(_)
            | Invocation::Doctor { .. }
            | Invocation::Grab(_)
            | Invocation::Guard
            | Invocation::Init(_)
            | Invocation::Lease(_)
            | Invocation::Lock(_)
            | Invocation::Pause(_)
            | Invocation::Print(_)
            | Invocation::Status(_)
            | Invocation::Switchover(_),
        )
        | Err(_) => stderr,
    };
    // An agent and a guard take the signals themselves, and no other is to end them: with the first
    // process of a container the service is killed.
    if !matches!(invocation, Ok(Invocation::Agent(_) | Invocation::Guard)) {
        // Without it a signal has no effect, but all else goes on.
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
        Invocation::Init(args) => run_init(&args).map(number),
        Invocation::Lock(args) => run_lock(&args, destination),
        Invocation::Grab(args) => run_grab(&args, destination),
        Invocation::Lease(args) => run_lease(&args, destination),
        Invocation::Status(args) => run_status(&args),
        Invocation::Doctor { is_json, args } => run_doctor(is_json, *args, destination),
        Invocation::Switchover(args) => run_switchover(&args, destination),
        Invocation::Pause(args) => run_pause(&args, destination),
        Invocation::Guard => guard::run(stderr).map(number),
    });
    ExitCode::from(ended.unwrap_or_else(|refusal| destination.refuse(&refusal) as u8))
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
    print_to_reader(text).map(|_| Exit::Success)
}

/// Prints; returns whether the text has a reader. One that has closed the pipe needs no more of it.
fn print_to_reader(text: &str) -> Result<bool, Refusal> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Refusal::system("cannot print: ")(error)),
    }
}

/// Returns the identity of this agent by its settings as they are now, if they can be used.
fn identity_now() -> Option<Identity> {
    let environment =
        Environment { var: &variable, host: &sys::host_name(), read: &file::read_trusted };
    match cli::parse(env::args_os().skip(1), &environment) {
        Ok(Invocation::Agent(args)) => Some(connect::identity(&args, &variable)),
        Ok(_) | Err(_) => None,
    }
}

fn run_agent(args: AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    // First of all: this process may open a descriptor of that number.
    let service_manager = ServiceManager::of_environment(args.notify_fd, &variable)
        .map_err(|text| Refusal::new(Exit::Usage, text))?;
    let number = sys::random().map_err(Refusal::system("no random numbers: "))?;
    let incarnation = Incarnation(number);
    let store = connect::agent_store(&args, incarnation, &variable)?;
    let signals = Signals::open().map_err(Refusal::system("no signals: "))?;
    let log_queue = LogQueue::start(&args.guard.commands.key, args.guard.level, destination)
        .map_err(Refusal::system("no log thread: "))?;
    let identity = connect::identity(&args, &variable);
    let is_local = matches!(args.bucket.location, Location::Dir(_));
    let AgentArgs { guard, start_grace, check_failures, seats, agents, observes, .. } = args;
    let (priority, failback, metrics_file) = (args.priority, args.failback, args.metrics_file);
    let GuardConfig { timing, last_resort, device } = guard.config();
    let check = guard.commands.check.is_some();
    let config = Config {
        timing,
        check,
        start_grace,
        check_failures,
        priority,
        failback,
        seats,
        observes,
        last_resort,
        device,
    };
    let setup = Setup {
        config,
        id: AgentId {
            token: guard.commands.token.clone(),
            incarnation,
            host: sys::host_name(),
            boot: sys::boot_id(),
        },
        guard,
        metrics_file,
        log: &log_queue,
        destination,
        base: connect::runtime_base(),
        identity,
        identity_now,
        store,
        agents,
        is_local,
        service_manager,
        signals,
    };
    let ended = agent::run(setup);
    drop(log_queue);
    ended.map_err(Refusal::system("cannot start: "))
}

/// Makes a bucket.
fn run_init(args: &BucketArgs) -> Result<Exit, Refusal> {
    let is_local = matches!(args.location, Location::Dir(_));
    let of = Use::without_locks("init".to_owned());
    let mut store = connect::store(args, &of, &variable)?;
    init::run(&mut *store, &args.name, is_local).and_then(|text| print(&text))
}

/// Runs a command while a lock is held; returns the exit status.
fn run_lock(args: &LockArgs, destination: Destination) -> Result<u8, Refusal> {
    if let Location::Dir(base) = &args.bucket.location {
        return lock::run_local(&args.request, base, &args.bucket.name, destination);
    }
    let store = connect::store(&args.bucket, &Use::of_lock(&args.request), &variable);
    lock::run(&args.request, store, destination)
}

/// Gets a lock for a script, or releases it; returns the exit status.
fn run_grab(args: &GrabArgs, destination: Destination) -> Result<u8, Refusal> {
    let (text, status) = match &args.bucket.location {
        Location::Dir(base) => {
            grab::run_local(&args.request, base, &args.bucket.name, destination)?
        }
        Location::Nats(_) => {
            let mut store = connect::store(&args.bucket, &Use::of_grab(&args.request), &variable)?;
            if args.request.needs_bucket() {
                require_bucket(&mut *store, &args.bucket.name)?;
            }
            grab::run(&args.request, store, destination)?
        }
    };
    print(&text).map(|_| status)
}

/// Refuses a bucket that does not exist.
fn require_bucket(store: &mut dyn Bucket, bucket: &str) -> Result<(), Refusal> {
    let opened = store.open_existing(sys::now().after(REACH_MAX))?;
    let missing = || Refusal::new(Exit::Unsafe, no_such_bucket(bucket));
    opened.map(drop).ok_or_else(missing)
}

/// Does something with leases; returns the exit status.
fn run_lease(args: &LeaseArgs, destination: Destination) -> Result<u8, Refusal> {
    let is_local = matches!(args.bucket.location, Location::Dir(_));
    let mut store = connect::store(&args.bucket, &Use::of_lease(&args.action), &variable)?;
    let needs_bucket = match &args.action {
        Action::Lease(request) => request.needs_bucket(),
        Action::Put(_) => true,
    };
    if needs_bucket {
        require_bucket(&mut *store, &args.bucket.name)?;
    }
    let (text, status) = match &args.action {
        Action::Lease(request) => {
            let base = connect::runtime_base();
            lease::run(request, store, is_local, &base, destination)?
        }
        Action::Put(put) => lease::run_put(put, store, is_local, destination)?,
    };
    print(&text).map(|_| status)
}

/// Shows who holds what; returns the exit status.
fn run_status(args: &StatusArgs) -> Result<u8, Refusal> {
    let of = Use::without_locks("status".to_owned());
    let store = connect::store(&args.bucket, &of, &variable)?;
    status::run(&args.request, store, &connect::runtime_base(), print_to_reader)
}

/// Measures whether all is fit; returns the exit status.
fn run_doctor(
    is_json: bool,
    args: Result<DoctorArgs, Refusal>,
    destination: Destination,
) -> Result<u8, Refusal> {
    let measured = args.and_then(|args| doctor::run(&args, &connect::runtime_base(), &variable));
    let (text, status) = match measured {
        Ok(report) if is_json => (report.json()?, report.status()),
        Ok(report) => (report.text(), report.status()),
        Err(refusal) if is_json => {
            destination.refuse(&refusal);
            return Ok(doctor::NOT_MEASURED);
        }
        Err(refusal) => (doctor::not_measured(&refusal), doctor::NOT_MEASURED),
    };
    print(&text).map(|_| status)
}

/// Moves a lock to another agent; returns the exit status.
fn run_switchover(args: &SwitchoverArgs, destination: Destination) -> Result<u8, Refusal> {
    let signals = sys::signals::take_ending().map_err(Refusal::system("no signals: "))?;
    let of = Use::without_locks(format!("switchover {}", args.request.key));
    let store = connect::store(&args.bucket, &of, &variable)?;
    let base = connect::runtime_base();
    let (text, status) = switchover::run(&args.request, store, &base, destination, signals)?;
    print(&text).map(|_| status)
}

/// Begins or ends a pause; returns the exit status.
fn run_pause(args: &PauseArgs, destination: Destination) -> Result<u8, Refusal> {
    let of = Use::without_locks(format!("pause {}", args.request.key));
    let store = connect::store(&args.bucket, &of, &variable)?;
    let (text, status) = pause::run(&args.request, store, &connect::runtime_base(), destination)?;
    print(&text).map(|_| status)
}

/// Sees that an agent which has ended left no service behind.
fn finish(args: &AgentArgs, destination: Destination) -> Result<Exit, Refusal> {
    let AgentArgs { guard, .. } = args;
    LogQueue::start(&guard.commands.key, guard.level, destination)
        .and_then(|log| {
            let identity = connect::identity(args, &variable);
            guard::finish(guard, &connect::runtime_base(), &identity, log)
        })
        .map_err(Refusal::system("cannot finish: "))
}
