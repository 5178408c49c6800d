//! What documents name: every path of the repository that they show as code, and every relative link, leads somewhere.
//!
//! It reads the documents in the root, in `docs` and in `deploy`, and the accepted decisions; a superseded one may name what
//! is gone. Blocks of code are passed over.

use std::path::Path;

use anyhow::{Context as _, Result};

/// A word with one of these endings is the name of a file, wherever it stands.
const ENDINGS: &[&str] = &[".rs", ".sh", ".c", ".service"];

/// How many documents there are, and what is wrong with them.
pub(crate) fn check(root: &Path) -> Result<(usize, Vec<String>)> {
    let mut entries = Vec::new();
    list(root, "", &mut entries)?;
    let documents: Vec<&str> = entries.iter().map(String::as_str).filter(|path| is_document(path)).collect();
    let mut read = 0;
    let mut faults = Vec::new();
    for name in documents {
        let text = text_of(root, name)?;
        if name.starts_with("docs/adr/0") && !text.lines().any(|line| line.starts_with("Status: accepted")) {
            continue;
        }
        read += 1;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(&text) {
            for path in paths(line) {
                if is_ours(&path, &entries) && !expanded(&path).iter().all(|one| stands(one, &entries)) {
                    faults.push(format!("{name}:{number}: names `{path}`, which does not exist"));
                }
            }
            for link in links(line) {
                if !leads_somewhere(root, name, folder, link, &entries)? {
                    faults.push(format!("{name}:{number}: the link to `{link}` leads nowhere"));
                }
            }
        }
    }
    Ok((read, faults))
}

fn is_document(path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    path.ends_with(".md") && ["", "docs", "docs/adr", "deploy"].contains(&folder)
}

/// All files and folders below `folder`, by their paths from the root; no hidden ones, and nothing that was built.
fn list(root: &Path, folder: &str, entries: &mut Vec<String>) -> Result<()> {
    let path = root.join(folder);
    let failed = || format!("failed to list `{}`", path.display());
    for entry in std::fs::read_dir(&path).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        let below = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type().with_context(failed)?.is_dir() {
            list(root, &below, entries)?;
        }
        entries.push(below);
    }
    entries.sort();
    Ok(())
}

/// Numbered lines that are in no block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The first word of each code span, where it can be a path in here.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let words = line.split('`').skip(1).step_by(2).filter_map(|span| span.split_whitespace().next());
    let is_plain = |word: &&str| {
        !word.starts_with('/') && word.chars().all(|one| one.is_ascii_alphanumeric() || "_-./{},".contains(one))
    };
    words.filter(is_plain).map(|word| word.trim_end_matches('/').to_owned())
}

/// Whether a word means something in this repository: it begins with one of its folders, or ends as its files do. `foo`
/// stands for any name.
fn is_ours(word: &str, entries: &[String]) -> bool {
    if word.starts_with("foo") {
        return false;
    }
    let begins = |folder: &str| entries.iter().any(|entry| entry == folder || entry.ends_with(&format!("/{folder}")));
    ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending))
        || word.split_once('/').is_some_and(|(folder, _)| !folder.is_empty() && begins(folder))
}

/// `a/{b,c}` is `a/b` and `a/c`.
fn expanded(word: &str) -> Vec<String> {
    match word.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, after))) => names.split(',').map(|name| format!("{before}{name}{after}")).collect(),
        None => vec![word.to_owned()],
    }
}

/// Whether a path exists, from the root or below some folder; a module may be named without `.rs`.
fn stands(path: &str, entries: &[String]) -> bool {
    let ends = |entry: &str| entry.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    entries.iter().any(|entry| ends(entry) || entry.strip_suffix(".rs").is_some_and(ends))
}

/// The targets of the links of a line that are not on the web.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains("://"))
}

fn leads_somewhere(root: &Path, name: &str, folder: &str, link: &str, entries: &[String]) -> Result<bool> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { name.to_owned() } else { joined(folder, path) };
    if !entries.contains(&target) {
        return Ok(false);
    }
    Ok(heading.is_empty() || text_of(root, &target)?.lines().any(|line| anchor(line).as_deref() == Some(heading)))
}

/// `path` from `folder`, without `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// How a link names this heading, if the line is one.
fn anchor(line: &str) -> Option<String> {
    let heading = line.starts_with('#').then(|| line.trim_start_matches('#').trim())?;
    let kept = heading.chars().filter(|one| one.is_alphanumeric() || " -_".contains(*one));
    Some(kept.flat_map(char::to_lowercase).map(|one| if one == ' ' { '-' } else { one }).collect())
}

fn text_of(root: &Path, name: &str) -> Result<String> {
    std::fs::read_to_string(root.join(name)).with_context(|| format!("failed to read `{name}`"))
}
