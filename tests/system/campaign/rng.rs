//! Random numbers that one seed gives again.

use std::time::Duration;

/// A generator of random numbers: Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Returns the generator of one part of a campaign.
    pub(crate) fn new(seed: u64, part: u64) -> Rng {
        let mut rng = Rng(seed ^ part.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "there is no number below 0");
        usize::try_from(self.next() % (count as u64)).unwrap_or(0)
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what f64 has")]
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        share
    }

    /// Returns whether what happens in this share of all cases happens.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// Returns a time from `least` to `most`.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.share())
    }

    /// Returns one of `all`.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
