//! The last elements of the keys of tickets.

/// The first letter of the last element of the key of a script's ticket. The other last elements
/// begin with a digit of a hexadecimal number.
pub(super) const ELEMENT_PREFIX: char = 'g';

pub(super) fn last_element(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Returns whether this is the key of a script's ticket.
pub fn is_key_of_script(key: &str) -> bool {
    last_element(key).starts_with(ELEMENT_PREFIX)
}
