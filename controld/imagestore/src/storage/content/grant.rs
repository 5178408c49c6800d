//! A grant: the note in a name's record that a source gave the image to a login.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use vmimage::digest::hex;

/// That an image was given to somebody. Who that was cannot be read from it, but compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// Another one for each grant.
    salt: String,
    /// Digest of the salt and of what was shown.
    to: String,
    /// Seconds since 1970.
    pub(crate) at: u64,
}

impl Grant {
    /// To whoever can show that text.
    pub(crate) fn new(shown: &str, at: u64) -> Self {
        let salt = salt();
        Self { to: digest(&salt, shown), salt, at }
    }

    pub(crate) fn is_for(&self, shown: &str) -> bool {
        self.to == digest(&self.salt, shown)
    }
}

fn digest(salt: &str, shown: &str) -> String {
    hex(&Sha256::digest(format!("{salt}\n{shown}")))
}

/// Of the library that speaks TLS. Without any, equal texts would show as equal, and nothing else.
fn salt() -> String {
    let mut salt = [0; 16];
    if rustls::crypto::ring::default_provider().secure_random.fill(&mut salt).is_err() {
        tracing::warn!("no random bytes for the record of who was given an image");
    }
    hex(&salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_it_is_for_cannot_be_read_from_it() {
        let (one, other) = (Grant::new("me:secret", 1), Grant::new("me:secret", 1));
        assert!(one.is_for("me:secret") && other.is_for("me:secret") && !one.is_for("me:other"));
        assert_ne!(one.to, other.to);
        assert!(!serde_json::to_string(&one).expect("a text").contains("secret"));
    }
}
