//! Texts that a person types: the command line, and a list of servers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::Level;

use super::assert_one_line;
use crate::cli::access::Access;
use crate::cli::resolve::Resolved;
use crate::cli::{self, AgentArgs, BucketArgs, Environment, Invocation, Location, Lookup};
use crate::core::Instant;
use crate::core::lease::{LeaseTask, LeaseTime};
use crate::core::tickets::{self, Mode, Soft};
use crate::core::timing::Timing;
use crate::exit::{Exit, Refusal};
use crate::grab::{self, Task};
use crate::lease;
use crate::lock::Request;
use crate::nats::{Login, Secret, Server};
use crate::pause;
use crate::status::{self, Form};
use crate::store::name::{is_own, valid_bucket, valid_key};
use crate::switchover;

/// A password that no refusal may show.
const SECRET: &str = "hunter2";

/// Words with a zero byte after each; one that begins with `NATS_URL=` is the
/// variable. The line is refused in one line, with a status for it and without the
/// password of a URL; or what it asks for is valid and means the same when all of it
/// is written out.
pub fn cli(data: &[u8]) -> bool {
    let mut words: Vec<&[u8]> = data.split(|byte| *byte == 0).collect();
    if words.last() == Some(&&b""[..]) {
        words.pop();
    }
    let url = |word: &[u8]| word.strip_prefix(b"NATS_URL=").map(<[u8]>::to_vec);
    let env = words.iter().find_map(|word| url(word));
    let env = env.map(OsString::from_vec);
    words.retain(|word| url(word).is_none());
    let words = words.iter().map(|word| OsString::from_vec(word.to_vec()));
    let var = |name: &str| env.clone().filter(|_| name == "NATS_URL");
    match cli::parse(words, &environment(&var, "alpha")) {
        Ok(Invocation::Agent(args)) => {
            check_args(&args);
            return true;
        }
        Ok(Invocation::Finish(args, faults)) => {
            faults.iter().for_each(refused);
            if faults.is_empty() {
                check_args(&args);
            }
            return faults.is_empty();
        }
        Ok(Invocation::Check(args)) => return checked(&args.resolved),
        Ok(Invocation::Once(bucket, request)) => {
            check_once(&bucket, &request);
            return true;
        }
        Ok(Invocation::Doctor { args, .. }) => match *args {
            Ok(args) => {
                assert_eq!(valid_bucket(&args.bucket.name), Ok(()));
                assert!((10..=10_000).contains(&args.samples));
                assert_eq!(args.key.as_deref().map_or(Ok(()), valid_key), Ok(()));
                return true;
            }
            Err(refusal) => refused(&refusal),
        },
        Ok(Invocation::Print(text)) => assert!(text.ends_with('\n')),
        Ok(Invocation::Guard) => {}
        Err(refusal) => refused(&refusal),
    }
    false
}

fn check_once(bucket: &BucketArgs, request: &cli::Request) {
    assert_eq!(valid_bucket(&bucket.name), Ok(()));
    assert!((1..=5).contains(&bucket.replicas));
    match request {
        cli::Request::Init => {}
        cli::Request::Lock(request) => check_lock(bucket, request),
        cli::Request::Grab(request) => check_grab(request),
        cli::Request::Lease(request) => check_lease(request),
        cli::Request::Put(put) => {
            assert_eq!(valid_key(&put.key), Ok(()));
            assert!(!is_own(&put.key));
        }
        cli::Request::Status(request) => check_status(request),
        cli::Request::Switchover(switchover::Request { key, wait, .. }) => {
            assert_eq!(valid_key(key), Ok(()));
            assert!((1..=3600).contains(&wait.as_secs()));
        }
        cli::Request::Pause(pause::Request { key, wait, action, .. }) => {
            assert_eq!(valid_key(key), Ok(()));
            assert!((1..=3600).contains(&wait.as_secs()));
            if let pause::Action::Pause { lasts, reason, .. } = action {
                assert!((1..=7 * 24 * 3600).contains(&lasts.as_secs()) && reason.len() <= 200);
            }
        }
    }
}

fn check_status(status::Request { keys, form }: &status::Request) {
    let is_of_one = matches!(form, Form::Print(_) | Form::Exit(_));
    assert!(!is_of_one || keys.len() == 1);
    assert!(keys.iter().all(|key| !key.trim().is_empty()));
}

/// Without a configuration file.
pub(super) fn environment<'a>(var: Lookup<'a>, host: &'a str) -> Environment<'a> {
    let read = &|_: &Path| Ok(None);
    Environment { var, host, read }
}

pub(super) fn refused(refusal: &Refusal) {
    assert!(matches!(refusal.exit, Exit::Usage | Exit::Unsafe));
    assert_one_line(&refusal.text);
    let shown = refusal.text.contains(&format!("{SECRET}@"));
    assert!(!shown, "a password is shown: {}", refusal.text);
}

/// Either something is asked for, or something is wrong.
fn checked(found: &Resolved) -> bool {
    found.faults.iter().for_each(refused);
    match &found.args {
        Some(args) if found.faults.is_empty() => check_args(args),
        Some(_) | None => assert!(!found.faults.is_empty()),
    }
    found.faults.is_empty()
}

pub(super) fn check_args(args: &AgentArgs) {
    let commands = &args.guard.commands;
    assert_eq!(valid_key(&commands.key), Ok(()));
    assert_eq!(valid_bucket(&args.bucket.name), Ok(()));
    assert_one_line(&commands.token);
    assert!(!commands.token.is_empty() && commands.token.trim() == commands.token);
    let required = [Some(&commands.start), Some(&commands.stop)];
    let perhaps = [commands.check.as_ref(), commands.last_resort.as_ref()];
    for command in required.into_iter().chain(perhaps).flatten() {
        assert!(!command.trim().is_empty());
    }
    assert!((1..=5).contains(&args.bucket.replicas));
    assert!((1..=100).contains(&args.config.check_failures));
    assert!(args.config.start_grace.as_secs() <= 3600);
    let t = args.guard.timing;
    let again = Timing::new(t.renewal(), t.failures(), t.confirmations(), t.drift_ppm());
    assert_eq!(again, Ok(t));
    let again = match cli::parse(written_out(args), &environment(&|_| None, "beta")) {
        Ok(Invocation::Agent(args)) => text_of(&args),
        other => panic!("{args:?} written out is {other:?}"),
    };
    assert_eq!(again, text_of(args));
}

/// Returns all of it but how the user wrote the settings.
fn text_of(args: &AgentArgs) -> String {
    let text = format!("{args:?}");
    match &args.bucket.location {
        Location::Nats(access) => text.replace(&format!("{:?}", access.files), ""),
        Location::Dir(_) => text,
    }
}

/// Returns the whole command line, with nothing left to a default but the place.
fn written_out(args: &AgentArgs) -> Vec<OsString> {
    let commands = &args.guard.commands;
    let t = args.guard.timing;
    let mut words = vec![
        "agent".to_owned(),
        format!("--bucket={}", args.bucket.name),
        format!("--key={}", commands.key),
        format!("--token={}", commands.token),
        format!("--start={}", commands.start),
        format!("--stop={}", commands.stop),
        format!("-r{}ms", t.renewal().as_millis()),
        format!("-f={}", t.failures()),
        format!("-c{}", t.confirmations()),
        format!("--drift={}.{:04}%", t.drift_ppm() / 10_000, t.drift_ppm() % 10_000),
        format!("--replicas={}", args.bucket.replicas),
        format!("--check-failures={}", args.config.check_failures),
        format!("--priority={}", args.config.priority),
        format!("--seats={}", args.config.seats),
        format!("--start-grace={}ms", args.config.start_grace.as_millis()),
    ];
    let failback = args.config.failback;
    words.extend(failback.map(|after| format!("--failback={}ms", after.as_millis())));
    words.extend(commands.check.as_ref().map(|text| format!("--healthcheck={text}")));
    words.extend(commands.last_resort.as_ref().map(|text| format!("--last-resort={text}")));
    words.extend(args.guard.device.as_ref().map(|(path, required)| {
        format!("--watchdog={path}{}", if *required { ":required" } else { "" })
    }));
    words.extend(args.notify_fd.map(|number| format!("--notify-fd={number}")));
    let switches = [("--allow-memory", args.bucket.allow_memory), ("--syslog", args.guard.syslog)];
    words.extend(switches.iter().filter(|switch| switch.1).map(|switch| switch.0.to_owned()));
    if let Location::Nats(access) = &args.bucket.location {
        words.extend(access_written_out(access));
    }
    words.extend(level_written_out(args.guard.level, Level::Info));
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if let Location::Dir(dir) = &args.bucket.location {
        words.extend([OsString::from("--dir"), dir.into()]);
    }
    words
}

/// A command that is to run: it means the same when
/// all of it is written out.
fn check_lock(bucket: &BucketArgs, request: &Request) {
    let Request { token, command, timing, .. } = request;
    assert_one_line(token);
    assert!(!command.is_empty());
    assert!(timing.validity_of(timing.lifetime()) > timing.renewal() * 2);
    let words = lock_written_out(bucket, request);
    let again = match cli::parse(words, &environment(&|_| None, "beta")) {
        Ok(Invocation::Once(bucket, request)) => format!("{bucket:?} {request:?}"),
        other => panic!("{request:?} written out is {other:?}"),
    };
    assert_eq!(again, format!("{bucket:?} Lock({request:?})"));
}

/// A lock for a script, which runs out in a time that others can read.
fn check_grab(request: &grab::Request) {
    assert_one_line(&request.who);
    assert!(!request.who.trim().is_empty());
    match &request.task {
        Task::Grab { timing, wait, withdraws, .. } => {
            let lifetimes = tickets::grab::LIFETIME_MIN..=tickets::grab::LIFETIME_MAX;
            assert!(lifetimes.contains(&timing.lifetime()));
            assert!(timing.validity_of(timing.lifetime()) > timing.renewal());
            assert!(!withdraws || wait.is_zero());
        }
        Task::Release => {}
        Task::Break(holder) => assert!(!holder.trim().is_empty()),
    }
}

/// A lease that others can read.
fn check_lease(request: &lease::Request) {
    assert_one_line(&request.who);
    if let lease::Task::One(
        _,
        LeaseTask::Claim { holder, at_least } | LeaseTask::Extend { holder, at_least },
    ) = &request.task
    {
        assert!(!holder.trim().is_empty());
        let time = LeaseTime::guaranteeing(*at_least, request.drift_ppm);
        assert!(time.duration <= tickets::grab::LIFETIME_MAX);
    }
}

fn lock_written_out(bucket: &BucketArgs, request: &Request) -> Vec<OsString> {
    let BucketArgs { location, name, replicas, allow_memory } = bucket;
    let (timing, later) = (request.timing, Instant::from_boot(Duration::from_secs(1 << 40)));
    let (r, lifetime) = (timing.renewal(), timing.lifetime());
    let lost = (lifetime - timing.validity_of(lifetime)).as_nanos() * 1_000_000;
    let drift = lost / lifetime.as_nanos();
    let kill = timing.kill_times(later);
    let seconds = |time: Duration| format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    let mut words = vec![
        "lock".to_owned(),
        format!("--bucket={name}"),
        format!("--replicas={replicas}"),
        format!("--token={}", request.token),
        format!("-E{}", request.busy_status),
        format!("-r{}ms", r.as_millis()),
        format!("-f{}", lifetime.as_nanos() / r.as_nanos()),
        format!("-k{}", seconds(kill.kill_at.since(kill.terminate_at))),
        format!("--drift={}.{:04}%", drift / 10_000, drift % 10_000),
    ];
    words.extend(request.wait.map(|time| format!("--wait={}", seconds(time))));
    words.push(match request.mode {
        Mode::Shared => "-s".to_owned(),
        Mode::Exclusive => "-x".to_owned(),
        Mode::Slots(count) => format!("--slots={count}"),
    });
    if let Some(Soft { quiet_for, hard_after }) = request.soft {
        words.push(format!("--quiet-for={}", seconds(quiet_for)));
        words.extend(hard_after.map(|after| format!("--hard-after={}", seconds(after))));
    }
    words.extend(allow_memory.then(|| "--allow-memory".to_owned()));
    words.extend(request.closes.then(|| "-o".to_owned()));
    words.extend(level_written_out(request.level, Level::Warn));
    if let Location::Nats(access) = location {
        words.extend(access_written_out(access));
    }
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    if let Location::Dir(dir) = location {
        words.extend([OsString::from("--dir"), dir.into()]);
    }
    // The name may begin with - too.
    let name = request.name.to_string();
    words.extend(["--", &name, "--"].map(OsString::from));
    words.extend(request.command.iter().cloned());
    words
}

fn level_written_out(level: u64, usual: Level) -> Option<String> {
    let word = match level as i64 - usual as i64 {
        -2 => "-qq",
        -1 => "-q",
        1 => "-v",
        2 => "-vv",
        _ => return None,
    };
    Some(word.to_owned())
}

fn url_of(server: &Server) -> String {
    let coded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let given = |secret: &Secret| match secret {
        Secret::Given(text) => coded(text),
        Secret::File(_) => panic!("a URL names no file"),
    };
    let login = match &server.login {
        Login::User { name, password } => format!("{}:{}@", coded(name), given(password)),
        Login::Token(token) => format!("{}@", given(token)),
        Login::None | Login::Nkey(_) | Login::Creds(_) => String::new(),
    };
    format!("{}://{login}{server}", if server.tls { "tls" } else { "nats" })
}

fn access_written_out(access: &Access) -> Vec<String> {
    let path = |path: &PathBuf| path.display().to_string();
    let mut pairs = vec![
        ("nats", Some(access.servers.iter().map(url_of).collect::<Vec<_>>().join(","))),
        ("tlsca", access.tls.ca.as_ref().map(path)),
        ("inbox-prefix", access.inbox.clone()),
        ("js-api-prefix", access.api.clone()),
    ];
    if let Some((certificate, key)) = &access.tls.certificate {
        pairs.push(("tlscert", Some(path(certificate))));
        pairs.push(("tlskey", Some(path(key))));
    }
    match &access.login {
        None | Some(Login::None) => {}
        Some(Login::User { name, password }) => {
            pairs.push(("user", Some(name.clone())));
            pairs.push(("password-file", file(password)));
        }
        Some(Login::Token(token)) => pairs.push(("auth-token-file", file(token))),
        Some(Login::Nkey(file)) => pairs.push(("nkey", Some(path(file)))),
        Some(Login::Creds(file)) => pairs.push(("creds", Some(path(file)))),
    }
    let given = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let mut words: Vec<String> = given.map(|(name, value)| format!("--{name}={value}")).collect();
    words.extend(access.tls.first.then(|| "--tlsfirst".to_owned()));
    words
}

/// No secret is on a command line: only the name of its file.
fn file(secret: &Secret) -> Option<String> {
    match secret {
        Secret::File(path) => Some(path.display().to_string()),
        Secret::Given(word) => {
            assert_eq!(word, "", "given on the command line");
            None
        }
    }
}

/// A list of servers: refused in one line that holds nothing behind an `@`'s reach,
/// or every server of it can be written and means the same.
pub fn servers(data: &[u8]) -> bool {
    let Ok(list) = str::from_utf8(data) else {
        return false;
    };
    let servers = match Server::parse_list(list) {
        Ok(servers) => servers,
        Err(error) => {
            let text = error.to_string();
            assert_one_line(&text);
            let number = text.strip_prefix("server ").and_then(|rest| rest.split_once(": "));
            let numbered = number.is_some_and(|(number, _)| number.parse::<usize>().is_ok());
            assert!(numbered, "{text}");
            return false;
        }
    };
    assert_eq!(servers.len(), list.split(',').count());
    let list: Vec<String> = servers.iter().map(url).collect();
    assert_eq!(Server::parse_list(&list.join(",")).as_ref(), Ok(&servers));
    for server in servers {
        assert!(server.port > 0 && !server.host.is_empty());
        let shown = server.to_string();
        assert_one_line(&shown);
        assert!(shown.len() <= server.host.len() + 8, "{shown}");
    }
    true
}

/// Returns a server as a URL, with all in it that has to be escaped, and more.
fn url(server: &Server) -> String {
    let escape = |text: &str| {
        let bytes = text.bytes().map(|byte| format!("%{byte:02x}"));
        bytes.collect::<String>()
    };
    let word = |secret: &Secret| match secret {
        Secret::Given(word) => escape(word),
        Secret::File(path) => panic!("{}: a URL names no files", path.display()),
    };
    let scheme = if server.tls { "tls://" } else { "nats://" };
    assert_eq!(server.tls_name, server.host);
    match &server.login {
        Login::None if server.tls => format!("{scheme}{server}"),
        Login::None => format!("{scheme}{server}/"),
        Login::User { name, password } => {
            format!("{scheme}{}:{}@{server}", escape(name), word(password))
        }
        Login::Token(token) => format!("{scheme}{}@{server}", word(token)),
        Login::Nkey(_) | Login::Creds(_) => panic!("a URL names no files"),
    }
}
