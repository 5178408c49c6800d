//! Digests, and the id of an image, which is the SHA-256 of its bytes as stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::printable;

/// Fewest hex characters that are taken for the beginning of an id.
pub const MIN_PREFIX: usize = 8;

/// A text is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("digest `{digest}` must be `sha256:` and 64, or `sha512:` and 128 lower-case hex characters")]
pub struct DigestError {
    /// The text.
    pub digest: String,
}

/// Hash algorithms that a digest may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256: also what ids are made of.
    Sha256,
    Sha512,
}

/// `algorithm:hex`, of the exact length and in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    hex: String,
}

/// Identity of an image: SHA-256 of its bytes as stored. Shown as `sha256:<hex>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageId(String);

impl Algorithm {
    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn hex_length(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl Digest {
    /// A digest that was just computed.
    pub fn computed(algorithm: Algorithm, bytes: &[u8]) -> Self {
        Self { algorithm, hex: hex(bytes) }
    }

    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hex characters.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The id that this digest is, if it is of the algorithm of ids.
    #[must_use]
    pub fn to_id(&self) -> Option<ImageId> {
        (self.algorithm == Algorithm::Sha256).then(|| ImageId(self.hex.clone()))
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let parsed = text.split_once(':').and_then(|(name, hex)| {
            let algorithm = Algorithm::named(name)?;
            (hex.len() == algorithm.hex_length() && is_hex(hex)).then(|| Self { algorithm, hex: hex.to_owned() })
        });
        parsed.ok_or_else(|| DigestError { digest: printable(text) })
    }
}

impl ImageId {
    /// The id whose hex characters these are, all 64 of them.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        (hex.len() == Algorithm::Sha256.hex_length() && is_hex(hex)).then(|| Self(hex.to_owned()))
    }

    /// The 64 hex characters: the name of the file.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageId {
    type Err = DigestError;

    /// Reads `sha256:<hex>`.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digest: Digest = text.parse()?;
        digest.to_id().ok_or_else(|| DigestError { digest: printable(text) })
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for ImageId {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<ImageId> for String {
    fn from(id: ImageId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.algorithm.name(), self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}`")
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", self.0)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}`")
    }
}

/// Whether all characters are lower-case hex.
pub fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
