//! The generator of chances.

/// SplitMix64 (Steele, Lea and Flood 2014): small, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// Whether one of `per_million` in a million cases is there.
    pub(super) fn chance(&mut self, per_million: u32) -> bool {
        // The bias of a remainder of 64 bits is far below one in a million.
        self.next() % 1_000_000 < u64::from(per_million)
    }

    /// `len` bytes.
    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_are_those_of_the_paper() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn chances_come_as_often_as_they_should() {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| random.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert_eq!((0..1000).filter(|_| random.chance(0)).count(), 0);
        assert_eq!((0..1000).filter(|_| random.chance(1_000_000)).count(), 1000);
        assert_eq!(random.bytes(13).len(), 13);
    }
}
