//! Random numbers that are the same for the same seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of them that several tasks may draw from.
#[derive(Debug)]
pub struct Dice(AtomicU64);

impl Dice {
    /// One with a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below this one; 0 of none.
    pub fn below(&self, bound: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
        let mut mixed = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).checked_rem(bound).unwrap_or_default()
    }

    /// One of several.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<'a, T>(&self, all: &'a [T]) -> &'a T {
        let at = self.below(all.len().try_into().unwrap_or(u64::MAX));
        all.get(usize::try_from(at).unwrap_or_default()).expect("there is one")
    }
}
