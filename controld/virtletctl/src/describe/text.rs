//! What is known of a pod, for people: a line for each field, below what it belongs to. What is empty is left out.

use serde_json::{Map, Value};

use super::super::text::{aligned, shown, size};

/// Words of fields' names that are written otherwise.
const WORDS: [(&str, &str); 7] =
    [("id", "ID"), ("ids", "IDs"), ("uid", "UID"), ("ips", "IPs"), ("ip", "IP"), ("cpu", "CPU"), ("mac", "MAC")];
/// Fields whose keys are no words of ours.
const FOREIGN: [&str; 2] = ["labels", "annotations"];
/// What people look for, and so comes first.
const FIRST: [&str; 5] = ["name", "namespace", "state", "reason", "message"];
/// The settings of a machine, which are a table.
const SETTINGS: &str = "settings";

/// The pod's lines.
pub(super) fn of(pod: &Value) -> String {
    pod.as_object().map(|fields| object(fields, 0, false)).unwrap_or_default()
}

fn object(fields: &Map<String, Value>, indent: usize, is_foreign: bool) -> String {
    let label = |key: &str| if is_foreign { shown(key) } else { words(key) };
    let mut fields: Vec<(&String, &Value)> = fields.iter().filter(|(_, value)| !is_empty(value)).collect();
    if !is_foreign {
        fields.sort_by_key(|(key, _)| FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()));
    }
    let scalars = fields.iter().filter(|(key, value)| scalar(key, value).is_some());
    let width = scalars.map(|(key, _)| label(key).chars().count() + 1).max().unwrap_or_default();
    let margin = " ".repeat(indent);
    let mut text = String::new();
    // What is short first.
    let (short, long): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(key, value)| scalar(key, value).is_some());
    for (key, value) in short {
        let label = label(key) + ":";
        text.push_str(&format!("{margin}{label:<width$} {}\n", scalar(key, value).unwrap_or_default()));
    }
    for (key, value) in long {
        text.push_str(&format!("{margin}{}:\n", label(key)));
        text.push_str(&match value {
            Value::Object(inner) => object(inner, indent + 2, FOREIGN.contains(&key.as_str())),
            Value::Array(all) if key == SETTINGS => settings(all, indent + 2),
            Value::Array(all) => all.iter().map(|value| item(value, indent + 2)).collect(),
            Value::String(lines) => lines.lines().map(|line| format!("{margin}  {}\n", shown(line))).collect(),
            _ => String::new(),
        });
    }
    text
}

/// One of several, behind a hyphen.
fn item(value: &Value, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let Some(fields) = value.as_object() else { return format!("{margin}- {}\n", shown(&value.to_string())) };
    let text = object(fields, indent + 2, false);
    text.strip_prefix(&" ".repeat(indent + 2)).map(|rest| format!("{margin}- {rest}")).unwrap_or_default()
}

fn settings(all: &[Value], indent: usize) -> String {
    let cell = |setting: &Value, key: &str| shown(setting.get(key).and_then(Value::as_str).unwrap_or("-"));
    let rows: Vec<_> = all.iter().map(|it| ["name", "value", "from"].map(|key| cell(it, key)).to_vec()).collect();
    let margin = " ".repeat(indent);
    aligned(&rows).lines().map(|line| format!("{margin}{line}\n")).collect()
}

/// A value that fits on the line of its name.
fn scalar(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (!text.contains('\n')).then(|| shown(text)),
        Value::Number(number) => match number.as_u64().filter(|_| key.ends_with("Bytes")) {
            Some(bytes) => Some(size(bytes)),
            None => Some(number.to_string()),
        },
        Value::Bool(is) => Some(if *is { "yes".into() } else { "no".into() }),
        Value::Array(all) if key != SETTINGS => {
            let texts: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
            texts.map(|texts| shown(&texts.join(", ")))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.iter().all(is_empty),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// `createdAt` as `Created at`.
fn words(key: &str) -> String {
    let mut spaced = String::new();
    for c in key.trim_end_matches("Bytes").chars() {
        if c.is_ascii_uppercase() || c == '_' {
            spaced.push(' ');
        }
        spaced.extend((c != '_').then_some(c.to_ascii_lowercase()));
    }
    let known = |word: &str| {
        WORDS.iter().find(|(known, _)| *known == word).map_or(word.to_owned(), |(_, as_is)| (*as_is).into())
    };
    let text = spaced.split(' ').map(known).collect::<Vec<String>>().join(" ");
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    shown(&first.into_iter().chain(chars).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_told_in_words() {
        let pod = json!({
            "name": "web\u{1b}[2J", "uid": "u", "createdAt": "2016-10-06T00:17:09Z", "ips": ["10.1.0.1", "fd00::1"], "attempt": 0,
            "labels": { "a.b/Upper": "d" }, "annotations": { "VirtletCloudInitUserData": "#cloud-config\npackages: []\n" },
            "network": null,
            "machines": [{
                "id": "c0", "state": "Running", "exitCode": null, "resources": { "memoryLimitBytes": 536_870_912, "cpuQuota": 0 },
                "mounts": [], "settings": [{ "name": "vCPUs", "value": "2", "from": "limit" }, { "name": "disk bus", "value": "scsi" }],
            }],
        });
        insta::assert_snapshot!(of(&pod), @r"
        Name:       web\u{1b}[2J
        Attempt:    0
        Created at: 2016-10-06T00:17:09Z
        IPs:        10.1.0.1, fd00::1
        UID:        u
        Annotations:
          VirtletCloudInitUserData:
            #cloud-config
            packages: []
        Labels:
          a.b/Upper: d
        Machines:
          - State: Running
            ID:    c0
            Resources:
              CPU quota:    0
              Memory limit: 512 MiB
            Settings:
              vCPUs      2      limit
              disk bus   scsi   -
        ");
    }
}
