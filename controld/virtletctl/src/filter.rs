//! Filters of docker's: `ps --filter KEY=VALUE`. Several of one key are alternatives, but of labels all must be there.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use super::ancestor::{self, Ancestor};

/// Keys that are known.
const KEYS: &str = "name, id, label, status and ancestor";

/// One filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// A part of the name; behind `^` its beginning, in front of `$` its end.
    Name(String),
    /// The beginning of a pod's or container's id.
    Id(String),
    /// A label, with or without its value.
    Label(String, Option<String>),
    /// Words of ours for one of docker's.
    Status(&'static [&'static str]),
    /// The image.
    Ancestor(Ancestor),
}

/// What a row is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) name: &'a str,
    pub(super) ids: [&'a str; 2],
    pub(super) labels: &'a HashMap<String, String>,
    pub(super) state: &'a str,
    pub(super) image: &'a str,
    /// The image's id, if that is known.
    pub(super) image_id: &'a str,
}

/// Reads a `--filter`.
pub(super) fn parse(text: &str) -> Result<Filter, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("must be KEY=VALUE; for a manifest there is `virtletctl validate -f FILE`".into());
    };
    if value.is_empty() {
        return Err(format!("nothing is behind `{key}=`; leave it out, or write what is meant"));
    }
    let owned = value.to_owned();
    match key {
        "name" => name(value).map(Filter::Name),
        "id" => Ok(Filter::Id(owned)),
        "ancestor" | "image" => ancestor::parse(value).map(Filter::Ancestor),
        "label" => Ok(match value.split_once('=') {
            Some((name, value)) => Filter::Label(name.to_owned(), Some(value.to_owned())),
            None => Filter::Label(owned, None),
        }),
        "status" | "state" => status(value).map(Filter::Status),
        "before" | "since" => {
            Err(format!("`{key}` is none of {KEYS}; `virtletctl ps -a --sort-by created` has the newest pods last"))
        }
        _ => Err(format!("`{key}` is none of {KEYS}; `virtletctl inspect POD` tells all else")),
    }
}

/// Of docker's regular expressions, what stands for the beginning and the end. A name has a slash in front there.
fn name(text: &str) -> Result<String, String> {
    let (start, bare) = text.strip_prefix('^').map_or(("", text), |bare| ("^", bare));
    let name = bare.trim_start_matches('/');
    let plain = name.strip_suffix('$').unwrap_or(name);
    if plain.chars().any(|c| !c.is_ascii_alphanumeric() && !"-._".contains(c)) {
        return Err(format!("`{text}` is no part of a name; of regular expressions, ^ and $ are known"));
    }
    Ok(format!("{start}{name}"))
}

fn status(value: &str) -> Result<&'static [&'static str], String> {
    match value.to_ascii_lowercase().as_str() {
        "running" | "up" => Ok(&["Running"]),
        "paused" => Ok(&["Paused", "PausedDiskFull"]),
        "exited" | "stopped" => Ok(&["Exited", "Stopped"]),
        "created" => Ok(&["Created", "Empty"]),
        "unknown" | "dead" => Ok(&["Unknown"]),
        _ => Err(format!("`{value}` is no status: running, paused, exited, created or unknown")),
    }
}

/// Whether some of them are about states: who asks for one means it, also if it is off.
pub(super) fn names_states(filters: &[Filter]) -> bool {
    filters.iter().any(|filter| matches!(filter, Filter::Status(_)))
}

/// Whether a row is meant.
pub(super) fn select(filters: &[Filter], row: Judged<'_>) -> bool {
    let (labels, others): (Vec<&Filter>, Vec<&Filter>) =
        filters.iter().partition(|filter| matches!(filter, Filter::Label(..)));
    let allowed =
        |kind: Discriminant<Filter>| others.iter().any(|other| discriminant(*other) == kind && other.allows(row));
    labels.iter().all(|label| label.allows(row)) && others.iter().all(|filter| allowed(discriminant(*filter)))
}

impl Filter {
    fn allows(&self, row: Judged<'_>) -> bool {
        match self {
            Self::Name(part) => is_part(part, row.name),
            Self::Id(beginning) => row.ids.iter().any(|id| id.starts_with(beginning.as_str())),
            Self::Label(key, value) => {
                row.labels.get(key).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }
            Self::Status(states) => states.contains(&row.state),
            Self::Ancestor(image) => image.is(row.image, row.image_id),
        }
    }
}

fn is_part(part: &str, name: &str) -> bool {
    let (start, end) = (part.strip_prefix('^'), part.strip_suffix('$'));
    match (start, end) {
        (Some(start), None) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (Some(_), Some(_)) => part.trim_start_matches('^').trim_end_matches('$') == name,
        (None, None) => name.contains(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filtered_as_by_docker() {
        let labels: HashMap<String, String> = [("app".to_owned(), "web".to_owned())].into();
        let row = Judged {
            name: "web-1",
            ids: ["5a", "c0"],
            labels: &labels,
            state: "Paused",
            image: "x/debian.img",
            image_id: "",
        };
        for (filters, wanted) in [
            (&[][..], true),
            (&["name=web"], true),
            (&["name=/web-1"], true),
            (&["name=db", "name=web"], true),
            (&["name=db"], false),
            (&["name=^web"], true),
            (&["name=^/web-1$"], true),
            (&["name=eb-1$"], true),
            (&["name=^web$"], false),
            (&["name=eb"], true),
            (&["name=^eb"], false),
            (&["id=c"], true),
            (&["id=a"], false),
            (&["label=app", "label=app=web"], true),
            (&["label=app", "label=tier"], false),
            (&["status=running"], false),
            (&["status=running", "status=paused"], true),
            (&["name=web", "status=exited"], false),
            (&["ancestor=x/debian.img"], true),
            (&["ancestor=y/a.img", "ancestor=x/debian.img:latest"], true),
            (&["ancestor=debian"], false),
        ] {
            let filters: Vec<Filter> = filters.iter().map(|text| parse(text).expect(text)).collect();
            assert_eq!(select(&filters, row), wanted, "{filters:?}");
        }
        for text in ["", "name", "colour=red", "status=lost", "name=web|db", "before=web", "ancestor=A B"] {
            parse(text).expect_err(text);
        }
        for key in ["name", "id", "label", "status", "ancestor"] {
            let told = parse(&format!("{key}=")).expect_err(key);
            assert!(told.starts_with(&format!("nothing is behind `{key}=`")) && told.lines().count() == 1, "{told}");
        }
    }
}
