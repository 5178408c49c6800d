//! `image ls`, `pull` and `rm`.

use std::io::Write;

use proto::cri::Image;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::error::CtlError;
use super::pull;
use super::text::{ID_SHOWN, shown, size, table};

pub(super) async fn list(client: &Client, json: bool, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let mut images = client.list_images().await?;
    images.sort_by(|a, b| a.repo_tags.cmp(&b.repo_tags).then_with(|| a.id.cmp(&b.id)));
    let text = if json { as_json(&images) } else { as_table(&images) };
    Ok(out.write_all(text.as_bytes())?)
}

pub(super) async fn pull(
    client: &Client,
    name: &str,
    out: &mut (dyn Write + Send),
    interrupt: &CancellationToken,
) -> Result<(), CtlError> {
    let id = pull::run(client, name, interrupt).await?;
    Ok(writeln!(out, "{}", shown(&id))?)
}

pub(super) async fn remove(client: &Client, name: &str) -> Result<(), CtlError> {
    // CRI's call is fine with an absent image; a person has mistyped it.
    if client.image(name).await?.image.is_some() {
        return client.remove_image(name).await;
    }
    // The beginning of an id, as `ls` shows it.
    let images = client.list_images().await?;
    let mut found = images.iter().filter(|image| bare(&image.id).starts_with(name));
    match (found.next(), found.next()) {
        (Some(image), None) => client.remove_image(&image.id).await,
        (None, _) => Err(CtlError::NoImage(name.to_owned())),
        (Some(first), Some(second)) => {
            Err(CtlError::Ambiguous { text: name.to_owned(), found: vec![first.id.clone(), second.id.clone()] })
        }
    }
}

fn as_table(images: &[Image]) -> String {
    let mut rows = Vec::new();
    for image in images {
        let id: String = bare(&image.id).chars().take(ID_SHOWN).collect();
        let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
        let mut names: Vec<String> = names.clone();
        if names.is_empty() {
            names.push(String::new());
        }
        rows.extend(names.into_iter().map(|name| [name, id.clone(), size(image.size)]));
    }
    table(["NAME", "ID", "SIZE"], &rows)
}

fn as_json(images: &[Image]) -> String {
    let images: Vec<_> = images
        .iter()
        .map(|image| {
            let Image { id, repo_tags, repo_digests, size, .. } = image;
            json!({ "id": id, "repoTags": repo_tags, "repoDigests": repo_digests, "size": size })
        })
        .collect();
    format!("{:#}\n", serde_json::Value::from(images))
}

fn bare(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_algorithm, hex)| hex)
}
