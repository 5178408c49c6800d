//! What a registry has under a reference: from its index down to the manifest for a platform, and small blobs.
//!
//! Called by the provider and by [`super::describe`]. Each document is verified against the digest and the descriptor
//! that led to it before it is read.

use bytes::Bytes;
use common::Reason;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use vmimage::error::printable;

use super::manifest::{self, Descriptor, Document, Manifest};
use super::reference::{self, Reference, Version};
use super::session::Session;
use super::{Oci, select};
use crate::sources::net::Small;
use crate::sources::provider::{ImageHash, Platform, ProviderError};

/// Largest manifest or index.
const MANIFEST: usize = 4 * 1024 * 1024;
/// Indices within each other.
const DEPTH: usize = 2;
/// Indices within one.
const INNER: usize = 16;

/// A manifest, and how it was reached.
pub(super) struct Chosen {
    pub(super) manifest: Box<Manifest>,
    pub(super) digest: ImageHash,
    /// What the index says that it is for.
    pub(super) platform: Option<Platform>,
}

const TOO_DEEP: &str = "the index leads to indices too deep or too many, or to a document of another kind than it says";

impl Oci {
    /// Whether the registry has the same document under that reference: one round trip, without the document.
    pub(super) async fn is_still(
        &self,
        session: &Session,
        reference: &Reference,
        digest: &ImageHash,
    ) -> Result<bool, ProviderError> {
        // Also under a digest, which nobody can change: whoever asks may be let in no more.
        let request =
            session.head(session.url("manifests", &reference.version)).with_header(ACCEPT.as_str(), manifest::ACCEPT);
        let answer = session.small(&request, 0).await?;
        Ok(answer.status == StatusCode::OK && named_digest(&answer).as_ref() == Some(digest))
    }

    /// The manifest for a platform, and the digest of what the reference itself stands for.
    pub(super) async fn choose(
        &self,
        session: &Session,
        reference: &Reference,
        wanted: &Platform,
    ) -> Result<(ImageHash, Chosen), ProviderError> {
        let expected = match &reference.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        };
        let shown = reference.to_string();
        let (top, document) = self.document(session, &shown, &reference.version, expected, None).await?;
        let mut platform = None;
        let mut digest = top.clone();
        let mut available = Vec::new();
        // Indices to look into, each with its depth.
        let mut indices = match document {
            Document::Manifest(manifest) => return Ok((top, Chosen { manifest, digest, platform })),
            Document::Index(index) => vec![(1, index)],
        };
        let mut fetched = 0;
        while !indices.is_empty() {
            let (depth, index) = indices.remove(0);
            index.check().map_err(|cause| self.unusable(&shown, cause))?;
            let (inner, images): (Vec<_>, Vec<_>) = index.manifests.into_iter().partition(Descriptor::is_index);
            let images: Vec<_> = images.into_iter().filter(Descriptor::is_manifest).collect();
            let offered: Vec<_> = images.iter().map(Descriptor::platform).collect();
            // Of one that does not say what it runs on, the configuration has the last word, as it has of all.
            let silent = || images.iter().position(Descriptor::is_silent);
            if let Some(at) = select::best(wanted, &offered).or_else(silent) {
                let chosen = &images[at];
                platform.clone_from(&offered[at]);
                digest = chosen.hash().map_err(|cause| self.unusable(&shown, cause))?;
                return match self.document(session, &shown, &digest, Some(&digest), Some(chosen)).await?.1 {
                    Document::Manifest(manifest) => Ok((top, Chosen { manifest, digest, platform })),
                    Document::Index(_) => Err(self.unusable(&shown, Reason::new(TOO_DEEP))),
                };
            }
            available.extend(offered.into_iter().flatten().map(|platform| printable(&platform.to_string())));
            for descriptor in &inner {
                fetched += 1;
                if depth >= DEPTH || fetched > INNER {
                    return Err(self.unusable(&shown, Reason::new(TOO_DEEP)));
                }
                let digest = descriptor.hash().map_err(|cause| self.unusable(&shown, cause))?;
                match self.document(session, &shown, &digest, Some(&digest), Some(descriptor)).await?.1 {
                    Document::Index(index) => indices.push((depth + 1, index)),
                    Document::Manifest(_) => return Err(self.unusable(&shown, Reason::new(TOO_DEEP))),
                }
            }
        }
        Err(self.other_platform(&shown, wanted, available))
    }

    /// An index or manifest, verified against the digest and the descriptor that led to it.
    async fn document(
        &self,
        session: &Session,
        shown: &str,
        version: &(dyn std::fmt::Display + Sync),
        expected: Option<&ImageHash>,
        descriptor: Option<&Descriptor>,
    ) -> Result<(ImageHash, Document), ProviderError> {
        let request = session.get(session.url("manifests", version)).with_header(ACCEPT.as_str(), manifest::ACCEPT);
        let answer = session.small(&request, MANIFEST).await?;
        self.check_status(&answer, shown)?;
        let unusable = |cause| self.unusable(shown, cause);
        if let Some(descriptor) = descriptor {
            check_size(descriptor, &answer.body).map_err(unusable)?;
        }
        let digest = manifest::check_digest(&answer.body, expected).map_err(unusable)?;
        if let Some(named) = named_digest(&answer)
            && named.alg() == digest.alg()
            && named != digest
        {
            return Err(unusable(Reason::new(format!("the document is {digest}, not {named}"))));
        }
        let content_type = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let document = manifest::document(&answer.body, content_type).map_err(unusable)?;
        Ok((digest, document))
    }

    fn check_status(&self, answer: &Small, shown: &str) -> Result<(), ProviderError> {
        match answer.status {
            StatusCode::OK => Ok(()),
            StatusCode::NOT_FOUND => Err(ProviderError::NotFound { provider: self.id.clone(), name: shown.to_owned() }),
            _ => Err(answer.refusal().into()),
        }
    }

    /// A blob that is small enough to be looked into here.
    pub(super) async fn blob(
        &self,
        session: &Session,
        shown: &str,
        descriptor: &Descriptor,
        limit: usize,
    ) -> Result<Bytes, ProviderError> {
        let unusable = |cause| self.unusable(shown, cause);
        let digest = descriptor.hash().map_err(unusable)?;
        let answer = session.small(&session.get(session.url("blobs", &digest)), limit).await?;
        self.check_status(&answer, shown)?;
        check_size(descriptor, &answer.body).map_err(unusable)?;
        manifest::check_digest(&answer.body, Some(&digest)).map_err(unusable)?;
        Ok(answer.body)
    }
}

/// The digest that a server names for a document. Not to be believed, but to be compared with.
fn named_digest(answer: &Small) -> Option<ImageHash> {
    reference::strong(answer.headers.get("docker-content-digest")?.to_str().ok()?)
}

fn check_size(descriptor: &Descriptor, body: &Bytes) -> Result<(), Reason> {
    let actual = body.len() as u64;
    let expected = descriptor.size;
    if expected == actual {
        return Ok(());
    }
    Err(Reason::new(format!("the document has {actual} bytes, not {expected}")))
}
