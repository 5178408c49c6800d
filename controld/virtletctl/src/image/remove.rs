//! `image rm`: what went with a name, and why a file stays.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use proto::images::{Binding, Image, Keepers, Removed};
use serde_json::{Value, json};
use vmimage::digest::MIN_PREFIX;

use super::{bare, optional, pretty};
use crate::cli;
use crate::client::Client;
use crate::error::{CtlError, ImageError, none_of};
use crate::text::shown;

/// Removes one after the other, and prints what went.
pub(super) async fn run(
    client: &Client,
    wanted: &cli::Remove,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    let handler = optional(&wanted.handler);
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for name in &wanted.names {
        match remove(client, name, handler).await {
            Ok(images) => removed.extend(images),
            Err(error) => failed.push(error),
        }
    }
    if let Err(error) = print(client, wanted, &removed, out).await {
        failed.push(error);
    }
    none_of(failed)
}

async fn remove(client: &Client, name: &str, handler: &str) -> Result<Vec<Removed>, CtlError> {
    let removed = client.remove_image(name, handler).await?;
    if removed.is_empty() {
        // The service is fine with an absent image; a person has mistyped it.
        return Err(absent(name, &client.list_images("", handler).await?).into());
    }
    Ok(removed)
}

async fn print(
    client: &Client,
    wanted: &cli::Remove,
    removed: &[Removed],
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    if removed.is_empty() {
        return Ok(());
    }
    let pods = if removed.iter().any(is_held) { pods(client).await? } else { HashMap::new() };
    let text = if wanted.json {
        pretty(&removed.iter().map(json).collect())
    } else {
        removed.iter().flat_map(|removed| lines(removed, &pods)).map(|line| format!("{}\n", shown(&line))).collect()
    };
    Ok(out.write_all(text.as_bytes())?)
}

fn is_held(removed: &Removed) -> bool {
    removed.kept.as_ref().is_some_and(|kept| !kept.holders.is_empty())
}

/// The pods of this node by their UIDs, as other lists name them.
async fn pods(client: &Client) -> Result<HashMap<String, String>, CtlError> {
    let sandboxes = client.sandboxes().await?;
    let named = sandboxes.into_iter().filter_map(|sandbox| sandbox.metadata);
    Ok(named.map(|pod| (pod.uid, format!("pod {}/{}", pod.namespace, pod.name))).collect())
}

/// Why a text means none of the images.
fn absent(text: &str, images: &[Image]) -> ImageError {
    let prefix = text.strip_prefix("sha256:").unwrap_or(text);
    let is_hex = prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex && prefix.len() < MIN_PREFIX {
        return ImageError::ShortId(text.to_owned());
    }
    let begin = |image: &&Image| bare(&image.id).starts_with(prefix);
    if let Some(pinned) = images.iter().filter(|image| image.handler.is_empty()).find(begin) {
        return ImageError::NoName(pinned.id.clone());
    }
    let found: BTreeSet<&str> = images.iter().filter(begin).map(|image| image.id.as_str()).collect();
    match found.len() {
        0 | 1 => ImageError::NoImage(text.to_owned()),
        _ => {
            let found = found.into_iter().map(str::to_owned).collect();
            ImageError::Ambiguous { text: text.to_owned(), found }
        }
    }
}

/// A line for each name that went, and one for the file.
fn lines(removed: &Removed, pods: &HashMap<String, String>) -> Vec<String> {
    let mut lines: Vec<String> = removed.names.iter().map(|name| format!("{} removed", of_handler(name))).collect();
    lines.push(match &removed.kept {
        Some(kept) => format!("{} kept{}", removed.id, reasons(kept, pods)),
        None => format!("{} removed", removed.id),
    });
    lines
}

fn reasons(kept: &Keepers, pods: &HashMap<String, String>) -> String {
    let holders: Vec<String> = kept
        .holders
        .iter()
        .map(|uid| pods.get(uid).map_or_else(|| format!("pod of UID {uid}"), Clone::clone))
        .collect();
    let names: Vec<String> = kept.names.iter().map(of_handler).collect();
    let mut reasons = String::new();
    for (what, values) in [("has", &names), ("used by", &holders), ("below", &kept.above)] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_an_image_is_named_as_in_other_lists() {
        let kept = Keepers { holders: vec!["uid-1".into(), "uid-2".into()], ..Keepers::default() };
        let pods = HashMap::from([("uid-1".to_owned(), "pod default/web".to_owned())]);
        assert_eq!(reasons(&kept, &pods), "; used by pod default/web, pod of UID uid-2");
    }
}
