//! How many of the traces that begin here are sampled. It goes by the id, as OpenTelemetry's probability sampler does, so that all who
//! go by the same rate take the same ones.

/// The bits of an id that are random, by W3C Trace Context: its last 56. So they are in ours, which are UUIDs of version 4.
const RANDOM: u32 = 56;
const MILLION: u64 = 1_000_000;

/// How many of a million.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate(u32);

impl Rate {
    pub(super) const fn per_million(rate: u32) -> Self {
        Self(rate)
    }

    /// Whether this trace is one of them.
    pub(super) fn takes(self, trace: &[u8; 16]) -> bool {
        let random = u128::from_be_bytes(*trace) & ((1 << RANDOM) - 1);
        let left_out = u128::from(MILLION.saturating_sub(self.0.into()));
        random * u128::from(MILLION) >= left_out << RANDOM
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn none_are_taken_by_0_and_all_by_a_million() {
        for trace in [[0; 16], [0xff; 16], Uuid::new_v4().into_bytes()] {
            assert!(!Rate::per_million(0).takes(&trace) && Rate::per_million(1_000_000).takes(&trace), "{trace:x?}");
        }
    }

    #[test]
    fn half_of_them_are_taken_by_half_a_million() {
        let taken = |rate: u32, high: u8| {
            let mut trace = [0xff; 16];
            trace[9] = high;
            Rate::per_million(rate).takes(&trace)
        };
        let count = |rate| (0..=u8::MAX).filter(|high| taken(rate, *high)).count();
        assert_eq!([count(250_000), count(500_000), count(750_000)], [64, 128, 192]);
    }
}
