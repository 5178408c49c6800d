//! Numbers that look random and are the same for the same seed, by which a case chooses: what it fails with, it fails with again.

/// By xorshift64 (Marsaglia 2003).
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Of seed 0, which would only be followed by zeros, as of 1.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// From 0 to below `bound`, which is more than 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or_default()
    }
}
