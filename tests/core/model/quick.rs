//! Hashes that cost little: one for tables whose keys are compared as well, and one of so many
//! bits that it stands for the value.

use std::hash::{BuildHasherDefault, Hash, Hasher};

pub(crate) type Quick = BuildHasherDefault<Numbers<Mix>>;

/// Odd, and without a pattern: 2^64 by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Takes numbers in, one after the other.
trait State {
    fn add(&mut self, number: u64);

    fn hash(&self) -> u64;
}

#[derive(Default)]
pub(crate) struct Mix(u64);

impl State for Mix {
    fn add(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(FACTOR);
    }

    fn hash(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Odd, and without a pattern: 2^128 by the golden ratio.
const WIDE_FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

struct Wide(u128);

impl State for Wide {
    fn add(&mut self, number: u64) {
        let mixed = (self.0 ^ u128::from(number)).wrapping_mul(WIDE_FACTOR);
        self.0 = mixed ^ mixed >> 71;
    }

    fn hash(&self) -> u64 {
        unreachable!("all bits are read")
    }
}

/// Gives a state everything as numbers of 64 bits.
#[derive(Default)]
pub(crate) struct Numbers<S>(S);

impl<S: State> Hasher for Numbers<S> {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0.hash()
    }
}

/// Returns 128 bits of a value: as good as the value itself, for a few billions of
/// them.
pub(crate) fn fold(value: &(impl Hash + ?Sized)) -> u128 {
    let mut hasher = Numbers(Wide(WIDE_FACTOR));
    value.hash(&mut hasher);
    hasher.0.0
}
