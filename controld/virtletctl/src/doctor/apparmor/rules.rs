//! File rules of a profile or an abstraction, with those of the files that it includes (apparmor.d(5)). Of the language no more
//! is understood than that: rules of children and of other kinds are passed over.

use super::super::host::{Host, HostError};
use super::glob;

const DIR: &str = "/etc/apparmor.d";
/// Most files that one includes, and those that these include.
const MAX_FILES: usize = 256;

/// What a profile says of files.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    files: usize,
}

#[derive(Debug)]
struct Rule {
    deny: bool,
    pattern: String,
    permissions: String,
}

impl Rules {
    /// Those of the profile in a file below AppArmor's directory; `None` if there is none.
    pub(super) fn of_profile(host: &Host, file: &str) -> Result<Option<Self>, HostError> {
        Self::read(host, file, 1)
    }

    /// Those of an abstraction, which stand in no braces.
    pub(super) fn of_abstraction(host: &Host, file: &str) -> Result<Option<Self>, HostError> {
        Self::read(host, file, 0)
    }

    fn read(host: &Host, file: &str, inside: usize) -> Result<Option<Self>, HostError> {
        let Some(text) = host.read(format!("{DIR}/{file}"))? else { return Ok(None) };
        let mut rules = Self::default();
        rules.add(host, &text, inside)?;
        Ok(Some(rules))
    }

    /// Whether they give a permission on a path.
    pub(super) fn allow(&self, path: &str, permission: char) -> bool {
        let fitting = |deny| {
            let mut rules = self.all.iter().filter(move |rule| rule.deny == deny);
            rules.any(|rule| rule.permissions.contains(permission) && glob::fits(&rule.pattern, path))
        };
        fitting(false) && !fitting(true)
    }

    /// `inside` is how many braces are around the rules that count.
    fn add(&mut self, host: &Host, text: &str, inside: usize) -> Result<(), HostError> {
        let mut depth = 0_usize;
        for line in lines(text) {
            if depth == inside {
                if let Some(name) = included(line) {
                    self.include(host, name)?;
                } else if let Some(rule) = Rule::of(line) {
                    self.all.push(rule);
                    continue;
                }
            }
            if line.ends_with('{') {
                depth += 1;
            } else if line == "}" {
                depth = depth.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// A file, or all files of a directory.
    fn include(&mut self, host: &Host, name: &str) -> Result<(), HostError> {
        self.files += 1;
        if self.files > MAX_FILES || name.split('/').any(|part| part == "..") {
            return Ok(());
        }
        let path = format!("{DIR}/{name}");
        if host.at(&path).is_dir() {
            for file in host.names(&path)? {
                // As apparmor_parser does: what an editor or a package left.
                if !file.starts_with('.') && !file.ends_with('~') && !file.contains(".dpkg-") {
                    self.include(host, &format!("{name}/{file}"))?;
                }
            }
            return Ok(());
        }
        match host.read(&path)? {
            Some(text) => self.add(host, &text, 0),
            None => Ok(()),
        }
    }
}

impl Rule {
    /// Of a line as `audit deny owner /path/** rwix -> target,`; permissions may also stand first.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.strip_suffix(',')?.split_whitespace();
        let (mut deny, mut first) = (false, words.next()?);
        while ["audit", "allow", "deny", "owner", "other", "file"].contains(&first) {
            deny |= first == "deny";
            first = words.next()?;
        }
        let second = words.next()?;
        let (pattern, permissions) = if is_path(first) { (first, second) } else { (second, first) };
        let known = permissions.chars().all(|c| "rwaxmlkiupcUPC".contains(c));
        (is_path(pattern) && known).then(|| Self {
            deny,
            pattern: pattern.trim_matches('"').to_owned(),
            permissions: permissions.to_owned(),
        })
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    // `#include` is a comment only to those who do not know it.
    let is_comment = |line: &&str| line.starts_with('#') && included(line).is_none();
    text.lines().map(str::trim).filter(move |line| !line.is_empty() && !is_comment(line))
}

fn is_path(word: &str) -> bool {
    word.trim_start_matches('"').starts_with('/')
}

/// The file of a line as `#include <abstractions/base>` or `include if exists "local/x"`.
fn included(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#').unwrap_or(line).strip_prefix("include")?.trim();
    let rest = rest.strip_prefix("if exists").unwrap_or(rest).trim();
    let name = rest.strip_prefix('<').and_then(|name| name.split('>').next());
    let name = name.or_else(|| rest.strip_prefix('"').and_then(|name| name.split('"').next()))?;
    Some(name.trim_start_matches("/etc/apparmor.d/"))
}
