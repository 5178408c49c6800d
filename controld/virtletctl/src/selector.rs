//! Selectors, as kubectl's `-l` and `--field-selector` have them.

use std::collections::{BTreeMap, HashMap};

use super::phase::{PHASES, STATES};

/// More requirements than anybody writes.
const MAX: usize = 64;

/// Fields of a row by which rows are selected, beside [`PHASE`].
pub(super) const FIELDS: [&str; 12] = [
    "name",
    "namespace",
    "state",
    "ip",
    "image",
    "createdAt",
    "podId",
    "containerId",
    "containerName",
    "vm",
    "runtimeHandler",
    "attempt",
];
/// kubectl's word for how a pod is, which has values of its own.
pub(super) const PHASE: &str = "status.phase";

/// What one key must be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Must {
    OneOf(Vec<String>),
    /// A key that is absent is fine too.
    NoneOf(Vec<String>),
    Exist,
    Not,
}

/// Flags that docker's `ps -l`, the newest container, has behind it.
const OF_DOCKER: [&str; 4] = ["a", "aq", "q", "qa"];

type Requirements = Vec<(String, Must)>;

/// What the labels of a pod must be; all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Requirements);

/// What the fields of a row must be; all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Requirements);

/// Reads a `-l`.
pub(super) fn labels(text: &str) -> Result<Labels, String> {
    if OF_DOCKER.contains(&text) {
        return Err(format!(
            "-l is a selector of labels, and the newest pods are the last of `virtletctl ps -a --sort-by created`; a label \
             `{text}` is meant by `{text},{text}`"
        ));
    }
    parts(text)?.into_iter().map(label).collect::<Result<_, _>>().map(Labels)
}

/// Reads a `--field-selector`, which knows `=`, `==` and `!=` alone. What no row could ever have is refused, and not looked for in vain.
pub(super) fn fields(text: &str) -> Result<Fields, String> {
    let field = |part: &str| compared(part).ok_or_else(|| format!("`{part}` must be FIELD=VALUE or FIELD!=VALUE"))?;
    let fields = parts(text)?.into_iter().map(|part| field(part).and_then(known));
    fields.collect::<Result<_, _>>().map(Fields)
}

/// A requirement in our words, of a field that there is and with a value that it can have.
fn known((key, must): (String, Must)) -> Result<(String, Must), String> {
    let key = if key == PHASE { key } else { of_kubectl(key) };
    let values = match key.as_str() {
        PHASE => &PHASES[..],
        "state" => &STATES,
        field if FIELDS.contains(&field) => return Ok((key, must)),
        _ => {
            return Err(format!(
                "a row has no field `{key}`; the fields are {}, and kubectl's metadata.name, metadata.namespace, {PHASE} and \
                 status.podIP",
                FIELDS.join(", ")
            ));
        }
    };
    let wrong = must.values().find(|value| !values.contains(value));
    let Some(value) = wrong else { return Ok((key, must)) };
    let whose = if STATES.contains(&value) {
        format!("a state of ours, selected by state={value}")
    } else if PHASES.contains(&value) {
        format!("a phase of kubectl's, selected by {PHASE}={value}")
    } else {
        "neither a state nor a phase".to_owned()
    };
    Err(format!("`{value}` is {whose}; {key} is one of {}", values.join(", ")))
}

/// kubectl's words for fields that we have too.
fn of_kubectl(key: String) -> String {
    match key.as_str() {
        "metadata.name" => "name".into(),
        "metadata.namespace" => "namespace".into(),
        "status.phase" => "state".into(),
        "status.podIP" => "ip".into(),
        "metadata.creationTimestamp" | "created" => "createdAt".into(),
        "status.containerStatuses[0].restartCount" => "attempt".into(),
        _ => key,
    }
}

/// Reads a `--sort-by`: a field of ours, or kubectl's path to it, as in `{.metadata.name}`.
pub(super) fn sort_field(text: &str) -> Result<String, String> {
    let path = text.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(text);
    let path = path.strip_prefix('.').unwrap_or(path);
    let ours = of_kubectl(path.to_owned());
    key(&ours).map_err(|_| {
        format!(
            "`{path}` is no field; fields are name, namespace, state, ip, image, createdAt, podId, containerId, runtimeHandler, \
             attempt and labels"
        )
    })
}

/// The parts between commas; those in parentheses stay together.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let mut depth = 0_i32;
    let parts: Vec<&str> = text
        .split(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        })
        .map(str::trim)
        .collect();
    match parts.as_slice() {
        [""] => Ok(Vec::new()),
        parts if parts.iter().any(|part| part.is_empty()) => Err("nothing stands beside a comma".into()),
        parts if parts.len() > MAX => Err(format!("more than {MAX} requirements")),
        _ => Ok(parts),
    }
}

fn label(part: &str) -> Result<(String, Must), String> {
    if let Some(compared) = compared(part) {
        return compared;
    }
    if let Some(absent) = part.strip_prefix('!') {
        return Ok((key(absent)?, Must::Not));
    }
    let Some((name, rest)) = part.split_once(char::is_whitespace) else { return Ok((key(part)?, Must::Exist)) };
    let set = |word| {
        let list = rest.trim_start().strip_prefix(word)?.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(list.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let must = set("in").map(Must::OneOf).or_else(|| set("notin").map(Must::NoneOf));
    Ok((key(name)?, must.ok_or_else(|| format!("`{part}` must be KEY in (A,B) or KEY notin (A,B)"))?))
}

/// `a=b`, `a==b` or `a!=b`.
fn compared(part: &str) -> Option<Result<(String, Must), String>> {
    let (left, right) = part.split_once('=')?;
    let right = right.strip_prefix('=').unwrap_or(right).trim().to_owned();
    let (name, must) = match left.strip_suffix('!') {
        Some(name) => (name, Must::NoneOf(vec![right])),
        None => (left, Must::OneOf(vec![right])),
    };
    Some(key(name).map(|key| (key, must)))
}

fn key(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if text.is_empty() || !text.chars().all(is_key) {
        return Err(format!("`{text}` is no key; see `--help`"));
    }
    Ok(text.to_owned())
}

impl Must {
    /// All that it names.
    fn values(&self) -> impl Iterator<Item = &str> {
        let values = match self {
            Self::OneOf(values) | Self::NoneOf(values) => values.as_slice(),
            Self::Exist | Self::Not => &[],
        };
        values.iter().map(String::as_str)
    }

    fn allows(&self, value: Option<&str>) -> bool {
        match self {
            Self::OneOf(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Self::NoneOf(values) => value.is_none_or(|value| !values.iter().any(|wanted| wanted == value)),
            Self::Exist => value.is_some(),
            Self::Not => value.is_none(),
        }
    }
}

// === impl Labels ===

impl Labels {
    /// Whether a pod with these labels is meant.
    pub(super) fn select(&self, labels: &HashMap<String, String>) -> bool {
        self.0.iter().all(|(key, must)| must.allows(labels.get(key).map(String::as_str)))
    }
}

// === impl Fields ===

impl Fields {
    /// Whether something is required of this field.
    pub(super) fn names(&self, field: &str) -> bool {
        self.0.iter().any(|(key, _)| key == field)
    }

    /// Whether a row with these fields is meant.
    pub(super) fn select(&self, fields: &BTreeMap<&str, String>) -> bool {
        self.0.iter().all(|(key, must)| must.allows(fields.get(key.as_str()).map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected_as_by_kubectl() {
        let of = [("app", "web"), ("tier", "front"), ("a.b/c", "")];
        let of: HashMap<_, _> = of.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (selector, wanted) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier = front", true),
            ("app=db", false),
            ("app!=db", true),
            ("app!=web", false),
            ("none!=x", true),
            ("none=x", false),
            ("app in (db, web),tier", true),
            ("app in (db)", false),
            ("app notin (db,web)", false),
            ("none notin (x)", true),
            ("!none", true),
            ("!app", false),
            ("none", false),
            ("a.b/c=", true),
        ] {
            assert_eq!(labels(selector).expect(selector).select(&of), wanted, "{selector}");
        }
        assert!(labels("q,q").is_ok());
        for wrong in ["q", "aq", ",", "a,,b", "a b", "a in b", "a in (b", "=x", "!", "a b=c", &"a,".repeat(80)] {
            labels(wrong).expect_err(wrong);
        }
    }

    #[test]
    fn a_field_to_sort_by_is_ours_or_kubectls() {
        for (text, wanted) in [
            ("name", "name"),
            (".metadata.name", "name"),
            ("{.metadata.creationTimestamp}", "createdAt"),
            ("created", "createdAt"),
            (".status.containerStatuses[0].restartCount", "attempt"),
        ] {
            assert_eq!(sort_field(text).as_deref(), Ok(wanted), "{text}");
        }
        for text in ["", ".", "{}", "a b"] {
            sort_field(text).expect_err(text);
        }
    }

    #[test]
    fn fields_are_selected_by_our_words_and_kubectls() {
        let row = [("state", "Exited"), ("name", "web"), ("namespace", "default"), (PHASE, "Failed")];
        let row = BTreeMap::from(row.map(|(key, value)| (key, value.to_owned())));
        for (selector, wanted) in [
            ("", true),
            ("state=Exited,metadata.name=web", true),
            ("metadata.namespace==default", true),
            ("metadata.namespace!=default", false),
            ("status.phase!=Running", true),
            ("status.phase=Failed", true),
            ("status.phase=Succeeded", false),
            ("state=Running", false),
        ] {
            assert_eq!(fields(selector).expect(selector).select(&row), wanted, "{selector}");
        }
    }

    #[test]
    fn what_no_row_could_have_is_told() {
        let told =
            ["colour=red", "spec.nodeName=n1", "state=Failed", "status.phase!=Exited", "status.phase=failed", "state"];
        let told = told.map(|text| fields(text).expect_err(text));
        insta::assert_snapshot!(told.join("\n"), @"
        a row has no field `colour`; the fields are name, namespace, state, ip, image, createdAt, podId, containerId, containerName, vm, runtimeHandler, attempt, and kubectl's metadata.name, metadata.namespace, status.phase and status.podIP
        a row has no field `spec.nodeName`; the fields are name, namespace, state, ip, image, createdAt, podId, containerId, containerName, vm, runtimeHandler, attempt, and kubectl's metadata.name, metadata.namespace, status.phase and status.podIP
        `Failed` is a phase of kubectl's, selected by status.phase=Failed; state is one of Running, Paused, PausedDiskFull, Exited, Created, Unknown, Empty, Stopped
        `Exited` is a state of ours, selected by state=Exited; status.phase is one of Pending, Running, Succeeded, Failed, Unknown
        `failed` is neither a state nor a phase; status.phase is one of Pending, Running, Succeeded, Failed, Unknown
        `state` must be FIELD=VALUE or FIELD!=VALUE
        ");
        assert!(fields("state in (a)").is_err());
    }
}
