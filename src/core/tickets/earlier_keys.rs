//! The tickets that a listing has to read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::key::last_element;
use super::ticket::StoredTicket;
use crate::core::record::Revision;

/// The last elements of the keys of the own ticket and all earlier ones; `None` before they are
/// known. Only these keys have to be read: a key is used once, so a ticket of another key has a
/// greater number, and is never waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierKeys(pub(super) Option<Arc<BTreeSet<String>>>);

impl EarlierKeys {
    /// Takes in a listing that reaches the first write of the own ticket, whose key has the last
    /// element `own`, and whose number is `number`: it has all earlier tickets, and a key that it
    /// lacks gets a later one. A ticket that cannot be read may be an earlier one.
    pub fn learn(&mut self, own: &str, number: Revision, listed: &[StoredTicket]) {
        let may_be_earlier = |it: &&StoredTicket| it.number <= number || it.ticket.is_err();
        let earlier = listed.iter().filter(may_be_earlier).map(|it| last_element(&it.key));
        let elements = earlier.chain([own]).map(str::to_owned);
        self.0.get_or_insert_with(|| Arc::new(elements.collect()));
    }

    /// Returns whether the ticket of this key may be an earlier one, or the own one.
    pub fn may_have(&self, key: &str) -> bool {
        let has = |elements: &Arc<BTreeSet<String>>| elements.contains(last_element(key));
        self.0.as_ref().is_none_or(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tickets::Unreadable;

    #[test]
    fn only_tickets_that_a_listing_has_may_be_earlier_and_what_cannot_be_read_may_be() {
        let unreadable = || Err(Unreadable { why: "it is damaged".to_owned(), lifetime: None });
        let ticket = |key: &str, number| StoredTicket {
            key: key.to_owned(),
            revision: Revision(9),
            number: Revision(number),
            stored_at: None,
            ticket: unreadable(),
        };
        let mut keys = EarlierKeys::default();
        assert!(keys.may_have("lock.a.f"));
        // The listing is from just before the own ticket.
        keys.learn("5", Revision(5), &[ticket("lock.a.1", 3), ticket("lock.a.9", 9)]);
        let expected = ["lock.a.1", "lock.a.5", "lock.a.9"];
        assert!(expected.iter().all(|key| keys.may_have(key)) && !keys.may_have("lock.a.f"));
        // A later listing takes nothing away.
        keys.learn("5", Revision(5), &[ticket("lock.a.5", 5)]);
        assert!(keys.may_have("lock.a.1"));
    }
}
