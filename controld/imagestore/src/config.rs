//! What a store is told when it is opened.

use std::path::PathBuf;

use crate::net::NetConfig;
use crate::provider::ProviderConfig;
use crate::translate::{Mappings, Protocol};

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
    /// Rules that are pushed, which come before those of files; default none.
    pub mappings: Mappings,
    /// Whether bytes of no known format are taken as a raw disk; default false.
    pub allow_raw: bool,
    /// Limits.
    pub limits: Limits,
    /// How servers are spoken to.
    pub net: NetConfig,
    /// Directories that `file:` images may come from; default none.
    pub local_roots: Vec<PathBuf>,
    /// Providers, in the order in which they are asked for a name; default none.
    pub providers: Vec<ProviderConfig>,
    /// Whether one that cannot be reached is passed over, though the next may answer for a name of its; default no.
    pub fall_through: bool,
}

/// Limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest file, in bytes; default 64 GiB.
    pub artifact: u64,
    /// Largest disk that an image may describe, in bytes; default 2 TiB.
    pub virtual_size: u64,
    /// Most downloads at a time; others wait for their turn; default 3.
    pub downloads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { artifact: 64 << 30, virtual_size: 2 << 40, downloads: 3 }
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
            mappings: Mappings::default(),
            allow_raw: false,
            limits: Limits::default(),
            net: NetConfig::default(),
            local_roots: Vec::new(),
            providers: Vec::new(),
            fall_through: false,
        }
    }
}
