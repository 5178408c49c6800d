//! Pools of VFs: those that `/etc/virtlet/sriov.toml` names, and the one that a network's configuration describes.
//!
//! Called by [`super::config`] at ADD and STATUS. The whole file is checked each time, and everything that is wrong
//! with it is told at once: a mistake in a pool that nobody asks for yet is found when the next pod starts, and not in
//! the night after.
//!
//! ```toml
//! [pool.blue]
//! pf = "ens1f0"          # or "0000:3b:00.0", or { vendor = "8086", device = "1572" }
//! vfs = "0-3,5"          # all if left out
//! driver = "vfio-pci"    # if left out: any with a netdev
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use proto::tap::IfName;
use serde_json::{Map, Value};
use sriov::PciAddr;

use super::failure::{Code, Failure};
use super::range::VfRange;
use super::reader::{Reader, shown};

/// Longest name of a pool or driver.
const MAX_NAME: usize = 63;
/// Keys that describe a pool, in the file and in a network's configuration.
pub(super) const KEYS: [&str; 3] = ["pf", "vfs", "driver"];

/// Pools by name.
pub(super) type Pools = BTreeMap<String, Pool>;

/// VFs that may be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pool {
    /// `None` if a network's configuration describes it.
    pub(super) name: Option<String>,
    /// Whose VFs.
    pub(super) pf: PfChoice,
    /// Which of them.
    pub(super) vfs: VfRange,
    /// The driver that they have; without it, one that makes a netdev.
    pub(super) driver: Option<String>,
}

/// Which PFs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PfChoice {
    /// The one with this netdev.
    Name(IfName),
    /// The one at this address.
    Addr(PciAddr),
    /// All of this kind. The device id is the PFs' own, or that of their VFs.
    Kind {
        /// Maker.
        vendor: u32,
        /// What it is.
        device: u32,
    },
}

/// The pools in the file at `path`.
///
/// # Errors
/// All that is wrong with it.
pub(super) fn load(path: &Path) -> Result<Pools, Failure> {
    let text = fs::read_to_string(path).map_err(Failure::because(
        Code::Config,
        format!("failed to read the pools in `{}`; write it, or name `pf` instead of `pool`", path.display()),
    ))?;
    parse(&text).map_err(|problems| {
        Failure::new(Code::Config, format!("`{}` cannot be used: {}", path.display(), problems.join("; ")))
    })
}

/// The pools that `text` has.
///
/// # Errors
/// All that is wrong with it.
pub(super) fn parse(text: &str) -> Result<Pools, Vec<String>> {
    let file: Map<String, Value> = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
        vec![format!("line {line}: {}", error.message())]
    })?;
    let mut problems = Vec::new();
    let mut reader = Reader::new(&file, "", &mut problems);
    reader.expect_only(&["pool"]);
    let tables: Map<String, Value> = reader.get("pool").unwrap_or_default();
    let mut pools = Pools::new();
    for (name, table) in &tables {
        let named = format!("pool.{}", shown(name));
        if !is_name(name) {
            problems
                .push(format!("`{named}`: a pool's name has letters, digits, `-`, `_` and `.`, at most {MAX_NAME}"));
        }
        let Value::Object(table) = table else {
            problems.push(format!("`{named}` is no table; write `[{named}]` with `pf` below it"));
            continue;
        };
        let mut reader = Reader::new(table, format!("{named}."), &mut problems);
        reader.expect_only(&KEYS);
        if let Some(pool) = describe(&mut reader) {
            pools.insert(name.clone(), Pool { name: Some(name.clone()), ..pool });
        } else if !table.contains_key("pf") {
            problems.push(format!("`{named}` has no `pf`; name the PF whose VFs it has"));
        }
    }
    if problems.is_empty() { Ok(pools) } else { Err(problems) }
}

/// The pool that these keys describe; `None` if no PF is named, or something is wrong.
pub(super) fn describe(reader: &mut Reader<'_>) -> Option<Pool> {
    let pf: Option<Value> = reader.get("pf");
    let pf = pf.and_then(|pf| choice(&pf).map_err(|problem| reader.wrong("pf", &problem)).ok());
    let vfs: Option<String> = reader.get("vfs");
    let vfs = vfs.map_or(Ok(VfRange::all()), |vfs| vfs.parse());
    let vfs = vfs.map_err(|problem| reader.wrong("vfs", &problem.to_string())).ok();
    let driver: Option<String> = reader.get("driver");
    if driver.as_deref().is_some_and(|driver| !is_name(driver)) {
        reader.wrong("driver", "is no name of a driver such as `vfio-pci`");
        return None;
    }
    Some(Pool { name: None, pf: pf?, vfs: vfs?, driver })
}

fn choice(value: &Value) -> Result<PfChoice, String> {
    match value {
        // A name cannot hold a colon.
        Value::String(text) if text.contains(':') => {
            text.parse().map(PfChoice::Addr).map_err(|error| format!("is wrong: {error}"))
        }
        Value::String(text) => {
            text.parse().map(PfChoice::Name).map_err(|_| format!("is `{}`, which is no link's name", shown(text)))
        }
        Value::Object(ids) => {
            let id = |key: &str| {
                let text = ids.get(key).and_then(Value::as_str).unwrap_or_default();
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let well_formed = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let id = if well_formed { u32::from_str_radix(digits, 16).ok() } else { None };
                id.ok_or_else(|| format!("needs a `{key}` of four hexadecimal digits, as `lspci -nn` shows it"))
            };
            if let Some(unknown) = ids.keys().find(|key| !["vendor", "device"].contains(&key.as_str())) {
                return Err(format!("has `{}`; it can have `vendor` and `device`", shown(unknown)));
            }
            Ok(PfChoice::Kind { vendor: id("vendor")?, device: id("device")? })
        }
        _ => Err("is neither a link's name, nor a PCI address, nor a table of `vendor` and `device`".to_owned()),
    }
}

fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(known)
}

// === impl Display ===

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "pool `{name}` ({})", self.pf),
            None => write!(f, "{}", self.pf),
        }
    }
}

impl fmt::Display for PfChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "PF `{name}`"),
            Self::Addr(addr) => write!(f, "PF `{addr}`"),
            Self::Kind { vendor, device } => write!(f, "PFs `{vendor:04x}:{device:04x}`"),
        }
    }
}

/// Entry for fuzzers: bytes as the file of pools.
///
/// # Panics
/// When a pool was read whose words do not mean the same again, or an error has no words.
#[cfg(any(test, feature = "exercise"))]
pub fn exercise(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse(text) {
        Ok(pools) => {
            for (name, pool) in pools {
                assert!(is_name(&name) && pool.name.as_ref() == Some(&name), "a strange name: `{name}`");
                let again: VfRange = pool.vfs.to_string().parse().expect("own ranges can be read");
                assert!(again == pool.vfs, "not what was read: {again}");
                assert!(pool.to_string().chars().all(|c| !c.is_control()), "{pool}");
            }
        }
        Err(problems) => assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.is_empty())),
    }
}

#[cfg(test)]
mod tests;
