//! The keys that an operator trusts: read from a file, and narrowed to a fingerprint if one is given.
//!
//! A key is what its owner's last own signatures say of it: how long it lives, whether it was revoked, which subkeys
//! may sign. Signatures by others do not count. The ring is the root of trust: it is given, never fetched.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::Reason;
use pgp::composed::{Deserializable as _, SignedPublicKey, SignedPublicSubKey};
use pgp::packet::{Signature, SignatureType};
use pgp::types::{KeyDetails as _, Tag, Timestamp};

/// Public keys that may sign.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<SignedPublicKey>,
}

/// The key of a ring that a signature names.
#[derive(Debug)]
pub(super) struct Signer<'a> {
    owner: &'a SignedPublicKey,
    subkey: Option<&'a SignedPublicSubKey>,
    now: SystemTime,
}

impl KeyRing {
    /// The keys of a file, armored (one block or several) or binary.
    ///
    /// # Errors
    /// When there are none.
    pub fn parse(file: &[u8]) -> Result<Self, Reason> {
        const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
        let broken = Reason::because(
            "no OpenPGP public keys, armored or as `gpg --export` writes them (a `.kbx` key box is none)",
        );
        let mut keys = Vec::new();
        match std::str::from_utf8(file) {
            Ok(text) if text.contains(BEGIN) => {
                for block in text.split(BEGIN).skip(1) {
                    let block = format!("{BEGIN}{block}");
                    let (more, _) = SignedPublicKey::from_armor_many(block.as_bytes()).map_err(&broken)?;
                    keys.extend(more.collect::<Result<Vec<_>, _>>().map_err(&broken)?);
                }
            }
            _ => keys.extend(
                SignedPublicKey::from_bytes_many(file)
                    .map_err(&broken)?
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(&broken)?,
            ),
        }
        if keys.is_empty() { Err(Reason::new("no public key in it")) } else { Ok(Self { keys }) }
    }

    /// The one key of that primary fingerprint; blanks between its characters do not matter.
    ///
    /// # Errors
    /// When it is not there.
    pub fn pinned(self, fingerprint: &str) -> Result<Self, Reason> {
        let wanted: String = fingerprint.chars().filter(|c| *c != ' ').collect::<String>().to_ascii_uppercase();
        if !matches!(wanted.len(), 40 | 64) || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Reason::new(format!(
                "`{}` is no fingerprint; write all 40 or 64 hex characters, a key id is too short to rely on",
                vmimage::error::printable(fingerprint)
            )));
        }
        let has = self.fingerprints();
        let keys: Vec<_> = self.keys.into_iter().filter(|key| hex(key) == wanted).collect();
        if keys.is_empty() {
            let has = has.join(", ");
            return Err(Reason::new(format!("no key with fingerprint {wanted} in it, only {has}")));
        }
        Ok(Self { keys })
    }

    /// Primary fingerprints.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        self.keys.iter().map(hex).collect()
    }

    /// The key that a signature says it is by.
    pub(super) fn signer(&self, signature: &Signature, now: SystemTime) -> Option<Signer<'_>> {
        let prints = signature.issuer_fingerprint();
        let ids = signature.issuer_key_id();
        let named = |key: &dyn pgp::types::KeyDetails| {
            prints.iter().any(|print| **print == key.fingerprint())
                || prints.is_empty() && ids.iter().any(|id| **id == key.legacy_key_id())
        };
        self.keys.iter().find_map(|owner| {
            if named(&owner.primary_key) {
                return Some(Signer { owner, subkey: None, now });
            }
            let subkey = owner.public_subkeys.iter().find(|subkey| named(&subkey.key))?;
            Some(Signer { owner, subkey: Some(subkey), now })
        })
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.fingerprints()).finish()
    }
}

impl Signer<'_> {
    /// The fingerprint of the primary key, which is what operators know.
    pub(super) fn fingerprint(&self) -> String {
        hex(self.owner)
    }

    pub(super) fn verify(&self, signature: &Signature, document: &[u8]) -> Result<(), pgp::errors::Error> {
        match self.subkey {
            Some(subkey) => signature.verify(&subkey.key, document),
            None => signature.verify(&self.owner.primary_key, document),
        }
    }

    /// Whether the owner lets it sign, today.
    pub(super) fn is_usable(&self) -> bool {
        let primary = &self.owner.primary_key;
        let revoked = self.owner.details.revocation_signatures.iter().any(|revocation| {
            revocation.typ() == Some(SignatureType::KeyRevocation) && revocation.verify_key(primary).is_ok()
        });
        let own = latest(self.own_signatures());
        let alive = own.is_none_or(|own| self.is_alive(primary.created_at(), own));
        if revoked || !alive {
            return false;
        }
        match self.subkey {
            // A key without a word of its owner was still given by the operator.
            None => own.is_none_or(|own| own.key_flags().sign() || own.key_flags() == pgp::packet::KeyFlags::default()),
            Some(subkey) => self.is_bound(subkey),
        }
    }

    /// What the owner says of the primary key, with the key itself and with each of its names.
    fn own_signatures(&self) -> impl Iterator<Item = &Signature> {
        let primary = &self.owner.primary_key;
        let direct = &self.owner.details.direct_signatures;
        let direct = direct.iter().filter(move |signature| signature.verify_key(primary).is_ok());
        let names = self.owner.details.users.iter().flat_map(move |user| {
            user.signatures.iter().filter(move |signature| {
                signature.is_certification() && signature.verify_certification(primary, Tag::UserId, &user.id).is_ok()
            })
        });
        direct.chain(names)
    }

    /// Whether owner and subkey agree that it signs: without the subkey's own word, anybody's key could be adopted.
    fn is_bound(&self, subkey: &SignedPublicSubKey) -> bool {
        let primary = &self.owner.primary_key;
        let by_owner = |typ: SignatureType| {
            let signatures = subkey.signatures.iter().filter(move |signature| signature.typ() == Some(typ));
            signatures.filter(move |signature| signature.verify_subkey_binding(primary, &subkey.key).is_ok())
        };
        let revoked = by_owner(SignatureType::SubkeyRevocation).next().is_some();
        !revoked
            && latest(by_owner(SignatureType::SubkeyBinding)).is_some_and(|binding| {
                let agreed = binding.embedded_signature();
                binding.key_flags().sign()
                    && self.is_alive(subkey.key.created_at(), binding)
                    && agreed.is_some_and(|back| back.verify_primary_key_binding(&subkey.key, primary).is_ok())
            })
    }

    fn is_alive(&self, created: Timestamp, said: &Signature) -> bool {
        let created = UNIX_EPOCH + Duration::from_secs(created.as_secs().into());
        match said.key_expiration_time() {
            Some(lives) if lives.as_secs() != 0 => created + Duration::from_secs(lives.as_secs().into()) > self.now,
            _ => true,
        }
    }
}

fn latest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.max_by_key(|signature| signature.created().map(Timestamp::as_secs))
}

fn hex(key: &SignedPublicKey) -> String {
    format!("{:X}", key.fingerprint())
}
