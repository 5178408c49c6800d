//! Where data comes from that is too large for an annotation, or too secret.
//!
//! A volume of the pod that the container mounts: kubelet has looked after who may read it. Or, where the node is given a way to the API, a
//! ConfigMap or Secret of the pod's namespace by its name, as Virtlet's pods have it.

use std::fmt;

use super::Problem;

/// Longest name of a volume, a DNS label, and of an object of the API, a DNS subdomain.
const MAX_VOLUME: usize = 63;
const MAX_OBJECT: usize = 253;
/// Key of a source of SSH keys, unless it is said.
const AUTHORIZED_KEYS: &str = "authorized_keys";

/// What has the data, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Of the pod.
    Volume(String),
    /// Of the pod's namespace.
    ConfigMap(String),
    /// The same.
    Secret(String),
}

/// Where user-data comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDataSource {
    pub source: Source,
    /// The one key that is the user-data; without it each key is one of a cloud-config.
    pub key: Option<String>,
    /// Whether values are base64.
    pub is_base64: bool,
}

/// Where SSH keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKeySource {
    pub source: Source,
    /// The key that has the lines.
    pub key: String,
}

/// A key of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOf {
    pub source: Source,
    pub key: String,
}

// === impl Source ===

impl Source {
    /// Whether it is read by the API.
    #[must_use]
    pub const fn is_of_api(&self) -> bool {
        matches!(self, Self::ConfigMap(_) | Self::Secret(_))
    }

    /// Its name, whatever it is of.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Volume(name) | Self::ConfigMap(name) | Self::Secret(name) => name,
        }
    }
}

/// As annotations have it.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Volume(_) => "volume",
            Self::ConfigMap(_) => "configmap",
            Self::Secret(_) => "secret",
        };
        write!(f, "{kind}/{}", self.name())
    }
}

/// `KIND/NAME`.
pub(super) fn whole(text: &str) -> Result<Source, Problem> {
    match split(text)? {
        (source, None) => Ok(source),
        (_, Some(_)) => Err(Problem::NotSource),
    }
}

/// `KIND/NAME`, or `KIND/NAME/KEY`.
pub(super) fn keys(text: &str) -> Result<SshKeySource, Problem> {
    let (source, key) = split(text).map_err(|_| Problem::NotKeySource)?;
    Ok(SshKeySource { source, key: key.unwrap_or(AUTHORIZED_KEYS).to_owned() })
}

/// `plain` or `base64`.
pub(super) fn is_base64(text: &str) -> Result<bool, Problem> {
    match text {
        "plain" => Ok(false),
        "base64" => Ok(true),
        _ => Err(Problem::NotOneOf { value: text.to_owned(), all: vec!["plain", "base64"] }),
    }
}

fn split(text: &str) -> Result<(Source, Option<&str>), Problem> {
    let (kind, rest) = text.split_once('/').ok_or(Problem::NotSource)?;
    let (name, key) = rest.split_once('/').map_or((rest, None), |(name, key)| (name, Some(key)));
    let of: fn(String) -> Source = match kind.to_ascii_lowercase().as_str() {
        "volume" if name.len() <= MAX_VOLUME => Source::Volume,
        "configmap" if name.len() <= MAX_OBJECT => Source::ConfigMap,
        "secret" if name.len() <= MAX_OBJECT => Source::Secret,
        _ => return Err(Problem::NotSource),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(is_plain)
        || key.is_some_and(str::is_empty)
    {
        return Err(Problem::NotSource);
    }
    Ok((of(name.to_owned()), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_volume_of_the_pod_or_an_object_of_its_namespace() {
        assert_eq!(whole("volume/site"), Ok(Source::Volume("site".into())));
        assert_eq!(whole("Volume/site-2"), Ok(Source::Volume("site-2".into())));
        assert_eq!(whole("configmap/a.b"), Ok(Source::ConfigMap("a.b".into())));
        assert_eq!(whole(&format!("Secret/{}", "s".repeat(253))), Ok(Source::Secret("s".repeat(253))));
        let of = |source: Source, key: &str| Ok(SshKeySource { source, key: key.into() });
        assert_eq!(keys("volume/keys"), of(Source::Volume("keys".into()), "authorized_keys"));
        assert_eq!(keys("secret/keys/mine"), of(Source::Secret("keys".into()), "mine"));
        assert_eq!(keys("volume/keys/of/mine"), of(Source::Volume("keys".into()), "of/mine"));
    }

    #[test]
    fn what_is_no_source_is_refused() {
        let long = [format!("volume/{}", "v".repeat(64)), format!("secret/{}", "s".repeat(254))];
        for text in [
            "",
            "volume",
            "volume/",
            "/",
            "pvc/x",
            "volume/../x",
            "volume/a b",
            "configmap/a\0",
            "volume/a/",
            "secret//k",
        ] {
            assert_eq!(keys(text), Err(Problem::NotKeySource), "{text:?}");
        }
        for text in &long {
            assert_eq!(keys(text), Err(Problem::NotKeySource), "{text:?}");
        }
        assert_eq!(whole("volume/a/b"), Err(Problem::NotSource));
        assert_eq!(whole("secret/a/b"), Err(Problem::NotSource));
    }
}
