//! `image inspect` of an image of the node.

use std::collections::BTreeMap;
use std::io::Write;

use proto::images::{InspectResponse, Name};
use serde_json::{Value, json};

use super::{as_json, flags, known, optional, pretty};
use crate::cli;
use crate::client::Client;
use crate::error::CtlError;
use crate::text::{moment, shown, size};

/// Room for the longest name of a line.
const NAMES: usize = 12;

pub(super) async fn run(client: &Client, wanted: &cli::Inspect, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    // What is no name is a file, which is another's.
    let name = wanted.name().unwrap_or_default();
    let found = client.inspect_image(name, optional(&wanted.handler)).await?;
    let text = if wanted.json { pretty(&json(&found)) } else { lines(&found) };
    Ok(out.write_all(text.as_bytes())?)
}

fn lines(found: &InspectResponse) -> String {
    let image = found.image.clone().unwrap_or_default();
    let bytes = |bytes: u64| format!("{} ({bytes} bytes)", size(bytes));
    let flags: Vec<&str> = flags(&image).into_iter().chain(found.flags.iter().map(String::as_str)).collect();
    let mut lines = vec![
        ("id", image.id),
        ("runtime", image.handler),
        ("format", image.format),
        ("virtual size", bytes(image.virtual_size)),
        ("file size", bytes(found.length)),
        ("on the disk", bytes(image.size)),
        ("path", found.path.clone()),
        ("provider", image.provider),
        ("flags", flags.join(", ")),
        ("missing", image.missing),
        ("user", found.user.clone()),
        ("verified", moment(found.verified_at).unwrap_or_default()),
    ];
    let several = [
        ("digest", &image.repo_digests),
        ("alias", &found.aliases),
        ("stands on", &found.chain.iter().skip(1).cloned().collect()),
        ("used by", &found.holders),
    ];
    lines.extend(several.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone()))));
    for name in &found.names {
        lines.extend([
            ("name", name.name.clone()),
            ("  runtime", name.handler.clone()),
            ("  source", name.source.clone()),
            ("  rule", name.by.clone()),
            ("  provider", name.provider.clone()),
            ("  platform", name.platform.clone()),
            ("  pulled", moment(name.pulled_at).unwrap_or_default()),
        ]);
        let labels: BTreeMap<_, _> = name.labels.iter().collect();
        lines.extend(labels.into_iter().map(|(key, value)| ("  label", format!("{key}={value}"))));
    }
    let known = lines.iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| format!("{name:NAMES$}   {}\n", shown(value))).collect()
}

fn json(found: &InspectResponse) -> Value {
    let name = |name: &Name| {
        json!({
            "name": name.name, "runtimeHandler": name.handler, "source": known(&name.source), "rule": known(&name.by),
            "provider": known(&name.provider), "platform": known(&name.platform), "labels": name.labels,
            "pulledAt": moment(name.pulled_at),
        })
    };
    let mut json = as_json(&found.image.clone().unwrap_or_default());
    json["fileSize"] = json!(found.length);
    json["path"] = json!(known(&found.path));
    json["flags"] = json!(found.flags);
    json["aliases"] = json!(found.aliases);
    json["chain"] = json!(found.chain);
    json["names"] = found.names.iter().map(name).collect();
    json["holders"] = json!(found.holders);
    json["verifiedAt"] = json!(moment(found.verified_at));
    json["user"] = json!(known(&found.user));
    json
}
