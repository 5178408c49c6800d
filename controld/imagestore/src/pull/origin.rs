//! Where an image comes from, in the words of records: places, promises, logins.

use sha2::{Digest as _, Sha256};

use super::{Found, Order};
use crate::name::{Digest, hex};
use crate::net::Auth;
use crate::provider::{Choice, Covers, Promise, RemoteImage, Want};
use crate::shelf::{Cover, Origin};

/// Identity of a place where bytes are. Its parts may be secret.
pub(super) fn place(provider: &str, remote: &RemoteImage) -> String {
    hex(&Sha256::digest(format!("{provider}\n{}", remote.key)))
}

/// Tells logins apart without telling them.
pub(super) fn fingerprint(want: &Want) -> String {
    let Some(auth) = &want.auth else { return String::new() };
    let text = match auth {
        Auth::Basic { user, password } => format!("basic {}:{user}:{password}", user.len()),
        Auth::Bearer(token) => format!("bearer {token}"),
    };
    hex(&Sha256::digest(text))
}

/// What a digest in a name or a rule demands: these bytes, as they are kept.
pub(super) fn promise_of(digest: &Digest) -> Promise {
    Promise { hash: digest.into(), covers: Covers::Content }
}

/// The same in the shelf's words.
pub(crate) fn cover(covers: Covers) -> Cover {
    match covers {
        Covers::Hosted => Cover::Hosted,
        Covers::Unpacked => Cover::Unpacked,
        Covers::Content => Cover::Content,
    }
}

/// What is to be remembered of where a name got its image.
pub(super) fn origin(order: &Order, found: &Found, promises: &[Promise], place: &str) -> Origin {
    let Choice { provider, image: remote } = &found.choice;
    let hosted = promises.iter().filter(|promise| promise.covers == Covers::Hosted);
    let strong = promises.iter().any(|promise| promise.hash.alg().is_strong());
    let registered = remote.registered.as_ref();
    Origin {
        source: Some(remote.shown.clone()),
        by: Some(found.by.clone()),
        provider: Some(provider.id().to_owned()),
        place: Some(place.to_owned()),
        artifact: hosted.max_by_key(|promise| promise.hash.alg()).map(|promise| promise.hash.to_string()),
        platform: Some(order.want.platform.to_string()),
        manifest: registered.and_then(|registered| registered.digests.first()?.to_string().parse().ok()),
        user: registered.and_then(|registered| registered.user.clone()),
        labels: registered.map(|registered| registered.labels.clone()).unwrap_or_default(),
        weak: !promises.is_empty() && !strong,
        ..Origin::default()
    }
}
