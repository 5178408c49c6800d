//! Where data comes from that is too large for an annotation, or too secret.
//!
//! A volume of the pod that the container mounts: kubelet has looked after who may read it. Virtlet read ConfigMaps and Secrets by an
//! account of its own, which could read all of the cluster; its names for them are known and refused.

use super::Problem;

/// Longest name of a volume: a DNS label.
const MAX_NAME: usize = 63;
/// Key of a source of SSH keys, unless it is said.
const AUTHORIZED_KEYS: &str = "authorized_keys";

/// Where user-data comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDataSource {
    /// Name of the pod's volume.
    pub volume: String,
    /// The one key that is the user-data; without it each key is one of a cloud-config.
    pub key: Option<String>,
    /// Whether values are base64.
    pub is_base64: bool,
}

/// Where SSH keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKeySource {
    /// Name of the pod's volume.
    pub volume: String,
    /// The key that has the lines.
    pub key: String,
}

/// `volume/NAME`.
pub(super) fn volume(text: &str) -> Result<String, Problem> {
    match split(text)? {
        (name, None) => Ok(name.to_owned()),
        (_, Some(_)) => Err(Problem::NotSource),
    }
}

/// `volume/NAME`, or `volume/NAME/KEY`.
pub(super) fn keys(text: &str) -> Result<SshKeySource, Problem> {
    let (name, key) = split(text)?;
    Ok(SshKeySource { volume: name.to_owned(), key: key.unwrap_or(AUTHORIZED_KEYS).to_owned() })
}

/// `plain` or `base64`.
pub(super) fn is_base64(text: &str) -> Result<bool, Problem> {
    match text {
        "plain" => Ok(false),
        "base64" => Ok(true),
        _ => Err(Problem::NotOneOf { value: text.to_owned(), all: vec!["plain", "base64"] }),
    }
}

fn split(text: &str) -> Result<(&str, Option<&str>), Problem> {
    let (kind, rest) = text.split_once('/').ok_or(Problem::NotSource)?;
    let (name, key) = rest.split_once('/').map_or((rest, None), |(name, key)| (name, Some(key)));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let is_api = ["configmap", "secret"].iter().any(|api| kind.eq_ignore_ascii_case(api));
    // What the API names may be longer than a volume's name.
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(is_plain)
        || key.is_some_and(str::is_empty)
    {
        return Err(Problem::NotSource);
    }
    match kind.eq_ignore_ascii_case("volume") {
        true if name.len() <= MAX_NAME => Ok((name, key)),
        false if is_api => Err(Problem::NoApi),
        _ => Err(Problem::NotSource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_volume_of_the_pod() {
        assert_eq!(volume("volume/site"), Ok("site".into()));
        assert_eq!(volume("Volume/site-2"), Ok("site-2".into()));
        let of = |volume: &str, key: &str| Ok(SshKeySource { volume: volume.into(), key: key.into() });
        assert_eq!(keys("volume/keys"), of("keys", "authorized_keys"));
        assert_eq!(keys("volume/keys/mine"), of("keys", "mine"));
        assert_eq!(keys("volume/keys/of/mine"), of("keys", "of/mine"));
    }

    #[test]
    fn what_is_no_volume_is_refused() {
        for text in ["configmap/a", "secret/b.c", "Secret/x", "ConfigMap/x/y"] {
            assert_eq!(keys(text), Err(Problem::NoApi), "{text}");
        }
        let long = format!("volume/{}", "v".repeat(64));
        for text in
            ["", "volume", "volume/", "/", "pvc/x", "volume/../x", "volume/a b", "volume/a\0", "volume/a/", &long]
        {
            assert_eq!(keys(text), Err(Problem::NotSource), "{text:?}");
        }
        assert_eq!(volume("volume/a/b"), Err(Problem::NotSource));
        assert_eq!(volume("secret/a/b"), Err(Problem::NoApi));
    }
}
