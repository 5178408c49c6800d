//! Platforms as keys of a rule: `linux/arm64`, `linux/arm/v7`, `windows/amd64:10.0.20348`; and which of several fits best.

use std::cmp::Ordering;

use crate::sources::provider::Platform;

/// Reads `os/architecture[/variant][:os version]`.
pub(super) fn parse(text: &str) -> Option<Platform> {
    let (path, os_version) = match text.split_once(':') {
        Some((path, version)) => (path, Some(version)),
        None => (text, None),
    };
    let parts: Vec<&str> = path.split('/').collect();
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let sound = (2..=3).contains(&parts.len()) && parts.iter().all(|part| is_word(part));
    if !sound || !os_version.is_none_or(is_word) {
        return None;
    }
    Some(Platform {
        os: parts[0].to_ascii_lowercase(),
        architecture: parts[1].to_ascii_lowercase(),
        variant: parts.get(2).map(|variant| (*variant).to_owned()),
        os_version: os_version.map(str::to_owned),
        ..Platform::default()
    })
}

/// The best of the offers that run on `wanted`: one of exactly its version, then of exactly its variant, then of the
/// highest version, then the first.
pub(super) fn best<'a, T>(wanted: &Platform, offers: &'a [(Platform, T)]) -> Option<&'a T> {
    let mut found: Option<&(Platform, T)> = None;
    for offer in offers.iter().filter(|(offered, _)| wanted.accepts(offered)) {
        if found.is_none_or(|(best, _)| fit(wanted, &offer.0, best) == Ordering::Greater) {
            found = Some(offer);
        }
    }
    found.map(|(_, thing)| thing)
}

fn fit(wanted: &Platform, one: &Platform, other: &Platform) -> Ordering {
    let exact_version = |offered: &Platform| offered.os_version == wanted.os_version;
    let exact_variant = |offered: &Platform| offered.variant == wanted.variant;
    let version = |offered: &Platform| {
        let text = offered.os_version.as_deref().unwrap_or_default();
        text.split('.').map(|part| part.parse::<u64>().unwrap_or_default()).collect::<Vec<_>>()
    };
    (exact_version(one).cmp(&exact_version(other)))
        .then_with(|| exact_variant(one).cmp(&exact_variant(other)))
        .then_with(|| version(one).cmp(&version(other)))
}
