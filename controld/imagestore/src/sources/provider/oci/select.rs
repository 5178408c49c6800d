//! Which image of an index is for a platform.

use crate::sources::provider::Platform;

/// How well an image fits; the greater one is better. Among equals the first one of the index counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// Of Windows builds the very one that was wanted comes before another patch of it.
    exact_version: bool,
    /// Of ARM variants and AMD64 levels the newest that still runs.
    variant: u32,
    /// Of Windows builds the newest, if none was wanted.
    version: Vec<u64>,
}

/// The place of the best image of `offered` for `wanted`. Images that do not say what they run on are never chosen.
pub(super) fn best(wanted: &Platform, offered: &[Option<Platform>]) -> Option<usize> {
    let mut best: Option<(Fit, usize)> = None;
    for (at, platform) in offered.iter().enumerate() {
        let Some(platform) = platform else { continue };
        let Some(fit) = fit(wanted, platform) else { continue };
        if best.as_ref().is_none_or(|(known, _)| fit > *known) {
            best = Some((fit, at));
        }
    }
    best.map(|(_, at)| at)
}

fn fit(wanted: &Platform, offered: &Platform) -> Option<Fit> {
    if !wanted.accepts(offered) {
        return None;
    }
    let variant = offered.variant.as_deref().and_then(|variant| variant.strip_prefix('v')?.parse().ok());
    let is_windows = offered.os.eq_ignore_ascii_case("windows");
    let version = match &offered.os_version {
        Some(version) if is_windows && wanted.os_version.is_none() => {
            version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
        }
        _ => Vec::new(),
    };
    Some(Fit {
        exact_version: wanted.os_version.is_some() && wanted.os_version == offered.os_version,
        // Where a variant decides; elsewhere one that is left out is as good.
        variant: if matches!(&*offered.architecture, "arm" | "amd64") { variant.unwrap_or(0) } else { 0 },
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `os/arch[/variant][:version]`, or `-` for one that does not say.
    fn platform(text: &str) -> Option<Platform> {
        let (place, version) = text.split_once(':').map_or((text, None), |(place, version)| (place, Some(version)));
        let mut parts = place.split('/');
        let os = parts.next().filter(|os| *os != "-")?;
        let mut found = Platform::linux(parts.next().expect("an architecture"));
        found.os = os.to_owned();
        found.variant = parts.next().map(str::to_owned).or(found.variant);
        found.os_version = version.map(str::to_owned);
        Some(found)
    }

    #[test]
    fn the_best_image_is_the_first_that_fits_best() {
        for (wanted, offered, expected) in [
            ("linux/amd64", &["linux/arm64", "linux/amd64", "linux/amd64"][..], Some(1)),
            ("linux/amd64", &["-", "linux/x86_64"], Some(1)),
            ("linux/amd64", &["linux/arm64", "windows/amd64:10.0.1", "-"], None),
            ("linux/arm64/v8", &["linux/arm64", "linux/arm64/v8"], Some(0)),
            ("linux/arm64/v8", &["linux/arm64/v8", "linux/aarch64"], Some(0)),
            ("linux/arm64/v8", &["linux/arm64/v9"], None),
            ("linux/arm/v7", &["linux/arm/v5", "linux/arm/v6", "linux/arm/v7"], Some(2)),
            ("linux/arm/v7", &["linux/arm/v5", "linux/arm/v6", "linux/arm/v8"], Some(1)),
            ("linux/arm/v6", &["linux/arm/v7"], None),
            ("linux/arm/v6", &["linux/arm/v7", "linux/arm/v5"], Some(1)),
            (
                "windows/amd64:10.0.20348",
                &["windows/amd64:10.0.17763.1", "windows/amd64:10.0.20348.7", "windows/amd64:10.0.20348"],
                Some(2),
            ),
            (
                "windows/amd64:10.0.20348",
                &["windows/amd64:10.0.203480.1", "windows/amd64:10.0.20348.7", "windows/amd64:10.0.20348.9"],
                Some(1),
            ),
            ("windows/amd64:10.0.20348", &["windows/amd64", "windows/amd64:10.0.17763"], None),
            (
                "windows/amd64",
                &["windows/amd64:10.0.9", "windows/amd64:10.0.20348.1", "windows/amd64:10.0.17763"],
                Some(1),
            ),
            ("linux/amd64", &["linux/amd64:1", "linux/amd64:2"], Some(0)),
            ("linux/amd64", &[], None),
            ("linux/amd64", &["linux/amd64/v3", "linux/amd64"], Some(1)),
            ("linux/amd64", &["linux/amd64/v3"], None),
            ("linux/amd64/v3", &["linux/amd64", "linux/amd64/v2", "linux/amd64/v4", "linux/amd64/v3"], Some(3)),
            ("linux/amd64/v3", &["linux/amd64/v4", "linux/amd64"], Some(1)),
        ] {
            let offered: Vec<_> = offered.iter().map(|text| platform(text)).collect();
            assert_eq!(best(&platform(wanted).expect("a platform"), &offered), expected, "{wanted} of {offered:?}");
        }
    }

    #[test]
    fn features_of_the_image_must_be_wanted() {
        let plain = Platform::linux("amd64");
        let mut needs = plain.clone();
        needs.os_features.insert("win32k".into());
        assert_eq!(best(&plain, &[Some(needs.clone())]), None);
        assert_eq!(best(&needs, &[Some(needs.clone()), Some(plain.clone())]), Some(0));
        assert_eq!(best(&needs, &[Some(plain)]), Some(0));
    }
}
