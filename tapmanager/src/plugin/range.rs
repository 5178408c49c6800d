//! Which VFs of a PF a pool has: `0-3,5`. Called by [`super::pools`].

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Numbers of VFs are 16 bits wide (`sriov_totalvfs`).
const MAX_NUMBER: u32 = 0xffff;
/// More pieces than that are no list that a person wrote.
const MAX_PIECES: usize = 256;

/// Numbers of VFs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VfRange(Vec<RangeInclusive<u32>>);

/// Why a text is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RangeError {
    #[error("is not a list of VF numbers such as `0-3,5`")]
    Form,
    #[error("has a piece that begins after its end; write the lower number first")]
    Backwards,
    #[error("names a VF above {MAX_NUMBER}")]
    TooHigh,
    #[error("has more than {MAX_PIECES} pieces")]
    TooLong,
}

// === impl VfRange ===

impl VfRange {
    /// All of them.
    pub(super) fn all() -> Self {
        Self(vec![0..=MAX_NUMBER])
    }

    /// Whether VF `number` is one of them.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.0.iter().any(|piece| piece.contains(&number))
    }
}

impl FromStr for VfRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number: u32 =
                if digits { text.parse().map_err(|_| RangeError::TooHigh)? } else { return Err(RangeError::Form) };
            if number > MAX_NUMBER { Err(RangeError::TooHigh) } else { Ok(number) }
        };
        let mut pieces = Vec::new();
        for piece in text.split(',') {
            if pieces.len() == MAX_PIECES {
                return Err(RangeError::TooLong);
            }
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(RangeError::Backwards);
            }
            pieces.push(first..=last);
        }
        Ok(Self(pieces))
    }
}

impl fmt::Display for VfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, piece) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            match (piece.start(), piece.end()) {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}
