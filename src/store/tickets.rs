//! The tickets of `putex lock`, stored as entries of a [`Bucket`].
//!
//! | key | entry |
//! |---|---|
//! | `lock.<element>...<nonce>` | a ticket for one name; the nonce is the client's own |
//! | `lock._.<nonce>` | a ticket for several names |
//! | `putex.settled` | the mark: tickets of a lost bucket have run out |
//!
//! | header | value |
//! |---|---|
//! | `Putex-Ticket` | the ticket's number; absent in the first write, whose revision it is |
//! | `Putex-Mode` | `x` exclusive, `s` shared, `k4` one of four slots |
//! | `Putex-Slot` | the slot of a granted ticket |
//! | `Putex-Held` | what the owner holds meanwhile, as `PUTEX_HELD` |
//! | `Putex-Life` | T in milliseconds; also of the mark |
//! | `Putex-Names` | several names, with commas between |
//! | `Putex-Incarnation`, `Putex-Nonce` | the owner, and the attempt that has written this |
//! | `Putex-Seen` | what the owner had seen before: [`Seen`]; of `putex grab` only |
//! | `Putex-Epoch` | the random id of the bucket; of the mark only |
//! | `Putex-End` | why a ticket has ended; `KV-Operation: DEL` stands beside it |
//!
//! The payload is the token. An ended ticket is a tombstone that a compare-and-set has written: a
//! renewal in flight then wins or loses, never both.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::name::MARK_KEY;
use super::{
    Bucket, BucketInfo, Content, Entry, Expected, FirstKey, Hint, Listing, OPERATION, Selection,
    StoreError, StoreResult,
};
use crate::core::tickets::{
    Input, Mark, Mode, Name, SLOTS_MAX, Seen, Step, StoredTicket, Ticket, Unreadable,
};
use crate::core::{COUNT_MAX, Incarnation, Instant, R_MAX, Revision, Written, sanitize};

const NUMBER: &str = "Putex-Ticket";
const MODE: &str = "Putex-Mode";
const SLOT: &str = "Putex-Slot";
const HELD: &str = "Putex-Held";
const LIFE: &str = "Putex-Life";
const NAMES: &str = "Putex-Names";
const INCARNATION: &str = "Putex-Incarnation";
const ATTEMPT: &str = "Putex-Nonce";
const END: &str = "Putex-End";
const SEEN: &str = "Putex-Seen";
const EPOCH: &str = "Putex-Epoch";

/// The first element of the keys of all tickets.
const ROOT: &str = "lock";

/// The second element of the key of a ticket for several names.
const SEVERAL: &str = "_";

/// The tickets in a bucket. Every call returns at its deadline at the latest.
pub struct Tickets {
    bucket: Box<dyn Bucket>,
    /// The prefixes of the keys of all tickets that may conflict.
    prefixes: Vec<String>,
    relevance: Relevance,
    /// The key of the own ticket without its last element.
    prefix: String,
    /// The mark, which was read when the bucket was opened just now.
    mark: Option<Mark>,
}

/// Which tickets have to be read.
struct Relevance {
    /// The names that are asked for.
    names: Vec<Name>,
    /// Tickets that do not conflict are read too.
    has_all: bool,
    /// The numbers of the tickets that were read in this bucket. A ticket keeps its number, and
    /// the next one of its key has a greater one.
    numbers: BTreeMap<String, Revision>,
}

impl Relevance {
    /// Returns whether the ticket of a key has to be read by the owner of that of this number.
    fn has(&self, own: Option<Revision>, key: &str) -> bool {
        let is_later = |known: &Revision| own.is_some_and(|own| *known > own);
        (self.has_all || may_conflict(&self.names, key))
            && !self.numbers.get(key).is_some_and(is_later)
    }
}

impl Tickets {
    /// Returns the tickets that may conflict with this one; all tickets if it is waited for while
    /// its owner holds others: these may be waited for in turn.
    pub fn new(bucket: Box<dyn Bucket>, ticket: &Ticket) -> Tickets {
        let names = &ticket.names[..];
        let roots = names.iter().map(|name| &*name.elements()[0]);
        let roots: BTreeSet<&str> = roots.chain([SEVERAL]).collect();
        let prefixes = match ticket.held.is_empty() {
            true => roots.iter().map(|root| format!("{ROOT}.{root}")).collect(),
            false => vec![ROOT.to_owned()],
        };
        let elements = match names {
            [name] => name.elements().join("."),
            _ => SEVERAL.to_owned(),
        };
        Tickets {
            bucket,
            prefixes,
            relevance: Relevance {
                names: names.to_vec(),
                has_all: !ticket.held.is_empty(),
                numbers: BTreeMap::new(),
            },
            prefix: format!("{ROOT}.{elements}"),
            mark: None,
        }
    }

    /// Returns the bucket, for its other entries.
    pub fn bucket(&mut self) -> &mut dyn Bucket {
        &mut *self.bucket
    }

    /// Opens the bucket and reads the mark.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn open(&mut self, deadline: Instant) -> StoreResult<(BucketInfo, Mark)> {
        self.relevance.numbers.clear();
        let (bucket, entry) = self.bucket.open(FirstKey::Read(MARK_KEY), deadline)?;
        Ok((bucket, to_mark(entry)))
    }

    /// Reads the mark.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline.
    pub fn mark(&mut self, deadline: Instant) -> StoreResult<Mark> {
        Ok(to_mark(self.bucket.get(MARK_KEY, deadline)?))
    }

    /// Writes a mark in the place of its revision.
    pub fn write_mark(&mut self, mark: &Mark, deadline: Instant) -> Written {
        let headers = [(LIFE, mark.lifetime.as_millis().to_string()), (EPOCH, mark.epoch.clone())];
        let (expected, content) = (Expected::Key(mark.revision), Content::new(headers, b""));
        self.bucket.compare_and_set(MARK_KEY, expected, &content, deadline)
    }

    /// Returns the key of the own ticket with this last element.
    fn key(&self, element: &str) -> String {
        format!("{}.{element}", self.prefix)
    }

    /// Performs a request for the ticket with this last element, which began at `now`, on
    /// behalf of `who`; returns `None` if the step is no request to the store.
    pub fn perform(
        &mut self,
        step: &Step,
        element: &str,
        who: &str,
        now: Instant,
    ) -> Option<Input> {
        let text = |error: StoreError| error.text;
        let mark = self.mark.take();
        Some(match step {
            Step::Open(by) => Input::Opened(self.open(*by).map(|(bucket, mark)| {
                self.mark = Some(mark);
                bucket
            })),
            Step::ReadMark(by) => {
                Input::Mark(mark.map_or_else(|| self.mark(*by), Ok).map_err(text))
            }
            Step::WriteMark(mark, by) => Input::Written(self.write_mark(mark, *by), now),
            Step::Write(at, number, ticket, by) => {
                Input::Written(self.write(element, *at, *number, ticket, *by), now)
            }
            Step::WriteAndList(at, number, ticket, by) => {
                let (written, listed) = self.write_and_list(element, *at, *number, ticket, *by);
                Input::WrittenAndListed(written, now, listed.map_err(text))
            }
            Step::End(at, by) => Input::Written(self.end(element, *at, *by), now),
            Step::ReadOwn(by) => Input::Own(self.own(element, *by).map_err(text)),
            Step::List(number, by) => Input::Listed(self.list(*number, *by).map_err(text)),
            Step::Watch(keys) => match keys.iter().try_for_each(|key| self.watch(key)) {
                Ok(()) => Input::Subscribed,
                Err(error) => Input::Gone(error.text),
            },
            Step::Remove(other, by) => Input::Written(self.remove(other, who, *by), now),
            Step::Rest(_) | Step::Exit => return None,
        })
    }

    /// Writes the own ticket, of this number, in the place of this revision.
    pub fn write(
        &mut self,
        element: &str,
        at: Revision,
        number: Option<Revision>,
        ticket: &Ticket,
        deadline: Instant,
    ) -> Written {
        let content = to_content(ticket, number);
        self.bucket.compare_and_set(&self.key(element), Expected::Key(at), &content, deadline)
    }

    /// Writes the own ticket as [`Tickets::write`], and lists as [`Tickets::list`].
    ///
    /// # Errors
    ///
    /// Those of [`Tickets::list`], for the listing.
    pub fn write_and_list(
        &mut self,
        element: &str,
        at: Revision,
        number: Option<Revision>,
        ticket: &Ticket,
        deadline: Instant,
    ) -> (Written, StoreResult<(Vec<StoredTicket>, Revision)>) {
        let (key, content) = (self.key(element), to_content(ticket, number));
        let wanted = |key: &str| self.relevance.has(number, key);
        let selection = Selection { prefixes: &self.prefixes, wanted: &wanted };
        let (written, listing) =
            self.bucket.write_and_list(&key, at, &content, selection, deadline);
        (written, listing.map(|listing| self.tickets_of(listing)))
    }

    /// Reads the own ticket: its revision, and the ticket unless it has ended.
    ///
    /// # Errors
    ///
    /// When there was no answer by the deadline.
    pub fn own(
        &mut self,
        element: &str,
        deadline: Instant,
    ) -> StoreResult<(Revision, Option<Ticket>)> {
        let entry = self.bucket.get(&self.key(element), deadline)?;
        let standing = entry.map(|entry| (entry.revision, standing(entry)));
        Ok(standing.map_or((Revision(0), None), |(revision, standing)| {
            (revision, standing.and_then(|standing| standing.ticket.ok()))
        }))
    }

    /// Ends the own ticket that stands at this revision.
    pub fn end(&mut self, element: &str, at: Revision, deadline: Instant) -> Written {
        self.retire(&self.key(element), at, "released", deadline)
    }

    /// Ends the ticket of another that has not moved for too long.
    pub fn remove(&mut self, other: &StoredTicket, by: &str, deadline: Instant) -> Written {
        self.retire(&other.key, other.revision, &format!("removed by {by}"), deadline)
    }

    fn retire(&mut self, key: &str, at: Revision, why: &str, deadline: Instant) -> Written {
        let headers = [(OPERATION, "DEL".to_owned()), (END, sanitize(why))];
        let written = self.bucket.retire(key, at, &Content::new(headers, b""), deadline);
        if matches!(written, Written::Stored(_)) && is_used_once(key) {
            self.bucket.forget(key);
        }
        written
    }

    /// Lists the tickets of [`Tickets::new`], and the revision that the listing reaches. Tickets
    /// that are known to be later than `number` are left out.
    ///
    /// # Errors
    ///
    /// When the listing was not complete by the deadline.
    pub fn list(
        &mut self,
        number: Option<Revision>,
        deadline: Instant,
    ) -> StoreResult<(Vec<StoredTicket>, Revision)> {
        let wanted = |key: &str| self.relevance.has(number, key);
        let selection = Selection { prefixes: &self.prefixes, wanted: &wanted };
        let listing = self.bucket.list(selection, deadline)?;
        Ok(self.tickets_of(listing))
    }

    fn tickets_of(&mut self, listing: Listing) -> (Vec<StoredTicket>, Revision) {
        let found: Vec<_> = listing.entries.into_iter().filter_map(standing).collect();
        let readable = found.iter().filter(|found| found.ticket.is_ok());
        self.relevance.numbers.extend(readable.map(|found| (found.key.clone(), found.number)));
        (found, listing.last)
    }

    /// Subscribes to the hints of a ticket.
    ///
    /// # Errors
    ///
    /// When the store is not open.
    pub fn watch(&mut self, key: &str) -> StoreResult<()> {
        self.bucket.subscribe(key)
    }

    /// Waits for a hint, for `wake` to become readable, or for `deadline`.
    pub fn wait(&mut self, wake: BorrowedFd<'_>, deadline: Instant) -> Hint {
        self.bucket.wait(wake, Some(deadline))
    }
}

/// Returns whether the ticket of a key may conflict with one for these names.
fn may_conflict(names: &[Name], key: &str) -> bool {
    let elements: Vec<&str> = key.split('.').collect();
    let [_, path @ .., _] = &elements[..] else { return true };
    // One for several names says them in its entry.
    let Ok(theirs) = Name::parse(&path.join("/")) else { return true };
    names.iter().any(|name| name.contains(&theirs) || theirs.contains(name))
}

/// Returns whether the key is of `putex lock`, which uses a random number once; that of `putex
/// grab` is always the same for one requester, and has other letters than digits.
fn is_used_once(key: &str) -> bool {
    key.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Converts the entry of the mark.
fn to_mark(entry: Option<Entry>) -> Mark {
    let none = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
    entry.map_or(none, |Entry { revision, content, .. }| Mark {
        revision,
        epoch: content.header(EPOCH).unwrap_or_default().to_owned(),
        lifetime: lifetime(&content).unwrap_or_default(),
    })
}

/// Converts a ticket into the content of an entry.
pub(crate) fn to_content(ticket: &Ticket, number: Option<Revision>) -> Content {
    let mode = match ticket.mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared => "s".to_owned(),
        Mode::Slots(count) => format!("k{count}"),
    };
    let mut headers = vec![
        (MODE, mode),
        (LIFE, ticket.lifetime.as_millis().to_string()),
        (INCARNATION, ticket.incarnation.to_string()),
        (ATTEMPT, ticket.attempt.to_string()),
    ];
    if let [_, _, ..] = &ticket.names[..] {
        let names: Vec<_> = ticket.names.iter().map(Name::to_string).collect();
        headers.push((NAMES, names.join(",")));
    }
    if !ticket.held.is_empty() {
        let held: Vec<_> = ticket.held.iter().map(|(name, at)| format!("{name}:{at}")).collect();
        headers.push((HELD, held.join(" ")));
    }
    headers.extend(ticket.slot.map(|slot| (SLOT, slot.to_string())));
    headers.extend(number.map(|number| (NUMBER, number.to_string())));
    if !ticket.seen.is_empty() {
        headers.push((SEEN, ticket.seen.to_text()));
    }
    Content::new(headers, ticket.token.as_bytes())
}

/// Converts an entry into a ticket; `None` if it has ended.
pub(crate) fn standing(entry: Entry) -> Option<StoredTicket> {
    let Entry { key, revision, content } = entry;
    if content.is_tombstone() {
        return None;
    }
    let number = content.header(NUMBER).map_or(Ok(revision.0), str::parse);
    let (number, ticket) = match number {
        Ok(number) if number <= revision.0 => (number, from_content(&key, &content)),
        // A number is the revision of an earlier write.
        Ok(number) => (revision.0, Err(format!("its number {number} is above its revision"))),
        Err(_) => (revision.0, Err("its number is damaged".to_owned())),
    };
    let ticket = ticket.map_err(|why| Unreadable { why, lifetime: lifetime(&content) });
    Some(StoredTicket { key, revision, number: Revision(number), ticket })
}

fn from_content(key: &str, content: &Content) -> Result<Ticket, String> {
    let header = |name: &str| content.header(name).ok_or_else(|| format!("{name} is missing"));
    let damaged = |name: &str| format!("{name} is damaged");
    let elements: Vec<&str> = key.split('.').collect();
    let texts = match &elements[..] {
        [_, SEVERAL, _] => header(NAMES)?.split(',').map(str::to_owned).collect(),
        [_, path @ .., _] => vec![path.join("/")],
        _ => return Err("its key is not that of a ticket".to_owned()),
    };
    let names = texts.iter().map(|text| Name::parse(text));
    let incarnation = u128::from_str_radix(header(INCARNATION)?, 16);
    let mode = mode(header(MODE)?).ok_or_else(|| damaged(MODE))?;
    let slot = content.header(SLOT).map(|slot| slot_of(mode, slot).ok_or_else(|| damaged(SLOT)));
    let held = content.header(HELD).unwrap_or_default().split_whitespace();
    Ok(Ticket {
        names: names.collect::<Result<_, _>>()?,
        mode,
        slot: slot.transpose()?,
        held: held
            .map(|held| held_of(held).ok_or_else(|| damaged(HELD)))
            .collect::<Result<_, _>>()?,
        lifetime: lifetime(content).ok_or_else(|| damaged(LIFE))?,
        token: sanitize(&String::from_utf8_lossy(&content.payload)),
        incarnation: Incarnation(incarnation.map_err(|_| damaged(INCARNATION))?),
        attempt: header(ATTEMPT)?.parse().map_err(|_| damaged(ATTEMPT))?,
        seen: content.header(SEEN).map(Seen::from_text).unwrap_or_default(),
    })
}

fn mode(text: &str) -> Option<Mode> {
    match text {
        "x" => Some(Mode::Exclusive),
        "s" => Some(Mode::Shared),
        _ => {
            let count = text.strip_prefix('k')?.parse().ok()?;
            (1..=SLOTS_MAX).contains(&count).then_some(Mode::Slots(count))
        }
    }
}

fn slot_of(mode: Mode, text: &str) -> Option<u32> {
    let Mode::Slots(count) = mode else { return None };
    text.parse().ok().filter(|slot| *slot < count)
}

/// Reads a name and the number of a ticket, as in `PUTEX_HELD`.
pub(super) fn held_of(text: &str) -> Option<(Name, Revision)> {
    let (name, number) = text.rsplit_once(':')?;
    Some((Name::parse(name).ok()?, Revision(number.parse().ok()?)))
}

/// Returns the lifetime in an entry. No ticket may make others wait for ever.
fn lifetime(content: &Content) -> Option<Duration> {
    let lifetime = Duration::from_millis(content.header(LIFE)?.parse().ok()?);
    (lifetime <= R_MAX * COUNT_MAX).then_some(lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(names: &[&str]) -> Ticket {
        Ticket {
            names: names.iter().map(|name| Name::parse(name).expect(name)).collect(),
            mode: Mode::Slots(4),
            slot: Some(3),
            held: vec![(Name::parse("db/x").expect("a name"), Revision(12))],
            lifetime: Duration::from_secs(15),
            token: "alpha".to_owned(),
            incarnation: Incarnation(0xfeed),
            attempt: 7,
            seen: Seen::from_text("boot 3:9"),
        }
    }

    fn entry(key: &str, revision: u64, content: Content) -> Entry {
        Entry { key: key.to_owned(), revision: Revision(revision), content }
    }

    #[test]
    fn a_ticket_survives_the_way_through_an_entry() {
        let one = ticket(&["db/users"]);
        let first = standing(entry("lock.db.users.0f", 5, to_content(&one, None))).expect("one");
        assert_eq!((first.number, first.ticket.as_ref()), (Revision(5), Ok(&one)));
        let content = to_content(&one, Some(Revision(5)));
        let later = standing(entry("lock.db.users.0f", 9, content)).expect("one");
        assert_eq!((later.number, later.revision), (Revision(5), Revision(9)));
        let two = ticket(&["db/users", "web"]);
        let content = to_content(&two, None);
        let several = standing(entry("lock._.0f", 5, content)).expect("one");
        assert_eq!(several.ticket, Ok(two));
    }

    #[test]
    fn tickets_of_other_branches_are_not_read() {
        let names = [Name::parse("db/users").expect("a name"), Name::parse("web").expect("a name")];
        for (key, expected) in [
            ("lock.db.0f", true),
            ("lock.db.users.0f", true),
            ("lock.db.users.x.0f", true),
            ("lock.db.orders.0f", false),
            ("lock.web.a.0f", true),
            ("lock._.0f", true),
            ("lock.we.0f", false),
            ("lock.0f", true),
        ] {
            assert_eq!(may_conflict(&names, key), expected, "{key}");
        }
    }

    #[test]
    fn a_forged_or_damaged_ticket_is_no_ticket_and_blocks_all() {
        let whole = to_content(&ticket(&["a"]), Some(Revision(5)));
        // What the owner had seen before costs time only.
        let is_needed = |at: &usize| whole.headers[*at].0 != SEEN;
        for at in (0..whole.headers.len()).filter(is_needed) {
            let mut damaged = whole.clone();
            damaged.headers[at].1 = "-x".to_owned();
            let found = standing(entry("lock.a.0f", 9, damaged)).expect("it blocks");
            assert!(found.ticket.is_err(), "{:?}", whole.headers[at]);
        }
        let forged = to_content(&ticket(&["a"]), Some(Revision(10)));
        let found = standing(entry("lock.a.0f", 9, forged)).expect("it blocks");
        let why = "its number 10 is above its revision".to_owned();
        let lifetime = Some(Duration::from_secs(15));
        assert_eq!(found.ticket, Err(Unreadable { why, lifetime }));
        let ended = Content::new([(OPERATION, "DEL".to_owned())], b"");
        assert_eq!(standing(entry("lock.a.0f", 9, ended)), None);
    }
}
