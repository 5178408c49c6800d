//! `image rm`: what went with a name, and why a file stays.

use std::collections::BTreeSet;
use std::io::Write;

use imagestore::MIN_PREFIX;
use proto::images::{Binding, Image, Keepers, Removed};
use serde_json::{Value, json};

use super::{bare, optional, pretty};
use crate::cli;
use crate::client::Client;
use crate::error::CtlError;
use crate::text::shown;

pub(super) async fn run(client: &Client, wanted: &cli::Remove, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let (name, handler) = (&wanted.name, optional(&wanted.handler));
    let removed = client.remove_image(name, handler).await?;
    if removed.is_empty() {
        // The service is fine with an absent image; a person has mistyped it.
        return Err(absent(name, &client.list_images("", handler).await?));
    }
    let text = if wanted.json {
        pretty(&removed.iter().map(json).collect())
    } else {
        removed.iter().flat_map(lines).map(|line| format!("{}\n", shown(&line))).collect()
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// Why a text means none of the images.
fn absent(text: &str, images: &[Image]) -> CtlError {
    let prefix = text.strip_prefix("sha256:").unwrap_or(text);
    let is_hex = prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex && prefix.len() < MIN_PREFIX {
        return CtlError::ShortId(text.to_owned());
    }
    let begin = |image: &&Image| bare(&image.id).starts_with(prefix);
    if let Some(pinned) = images.iter().filter(|image| image.handler.is_empty()).find(begin) {
        return CtlError::NoName(pinned.id.clone());
    }
    let found: BTreeSet<&str> = images.iter().filter(begin).map(|image| image.id.as_str()).collect();
    match found.len() {
        0 | 1 => CtlError::NoImage(text.to_owned()),
        _ => {
            let found = found.into_iter().map(str::to_owned).collect();
            CtlError::AmbiguousImage { text: text.to_owned(), found }
        }
    }
}

/// A line for each name that went, and one for the file.
fn lines(removed: &Removed) -> Vec<String> {
    let mut lines: Vec<String> = removed.names.iter().map(|name| format!("{} removed", of_handler(name))).collect();
    lines.push(match &removed.kept {
        Some(kept) => format!("{} kept{}", removed.id, reasons(kept)),
        None => format!("{} removed", removed.id),
    });
    lines
}

fn reasons(kept: &Keepers) -> String {
    let names: Vec<String> = kept.names.iter().map(of_handler).collect();
    let mut reasons = String::new();
    for (what, values) in [("has", &names), ("used by", &kept.holders), ("below", &kept.above)] {
        if !values.is_empty() {
            reasons.push_str(&format!("; {what} {}", values.join(", ")));
        }
    }
    let others = [
        (kept.pinned, "pinned"),
        (kept.busy, "needed by a pull under way"),
        (kept.unknown, "it cannot be read who needs it, see controld's log"),
    ];
    for (_, reason) in others.into_iter().filter(|(is_so, _)| *is_so) {
        reasons.push_str(&format!("; {reason}"));
    }
    reasons
}

fn of_handler(Binding { name, handler }: &Binding) -> String {
    format!("{name} of {handler}")
}

fn json(removed: &Removed) -> Value {
    let names = |names: &[Binding]| -> Value {
        names.iter().map(|Binding { name, handler }| json!({ "name": name, "runtimeHandler": handler })).collect()
    };
    let kept = removed.kept.as_ref().map(|kept| {
        json!({
            "names": names(&kept.names), "pinned": kept.pinned, "holders": kept.holders, "above": kept.above,
            "busy": kept.busy, "unknown": kept.unknown,
        })
    });
    json!({ "id": removed.id, "names": names(&removed.names), "removed": removed.kept.is_none(), "kept": kept })
}
