//! One configuration of rules: YAML (JSON is YAML too) of the form
//!
//! ```yaml
//! prefix: my-prefix          # optional
//! handlers: [vm-arm64]       # optional: only for pods of these runtime handlers
//! translations:
//! - name: cirros
//!   url: https://example.net/CirrOS.qcow2
//!   transport: slow
//! - regexp: '^debian/(\d+)$'
//!   url: 'https://example.net/debian-$1-{dpkg_arch}.qcow2'
//! - name: alma:9              # with a tag: for that tag alone
//!   url: https://example.net/alma-9-latest.qcow2
//!   checksums: https://example.net/CHECKSUM
//! - name: ubuntu
//!   platforms:
//!     linux/arm64: {url: 'https://example.net/ubuntu-arm64.img', digest: 'sha256:...', format: qcow2}
//! transports:
//!   slow: {timeout: 3600000}
//! ```
//!
//! An unknown key spoils the configuration, a bad rule or profile only itself and the rules that need it. What cannot be
//! obeyed is never dropped in silence: the download would go another way than asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::Reason;
use serde::Deserialize;
use vmimage::declared::Declared;
use vmimage::digest::Digest;
use vmimage::error::printable;
use vmimage::name::ImageRef;

use super::platform;
use super::problem::{MAX_RULES, Notice, Origin, Problem, on_one_line};
use super::profile::{NoProfile, ProfileDoc, Profiles};
use super::table::{Pattern, Rejected, Rule, RuleConfig, Target};
use super::template::Template;
use crate::sources::net::Transport;

/// Longest regexp, in bytes.
const MAX_REGEXP: usize = 4096;
/// Largest regexp once it is compiled, in bytes.
const REGEXP_SIZE: usize = 256 * 1024;
/// Memory that a regexp may use to match faster, in bytes.
const REGEXP_CACHE: usize = 256 * 1024;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ConfigDoc {
    prefix: Option<String>,
    handlers: Option<BTreeSet<String>>,
    translations: Option<Vec<RuleDoc>>,
    transports: Option<BTreeMap<String, Option<ProfileDoc>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RuleDoc {
    name: Option<String>,
    regexp: Option<String>,
    url: Option<String>,
    digest: Option<String>,
    checksums: Option<String>,
    format: Option<String>,
    platforms: Option<BTreeMap<String, TargetDoc>>,
    transport: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct TargetDoc {
    url: Option<String>,
    digest: Option<String>,
    checksums: Option<String>,
}

/// Reads the text of a configuration. What is left out of it comes back beside it.
pub(super) fn parse(origin: Origin, text: &str) -> Result<(RuleConfig, Vec<Problem>), Reason> {
    let syntax = |error| Reason::new(format!("not a translation file: {}", reason(&error)));
    let doc: ConfigDoc = serde_saphyr::from_str(text).map_err(syntax)?;
    let docs = doc.translations.unwrap_or_default();
    if docs.len() > MAX_RULES {
        return Err(Reason::new(format!("{} rules; at most {MAX_RULES} are allowed", docs.len())));
    }
    let mut problems = Vec::new();
    let mut profiles = Profiles::build(&origin.name, doc.transports.unwrap_or_default());
    for (transport, cause) in std::mem::take(&mut profiles.bad) {
        problems.push(Problem::Transport { origin: origin.clone(), transport: printable(&transport), cause });
    }
    let prefix = doc.prefix.unwrap_or_default().trim_end_matches('/').to_owned();
    let mut config = RuleConfig {
        origin: origin.clone(),
        prefix,
        handlers: doc.handlers,
        fixed: Vec::new(),
        regexps: Vec::new(),
        rejected: Vec::new(),
    };
    for (index, doc) in docs.into_iter().enumerate() {
        let place = index + 1;
        let of_rule = |what| Problem::Notice { origin: origin.clone(), place, what };
        let reader = Reader { place, profiles: &profiles };
        match reader.read(&doc) {
            Ok((fixed, regexp)) => {
                let unreachable = fixed.as_ref().and_then(|rule| unreachable(&config.prefix, rule));
                problems.extend(unreachable.map(&of_rule));
                problems.extend(regexp.as_ref().and_then(unanchored).map(&of_rule));
                config.fixed.extend(fixed);
                config.regexps.extend(regexp);
            }
            Err(cause) => {
                let name = doc.name.filter(|name| !name.is_empty()).map(Pattern::Name);
                let regexp = doc.regexp.filter(|regexp| !regexp.is_empty());
                let regexp = regexp.and_then(|regexp| compile(&regexp).ok()).map(Pattern::Regexp);
                let patterns = name.into_iter().chain(regexp);
                config.rejected.extend(patterns.map(|pattern| Rejected { place, pattern, cause: cause.clone() }));
                problems.push(Problem::Rule { origin: origin.clone(), place, cause });
            }
        }
    }
    Ok((config, problems))
}

/// What reading a rule takes.
struct Reader<'a> {
    place: usize,
    profiles: &'a Profiles,
}

impl Reader<'_> {
    /// The rule by name and the rule by regexp that it is, or both.
    fn read(&self, doc: &RuleDoc) -> Result<(Option<Rule>, Option<Rule>), Reason> {
        let name = doc.name.as_deref().filter(|name| !name.is_empty());
        let regexp = doc.regexp.as_deref().filter(|regexp| !regexp.is_empty());
        if name.is_none() && regexp.is_none() {
            return Err(Reason::new("it has neither `name` nor `regexp`"));
        }
        let transport = self.transport(doc.transport.as_deref().unwrap_or_default())?;
        let format = doc.format.as_deref().map(declared).transpose()?;
        let regexp = regexp.map(compile).transpose()?;
        let rule = |pattern, regexp: Option<&regex::bytes::Regex>| {
            let (url, platforms) = targets(doc, regexp)?;
            Ok(Rule { place: self.place, pattern, url, platforms, transport: transport.clone(), format })
        };
        let fixed = name.map(|name| rule(Pattern::Name(name.to_owned()), None)).transpose()?;
        let by_regexp = regexp.map(|regexp| rule(Pattern::Regexp(regexp.clone()), Some(&regexp))).transpose()?;
        Ok((fixed, by_regexp))
    }

    fn transport(&self, name: &str) -> Result<Arc<Transport>, Reason> {
        let shown = printable(name);
        self.profiles.get(name).map_err(|cause| match cause {
            NoProfile::Undefined => Reason::new(format!("transport profile `{shown}` is not defined in the same file")),
            NoProfile::Unusable => Reason::new(format!("its transport profile `{shown}` cannot be used")),
        })
    }
}

/// Where a rule leads: by default, and by platform.
type Targets = (Option<Target>, Vec<(crate::sources::provider::Platform, Target)>);

const NO_URL: &str = "it has no `url`";

fn targets(doc: &RuleDoc, regexp: Option<&regex::bytes::Regex>) -> Result<Targets, Reason> {
    let docs = doc.platforms.iter().flatten();
    let platforms: Vec<_> = docs
        .map(|(key, of)| {
            let unknown = || {
                Reason::new(format!(
                    "`{}` is no platform; write `os/architecture`, `os/architecture/variant` or either with `:version`",
                    printable(key)
                ))
            };
            let platform = platform::parse(key).ok_or_else(unknown)?;
            let target = target(of.url.as_deref(), of.digest.as_deref(), of.checksums.as_deref(), regexp)?;
            Ok((platform, target.ok_or(Reason::new(NO_URL))?))
        })
        .collect::<Result<_, Reason>>()?;
    let url = target(doc.url.as_deref(), doc.digest.as_deref(), doc.checksums.as_deref(), regexp)?;
    if url.is_none() && (platforms.is_empty() || doc.digest.is_some() || doc.checksums.is_some()) {
        return Err(Reason::new(NO_URL));
    }
    Ok((url, platforms))
}

fn target(
    url: Option<&str>,
    digest: Option<&str>,
    checksums: Option<&str>,
    regexp: Option<&regex::bytes::Regex>,
) -> Result<Option<Target>, Reason> {
    let Some(url) = url.filter(|url| !url.is_empty()) else { return Ok(None) };
    let url = Template::parse(url, regexp).map_err(Reason::because("its `url` cannot be used"))?;
    let digest = digest.map(str::parse::<Digest>).transpose();
    let digest = digest.map_err(Reason::because("its `digest` cannot be used"))?;
    let list = |text| Template::parse(text, regexp).map_err(Reason::because("its `checksums` cannot be used"));
    let checksums = checksums.filter(|list| !list.is_empty()).map(list).transpose()?;
    if let Some(list) = &checksums
        && !(list.is_http() && url.is_http())
    {
        return Err(Reason::new("`checksums` names a list that is fetched by http or https, of an image that is, too"));
    }
    Ok(Some(Target { url, digest, checksums }))
}

fn declared(format: &str) -> Result<Declared, Reason> {
    Declared::named(format).ok_or_else(|| {
        let known = Declared::ALL.map(|known| known.to_string()).join(", ");
        Reason::new(format!("format `{}` is not known; there are {known}", printable(format)))
    })
}

/// As in Go, `\d`, `\w` and `\b` are of ASCII, which names are too.
fn compile(regexp: &str) -> Result<regex::bytes::Regex, Reason> {
    let broken = |why: &str| Reason::new(format!("its `regexp` cannot be used: {why}"));
    if regexp.len() > MAX_REGEXP {
        return Err(broken(&format!("longer than {MAX_REGEXP} bytes")));
    }
    let mut builder = regex::bytes::RegexBuilder::new(regexp);
    let built = builder.unicode(false).size_limit(REGEXP_SIZE).dfa_size_limit(REGEXP_CACHE).build();
    built.map_err(|error| {
        let full = error.to_string();
        let said = full.lines().last().unwrap_or_default();
        broken(&printable(said.strip_prefix("error: ").unwrap_or(said)))
    })
}

/// A regexp that matches in the middle of names, which is seldom what was meant.
fn unanchored(rule: &Rule) -> Option<Notice> {
    let Pattern::Regexp(regexp) = &rule.pattern else { return None };
    let text = regexp.as_str();
    let begins = text.starts_with('^') || text.starts_with("\\A");
    let ends = text.ends_with('$') && !text.ends_with("\\$") || text.ends_with("\\z");
    // `^a|b$` is anchored on neither side as a whole.
    let anchored = begins && ends && !has_bare_alternative(text);
    (!anchored).then(|| Notice::Unanchored { regexp: on_one_line(text) })
}

/// Whether a `|` stands outside of groups and classes.
fn has_bare_alternative(regexp: &str) -> bool {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for byte in regexp.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b']' => in_class = false,
            _ if in_class => {}
            b'[' => in_class = true,
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// A fixed name that no image name can be, with or without a tag: upper case, or a digest.
fn unreachable(prefix: &str, rule: &Rule) -> Option<Notice> {
    let Pattern::Name(name) = &rule.pattern else { return None };
    let whole = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
    let sound = whole.parse::<ImageRef>().is_ok_and(|image| image.digest().is_none());
    (!sound).then(|| Notice::Unreachable { name: printable(&whole) })
}

/// The parser's first line: the others show a piece of the file. If the first may do so too, only the place is told, as
/// it may be of a password or a key.
fn reason(error: &serde_saphyr::Error) -> String {
    let full = error.to_string();
    let first = full.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let names_keys_only = ["unknown field", "missing field", "duplicate"].iter().any(|about| first.contains(about));
    if names_keys_only && !first.contains(['@', '/']) {
        return printable(first);
    }
    match error.location() {
        Some(place) => format!("unexpected value at line {} column {}", place.line(), place.column()),
        None => "unexpected value".to_owned(),
    }
}
