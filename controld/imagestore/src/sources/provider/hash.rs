//! Hashes as image sources give them: `algorithm:hex`.

use std::fmt;
use std::str::FromStr;

use vmimage::digest::{Algorithm, Digest, is_hex};
use vmimage::error::printable;

/// Hash algorithms that sources use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashAlg {
    /// MD5: tells an accident, not an attack.
    Md5,
    /// SHA-1: likewise.
    Sha1,
    Sha256,
    Sha512,
}

/// A hash with its algorithm, in lower case and of the exact length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageHash {
    alg: HashAlg,
    hex: String,
}

/// Why a text is no hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no hash; write `sha256:`, `sha512:`, `sha1:` or `md5:` and all of its lower-case hex characters")]
pub struct HashError {
    text: String,
}

impl HashAlg {
    /// The algorithm of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512].into_iter().find(|alg| alg.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Whether nobody can make other bytes of the same hash.
    #[must_use]
    pub fn is_strong(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha512)
    }

    fn hex_length(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl ImageHash {
    /// A hash of that algorithm whose hex characters these are; upper case is made lower.
    ///
    /// # Errors
    /// When they are not hex, or too many or few.
    pub fn new(alg: HashAlg, hex: &str) -> Result<Self, HashError> {
        let hex = hex.to_ascii_lowercase();
        if hex.len() == alg.hex_length() && is_hex(&hex) {
            Ok(Self { alg, hex })
        } else {
            Err(HashError { text: printable(&format!("{}:{hex}", alg.name())) })
        }
    }

    #[must_use]
    pub fn alg(&self) -> HashAlg {
        self.alg
    }

    /// The hex characters.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl From<Algorithm> for HashAlg {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256,
            Algorithm::Sha512 => Self::Sha512,
        }
    }
}

impl From<&Digest> for ImageHash {
    fn from(digest: &Digest) -> Self {
        Self { alg: digest.algorithm().into(), hex: digest.hex().to_owned() }
    }
}

impl FromStr for ImageHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let parsed = text.split_once(':').and_then(|(name, hex)| {
            let alg = HashAlg::named(name)?;
            (hex.len() == alg.hex_length() && is_hex(hex)).then(|| Self { alg, hex: hex.to_owned() })
        });
        parsed.ok_or_else(|| HashError { text: printable(text) })
    }
}

impl fmt::Display for ImageHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.alg.name(), self.hex)
    }
}

impl fmt::Debug for ImageHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{self}`")
    }
}
