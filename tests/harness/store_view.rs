//! What lies in an image store, looked at from outside: whether it is what its layout promises.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::peers::disk::sum;
use crate::wait::wait_for;

/// What a refused pull leaves is taken away when the caller has had its answer.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

/// A store at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreView {
    /// Digests of the content that is there.
    pub data: BTreeSet<String>,
    /// What a name's link points at, by the link's path below the root.
    pub links: BTreeMap<PathBuf, String>,
}

impl StoreView {
    /// [`StoreView::look`], once the store has come to rest.
    ///
    /// # Errors
    /// When it does not.
    pub fn settled(root: &Path) -> Result<Self> {
        let mut last = Ok(());
        let view = wait_for("store at rest", SETTLE_DEADLINE, || {
            let looked = Self::look(root);
            last = looked.as_ref().map(drop).map_err(|unsound| anyhow!("{unsound:#}"));
            Ok(looked.ok())
        });
        last?;
        view
    }

    /// Looks at the store at `root`.
    ///
    /// # Errors
    /// When it breaks a promise: content that is not what its name says, or may be written; a link into nothing; a
    /// download's part or a temporary name where only finished things belong.
    pub fn look(root: &Path) -> Result<Self> {
        let mut data = BTreeSet::new();
        for path in entries(&root.join("data"))? {
            let name = name_of(&path)?;
            ensure!(name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "left in data: `{name}`");
            let mode = fs::symlink_metadata(&path)?.permissions().mode();
            ensure!(mode & 0o170_222 == 0o100_000, "`{name}` has mode {mode:o}");
            let found = sum("sha256sum", &path)?;
            ensure!(found == name, "content of `{name}` is {found}");
            data.insert(name);
        }
        let mut links = BTreeMap::new();
        let mut places = vec![(root.join("links"), "../data/")];
        for handler in entries(&root.join("handlers"))? {
            places.push((handler.join("links"), "../../../data/"));
        }
        for (place, way) in places {
            for path in entries(&place)? {
                let target = fs::read_link(&path).with_context(|| format!("no link: {}", path.display()))?;
                let target = target.to_str().context("a link to no text")?;
                let Some(digest) = target.strip_prefix(way) else { bail!("{} leads to {target}", path.display()) };
                ensure!(data.contains(digest), "{} leads to nothing", path.display());
                links.insert(path.strip_prefix(root)?.to_owned(), digest.to_owned());
            }
        }
        for place in ["meta", "refs/_default", "leases", "derived"] {
            for path in entries(&root.join(place))? {
                let name = name_of(&path)?;
                ensure!(!name.starts_with(".tmp-"), "left in {place}: `{name}`");
            }
        }
        Ok(Self { data, links })
    }

    /// Fails when content is there that no name leads to.
    ///
    /// # Errors
    /// See above.
    pub fn assert_no_orphans(&self) -> Result<()> {
        let named: BTreeSet<_> = self.links.values().cloned().collect();
        ensure!(self.data == named, "content without a name: {:?}", self.data.difference(&named));
        Ok(())
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}

fn name_of(path: &Path) -> Result<String> {
    Ok(path.file_name().and_then(|name| name.to_str()).context("a name that is no text")?.to_owned())
}
