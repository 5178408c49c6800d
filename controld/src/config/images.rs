//! Settings of images: the store, where images come from, and what each runtime handler's machines are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use common::dns;
use imagestore::net::{EnvProxies, NetPolicy};
use imagestore::provider::{Platform, ProviderConfig};
use imagestore::{Limits, Offline, Protocol};
use serde::Deserialize;
use vmimage::convert::ForeignFormat;
use vmimage::inspect::DiskFormat;
use vmimage::name::ImageRef;
use vmspec::settings::Problems;
use vmspec::settings::units::{self, GIB};

/// Largest size that a setting may have: a PiB.
const MOST: u64 = GIB << 20;
/// Longest time that a setting may have: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// What is said of one beyond it, or of 0.
const SIZE_RANGE: &str = "is not within 1 to 1048576 GiB";

/// Image store and downloads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImagesConfig {
    /// Root of the store; default `<state_dir>/images`.
    pub dir: Option<PathBuf>,
    /// Scheme of names that no translation covers: `https` or `http`.
    pub protocol: Protocol,
    /// Whether a name that no translation covers is taken for a URL.
    pub untranslated: bool,
    /// Whether a name without a translation that looks like one of a registry is asked for there, if its host is one.
    pub registry_names: bool,
    /// Whether `virtletctl` may bring images that no name leads to: files of its caller, and URLs.
    pub import: bool,
    /// Directory of translation files; default `/etc/virtlet/images.d`.
    pub translations_dir: PathBuf,
    /// Directory of the catalogue: translation files for names that nobody else knows, as they come with the software. Those
    /// in `translations_dir` take the place of those of the same name.
    pub catalogue_dir: PathBuf,
    /// Whether rules by regexp are used. Also on if the environment has `IMAGE_REGEXP_TRANSLATION`.
    pub regexp_translations: bool,
    /// Whether rules are also taken from the cluster's VirtletImageMapping objects.
    pub kube_mappings: bool,
    /// How to reach the cluster; default as `kubectl` finds it, then as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace whose objects count.
    pub kube_namespace: String,
    /// Prefixes of names that are taken off before translation, one at most.
    pub strip_prefixes: Vec<String>,
    /// Directories that `file:` images may come from.
    pub local_roots: Vec<PathBuf>,
    /// Whether a disk that has no known format is taken as a raw image.
    pub allow_raw: bool,
    /// Whether images that stand on others are taken, and those pulled with them.
    pub layered: bool,
    /// Formats that are converted if a source declares them.
    pub convert: BTreeSet<ForeignFormat>,
    /// Largest virtual size of an image, in bytes.
    #[serde(rename = "max_virtual_size_gib", deserialize_with = "units::gib")]
    pub max_virtual_size: u64,
    /// What downloads may take.
    pub limits: LimitsConfig,
    /// A download that brings no byte for this time is given up.
    #[serde(rename = "stall_deadline_s", deserialize_with = "units::seconds")]
    pub stall_deadline: Duration,
    /// When an image is taken for current without asking where it comes from: `never`, `auto` or `always`.
    pub offline: Offline,
    /// Handler of images where none is named.
    pub default_handler: String,
    /// Names whose images kubelet is told not to remove.
    pub pinned: Vec<String>,
    /// Where downloads may go.
    pub network: NetPolicy,
    /// Where else images are looked for, in this order.
    pub providers: Vec<ProviderConfig>,
    /// Directories with virt-builder's own list of sources, which come after those.
    pub virt_builder_repos: Vec<PathBuf>,
    /// Whether a provider that cannot be reached is passed over.
    pub fall_through: bool,
    /// Proxies, as the environment names them.
    #[serde(skip)]
    pub proxies: EnvProxies,
    /// Handlers whose images are another kind than the default.
    pub handlers: BTreeMap<String, HandlerConfig>,
}

/// What downloads may take of the node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Largest file that is downloaded, in bytes.
    #[serde(rename = "artifact_gib", deserialize_with = "units::gib")]
    pub artifact: u64,
    /// Largest file that may come out of a compressed one, in bytes.
    #[serde(rename = "unpacked_gib", deserialize_with = "units::gib")]
    pub unpacked: u64,
    /// Most bytes, other than long runs of zeros, that come out of each byte of a compressed file.
    pub ratio: u64,
    /// So much may come out in any case, in bytes.
    #[serde(rename = "ratio_from_gib", deserialize_with = "units::gib")]
    pub ratio_from: u64,
    /// Most downloads at a time.
    pub downloads: usize,
    /// How long an image may be given again by its digest to a login that its source gave it to, without the source being
    /// asked.
    #[serde(rename = "granted_for_s", deserialize_with = "units::seconds")]
    pub granted_for: Duration,
    /// How long a broken-off download is kept.
    #[serde(rename = "partial_ttl_s", deserialize_with = "units::seconds")]
    pub partial_ttl: Duration,
    /// Most that broken-off downloads may take, in bytes.
    #[serde(rename = "partial_quota_gib", deserialize_with = "units::gib")]
    pub partial_quota: u64,
    /// What stays free on the store's file system, in bytes, or a twentieth of it if that is less.
    #[serde(rename = "reserve_gib", deserialize_with = "units::gib")]
    pub reserve: u64,
}

/// What the images of a runtime handler's machines are. What is not said is as on the default handler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HandlerConfig {
    /// The guest's system, as OCI calls it.
    pub os: Option<String>,
    /// The guest's architecture, by any of its names.
    pub architecture: Option<String>,
    /// Variant of the architecture.
    pub variant: Option<String>,
    /// Version of the system, or its beginning.
    pub os_version: Option<String>,
    /// Features of the system.
    pub os_features: BTreeSet<String>,
    /// Formats of images; default all that the store takes.
    pub formats: Option<BTreeSet<DiskFormat>>,
    /// Translation files that hold, by their names; default all.
    pub translations: Option<BTreeSet<String>>,
    /// Providers that may be asked, by their ids; default all.
    pub providers: Option<BTreeSet<String>>,
}

impl ImagesConfig {
    /// Looks at values that their types do not restrict.
    pub(super) fn check(&self, problems: &mut Problems) {
        let is_relative = |dirs: &[PathBuf]| dirs.iter().any(|dir| !dir.is_absolute());
        for (is_wrong, key, problem) in [
            (is_relative(&self.local_roots), "images.local_roots", "has a directory that is not an absolute path"),
            (
                is_relative(&self.virt_builder_repos),
                "images.virt_builder_repos",
                "has a directory that is not an absolute path",
            ),
            (
                self.strip_prefixes.iter().any(|prefix| prefix.trim_end_matches('/').is_empty()),
                "images.strip_prefixes",
                "has an empty prefix",
            ),
            (
                self.pinned.iter().any(|name| name.parse::<ImageRef>().is_err()),
                "images.pinned",
                "has a name that is no image name",
            ),
            (self.default_handler.is_empty(), "images.default_handler", "is empty"),
            (!(GIB..=MOST).contains(&self.max_virtual_size), "images.max_virtual_size_gib", SIZE_RANGE),
            (
                !dns::is_label(&self.kube_namespace),
                "images.kube_namespace",
                "is no name of a namespace: 1 to 63 lower-case letters, digits or `-`, no `-` at either end",
            ),
        ] {
            problems.unless(!is_wrong, key, problem);
        }
        self.limits.check(problems);
        for (name, handler) in &self.handlers {
            handler.check(name, problems);
        }
    }

    /// What guests of a handler run on.
    #[must_use]
    pub fn platform(&self, handler: &str) -> Platform {
        self.handlers.get(handler).map(HandlerConfig::platform).unwrap_or_default()
    }
}

impl LimitsConfig {
    fn check(&self, problems: &mut Problems) {
        for (key, size) in
            [("images.limits.artifact_gib", self.artifact), ("images.limits.unpacked_gib", self.unpacked)]
        {
            problems.unless((GIB..=MOST).contains(&size), key, SIZE_RANGE);
        }
        for (key, size) in [
            ("images.limits.ratio_from_gib", self.ratio_from),
            ("images.limits.partial_quota_gib", self.partial_quota),
            ("images.limits.reserve_gib", self.reserve),
        ] {
            problems.unless(size <= MOST, key, "is not within 0 to 1048576 GiB");
        }
        problems.unless((1..=1_000_000).contains(&self.ratio), "images.limits.ratio", "is not within 1 to 1000000");
        problems.unless((1..=1000).contains(&self.downloads), "images.limits.downloads", "is not within 1 to 1000");
        for (key, time) in
            [("images.limits.granted_for_s", self.granted_for), ("images.limits.partial_ttl_s", self.partial_ttl)]
        {
            problems.unless(time <= LONGEST, key, "is not within 0 to 31536000 seconds");
        }
    }

    /// As the image store wants them, with the largest disk that an image may describe.
    #[must_use]
    pub fn for_store(&self, virtual_size: u64) -> Limits {
        Limits {
            artifact: self.artifact,
            unpacked: self.unpacked,
            ratio: self.ratio,
            ratio_from: self.ratio_from,
            virtual_size,
            downloads: self.downloads,
            granted_for: self.granted_for,
            partial_ttl: self.partial_ttl,
            partial_quota: self.partial_quota,
            reserve: self.reserve,
        }
    }
}

impl HandlerConfig {
    fn check(&self, name: &str, problems: &mut Problems) {
        let name = name.escape_debug();
        let known = Platform::known_architectures();
        let architecture = self.architecture.as_deref().map(str::to_ascii_lowercase);
        if let Some(unknown) = architecture.filter(|name| !known.contains(name.as_str())) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let problem = format!("is `{}` for handler `{name}`, and must be one of {known}", unknown.escape_debug());
            problems.add("images.handlers.<name>.architecture", problem);
        }
        if self.formats.as_ref().is_some_and(BTreeSet::is_empty) {
            let problem = format!("is empty for handler `{name}`, which could take no image; list `qcow2` or `raw`");
            problems.add("images.handlers.<name>.formats", problem);
        }
        let mut files = self.translations.iter().flatten();
        if let Some(file) = files.find(|file| file.is_empty() || file.contains('/')) {
            let problem = format!(
                "has `{}` for handler `{name}`; write the file's name, without its directory",
                file.escape_debug()
            );
            problems.add("images.handlers.<name>.translations", problem);
        }
    }

    fn platform(&self) -> Platform {
        let mut platform = self.architecture.as_deref().map(Platform::linux).unwrap_or_default();
        if let Some(os) = &self.os {
            platform.os = os.to_ascii_lowercase();
        }
        platform.variant = self.variant.clone().or(platform.variant);
        platform.os_version = self.os_version.clone();
        platform.os_features = self.os_features.clone();
        platform
    }

    /// As the image store wants it.
    #[must_use]
    pub fn for_store(&self) -> imagestore::HandlerConfig {
        imagestore::HandlerConfig {
            platform: self.platform(),
            formats: self.formats.clone(),
            translations: self.translations.clone(),
            providers: self.providers.clone(),
        }
    }
}

impl Default for ImagesConfig {
    fn default() -> Self {
        Self {
            dir: None,
            protocol: Protocol::Https,
            untranslated: true,
            registry_names: true,
            import: true,
            translations_dir: "/etc/virtlet/images.d".into(),
            catalogue_dir: "/usr/share/virtlet/images.d".into(),
            regexp_translations: false,
            kube_mappings: false,
            kubeconfig: None,
            kube_namespace: "kube-system".into(),
            strip_prefixes: vec!["virtlet.cloud/".into()],
            local_roots: Vec::new(),
            allow_raw: false,
            layered: false,
            convert: BTreeSet::new(),
            max_virtual_size: 2048 * GIB,
            limits: LimitsConfig::default(),
            stall_deadline: Duration::from_secs(60),
            offline: Offline::Never,
            default_handler: "virtlet".into(),
            pinned: Vec::new(),
            network: NetPolicy::default(),
            providers: Vec::new(),
            virt_builder_repos: Vec::new(),
            fall_through: false,
            proxies: EnvProxies::default(),
            handlers: BTreeMap::new(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            artifact: 64 * GIB,
            unpacked: 256 * GIB,
            ratio: 200,
            ratio_from: GIB,
            downloads: 3,
            granted_for: Duration::from_secs(3600),
            partial_ttl: Duration::from_secs(24 * 3600),
            partial_quota: 20 * GIB,
            reserve: 2 * GIB,
        }
    }
}
