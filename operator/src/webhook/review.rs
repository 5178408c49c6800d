//! What the API server asks, `AdmissionReview`, and what it is answered. Pure.
//!
//! Nothing of an object is in an error's text but what the crate `kubevirt` says of its fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubevirt::Finding;
use kubevirt::preset::{Applied, apply};
use serde::Deserialize;
use serde_json::{Value, json};

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The API server cuts a warning after so many characters, and drops those behind some thousands of all.
const MAX_WARNING: usize = 256;
const MAX_WARNINGS: usize = 12;
/// As much of an error is told, and so many of them.
const MAX_ERROR: usize = 512;
const MAX_ERRORS: usize = 12;

/// What is asked.
#[derive(Deserialize)]
struct Review {
    #[serde(rename = "apiVersion")]
    version: String,
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    uid: String,
    operation: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Value,
}

/// Why a question is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoReview {
    #[error("the body is no AdmissionReview with a request")]
    Malformed,
    #[error("the review is not of {VERSION}")]
    Version,
    #[error("the object has no namespace, or another one than the request")]
    Namespace,
}

/// The answer to a question, if the presets of the request's namespace are these.
pub(super) fn answer(body: &[u8], presets: impl FnOnce(&str) -> Vec<Value>) -> Result<Value, NoReview> {
    // What serde says would quote the object.
    let review: Review = serde_json::from_slice(body).map_err(|_| NoReview::Malformed)?;
    if review.version != VERSION {
        return Err(NoReview::Version);
    }
    let request = review.request.filter(|_| review.kind == KIND).ok_or(NoReview::Malformed)?;
    // Presets are for what is made, and for nothing that is there.
    if request.operation != "CREATE" {
        return Ok(response(&request.uid, json!({"allowed": true})));
    }
    let own = request.object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    if request.namespace.is_empty() || !(own.is_empty() || own == request.namespace) {
        return Err(NoReview::Namespace);
    }
    let answer = match apply(&request.object, &presets(&request.namespace)) {
        Ok(applied) => allowed(&applied),
        Err(found) => denied(&found),
    };
    Ok(response(&request.uid, answer))
}

fn response(uid: &str, mut answer: Value) -> Value {
    answer["uid"] = json!(uid);
    json!({"apiVersion": VERSION, "kind": KIND, "response": answer})
}

fn allowed(applied: &Applied) -> Value {
    let mut answer = json!({"allowed": true});
    if !applied.patch.is_empty() {
        answer["patchType"] = json!("JSONPatch");
        answer["patch"] = json!(STANDARD.encode(json!(applied.patch).to_string()));
    }
    if !applied.warnings.is_empty() {
        answer["warnings"] = json!(told(&applied.warnings, MAX_WARNINGS, MAX_WARNING));
    }
    answer
}

fn denied(found: &[Finding]) -> Value {
    let message = told(found, MAX_ERRORS, MAX_ERROR).join("; ");
    json!({"allowed": false, "status": {"code": 422, "reason": "Invalid", "message": message}})
}

/// So many of them at most, each of so many characters.
fn told(found: &[Finding], most: usize, longest: usize) -> Vec<String> {
    let text = |finding: &Finding| match finding.path.as_str() {
        "" => finding.text.clone(),
        path => format!("{path}: {}", finding.text),
    };
    let mut told: Vec<String> = found.iter().take(most).map(|finding| cut(text(finding), longest)).collect();
    if let Some(more) = found.len().checked_sub(most).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told
}

fn cut(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        text.truncate(end);
        text.pop();
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
