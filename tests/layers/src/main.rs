//! `layers`: fails on a dependency that the plan of this workspace forbids, and on a document that names what is gone.
//! `make lint` runs it.
//!
//! It reads the source of every library and program of the workspace, without what is compiled for tests or fuzzing
//! alone, `tests/layers/arrows.toml` and the documents, and reports
//! - modules in one folder that use each other in a circle. A module counts with all that is below it; a module and the
//!   modules below it may use each other. Where no folder has a circle, no files form one either;
//! - a crate that depends on a crate, or a folder that uses a folder, which `arrows.toml` does not allow;
//! - a generated type outside the modules that `arrows.toml` allows it in;
//! - a path or a link in a document that leads nowhere.
//!
//! It sees paths: imports, re-exports (followed to where the item is defined), and paths within code, attributes and
//! macro calls. It does not see methods that are called without a path, nor what macros expand to.
#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a program for the terminal")]

mod attributes;
mod cycles;
mod documents;
mod resolve;
mod rules;
mod source;
mod tree;
mod uses;
mod workspace;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use rules::Rules;
use workspace::Workspace;

const RULES: &str = "tests/layers/arrows.toml";

fn main() -> ExitCode {
    let checked = Workspace::read(Path::new("Cargo.toml")).and_then(|workspace| check(&workspace));
    match checked {
        Ok((said, faults)) if faults.is_empty() => {
            println!("layers: {said}, no fault");
            ExitCode::SUCCESS
        }
        Ok((said, faults)) => {
            faults.iter().for_each(|fault| eprintln!("{fault}"));
            eprintln!("layers: {said}, {} faults; `{RULES}` says who may use whom", faults.len());
            ExitCode::FAILURE
        }
        Err(failed) => {
            eprintln!("layers: {failed:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was read, and what is wrong with it.
fn check(workspace: &Workspace) -> Result<(String, Vec<String>)> {
    let path = workspace.root.join(RULES);
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
    let rules: Rules = toml::from_str(&text).with_context(|| format!("failed to read `{}`", path.display()))?;

    let mut faults = rules.crates(workspace);
    let mut trees = Vec::new();
    for target in workspace.packages.iter().flat_map(|package| &package.targets) {
        trees.push(tree::Tree::read(&target.name, &target.root, &workspace.root)?);
    }
    faults.extend(rules.unknown_modules(&trees));
    for tree in &trees {
        let uses = uses::of(tree);
        faults.extend(cycles::find(tree, &uses).iter().map(ToString::to_string));
        faults.extend(rules.uses(tree, &uses));
    }
    let (documents, wrong) = documents::check(&workspace.root)?;
    faults.extend(wrong);
    let modules: usize = trees.iter().map(|tree| tree.modules.len()).sum();
    Ok((format!("{} crates, {modules} modules, {documents} documents", workspace.packages.len()), faults))
}
