//! `image search`.

use std::collections::BTreeMap;
use std::io::Write;

use proto::images::{Provider, RemoteImage, SearchRequest};
use serde_json::{Value, json};

use super::providers::dropped;
use super::{known, pretty};
use crate::cli;
use crate::client::Client;
use crate::error::CtlError;
use crate::tell::tell;
use crate::text::{moment, size, table};

/// What tables of images at providers show.
const HEADS: [&str; 7] = ["NAME", "PROVIDER", "PLATFORM", "REVISION", "SIZE", "VIRTUAL", "CACHED"];

pub(super) async fn run(client: &Client, wanted: cli::Search, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let (as_json, secrets) = (wanted.json, wanted.secrets);
    let (prefix, only) = (wanted.query.clone(), wanted.provider.clone());
    let request = SearchRequest {
        query: wanted.query,
        handler: wanted.handler.unwrap_or_default(),
        provider: wanted.provider.unwrap_or_default(),
        secrets,
    };
    // In the order of providers, which is that of pulls.
    let mut images = client.search_images(request).await?;
    if !secrets {
        // Whatever the daemon sends, nobody asked for it.
        images.iter_mut().for_each(|image| image.extra.clear());
    }
    let text = match (as_json, secrets) {
        (true, _) => pretty(&images.iter().map(|image| json(image, secrets)).collect()),
        (false, true) => with_extra(&images),
        (false, false) => table(HEADS, &images.iter().map(row).collect::<Vec<_>>()),
    };
    out.write_all(text.as_bytes())?;
    if images.is_empty() && !as_json && !client.providers().await?.iter().any(can_search) {
        tell(
            "no provider of this node can be searched; `images.providers` of controld's configuration says where images are\n",
        );
    }
    if wanted.verbose {
        // What was searched is known by now, and with it what cannot be used.
        let mut providers = client.providers().await?;
        providers.retain(|provider| only.as_ref().is_none_or(|only| *only == provider.id));
        let dropped: String = providers.iter().map(|provider| dropped(provider, &prefix)).collect();
        out.write_all(dropped.as_bytes())?;
    }
    Ok(())
}

fn can_search(provider: &Provider) -> bool {
    provider.capabilities.iter().any(|capability| capability == "search")
}

fn row(image: &RemoteImage) -> [String; 7] {
    let sized = |bytes| if bytes == 0 { String::new() } else { size(bytes) };
    [
        image.name.clone(),
        image.provider.clone(),
        image.platform.clone(),
        image.revision.clone(),
        sized(image.artifact_size),
        sized(image.virtual_size),
        if image.cached { "yes" } else { "no" }.into(),
    ]
}

fn with_extra(images: &[RemoteImage]) -> String {
    let [name, provider, platform, revision, size, virtual_size, cached] = HEADS;
    let rows: Vec<_> = images
        .iter()
        .map(|image| {
            let fields: BTreeMap<_, _> = image.extra.iter().collect();
            let extra: Vec<String> = fields.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            let [a, b, c, d, e, f, g] = row(image);
            [a, b, c, d, e, f, g, extra.join(" ")]
        })
        .collect();
    table([name, provider, platform, revision, size, virtual_size, cached, "EXTRA"], &rows)
}

fn json(image: &RemoteImage, secrets: bool) -> Value {
    let amount = |amount: u64| (amount > 0).then_some(amount);
    let mut json = json!({
        "provider": image.provider,
        "name": image.name,
        "aliases": image.aliases,
        "hashes": image.hashes,
        "format": known(&image.format),
        "artifactSize": amount(image.artifact_size),
        "virtualSize": amount(image.virtual_size),
        "platform": known(&image.platform),
        "osinfo": known(&image.osinfo),
        "distro": known(&image.distro),
        "revision": known(&image.revision),
        "created": moment(image.created),
        "parent": known(&image.parent),
        "notes": image.notes,
        "signedBy": known(&image.signed_by),
        "cached": image.cached,
    });
    if secrets {
        json["extra"] = json!(image.extra);
    }
    json
}
