//! Which tickets a listing has to read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ticket::StoredTicket;
use crate::core::record::Revision;

/// The keys of the tickets before an own one. Of those that are used once, only these have to be
/// read: a ticket that comes later has a greater number, and is never waited for. Under another
/// key a ticket may stand although a read has shown the end of the one before: a server that does
/// not know yet that it is not the leader any more shows what it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierKeys(pub(super) Option<Arc<BTreeSet<String>>>);

impl EarlierKeys {
    /// Returns whether a listing had the own ticket.
    pub fn are_learned(&self) -> bool {
        self.0.is_some()
    }

    /// Takes in a listing, for the owner of the ticket of this number. One that has that ticket was
    /// made after its first write: a key that such a listing lacks gets its next ticket later. A
    /// ticket that cannot be read may be an earlier one.
    pub fn learn(&mut self, number: Revision, listed: &[StoredTicket]) {
        if listed.iter().all(|it| it.number != number) {
            return;
        }
        let may_be_earlier = |it: &&StoredTicket| it.number <= number || it.ticket.is_err();
        let keys = || listed.iter().filter(may_be_earlier).map(|it| it.key.clone());
        self.0.get_or_insert_with(|| Arc::new(keys().collect()));
    }

    /// Returns whether the ticket of this key may be an earlier one, or the own one.
    pub fn may_have(&self, key: &str) -> bool {
        self.0.as_ref().is_none_or(|keys| keys.contains(key) || !is_used_once(key))
    }
}

/// Returns whether the key is of `putex lock`, which uses a random number once; that of `putex
/// grab` is always the same for one requester, and has other letters than digits.
pub fn is_used_once(key: &str) -> bool {
    key.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_hexdigit()))
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
            ticket: unreadable(),
        };
        let mut keys = EarlierKeys::default();
        // It lacks the own ticket, and says nothing of others.
        keys.learn(Revision(5), &[ticket("lock.a.1", 3)]);
        assert!(keys.may_have("lock.a.f"));
        let found = [ticket("lock.a.1", 3), ticket("lock.a.5", 5), ticket("lock.a.9", 9)];
        keys.learn(Revision(5), &found);
        let expected = ["lock.a.1", "lock.a.5", "lock.a.9", "lock.a.g0-script"];
        assert!(expected.iter().all(|key| keys.may_have(key)) && !keys.may_have("lock.a.f"));
        // An old listing of later takes nothing away.
        keys.learn(Revision(5), &[ticket("lock.a.5", 5)]);
        assert!(keys.may_have("lock.a.1"));
    }
}
