//! Templates of kubectl's: `-o jsonpath='{.items[*].metadata.name}'`. Of JSONPath, what lists of pods are asked for by: keys, indices,
//! `[*]`, `range` and text.

use std::str::FromStr;

use serde_json::Value;

use super::text::{harmless, shown};

/// Ranges within each other, which nobody writes more of.
const MAX_DEPTH: usize = 8;

/// What has keys of each pod's own.
const LABELS: &str = "labels";

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>, Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    /// From the end if negative.
    Index(i64),
    Each,
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Braces are often forgotten.
        let braced =
            if !text.contains('{') && text.starts_with(['.', '$']) { format!("{{{text}}}") } else { text.into() };
        let mut rest = braced.as_str();
        let pieces = pieces(&mut rest, 0)?;
        if pieces.is_empty() {
            return Err("is empty; write {.items[*].metadata.name} or the like".into());
        }
        Ok(Self(pieces))
    }
}

/// The pieces up to the end, or up to that of the range that they are in.
fn pieces(rest: &mut &str, depth: usize) -> Result<Vec<Piece>, String> {
    if depth > MAX_DEPTH {
        return Err(format!("more than {MAX_DEPTH} ranges within each other"));
    }
    let mut pieces = Vec::new();
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (expression, behind) = expression(after)?;
        *rest = behind;
        match expression.trim() {
            "end" if depth > 0 => return Ok(pieces),
            "end" => return Err("`{end}` is behind no `{range}`".into()),
            expression => match expression.strip_prefix("range ") {
                Some(path) => pieces.push(Piece::Range(steps(path.trim())?, self::pieces(rest, depth + 1)?)),
                None => pieces.push(match quoted(expression) {
                    Some(text) => Piece::Text(text),
                    None => Piece::Path(steps(expression)?),
                }),
            },
        }
    }
    if depth > 0 {
        return Err("`{range}` has no `{end}`".into());
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text((*rest).to_owned()));
        *rest = "";
    }
    Ok(pieces)
}

/// What is up to the brace that ends it, and what is behind that. A brace in quotes ends nothing.
fn expression(text: &str) -> Result<(&str, &str), String> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '}') => {
                let (expression, behind) = text.split_at_checked(at).unwrap_or((text, ""));
                return Ok((expression, behind.strip_prefix('}').unwrap_or(behind)));
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    Err("`{` has no `}`".into())
}

/// Text in quotes, with its escapes.
fn quoted(text: &str) -> Option<String> {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let inner = within('"').or_else(|| within('\''))?;
    Some(inner.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\""))
}

/// `$.a.b[0]['c'][*]`
fn steps(path: &str) -> Result<Vec<Step>, String> {
    let wrong = || {
        format!(
            "`{path}` is not understood: of JSONPath there are .KEY, ['KEY'], [N] and [*]; for all else take -o json and jq"
        )
    };
    let mut rest = path.strip_prefix(['$', '@']).unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (inner, behind) = after.split_once(']').ok_or_else(wrong)?;
            steps.push(match (inner, quoted(inner)) {
                ("*", _) => Step::Each,
                // kubectl wants dots with a backslash here, too.
                (_, Some(key)) => Step::Key(key.replace("\\.", ".")),
                _ => Step::Index(inner.parse().map_err(|_| wrong())?),
            });
            rest = behind;
        } else {
            let after = rest.strip_prefix('.').ok_or_else(wrong)?;
            let (key, behind) = key(after);
            match key.as_str() {
                // Of `.[`, and of `.` alone.
                "" if behind.starts_with('[') || (behind.is_empty() && steps.is_empty()) => {}
                "" => return Err(wrong()),
                "*" => steps.push(Step::Each),
                _ => steps.push(Step::Key(key)),
            }
            rest = behind;
        }
    }
    Ok(steps)
}

/// A key up to the next step; a backslash keeps a dot in it, as keys of labels need.
fn key(text: &str) -> (String, &str) {
    let mut key = String::new();
    let mut rest = text.chars();
    loop {
        let before = rest.as_str();
        match rest.next() {
            Some('\\') => key.extend(rest.next()),
            None | Some('.' | '[') => return (key, before),
            Some(c) => key.push(c),
        }
    }
}

impl JsonPath {
    /// The first key on its paths that a document has not. Which labels there are, each pod says for itself.
    pub(super) fn lacks(&self, document: &Value) -> Option<&str> {
        lacks(&self.0, document)
    }

    /// What it makes of a document. Foreign text is made harmless; what is not there is nothing.
    pub(super) fn render(&self, document: &Value) -> String {
        let mut text = String::new();
        render(&self.0, document, &mut text);
        text
    }
}

fn render(pieces: &[Piece], document: &Value, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(own) => text.push_str(own),
            Piece::Path(steps) => {
                let found: Vec<String> = walk(document, steps).into_iter().map(plain).collect();
                text.push_str(&found.join(" "));
            }
            Piece::Range(steps, inner) => {
                for found in walk(document, steps) {
                    render(inner, found, text);
                }
            }
        }
    }
}

fn lacks<'a>(pieces: &'a [Piece], document: &Value) -> Option<&'a str> {
    pieces.iter().find_map(|piece| match piece {
        Piece::Text(_) => None,
        Piece::Path(steps) => absent(document, steps),
        Piece::Range(steps, inner) => {
            absent(document, steps).or_else(|| walk(document, steps).into_iter().find_map(|found| lacks(inner, found)))
        }
    })
}

/// The first key of a path that something on its way has not.
fn absent<'a>(document: &Value, steps: &'a [Step]) -> Option<&'a str> {
    let mut found = vec![document];
    for step in steps {
        match step {
            Step::Key(key) if found.iter().any(|value| value.as_object().is_some_and(|it| !it.contains_key(key))) => {
                return Some(key);
            }
            Step::Key(key) if key == LABELS => return None,
            _ => found = found.into_iter().flat_map(|value| step.of(value)).collect(),
        }
    }
    None
}

fn walk<'a>(document: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![document];
    for step in steps {
        found = found.into_iter().flat_map(|value| step.of(value)).collect();
    }
    found
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Key(key), Value::Object(fields)) => fields.get(key).into_iter().collect(),
            (Self::Each, Value::Object(fields)) => fields.values().collect(),
            (Self::Each, Value::Array(all)) => all.iter().collect(),
            (Self::Index(index), Value::Array(all)) => {
                let from_start = usize::try_from(*index).ok();
                let from_end = usize::try_from(index.unsigned_abs()).ok().and_then(|back| all.len().checked_sub(back));
                let at = if *index < 0 { from_end } else { from_start };
                at.and_then(|at| all.get(at)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => shown(text),
        other => harmless(&other.to_string()),
    }
}

#[cfg(test)]
mod tests;
