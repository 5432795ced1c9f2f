//! The only source of chance in a run.
//!
//! SplitMix64: Guy Steele, Doug Lea and Christine Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014, with the constants of Sebastiano
//! Vigna's `splitmix64.c`, which is in the public domain. It is written out here, so
//! that a seed means the same run whatever library is current.

/// A stream of numbers that follows from its seed alone.
#[derive(Clone, Debug)]
pub struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Returns the stream of that label: two labels have nothing in common, so what
    /// is drawn from one does not move the other.
    pub fn stream(seed: u64, label: u64) -> Random {
        let mut mixed = Random(seed);
        let mut both = Random(mixed.next() ^ label.wrapping_mul(STEP));
        Random(both.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(end);
        (wide >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both of them possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
