//! OpenPGP signatures of what a source tells of its images: signed texts and detached signatures.
//!
//! Callers (`virt_builder`, `simplestreams`) go on with [`Verified::text`] and nothing else: what stands before, after
//! or between the lines of a signed text is not in it.
//!
//! Stricter than the tools that make such texts, for every leniency here has been a hole elsewhere:
//! - A signed text begins at the first byte, has `Hash` headers alone, one empty line, and one block (RFC 9580, 7).
//! - It is UTF-8 without control characters other than tab and line feed.
//! - The key is in a [`KeyRing`] that the operator gave, is neither expired nor revoked, and may sign.
//! - The hash is of the SHA-2 or SHA-3 families, with 256 bits and more; the signature has not expired and is not of
//!   tomorrow.
//!
//! Blanks at the ends of lines are not signed, so they are not in the text either.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgp::armor::{BlockType, Dearmor};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Packet, PacketParser, Signature, SignatureType, SubpacketData};
use vmimage::error::printable;

use super::ProviderError;

mod keys;
mod text;

pub use keys::KeyRing;

/// How far the signer's clock may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 60 * 60);
/// Signatures of one text. More than the keys of an operator's ring is noise.
const MAX_SIGNATURES: usize = 16;

/// Why a document is not taken for what its signer wrote.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// No signature at all.
    #[error("not signed; configure `insecure` for it if that is intended")]
    Unsigned,
    /// Not one sound signed text.
    #[error("{0}")]
    Frame(&'static str),
    /// A header that is none of ours to believe.
    #[error("header `{header}` in a signed text; only `Hash` may be there")]
    Header { header: String },
    /// A character that has no place in it.
    #[error("line {line} has a control character")]
    Control {
        /// Where.
        line: usize,
    },
    /// Not UTF-8.
    #[error("not UTF-8")]
    Encoding(#[source] std::str::Utf8Error),
    /// The block of the signature.
    #[error("the signature cannot be read")]
    Packet(#[source] Box<pgp::errors::Error>),
    /// None of the ring's keys made it.
    #[error("signed by none of the configured keys ({})", signers.join(", "))]
    Stranger {
        /// Who made it, as it says itself.
        signers: Vec<String>,
    },
    /// A hash of which others can be made.
    #[error("signed over {hash}, which can be forged")]
    WeakHash { hash: String },
    /// Of another type than such a document has.
    #[error("the signature is of another type than this document must have")]
    Type,
    /// An instruction that we do not know but must follow.
    #[error("the signature has a critical part that is not known here")]
    Critical,
    /// It was to be believed for a while.
    #[error("the signature has expired")]
    Expired,
    /// It is of tomorrow.
    #[error("the signature was made in the future; check the clock")]
    Future,
    /// The key cannot be used any more.
    #[error("key {fingerprint} is expired, revoked or not for signing")]
    Key {
        /// The key.
        fingerprint: String,
    },
    /// A kind of signature that the library cannot verify.
    #[error("the signature of key {fingerprint} is of a kind that cannot be verified here")]
    Unsupported {
        /// The key.
        fingerprint: String,
        /// Which kind.
        #[source]
        cause: Box<pgp::errors::Error>,
    },
    /// Other bytes than those that were signed. What the arithmetic says of it is of no use to anybody.
    #[error(
        "the document is not what key {fingerprint} signed: it was changed at its source or on the way; \
         if another pull says so again, tell whoever runs the source"
    )]
    Forged {
        /// The key.
        fingerprint: String,
    },
}

/// A text that a key of the ring signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The text, and nothing else: lines ended by line feeds, without blanks at their ends.
    pub text: String,
    /// The key's primary fingerprint, in upper-case hex.
    pub fingerprint: String,
}

/// Whether `text` claims to be signed, so that it must never be read as if it were not.
#[must_use]
pub(super) fn looks_signed(text: &[u8]) -> bool {
    text.windows(b"-----BEGIN PGP".len()).any(|window| window == b"-----BEGIN PGP")
}

/// The text within a signed one, if a key of `keys` signed it.
///
/// # Errors
/// When it is not exactly that.
pub fn verify_clearsigned(text: &[u8], keys: &KeyRing) -> Result<Verified, SignatureError> {
    let framed = text::framed(text)?;
    let signatures = signatures(framed.signature.as_bytes())?;
    let fingerprint = verify(framed.signed.as_bytes(), &signatures, SignatureType::Text, keys)?;
    Ok(Verified { text: framed.text, fingerprint })
}

/// Verifies a signature, armored or not, that is apart from its document. Returns the primary fingerprint of the key.
///
/// # Errors
/// When no key of `keys` made it for these bytes.
pub fn verify_detached(document: &[u8], signature: &[u8], keys: &KeyRing) -> Result<String, SignatureError> {
    verify(document, &signatures(signature)?, SignatureType::Binary, keys)
}

/// Whom a provider believes: the keys of its `keyring`, or nobody's if it is said to take what nobody signed.
pub(super) fn keys_of(
    provider: &str,
    keyring: Option<&Path>,
    fingerprint: Option<&str>,
    insecure: bool,
) -> Result<Option<KeyRing>, ProviderError> {
    let wrong = |cause: &'static str| ProviderError::Config { provider: provider.to_owned(), cause: cause.into() };
    match (keyring, insecure) {
        (Some(file), false) => read(provider, file, fingerprint).map(Some),
        (None, true) => Ok(None),
        (None, false) => Err(wrong("name a `keyring`, or say `insecure` to take what nobody signed")),
        (Some(_), true) => Err(wrong("`keyring` and `insecure` contradict each other")),
    }
}

/// The keys in a provider's file; the one of a fingerprint alone, if there is one.
fn read(provider: &str, file: &Path, fingerprint: Option<&str>) -> Result<KeyRing, ProviderError> {
    let bytes = std::fs::read(file).map_err(|cause| ProviderError::File { path: file.to_owned(), cause })?;
    let keys = KeyRing::parse(&bytes).and_then(|keys| match fingerprint {
        Some(fingerprint) => keys.pinned(fingerprint),
        None => Ok(keys),
    });
    keys.map_err(|cause| ProviderError::Config { provider: provider.to_owned(), cause: Box::new(cause) })
}

/// Signatures of a block, armored or binary, which holds nothing else.
fn signatures(block: &[u8]) -> Result<Vec<Signature>, SignatureError> {
    let broken = |cause: pgp::errors::Error| SignatureError::Packet(Box::new(cause));
    let mut plain = Vec::new();
    // The first bit of a packet is set (RFC 9580, 4.2), of armor it is not.
    let packets = if block.first().is_some_and(|byte| byte & 0x80 != 0) {
        block
    } else {
        let mut dearmor = Dearmor::new(block);
        dearmor.read_header().map_err(broken)?;
        if dearmor.typ != Some(BlockType::Signature) {
            return Err(SignatureError::Frame("the block is no signature"));
        }
        std::io::Read::read_to_end(&mut dearmor, &mut plain).map_err(|cause| broken(cause.into()))?;
        &plain
    };
    let mut signatures = Vec::new();
    for packet in PacketParser::new(packets) {
        match packet.map_err(broken)? {
            Packet::Signature(signature) if signatures.len() < MAX_SIGNATURES => signatures.push(signature),
            _ => return Err(SignatureError::Frame("the block holds more than a signature")),
        }
    }
    if signatures.is_empty() { Err(SignatureError::Unsigned) } else { Ok(signatures) }
}

/// The key of the ring whose signature holds. A signature by others neither helps nor hurts: it may be a second one,
/// of the key that comes next.
fn verify(
    document: &[u8],
    signatures: &[Signature],
    typ: SignatureType,
    keys: &KeyRing,
) -> Result<String, SignatureError> {
    let now = SystemTime::now();
    let mut reason = None;
    for signature in signatures {
        match verify_one(document, signature, typ, keys, now) {
            Ok(fingerprint) => return Ok(fingerprint),
            // What is wrong with the signature of a key that we know says more than that there are others.
            Err(SignatureError::Stranger { .. }) => {}
            Err(error) => reason = Some(error),
        }
    }
    Err(reason.unwrap_or_else(|| SignatureError::Stranger { signers: signatures.iter().map(claimed).collect() }))
}

fn verify_one(
    document: &[u8],
    signature: &Signature,
    typ: SignatureType,
    keys: &KeyRing,
    now: SystemTime,
) -> Result<String, SignatureError> {
    let Some(key) = keys.signer(signature, now) else {
        return Err(SignatureError::Stranger { signers: Vec::new() });
    };
    let fingerprint = key.fingerprint();
    match signature.hash_alg() {
        Some(
            HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512,
        ) => {}
        hash => {
            let hash = hash.map_or_else(|| "an unknown hash".to_owned(), |hash| hash.to_string());
            return Err(SignatureError::WeakHash { hash });
        }
    }
    if signature.typ() != Some(typ) {
        return Err(SignatureError::Type);
    }
    check_critical(signature)?;
    check_time(signature, now)?;
    if !key.is_usable() {
        return Err(SignatureError::Key { fingerprint });
    }
    match key.verify(signature, document) {
        Ok(()) => Ok(fingerprint),
        Err(cause @ (pgp::errors::Error::Unsupported { .. } | pgp::errors::Error::Unimplemented { .. })) => {
            Err(SignatureError::Unsupported { fingerprint, cause: Box::new(cause) })
        }
        Err(_other_bytes) => Err(SignatureError::Forged { fingerprint }),
    }
}

/// The library refuses critical subpackets that it does not know; notations it knows, but not what they ask for.
fn check_critical(signature: &Signature) -> Result<(), SignatureError> {
    let subpackets = signature.config().into_iter().flat_map(|config| config.hashed_subpackets());
    for subpacket in subpackets {
        if subpacket.is_critical && matches!(subpacket.data, SubpacketData::Notation(_)) {
            return Err(SignatureError::Critical);
        }
    }
    Ok(())
}

fn check_time(signature: &Signature, now: SystemTime) -> Result<(), SignatureError> {
    let Some(created) = signature.created() else {
        return Err(SignatureError::Frame("the signature does not say when it was made"));
    };
    let created = UNIX_EPOCH + Duration::from_secs(created.as_secs().into());
    if created > now + CLOCK_SKEW {
        return Err(SignatureError::Future);
    }
    match signature.signature_expiration_time() {
        Some(lives) if lives.as_secs() != 0 && created + Duration::from_secs(lives.as_secs().into()) <= now => {
            Err(SignatureError::Expired)
        }
        _ => Ok(()),
    }
}

/// Who made a signature, in its own words.
fn claimed(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(|print| format!("{print:X}"));
    let id = || signature.issuer_key_id().first().map(|id| id.to_string().to_ascii_uppercase());
    printable(&fingerprint.or_else(id).unwrap_or_else(|| "an unnamed key".to_owned()))
}

#[cfg(test)]
mod tests;
