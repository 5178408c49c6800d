//! The settings of a store, given when it is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use vmimage::convert::ForeignFormat;
use vmimage::inspect::{DiskFormat, LARGEST_DISK, LARGEST_FILE};
use vmimage::name::ImageRef;

use crate::sources::net::NetConfig;
use crate::sources::provider::{Platform, ProviderConfig};
use crate::sources::translate::{Mappings, Protocol};

/// Settings of a store. [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The store's directory. It and its parent must be the daemon's and not writable for others; for QEMU to reach
    /// the images, its parents must be searchable for everybody.
    pub root: PathBuf,
    /// Prefixes of names that are taken off before translation, one at most; default `virtlet.cloud/`.
    pub strip_prefixes: Vec<String>,
    /// Scheme of names without a rule, and of URLs without one; default https.
    pub protocol: Protocol,
    /// Whether a name without a rule is taken for a URL; default true.
    pub allow_untranslated: bool,
    /// Whether rules by regexp are used; default false.
    pub regexp_translations: bool,
    /// Directory of translation files; default none.
    pub translations_dir: Option<PathBuf>,
    /// Directory with the catalogue: translation files for names that nobody else knows. A file of `translations_dir`
    /// takes the place of one of the same name; default none.
    pub catalogue_dir: Option<PathBuf>,
    /// Whether a name that nobody knows, and that looks like one of a registry, is asked for at its host if that is a
    /// registry; default no.
    pub registry_names: bool,
    /// Rules that are pushed, which come before those of files; default none.
    pub mappings: Mappings,
    /// Whether bytes of no known format are taken as a raw disk; default false.
    pub allow_raw: bool,
    /// Whether images may stand on others where a pull does not say; default false.
    pub layered: bool,
    /// Formats that are made qcow2 if a rule declares them; default none.
    pub convert: BTreeSet<ForeignFormat>,
    /// What does that; default `/usr/bin/qemu-img`.
    pub qemu_img: PathBuf,
    /// Program that decompresses in a process of its own: it is run as `PROGRAM decompress KIND`, and has
    /// [`run_decoder`](vmimage::decode::run_apart) behind that. Default none: it is done in this process.
    pub decoder: Option<PathBuf>,
    pub limits: Limits,
    /// How servers are spoken to.
    pub net: NetConfig,
    /// Directories that `file:` images may come from; default none.
    pub local_roots: Vec<PathBuf>,
    /// Providers, in the order in which they are asked for a name; default none.
    pub providers: Vec<ProviderConfig>,
    /// Directories as virt-builder's `repos.d`, each source of which is one more provider; default none.
    pub virt_builder_repos: Vec<PathBuf>,
    /// Whether one that cannot be reached is passed over, though the next may answer for a name of its; default no.
    pub fall_through: bool,
    /// Whether images may be taken for current without asking where they come from; default never.
    pub offline: Offline,
    /// Name of the handler that is meant where none is named; default `virtlet`.
    pub default_handler: String,
    /// Runtime handlers by name. The default one is there also if it is not listed.
    pub handlers: BTreeMap<String, HandlerConfig>,
    /// Names whose images are pinned; default none.
    pub pinned: BTreeSet<ImageRef>,
}

/// What a runtime handler's machines are, and so which images are for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlerConfig {
    /// What its guests run on; default Linux on this machine's architecture.
    pub platform: Platform,
    /// Formats of images that it takes; default all that the store takes.
    pub formats: Option<BTreeSet<DiskFormat>>,
    /// Translation files that hold for it, by name; default all.
    pub translations: Option<BTreeSet<String>>,
    /// Providers that may be asked for it, by id; default all.
    pub providers: Option<BTreeSet<String>>,
}

/// When an image is taken for current without asking where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offline {
    /// Never: if the source cannot be asked, a pull fails.
    #[default]
    Never,
    /// When the source cannot be reached.
    Auto,
    /// Always: the network is not used at all.
    Always,
}

/// What a pull does about an image that stands on others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layers {
    /// Refuses it.
    Refuse,
    /// Stores it without what is not here yet: it is incomplete, and cannot be used, until that comes.
    Leave,
    /// Pulls those as well.
    Pull,
}

/// Limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest file, in bytes; default 64 GiB.
    pub artifact: u64,
    /// Largest file that may come out of a compressed one, in bytes; default 256 GiB.
    pub unpacked: u64,
    /// Most bytes, other than long runs of zeros, that come out of each byte of a compressed file; default 200.
    pub ratio: u64,
    /// So many bytes may come out in any case; default 1 GiB.
    pub ratio_from: u64,
    /// Largest disk that an image may describe, in bytes; default 2 TiB.
    pub virtual_size: u64,
    /// Most downloads at a time; others wait for their turn; default 3.
    pub downloads: usize,
    /// How long an image may be given again by its digest to a login that its source gave it to, without the source being
    /// asked; default an hour, which is about what tokens of registries live for: who is let in no more is out by then.
    pub granted_for: Duration,
    /// How long a broken-off download is kept; default a day.
    pub partial_ttl: Duration,
    /// Most bytes of broken-off downloads; default 20 GiB.
    pub partial_quota: u64,
    /// Bytes that stay free on the store's file system, or a twentieth of it if that is less; default 2 GiB.
    pub reserve: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            artifact: LARGEST_FILE,
            unpacked: 256 << 30,
            ratio: 200,
            ratio_from: 1 << 30,
            virtual_size: LARGEST_DISK,
            downloads: 3,
            granted_for: Duration::from_secs(3600),
            partial_ttl: Duration::from_secs(24 * 3600),
            partial_quota: 20 << 30,
            reserve: 2 << 30,
        }
    }
}

impl Config {
    /// The defaults, for a store at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            strip_prefixes: vec!["virtlet.cloud/".into()],
            protocol: Protocol::Https,
            allow_untranslated: true,
            regexp_translations: false,
            translations_dir: None,
            catalogue_dir: None,
            registry_names: false,
            mappings: Mappings::default(),
            allow_raw: false,
            layered: false,
            convert: BTreeSet::new(),
            qemu_img: "/usr/bin/qemu-img".into(),
            decoder: None,
            limits: Limits::default(),
            net: NetConfig::default(),
            local_roots: Vec::new(),
            providers: Vec::new(),
            virt_builder_repos: Vec::new(),
            fall_through: false,
            offline: Offline::default(),
            default_handler: "virtlet".into(),
            handlers: BTreeMap::new(),
            pinned: BTreeSet::new(),
        }
    }
}
