//! What the record of a name says of where its image is from: places and promises.

use sha2::{Digest as _, Sha256};
use vmimage::convert::ForeignFormat;
use vmimage::digest::{Digest, hex};

use super::find::Found;
use super::order::Order;
use crate::sources::provider::{Choice, Covers, Promise, Source};
use crate::storage::content::{Cover, Giver, Origin, Sought};

/// Identity of a place where bytes are, and of what they are converted from. Its parts may be secret.
pub(super) fn place(found: &Found) -> String {
    let Choice { provider, image } = &found.choice;
    let foreign = found.foreign().map(|format| format!("\n{format}")).unwrap_or_default();
    hex(&Sha256::digest(format!("{}\n{}{foreign}", provider.id(), image.key)))
}

/// The same for whoever asks.
fn site(Choice { provider, image }: &Choice, foreign: Option<ForeignFormat>) -> String {
    let foreign = foreign.map(|format| format!("\n{format}")).unwrap_or_default();
    let site = match &image.source {
        Source::Http(request) => request.url().as_str(),
        Source::File(_) => &image.key,
    };
    hex(&Sha256::digest(format!("site {}\n{site}{foreign}", provider.id())))
}

/// Who gives the bytes; no host if that is a file of the node.
pub(super) fn giver(found: &Found) -> Giver {
    let host = match &found.choice.image.source {
        Source::Http(request) => Some(request.url().origin().ascii_serialization()),
        Source::File(_) => None,
    };
    Giver { site: site(&found.choice, found.foreign()), host }
}

/// What a digest in a name or a rule demands: these bytes, as they are kept.
pub(super) fn promise_of(digest: &Digest) -> Promise {
    Promise { hash: digest.into(), covers: Covers::Content }
}

/// A promise about an image in the words of the content store. What a foreign image is made of is not what is stored.
pub(crate) fn sought(promise: &Promise, foreign: Option<ForeignFormat>) -> Sought {
    let covers = match promise.covers {
        Covers::Hosted => Cover::Hosted,
        Covers::Content if foreign.is_none() => Cover::Content,
        Covers::Content | Covers::Unpacked => Cover::Unpacked,
    };
    Sought { hash: promise.hash.to_string(), covers, foreign }
}

/// What is to be remembered of where a name got its image.
pub(super) fn origin(order: &Order, found: &Found, promises: &[Promise], place: &str) -> Origin {
    let Choice { provider, image: remote } = &found.choice;
    let hosted = promises.iter().filter(|promise| promise.covers == Covers::Hosted);
    let strong = promises.iter().any(|promise| promise.hash.alg().is_strong());
    let registered = remote.registered.as_ref();
    let Giver { site, host } = giver(found);
    Origin {
        source: Some(remote.shown.clone()),
        by: Some(found.by.clone()),
        provider: Some(provider.id().to_owned()),
        place: Some(place.to_owned()),
        site: Some(site),
        host,
        artifact: hosted.max_by_key(|promise| promise.hash.alg()).map(|promise| promise.hash.to_string()),
        platform: Some(order.want.platform.to_string()),
        manifest: registered.and_then(|registered| registered.digests.first()?.to_string().parse().ok()),
        user: registered.and_then(|registered| registered.user.clone()),
        labels: registered.map(|registered| registered.labels.clone()).unwrap_or_default(),
        weak: !promises.is_empty() && !strong,
        ..Origin::default()
    }
}
