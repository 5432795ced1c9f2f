//! The bucket of the simulation: what a server does with a request.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::*;
use crate::core::tickets::{Input, Mark, Seen, Step};

struct Entry {
    revision: u64,
    number: u64,
    ticket: Option<Ticket>,
}

/// The bucket.
pub(super) struct Bucket {
    pub(super) id: u64,
    last: u64,
    entries: BTreeMap<String, Entry>,
    mark: Mark,
    /// What hosts have noted, by their clocks.
    notes: BTreeMap<String, (Revision, Seen)>,
}

impl Bucket {
    /// Returns a new bucket, the one of this number.
    pub(super) fn new(id: u64) -> Bucket {
        let mark = Mark { revision: Revision(0), epoch: String::new(), lifetime: Duration::ZERO };
        Bucket { id, last: 0, entries: BTreeMap::new(), mark, notes: BTreeMap::new() }
    }

    fn listing(&self) -> (Vec<StoredTicket>, Revision) {
        let standing = self.entries.iter().filter_map(|(key, entry)| {
            Some(StoredTicket {
                key: key.clone(),
                revision: Revision(entry.revision),
                number: Revision(entry.number),
                ticket: Ok(entry.ticket.clone()?),
            })
        });
        (standing.collect(), Revision(self.last))
    }

    fn write(
        &mut self,
        key: &str,
        at: Revision,
        number: Option<Revision>,
        ticket: Option<Ticket>,
    ) -> Written {
        let current = self.entries.get(key).map_or(0, |entry| entry.revision);
        if current != at.0 {
            return Written::Moved(Some(Revision(current)));
        }
        self.last += 1;
        let (revision, number) = (self.last, number.map_or(self.last, |number| number.0));
        self.entries.insert(key.to_owned(), Entry { revision, number, ticket });
        Written::Stored(Revision(revision))
    }

    fn end(&mut self, key: &str, at: Revision, is_purged: bool) -> Written {
        let written = self.write(key, at, None, None);
        if is_purged && matches!(written, Written::Stored(_)) {
            self.entries.remove(key);
        }
        written
    }

    /// A request reaches the bucket; returns the answer. A ticket that has ended may leave no
    /// tombstone, and a listing may have been made before the write that it travels with.
    pub(super) fn serve(
        &mut self,
        element: &str,
        step: Step,
        sent: Instant,
        (is_purged, is_before): (bool, bool),
    ) -> Input {
        let own = format!("lock.{element}");
        let written = match step {
            Step::Open(_) => {
                return Input::Opened(Ok(BucketInfo {
                    id: BucketId { epoch: self.id.to_string(), created: String::new() },
                    last: Revision(self.last),
                    age: None,
                    replicas: 1,
                    remarks: Vec::new(),
                    retires: Ok(()),
                }));
            }
            Step::ReadMark(_) => return Input::Mark(Ok(self.mark.clone())),
            Step::ReadNotes(_) => {
                let notes = self.notes.get(element).cloned();
                return Input::Notes(Ok(notes.unwrap_or((Revision(0), Seen::default()))));
            }
            Step::WriteNotes(at, seen, _) => {
                let current = self.notes.get(element).map_or(Revision(0), |notes| notes.0);
                if current != at {
                    return Input::Written(Written::Moved(Some(current)), sent);
                }
                self.last += 1;
                self.notes.insert(element.to_owned(), (Revision(self.last), seen));
                return Input::Written(Written::Stored(Revision(self.last)), sent);
            }
            Step::ReadOwn(_) => {
                let entry = self.entries.get(&own);
                let read = entry.map(|entry| (Revision(entry.revision), entry.ticket.clone()));
                return Input::Own(Ok(read.unwrap_or((Revision(0), None))));
            }
            Step::List(..) => return Input::Listed(Ok(self.listing())),
            Step::Watch(_) | Step::Rest(_) | Step::Exit => return Input::Rested,
            Step::WriteAndList(at, number, ticket, _) => {
                let before = self.listing();
                let written = self.write(&own, at, number, Some(ticket));
                let listed = if is_before { before } else { self.listing() };
                return Input::WrittenAndListed(written, sent, Ok(listed));
            }
            Step::WriteMark(mark, _) if self.mark.revision == mark.revision => {
                self.last += 1;
                self.mark = Mark { revision: Revision(self.last), ..mark };
                Written::Stored(Revision(self.last))
            }
            Step::WriteMark(..) => Written::Moved(None),
            Step::Write(at, number, ticket, _) => self.write(&own, at, number, Some(ticket)),
            Step::End(at, _) => self.end(&own, at, is_purged),
            Step::Remove(other, _) => self.end(&other.key, other.revision, is_purged),
        };
        Input::Written(written, sent)
    }
}
