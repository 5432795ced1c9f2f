//! Reads a story, plays it to a pump and writes down what happens.
//!
//! Events, as a story writes them (times in milliseconds since boot):
//!
//! ```text
//! setup r=500 f=3 c=1 [check=no] [token=alpha] [last-resort=yes] [guard=none|slow]
//!       [dead=b] [inherited=1485] [boot=boot-1]     first line of a story
//!       (inherited: term 8, after beta, in epoch e1)
//! at 0 tick
//! at 0 opened KEY [last=9] [epoch=e2] [age=60000] [replicas=3]
//! at 0 closed WHY...          at 0 rejected WHY...
//! at 0 read KEY               at 0 read-fails WHY...
//! at 0 stored 8   moved [9]   denied WHY...   unknown WHY...
//! at 0 hint [9]               at 0 twin TOKEN INCARNATION HOST
//! at 0 ended start ok|failed|overran
//! at 0 guard ready|armed      at 0 guard unfit|lost WHY...
//! at 0 shutdown SIGTERM
//! KEY: absent | marker rev=5 | blank rev=5 | plain beta rev=5
//!    | held beta rev=5 [inc=b] [nonce=1] [state=taking] [r= f= c=] [grace=500]
//!    | released rev=5 [inc=b]
//! ```
//!
//! Incarnation `a` is the pump's own. There is a guard from the beginning, and it
//! answers at once, unless the story says otherwise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use putex::core::command::{Command, LockContext, Outcome, Run};
use putex::core::event::{Effect, Event, Level, Notice, Opened, Rejection, Sentry, Written};
use putex::core::guard::{Fence, Inherited, Watch};
use putex::core::pump::{AgentId, Config, Pump, bounce};
use putex::core::record::{
    BucketId, Incarnation, KeyState, KeyValue, Lease, Record, RecordState, Revision,
};
use putex::core::time::Instant;
use putex::core::timing::Timing;

/// Plays the story and returns it as it really goes.
pub(crate) fn tell(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut pump: Option<Pump> = None;
    let mut skipping = false;
    let mut running = [false; Command::ALL.len()];
    let mut prompt = true;
    for line in text.lines() {
        if skipping || line == "----" {
            skipping = !line.is_empty();
            continue;
        }
        if line.starts_with('#') || line.is_empty() {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        out.push_str(line);
        out.push('\n');
        let wrong = |why: &str| format!("{line}: {why}");
        if let Some(setup) = line.strip_prefix("setup ") {
            let words = Words::new(setup);
            prompt = !words.named.contains_key("guard");
            running[Command::Start as usize] = words.named.contains_key("start-dies");
            pump = Some(set_up(&words).map_err(|why| wrong(&why))?);
            continue;
        }
        let rest = line
            .strip_prefix("at ")
            .ok_or_else(|| wrong("not an event"))?;
        let (at, what) = rest.split_once(' ').ok_or_else(|| wrong("no event"))?;
        let now = at.parse().map(ms).map_err(|_| wrong("no time"))?;
        let event = parse(what).map_err(|why| wrong(&why))?;
        if let Event::Ended(command, _) = event
            && !std::mem::take(&mut running[command as usize])
        {
            return Err(wrong("that command does not run"));
        }
        let before = pump.take().ok_or_else(|| wrong("no setup"))?;
        let (mut after, mut effects) = bounce(before, &event, now);
        if prompt
            && effects
                .iter()
                .any(|effect| matches!(effect, Effect::Guard(Watch::MayRun(_), _)))
        {
            let (armed, more) = bounce(after, &Event::Guard(Sentry::Armed), now);
            after = armed;
            effects.extend(more);
        }
        out.push_str("----\n");
        for effect in &effects {
            if let Effect::Run(run) = effect
                && std::mem::replace(&mut running[run.command as usize], true)
            {
                return Err(wrong("two instances of one command"));
            }
            writeln!(out, "{}", show(effect)).unwrap();
        }
        let next = after.deadline();
        if next.is_some_and(|next| next <= now) {
            return Err(wrong("the next deadline is not in the future"));
        }
        let next = next.map_or("never".to_owned(), show_at);
        writeln!(out, "{}, next {next}\n", after.state()).unwrap();
        pump = Some(after);
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    Ok(out)
}

fn ms(ms: u64) -> Instant {
    Instant::from_boot(Duration::from_millis(ms))
}

fn show_at(at: Instant) -> String {
    let micros = at.since_boot().as_micros();
    if micros.is_multiple_of(1000) {
        return format!("{}", micros / 1000);
    }
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// Plain words, and `name=value` pairs, of one line.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let (mut plain, mut named) = (Vec::new(), BTreeMap::new());
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => drop(named.insert(name, value)),
                None => plain.push(word),
            }
        }
        Words { plain, named }
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.named.get(name) else {
            return Ok(default);
        };
        text.parse().map_err(|_| format!("{name} is no number"))
    }

    fn word(&self, at: usize) -> Result<&'a str, String> {
        self.plain
            .get(at)
            .copied()
            .ok_or_else(|| "a word is missing".to_owned())
    }

    fn incarnation(&self) -> Incarnation {
        let letter = self.named.get("inc").unwrap_or(&"b");
        Incarnation(u128::from(letter.as_bytes()[0]))
    }
}

fn set_up(words: &Words<'_>) -> Result<Pump, String> {
    let renewal = Duration::from_millis(words.number("r", 500)?);
    let count = |name, default| {
        words
            .number(name, default)
            .map(|n| u32::try_from(n).unwrap())
    };
    let timing = Timing::new(
        renewal,
        count("f", 3)?,
        count("c", 1)?,
        count("drift", 10_000)?,
    )
    .map_err(|refused| refused.0)?;
    let check = words.named.get("check") != Some(&"no");
    let me = AgentId {
        token: (*words.named.get("token").unwrap_or(&"alpha")).to_owned(),
        incarnation: Incarnation(u128::from(b'a')),
        host: "alpha".to_owned(),
        boot: (*words.named.get("boot").unwrap_or(&"boot-1")).to_owned(),
        dead: words
            .named
            .get("dead")
            .map(|letter| Incarnation(u128::from(letter.as_bytes()[0])))
            .into_iter()
            .collect(),
    };
    let config = Config {
        timing,
        check,
        last_resort: words.named.contains_key("last-resort"),
    };
    let inherited = match words.number("inherited", 0)? {
        0 => None,
        valid_until => Some(Inherited {
            fence: Fence::of_lock(ms(valid_until), timing),
            under: LockContext {
                term: Some(Revision(8)),
                epoch: Some("e1".to_owned()),
                previous: Some("beta".to_owned()),
            },
            start_dies: words.named.contains_key("start-dies"),
        }),
    };
    let pump = Pump::new(config, me, inherited, ms(0));
    if words.named.get("guard") == Some(&"none") {
        return Ok(pump);
    }
    let (pump, _) = bounce(pump, &Event::Guard(Sentry::Ready), ms(0));
    Ok(pump)
}

fn parse(text: &str) -> Result<Event, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words = Words::new(rest);
    let revision = || -> Result<Option<Revision>, String> {
        match words.plain.first() {
            Some(text) => Ok(Some(Revision(text.parse().map_err(|_| "no revision")?))),
            None => Ok(None),
        }
    };
    let why = rest.to_owned();
    Ok(match verb {
        "tick" => Event::Tick,
        "opened" => opened(&words)?,
        "closed" => Event::Closed(why),
        "rejected" => Event::Rejected(Rejection::Unsafe(why)),
        "read" => Event::Read(Ok(key_state(&words)?)),
        "read-fails" => Event::Read(Err(why)),
        "stored" => Event::Written(Written::Stored(revision()?.ok_or("no revision")?)),
        "moved" => Event::Written(Written::Moved(revision()?)),
        "denied" => Event::Written(Written::Denied(why)),
        "unknown" => Event::Written(Written::Unknown(why)),
        "hint" => Event::Hint(revision()?),
        "twin" => Event::Twin(Notice {
            token: words.word(0)?.to_owned(),
            incarnation: words.word(1)?.to_owned(),
            host: words.word(2)?.to_owned(),
        }),
        "ended" => Event::Ended(command(words.word(0)?)?, outcome(words.word(1)?)?),
        "guard" => Event::Guard(guard(rest)?),
        "shutdown" if rest == "SIGTERM" => Event::Shutdown("SIGTERM"),
        other => return Err(format!("unknown event {other}")),
    })
}

fn guard(text: &str) -> Result<Sentry, String> {
    let (what, why) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match what {
        "ready" => Sentry::Ready,
        "armed" => Sentry::Armed,
        "unfit" => Sentry::Unfit(why.to_owned()),
        "lost" => Sentry::Lost(why.to_owned()),
        other => return Err(format!("unknown word {other} of the guard")),
    })
}

fn opened(words: &Words<'_>) -> Result<Event, String> {
    let key_state = key_state(words)?;
    let age = match words.named.contains_key("age") {
        true => Some(Duration::from_millis(words.number("age", 0)?)),
        false => None,
    };
    let epoch = (*words.named.get("epoch").unwrap_or(&"e1")).to_owned();
    let replicas = u32::try_from(words.number("replicas", 1)?).unwrap();
    let last = Revision(words.number("last", key_state.revision.0.max(1))?);
    let bucket = BucketId {
        epoch,
        created: "yesterday".to_owned(),
    };
    Ok(Event::Opened(Opened {
        bucket,
        last,
        age,
        replicas,
        key_state,
        remarks: Vec::new(),
    }))
}

fn key_state(words: &Words<'_>) -> Result<KeyState, String> {
    let kind = words.word(0)?;
    let token = words.plain.get(1).copied().unwrap_or("").to_owned();
    let record = |token, lease| KeyValue::Record(Record { token, lease });
    let found = match kind {
        "absent" => KeyValue::Absent,
        "marker" => KeyValue::Marker,
        "blank" => record(String::new(), None),
        "plain" => record(token, None),
        "released" => record(
            String::new(),
            Some(lease(words, "beta", RecordState::Released)?),
        ),
        "held" => {
            let taking = words.named.get("state") == Some(&"taking");
            let standing = if taking {
                RecordState::Taking
            } else {
                RecordState::Active
            };
            let lease = lease(words, &token, standing)?;
            record(token, Some(lease))
        }
        other => return Err(format!("unknown key {other}")),
    };
    Ok(KeyState {
        revision: Revision(words.number("rev", 0)?),
        found,
    })
}

fn lease(words: &Words<'_>, host: &str, standing: RecordState) -> Result<Lease, String> {
    let renewal = Duration::from_millis(words.number("r", 500)?);
    let confirmations = u32::try_from(words.number("c", 1)?).unwrap();
    let grace = u64::try_from((renewal * confirmations).as_millis()).unwrap();
    Ok(Lease {
        incarnation: words.incarnation(),
        nonce: words.number("nonce", 1)?,
        host: host.to_owned(),
        boot: (*words.named.get("boot").unwrap_or(&"boot-9")).to_owned(),
        renewal,
        failures: u32::try_from(words.number("f", 3)?).unwrap(),
        confirmations,
        grace: Duration::from_millis(words.number("grace", grace)?),
        term: match words.number("term", 0)? {
            0 => None,
            term => Some(Revision(term)),
        },
        standing,
    })
}

fn command(name: &str) -> Result<Command, String> {
    match name {
        "check" => Ok(Command::Check),
        "start" => Ok(Command::Start),
        "stop" => Ok(Command::Stop),
        "last-resort" => Ok(Command::LastResort),
        other => Err(format!("unknown command {other}")),
    }
}

fn outcome(name: &str) -> Result<Outcome, String> {
    match name {
        "ok" => Ok(Outcome::Succeeded),
        "failed" => Ok(Outcome::Failed("exit status 1".to_owned())),
        "overran" => Ok(Outcome::Overran),
        other => Err(format!("unknown outcome {other}")),
    }
}

fn show(effect: &Effect) -> String {
    match effect {
        Effect::Read { deadline } => format!("read by {}", show_at(*deadline)),
        Effect::Write {
            expected,
            record,
            deadline,
        } => {
            let what = show_record(record);
            format!("write if {expected}: {what}, by {}", show_at(*deadline))
        }
        Effect::Announce => "announce".to_owned(),
        Effect::Guard(Watch::Down, _) => "guard: down".to_owned(),
        Effect::Guard(Watch::MayRun(fence), under) => show_fence(fence, under),
        Effect::ReplaceGuard => "replace the guard".to_owned(),
        Effect::KillService => "kill the service".to_owned(),
        Effect::Run(run) => show_run(run),
        Effect::Extend(command, at) => format!("extend {} to {}", command.name(), show_at(*at)),
        Effect::Kill(command) => format!("kill {}", command.name()),
        Effect::Say(level, text) => {
            let level = match level {
                Level::Error => "error",
                Level::Warn => "warn",
                Level::Info => "info",
                Level::Debug => "debug",
            };
            format!("{level}: {text}")
        }
        Effect::Exit(ending) => format!("exit {ending:?}"),
    }
}

fn show_fence(fence: &Fence, under: &LockContext) -> String {
    let act_at = show_at(fence.act_at);
    let mut text = format!(
        "guard: until {}, act at {act_at}, dead by {}",
        show_at(fence.valid_until),
        show_at(fence.dead_by)
    );
    if let Some(until) = fence.stop_until {
        write!(text, ", after stop at {}", show_at(until)).unwrap();
    }
    if fence.resorted {
        text.push_str(", resorted");
    }
    if let Some(term) = under.term {
        write!(text, " term={term}").unwrap();
    }
    text
}

fn show_run(run: &Run) -> String {
    let mut text = format!(
        "run {} {} by {}",
        run.command.name(),
        run.role,
        show_at(run.deadline)
    );
    if run.starting {
        text.push_str(" starting");
    }
    if let Some(term) = run.under.term {
        write!(text, " term={term}").unwrap();
    }
    if let Some(previous) = &run.under.previous {
        write!(text, " previous={previous}").unwrap();
    }
    text
}

fn show_record(record: &Record) -> String {
    let lease = record.lease.as_ref().expect("the pump writes leases only");
    let token = if record.token.is_empty() {
        "(blank)"
    } else {
        &record.token
    };
    let term = lease.term.map_or("new".to_owned(), |term| term.to_string());
    let (standing, grace) = (lease.standing, lease.grace.as_millis());
    let standing = format!("{standing:?}").to_lowercase();
    format!(
        "{token} {standing} term={term} nonce={} grace={grace}",
        lease.nonce
    )
}
