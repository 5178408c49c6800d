//! The modules of one library or program, read from the file that it begins with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::source::{self, Body, Source};

/// Names of modules from the crate's root, which is the empty one.
pub(crate) type ModulePath = Vec<String>;

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

#[derive(Debug)]
pub(crate) struct Module {
    /// From the root of the workspace.
    pub(crate) file: PathBuf,
    /// Where it begins in its file.
    pub(crate) line: usize,
    pub(crate) source: Source,
}

impl Tree {
    /// Reads the crate `name` that begins in the file `root`.
    pub(crate) fn read(name: &str, root: &Path, workspace: &Path) -> Result<Self> {
        let mut tree = Self { name: name.to_owned(), modules: BTreeMap::new() };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.file(ModulePath::new(), root, &folder, workspace)?;
        Ok(tree)
    }

    /// `crate::module`, as errors and rules name it.
    pub(crate) fn shown(&self, path: &[String]) -> String {
        std::iter::once(&self.name).chain(path).map(String::as_str).collect::<Vec<_>>().join("::")
    }

    /// `folder` is where the files of its children are.
    fn file(&mut self, path: ModulePath, file: &Path, folder: &Path, workspace: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read `{}`", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("failed to parse `{}`", file.display()))?;
        let shown = file.strip_prefix(workspace).unwrap_or(file);
        self.module(path, source::read(&parsed.items), Place { file, folder, shown, line: 1 }, workspace)
    }

    fn module(&mut self, path: ModulePath, mut source: Source, place: Place<'_>, workspace: &Path) -> Result<()> {
        let children = std::mem::take(&mut source.children);
        self.modules.insert(path.clone(), Module { file: place.shown.to_owned(), line: place.line, source });
        for child in children {
            let mut below = path.clone();
            below.push(child.name.clone());
            let folder = place.folder.join(&child.name);
            match child.body {
                Body::Inline(source) => {
                    self.module(below, source, Place { folder: &folder, line: child.line, ..place }, workspace)?;
                }
                Body::File(Some(named)) => {
                    let file = place.file.with_file_name("").join(named);
                    let folder = file.with_file_name("");
                    self.file(below, &file, &folder, workspace)?;
                }
                Body::File(None) => {
                    let usual = folder.with_extension("rs");
                    let file = if usual.exists() { usual } else { folder.join("mod.rs") };
                    ensure!(file.exists(), "no file of `{}`", self.shown(&below));
                    self.file(below, &file, &folder, workspace)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a Path,
    folder: &'a Path,
    shown: &'a Path,
    line: usize,
}
