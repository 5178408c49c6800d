//! Templates of docker's: `ps --format '{{.Names}} {{.State}}'`. Of Go's templates only fields and `json` are known.

use serde_json::{Map, Value};

use super::text::{aligned, harmless, shown};

/// Names of fields, in lower case, and the fields of a row that they mean: ours, and docker's for the same.
const FIELDS: [(&str, &str); 17] = [
    ("name", "name"),
    ("names", "name"),
    ("namespace", "namespace"),
    ("state", "state"),
    ("status", "state"),
    ("ip", "ip"),
    ("image", "image"),
    ("createdat", "createdAt"),
    ("runningfor", AGE),
    ("age", AGE),
    ("id", "podId"),
    ("podid", "podId"),
    ("containerid", "containerId"),
    ("handler", "runtimeHandler"),
    ("runtimehandler", "runtimeHandler"),
    ("attempt", "attempt"),
    ("labels", "labels"),
];
/// A field that is not of `-o json`, as it is another at each look.
pub(super) const AGE: &str = "age";

/// The table that docker's word alone stands for.
const TABLE: &str = "table {{.Name}}\t{{.Namespace}}\t{{.State}}\t{{.IP}}\t{{.Image}}\t{{.Age}}";

/// What becomes of each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// In columns, under heads.
    is_table: bool,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(&'static str),
    /// As JSON; the whole row if no field is named.
    Json(Option<&'static str>),
}

/// Reads a `--format`.
pub(super) fn parse(text: &str) -> Result<Template, String> {
    let text = match text {
        "json" => return Ok(Template { is_table: false, pieces: vec![Piece::Json(None)] }),
        "yaml" => return Err("YAML is had by -o yaml".into()),
        "csv" => return Err("there is no CSV; take -o json and jq, which has `@csv`".into()),
        "table" => TABLE,
        _ => text,
    };
    let (is_table, mut rest) = match text.strip_prefix("table ") {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let mut pieces = Vec::new();
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, behind) = after.split_once("}}").ok_or("`{{` has no `}}`")?;
        pieces.push(Piece::Text(unescaped(before)));
        pieces.push(action_of(action.trim())?);
        rest = behind;
    }
    pieces.push(Piece::Text(unescaped(rest)));
    if pieces.len() == 1 {
        return Err("names no field, such as {{.Name}}".into());
    }
    Ok(Template { is_table, pieces })
}

fn action_of(action: &str) -> Result<Piece, String> {
    match action.split_once(char::is_whitespace) {
        Some(("json", field)) if field.trim() == "." => Ok(Piece::Json(None)),
        Some(("json", name)) => field(name.trim()).map(|field| Piece::Json(Some(field))),
        _ => field(action).map(Piece::Field),
    }
}

fn field(text: &str) -> Result<&'static str, String> {
    let name = text.strip_prefix('.').map(str::to_ascii_lowercase);
    let found = name.and_then(|name| FIELDS.iter().find(|(known, _)| *known == name));
    found.map(|(_, field)| *field).ok_or_else(|| {
        format!(
            "`{text}` is not understood: fields are .Name, .Namespace, .State, .IP, .Image, .CreatedAt, .Age, .ID, .ContainerID, \
             .Handler, .Attempt and .Labels, also behind `json`; for all else take -o json and jq"
        )
    })
}

fn unescaped(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\n", "\n")
}

impl Template {
    /// A line for each of these rows, below heads if they are wanted, and the template has some.
    pub(super) fn render(&self, rows: &[Map<String, Value>], with_heads: bool) -> String {
        let mut lines: Vec<String> = rows.iter().map(|row| self.line(|piece| piece.of(row))).collect();
        if !self.is_table {
            return lines.into_iter().map(|line| line + "\n").collect();
        }
        if with_heads {
            lines.insert(0, self.line(Piece::head));
        }
        // No cell has a tab of its own: they were made harmless.
        aligned(&lines.iter().map(|line| line.split('\t').map(str::to_owned).collect()).collect::<Vec<_>>())
    }

    fn line(&self, of: impl Fn(&Piece) -> String) -> String {
        self.pieces.iter().map(of).collect()
    }
}

impl Piece {
    fn of(&self, row: &Map<String, Value>) -> String {
        let value = |field: &str| row.get(field).cloned().unwrap_or_default();
        match self {
            Self::Text(text) => text.clone(),
            Self::Field(field) => shown(&plain(&value(field))),
            Self::Json(Some(field)) => harmless(&value(field).to_string()),
            Self::Json(None) => {
                let kept = row.iter().filter(|(key, _)| *key != AGE).map(|(key, value)| (key.clone(), value.clone()));
                harmless(&Value::Object(kept.collect()).to_string())
            }
        }
    }

    fn head(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Field(field) | Self::Json(Some(field)) => field.to_uppercase(),
            Self::Json(None) => "JSON".into(),
        }
    }
}

/// A value as docker writes it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(labels) => {
            labels.iter().map(|(key, value)| format!("{key}={}", plain(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows() -> Vec<Map<String, Value>> {
        let row = |name: &str, state: &str| {
            let row =
                json!({ "name": name, "state": state, "attempt": 1, "labels": { "a": "b", "c": "d" }, AGE: "3m" });
            row.as_object().expect("an object").clone()
        };
        vec![row("web", "Running"), row("db\u{1b}\t", "Exited")]
    }

    #[test]
    fn rows_are_written_as_by_docker() {
        let told: Vec<String> = [
            "{{.Names}}: {{ .State }}",
            "table {{.Name}}\\t{{.RunningFor}}\\t{{.Attempt}}",
            "{{.Labels}}\\n",
            "{{json .Labels}}",
            "json",
        ]
        .iter()
        .map(|text| parse(text).expect(text).render(&rows(), true))
        .collect();
        insta::assert_snapshot!(told.join("---\n"), @r#"
        web: Running
        db\u{1b}\t: Exited
        ---
        NAME         AGE   ATTEMPT
        web          3m    1
        db\u{1b}\t   3m    1
        ---
        a=b,c=d

        a=b,c=d

        ---
        {"a":"b","c":"d"}
        {"a":"b","c":"d"}
        ---
        {"attempt":1,"labels":{"a":"b","c":"d"},"name":"web","state":"Running"}
        {"attempt":1,"labels":{"a":"b","c":"d"},"name":"db\u001b\t","state":"Exited"}
        "#);
        let headless = parse("table {{.Name}}").expect("a table").render(&rows(), false);
        assert!(headless.starts_with("web\n"), "{headless}");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(parse("table").is_ok_and(|template| template.is_table));
        for text in [
            "",
            "csv",
            "yaml",
            "name",
            "{{.Name",
            "{{if .Name}}x{{end}}",
            "{{.Colour}}",
            "{{Name}}",
            "{{.Name | upper}}",
        ] {
            parse(text).expect_err(text);
        }
    }
}
