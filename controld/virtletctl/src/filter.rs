//! Filters of docker's: `ps --filter KEY=VALUE`. Several of one key are alternatives, but of labels all must be there.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

/// One filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// A part of the name.
    Name(String),
    /// The beginning of a pod's or container's id.
    Id(String),
    /// A label, with or without its value.
    Label(String, Option<String>),
    /// Words of ours for one of docker's.
    Status(&'static [&'static str]),
    /// A part of the image's name.
    Ancestor(String),
}

/// What a row is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) name: &'a str,
    pub(super) ids: [&'a str; 2],
    pub(super) labels: &'a HashMap<String, String>,
    pub(super) state: &'a str,
    pub(super) image: &'a str,
}

/// Reads a `--filter`.
pub(super) fn parse(text: &str) -> Result<Filter, String> {
    let Some((key, value)) = text.split_once('=') else { return Err("must be KEY=VALUE".into()) };
    let owned = value.to_owned();
    match key {
        "name" => Ok(Filter::Name(owned.trim_start_matches('/').to_owned())),
        "id" => Ok(Filter::Id(owned)),
        "ancestor" | "image" => Ok(Filter::Ancestor(owned)),
        "label" => Ok(match value.split_once('=') {
            Some((name, value)) => Filter::Label(name.to_owned(), Some(value.to_owned())),
            None => Filter::Label(owned, None),
        }),
        "status" | "state" => status(value).map(Filter::Status),
        _ => Err(format!("`{key}` is none of name, id, label, status and ancestor; --field-selector knows all fields")),
    }
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
            Self::Name(part) => row.name.contains(part.as_str()),
            Self::Id(beginning) => row.ids.iter().any(|id| id.starts_with(beginning.as_str())),
            Self::Label(key, value) => {
                row.labels.get(key).is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }
            Self::Status(states) => states.contains(&row.state),
            Self::Ancestor(part) => row.image.contains(part.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_filtered_as_by_docker() {
        let labels: HashMap<String, String> = [("app".to_owned(), "web".to_owned())].into();
        let row = Judged { name: "web-1", ids: ["5a", "c0"], labels: &labels, state: "Paused", image: "x/debian.img" };
        for (filters, wanted) in [
            (&[][..], true),
            (&["name=web"], true),
            (&["name=/web-1"], true),
            (&["name=db", "name=web"], true),
            (&["name=db"], false),
            (&["id=c"], true),
            (&["id=a"], false),
            (&["label=app", "label=app=web"], true),
            (&["label=app", "label=tier"], false),
            (&["status=running"], false),
            (&["status=running", "status=paused"], true),
            (&["name=web", "status=exited"], false),
            (&["ancestor=debian"], true),
        ] {
            let filters: Vec<Filter> = filters.iter().map(|text| parse(text).expect(text)).collect();
            assert_eq!(select(&filters, row), wanted, "{filters:?}");
        }
        for text in ["", "name", "colour=red", "status=lost"] {
            parse(text).expect_err(text);
        }
    }
}
