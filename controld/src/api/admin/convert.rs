//! The store's types and the service's messages.

use imagestore::net::Auth;
use imagestore::provider::{Dropped, Revision};
use imagestore::{
    Binding, Details, Found, GcReport, Gone, Layers, Progress, ProviderInfo, PullRequest, Removed, Verdict, Verified,
};
use proto::images as wire;
use vmimage::declared::Declared;
use vmimage::name::given_url;
use vmspec::error::{Error, Kind};

use super::optional;

/// What a caller wants to pull.
pub(super) fn pull_request(request: wire::PullWithProgressRequest) -> Result<PullRequest, Error> {
    let wire::Auth { username, password, bearer_token } = request.auth.unwrap_or_default();
    let auth = match (bearer_token.is_empty(), username.is_empty() && password.is_empty()) {
        (false, _) => Some(Auth::Bearer(bearer_token)),
        (true, false) => Some(Auth::Basic { user: username, password }),
        (true, true) => None,
    };
    let unknown = |_value| Error::new(Kind::Invalid, "unknown value of `offline`");
    let offline = match wire::Offline::try_from(request.offline).map_err(unknown)? {
        wire::Offline::Unspecified => None,
        wire::Offline::Never => Some(imagestore::Offline::Never),
        wire::Offline::Auto => Some(imagestore::Offline::Auto),
        wire::Offline::Always => Some(imagestore::Offline::Always),
    };
    let no_url = |cause| Error::because(Kind::Invalid, "`url` cannot be asked for an image", cause);
    Ok(PullRequest {
        name: request.name,
        handler: request.handler,
        url: optional(&request.url).map(given_url).transpose().map_err(no_url)?,
        auth,
        auth_server: String::new(),
        force: request.force,
        provider: Some(request.provider).filter(|provider| !provider.is_empty()),
        offline,
        // Who asks here is an operator, and says whether they want layers in full.
        layers: Some(if request.no_recursive { Layers::Leave } else { Layers::Pull }),
    })
}

/// What a caller says of an image that it sends: its name and handler, and its format.
pub(super) fn import_request(head: &wire::ImportHead) -> Result<(PullRequest, Option<Declared>), Error> {
    let unknown = || Error::new(Kind::Invalid, format!("format {:?} is not known", head.format));
    let declared = optional(&head.format).map(|format| Declared::named(format).ok_or_else(unknown)).transpose()?;
    let request = PullRequest { name: head.name.clone(), handler: head.handler.clone(), ..PullRequest::default() };
    Ok((request, declared))
}

pub(super) fn progress(progress: Progress) -> wire::PullWithProgressResponse {
    let progress =
        wire::Progress { bytes: progress.bytes, total: progress.total.unwrap_or_default(), resumed: progress.resumed };
    wire::PullWithProgressResponse { event: Some(wire::pull_with_progress_response::Event::Progress(progress)) }
}

pub(super) fn pulled(pulled: imagestore::Image, downloaded: bool) -> wire::PullWithProgressResponse {
    let result = wire::PullResult { stale: pulled.stale, downloaded, image: Some(image(pulled)) };
    wire::PullWithProgressResponse { event: Some(wire::pull_with_progress_response::Event::Result(result)) }
}

pub(super) fn image(image: imagestore::Image) -> wire::Image {
    wire::Image {
        id: image.id.to_string(),
        handler: image.handler,
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        virtual_size: image.virtual_size,
        format: image.format.to_string(),
        provider: image.provider.unwrap_or_default(),
        weak: image.weak,
        stale: image.stale,
        pinned: image.pinned,
        missing: image.missing.unwrap_or_default(),
    }
}

pub(super) fn remote(Found { image, cached }: Found, secrets: bool) -> wire::RemoteImage {
    wire::RemoteImage {
        provider: image.provider,
        name: image.name,
        aliases: image.aliases,
        hashes: image.promises.iter().map(|promise| promise.hash.to_string()).collect(),
        format: image.format.map(|format| format.to_string()).unwrap_or_default(),
        artifact_size: image.artifact_size.unwrap_or_default(),
        virtual_size: image.virtual_size.unwrap_or_default(),
        platform: image.platform.to_string(),
        osinfo: image.osinfo.unwrap_or_default(),
        distro: image.distro.unwrap_or_default(),
        revision: match image.revision {
            Some(Revision::Number(number)) => number.to_string(),
            Some(Revision::Serial(serial)) => serial,
            None => String::new(),
        },
        created: image.created.unwrap_or_default(),
        parent: image.parent.unwrap_or_default(),
        notes: image.notes.into_iter().collect(),
        signed_by: image.signed_by.unwrap_or_default(),
        extra: if secrets { image.extra.into_iter().collect() } else { Default::default() },
        cached,
    }
}

pub(super) fn details(details: Details) -> wire::InspectResponse {
    let name = |name: imagestore::Name| wire::Name {
        name: name.name,
        handler: name.handler,
        source: name.source.unwrap_or_default(),
        by: name.by.unwrap_or_default(),
        provider: name.provider.unwrap_or_default(),
        platform: name.platform.unwrap_or_default(),
        labels: name.labels.into_iter().collect(),
        pulled_at: name.pulled_at,
    };
    wire::InspectResponse {
        length: details.length,
        path: details.image.path.display().to_string(),
        flags: details.flags,
        aliases: details.aliases,
        chain: details.chain.iter().map(ToString::to_string).collect(),
        names: details.names.into_iter().map(name).collect(),
        holders: details.holders,
        verified_at: details.verified_at,
        user: details.image.user.clone().unwrap_or_default(),
        image: Some(image(details.image)),
    }
}

pub(super) fn verified(verified: Verified) -> wire::VerifyResponse {
    use wire::verify_response::Verdict as Wire;
    let (verdict, found) = match verified.verdict {
        Verdict::Sound => (Wire::Sound, String::new()),
        Verdict::Corrupt { found } => (Wire::Corrupt, found),
        Verdict::Missing => (Wire::Missing, String::new()),
    };
    wire::VerifyResponse {
        id: verified.id.to_string(),
        verdict: verdict.into(),
        found,
        names: verified.names,
        holders: verified.holders,
        pinned: verified.pinned,
    }
}

pub(super) fn removed(removed: Removed) -> wire::Removed {
    let names = |names: Vec<Binding>| {
        names.into_iter().map(|Binding { name, handler }| wire::Binding { name, handler }).collect::<Vec<_>>()
    };
    let kept = removed.kept.map(|kept| wire::Keepers {
        names: names(kept.names),
        pinned: kept.pinned,
        holders: kept.holders,
        above: kept.above.iter().map(ToString::to_string).collect(),
        busy: kept.busy,
        unknown: kept.unknown,
    });
    wire::Removed { id: removed.id.to_string(), names: names(removed.names), kept }
}

pub(super) fn report(report: &GcReport) -> wire::GcResponse {
    let gone = |gone: Gone| Some(wire::gc_response::Gone { count: gone.count, bytes: gone.bytes });
    wire::GcResponse {
        partials: gone(report.partials),
        images: gone(report.images),
        quarantine: gone(report.quarantine),
        names: report.names,
        kept_back: report.kept_back,
    }
}

pub(super) fn provider(provider: ProviderInfo) -> wire::Provider {
    let caps = provider.caps;
    let capabilities = [
        ("search", caps.search),
        ("range", caps.range),
        ("conditional", caps.conditional),
        ("signed", caps.signed),
        ("by-hash", caps.by_hash),
        ("platform", caps.platform),
    ];
    let capabilities = capabilities.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect();
    let dropped = |Dropped { name, reason }| wire::provider::Dropped { name, reason };
    let dropped = provider.dropped.into_iter().map(dropped).collect();
    wire::Provider { id: provider.id, capabilities, schemes: provider.schemes, dropped }
}
