//! What a pod wants held where one of its volumes is mounted, beside `readOnly`: CRI's `mount_options`.

use std::fmt;
use std::ops::Not;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};

/// A set of mount(8)'s words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountOptions {
    /// No program on it starts.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub noexec: bool,
    /// Device nodes on it are none.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub nodev: bool,
    /// No program on it has another's rights.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub nosuid: bool,
}

impl MountOptions {
    /// Of these words.
    ///
    /// # Errors
    /// With the first that is no such option.
    pub fn parse(words: &[String]) -> Result<Self, &str> {
        let mut options = Self::default();
        for word in words {
            let option = match word.as_str() {
                "noexec" => &mut options.noexec,
                "nodev" => &mut options.nodev,
                "nosuid" => &mut options.nosuid,
                other => return Err(other),
            };
            *option = true;
        }
        Ok(options)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// That they are not held at a path of the guest.
    #[must_use]
    pub fn refused(&self, at: &str, why: &str) -> Error {
        let options = if self.words().count() > 1 { "options" } else { "option" };
        Error::new(Kind::Invalid, format!("volume mount at `{at}` has the {options} `{self}`: {why}"))
    }

    /// Each by its word.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.noexec, "noexec"), (self.nodev, "nodev"), (self.nosuid, "nosuid")];
        all.into_iter().filter_map(|(is_set, word)| is_set.then_some(word))
    }
}

/// As mount(8) takes them.
impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order_and_told_in_one() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            MountOptions::parse(&words).map(|options| options.to_string()).map_err(str::to_owned)
        };
        assert_eq!(of(&[]), Ok(String::new()));
        assert_eq!(of(&["nosuid", "noexec", "nosuid"]), Ok("noexec,nosuid".into()));
        assert_eq!(of(&["nodev"]), Ok("nodev".into()));
        for other in ["sync", "exec", "ro", "noexec,nodev", ""] {
            assert_eq!(of(&["nodev", other]), Err(other.into()));
        }
    }

    #[test]
    fn a_record_has_those_that_are_set() {
        let options = MountOptions { noexec: true, ..MountOptions::default() };
        let text = serde_json::to_string(&options).expect("written");
        assert_eq!(text, r#"{"noexec":true}"#);
        assert_eq!(serde_json::from_str::<MountOptions>(&text).expect("read"), options);
    }
}
