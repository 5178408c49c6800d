//! What an image runs on, in OCI's terms: `linux`, `amd64`, variant `v8`.

use std::collections::BTreeSet;
use std::fmt;

/// A platform of guests. The default is Linux on this machine's architecture.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Platform {
    /// The system: `linux`, `windows`.
    pub os: String,
    /// The architecture, as OCI calls it.
    pub architecture: String,
    /// Variant of the architecture: `v8`.
    pub variant: Option<String>,
    /// Version of the system.
    pub os_version: Option<String>,
    /// Features of the system that are needed.
    pub os_features: BTreeSet<String>,
}

/// OCI's names with variant, the kernel's and Debian's.
const NAMES: [(&str, Option<&str>, &str, &str); 12] = [
    ("amd64", None, "x86_64", "amd64"),
    ("arm64", Some("v8"), "aarch64", "arm64"),
    ("386", None, "i686", "i386"),
    ("386", None, "i386", "i386"),
    ("386", None, "i586", "i386"),
    ("arm", Some("v7"), "armv7l", "armhf"),
    ("arm", Some("v6"), "armv6l", "armel"),
    ("ppc64le", None, "ppc64le", "ppc64el"),
    ("ppc64", None, "ppc64", "ppc64"),
    ("s390x", None, "s390x", "s390x"),
    ("riscv64", None, "riscv64", "riscv64"),
    ("sparc64", None, "sparc64", "sparc64"),
];

impl Platform {
    /// A Linux platform of an architecture by any of its names.
    #[must_use]
    pub fn linux(architecture: &str) -> Self {
        let (architecture, variant) = normalized(architecture, None);
        Self { os: "linux".into(), architecture, variant, os_version: None, os_features: BTreeSet::new() }
    }

    /// All names of architectures that are known, each once: OCI's, the kernel's and Debian's.
    #[must_use]
    pub fn known_architectures() -> BTreeSet<&'static str> {
        NAMES.into_iter().flat_map(|(oci, _, uname, dpkg)| [oci, uname, dpkg]).collect()
    }

    /// The architecture as `uname -m` says it.
    #[must_use]
    pub fn uname_arch(&self) -> &str {
        self.named().map_or(&self.architecture, |(_, _, uname, _)| uname)
    }

    /// The architecture as Debian says it.
    #[must_use]
    pub fn dpkg_arch(&self) -> &str {
        self.named().map_or(&self.architecture, |(_, _, _, dpkg)| dpkg)
    }

    /// Whether an image for `offered` runs here.
    #[must_use]
    pub fn accepts(&self, offered: &Self) -> bool {
        let (wanted, wanted_variant) = normalized(&self.architecture, self.variant.as_deref());
        let (architecture, variant) = normalized(&offered.architecture, offered.variant.as_deref());
        self.os.eq_ignore_ascii_case(&offered.os)
            && wanted == architecture
            && fits_variant(&wanted, wanted_variant.as_deref(), variant.as_deref())
            && self.fits_version(offered)
            && offered.os_features.is_subset(&self.os_features)
    }

    fn fits_version(&self, offered: &Self) -> bool {
        match (&self.os_version, &offered.os_version) {
            // `10.0.20348` means any patch of that build.
            (Some(wanted), Some(offered)) => {
                offered == wanted || offered.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.starts_with('.'))
            }
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    fn named(&self) -> Option<(&'static str, Option<&'static str>, &'static str, &'static str)> {
        let (architecture, variant) = normalized(&self.architecture, self.variant.as_deref());
        let of_architecture = || NAMES.into_iter().filter(|(name, ..)| *name == architecture);
        of_architecture().find(|(_, of, ..)| *of == variant.as_deref()).or_else(|| of_architecture().next())
    }
}

impl Default for Platform {
    fn default() -> Self {
        Self::linux(std::env::consts::ARCH)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.os, self.architecture)?;
        if let Some(variant) = &self.variant {
            write!(out, "/{variant}")?;
        }
        match &self.os_version {
            Some(version) => write!(out, ":{version}"),
            None => Ok(()),
        }
    }
}

/// OCI's name and variant for any name of an architecture.
fn normalized(architecture: &str, variant: Option<&str>) -> (String, Option<String>) {
    let lower = architecture.to_ascii_lowercase();
    let known = NAMES.iter().find(|(oci, _, uname, dpkg)| *oci == lower || *uname == lower || *dpkg == lower);
    match known {
        Some((oci, implied, ..)) => {
            // `arm` alone says nothing of its variant; `armhf` does.
            let implied = if *oci == "arm" && lower == "arm" { None } else { *implied };
            ((*oci).to_owned(), variant.or(implied).map(str::to_owned))
        }
        None => (lower, variant.map(str::to_owned)),
    }
}

/// The number of a level of AMD64: `v3`.
fn level(variant: Option<&str>) -> Option<u32> {
    variant.unwrap_or("v1").strip_prefix('v')?.parse().ok()
}

fn fits_variant(architecture: &str, wanted: Option<&str>, offered: Option<&str>) -> bool {
    match (wanted, offered) {
        // Levels of AMD64: one that does not say is of the first, and each runs what was made for a lesser one.
        _ if architecture == "amd64" => match (level(wanted), level(offered)) {
            (Some(wanted), Some(offered)) => offered <= wanted,
            _ => wanted == offered,
        },
        (None, _) | (_, None) => true,
        (Some(wanted), Some(offered)) if architecture == "arm" => {
            let number = |variant: &str| variant.strip_prefix('v').and_then(|digits| digits.parse::<u32>().ok());
            // A newer processor runs what was made for an older one.
            match (number(wanted), number(offered)) {
                (Some(wanted), Some(offered)) => (5..=wanted).contains(&offered),
                _ => wanted == offered,
            }
        }
        (Some(wanted), Some(offered)) => wanted == offered,
    }
}
