//! Whether an image that is here is one that a runtime handler takes, by its format and by where it came from.
//!
//! A pull for the handler goes by the same settings before it downloads. They are asked once more when an image is given
//! without its source being asked, and when a machine is made of it: it may have been pulled for the default handler, as
//! not every caller can name one, or before the settings were as they are.

use std::collections::BTreeSet;

use vmimage::inspect::DiskFormat;

use crate::sources::translate::is_led_by;
use crate::storage::content::Origin;

/// Why a runtime handler does not take an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its format, or that of an image that it stands on.
    #[error("it is {format}, or stands on an image that is, and the handler's `formats` have no {format}")]
    Format { format: DiskFormat },
    /// Who gave it.
    #[error("it came from provider `{provider}`, which is none of the handler's `providers`")]
    Provider {
        /// The provider's id.
        provider: String,
    },
    /// What led to it.
    #[error("it came by {by}, which is in none of the handler's `translations`")]
    Rule {
        /// The rule.
        by: String,
    },
    /// An earlier release pulled it.
    #[error("it is not on record which provider it came from, and the handler has `providers`")]
    Unrecorded,
}

/// Whether a handler that takes these formats, or any, takes this one.
pub(crate) fn check_format(formats: Option<&BTreeSet<DiskFormat>>, format: DiskFormat) -> Result<(), Unfit> {
    match formats {
        Some(taken) if !taken.contains(&format) => Err(Unfit::Format { format }),
        _ => Ok(()),
    }
}

/// Whether a handler that has these providers and these translation files, or all, takes what came from there.
pub(crate) fn check_origin(
    providers: Option<&BTreeSet<String>>,
    translations: Option<&BTreeSet<String>>,
    origin: &Origin,
) -> Result<(), Unfit> {
    match (providers, &origin.provider) {
        (Some(allowed), Some(provider)) if !allowed.contains(provider) => {
            return Err(Unfit::Provider { provider: provider.clone() });
        }
        (Some(_), None) => return Err(Unfit::Unrecorded),
        _ => {}
    }
    match (translations, &origin.by) {
        (Some(configs), Some(by)) if !is_led_by(by, configs) => Err(Unfit::Rule { by: by.clone() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_restricted_is_taken() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        let from = |provider: Option<&str>, by: &str| Origin {
            provider: provider.map(str::to_owned),
            by: Some(by.to_owned()),
            ..Origin::default()
        };
        let rule = "rule 1 (`img`) of `a.yaml`";
        let (corp, a, none) = (names(&["corp"]), names(&["a"]), names(&[]));
        for (providers, translations, origin, expected) in [
            (None, None, from(None, rule), Ok(())),
            (Some(&corp), Some(&a), from(Some("corp"), rule), Ok(())),
            (Some(&corp), None, from(Some("http"), rule), Err(Unfit::Provider { provider: "http".into() })),
            (Some(&corp), None, from(None, rule), Err(Unfit::Unrecorded)),
            (None, Some(&none), from(Some("http"), rule), Err(Unfit::Rule { by: rule.into() })),
            // Translations say which rules hold, and these are none.
            (None, Some(&none), from(Some("corp"), "provider `corp`"), Ok(())),
            (None, Some(&none), from(Some("http"), "default https rule"), Ok(())),
        ] {
            assert_eq!(check_origin(providers, translations, &origin), expected, "{origin:?}");
        }
        let raw = BTreeSet::from([DiskFormat::Raw]);
        for (formats, expected) in [(None, Ok(())), (Some(&raw), Err(Unfit::Format { format: DiskFormat::Qcow2 }))] {
            assert_eq!(check_format(formats, DiskFormat::Qcow2), expected);
        }
        assert_eq!(check_format(Some(&raw), DiskFormat::Raw), Ok(()));
    }
}
