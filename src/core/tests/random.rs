//! Random numbers of the simulations.

/// Random numbers: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Returns the first seed that a test plays, and how many it plays: as `PUTEX_SEEDS=FIRST,COUNT`
/// says, or else the usual count from 1 on.
pub(crate) fn chosen_seeds(usual_count: u64) -> (u64, u64) {
    let Ok(text) = std::env::var("PUTEX_SEEDS") else { return (1, usual_count) };
    let (first, count) = text.split_once(',').expect("FIRST,COUNT");
    (first.parse().expect("a number"), count.parse().expect("a number"))
}
