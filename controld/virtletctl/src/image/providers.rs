//! `image providers`.

use std::io::Write;

use proto::images::{Provider, provider};
use serde_json::json;

use super::{optional, pretty};
use crate::cli::ProvidersCommand;
use crate::client::Client;
use crate::error::{CtlError, ImageError, none_of};
use crate::text::{shown, table};

pub(super) async fn run(
    client: &Client,
    command: Option<ProvidersCommand>,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    match command.unwrap_or(ProvidersCommand::Ls { json: false }) {
        ProvidersCommand::Ls { json } => list(client, json, out).await.map_err(|error| vec![error]),
        ProvidersCommand::Refresh { provider } => refresh(client, optional(&provider), out).await,
        ProvidersCommand::ClearCache { provider } => {
            client.clear_provider_caches(optional(&provider)).await.map_err(|error| vec![error])
        }
        ProvidersCommand::Forget { provider } => client.forget_provider(&provider).await.map_err(|error| vec![error]),
    }
}

async fn list(client: &Client, json: bool, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let providers = client.providers().await?;
    let as_json = |provider: &Provider| {
        let dropped = provider.dropped.iter().map(|image| json!({ "name": image.name, "reason": image.reason }));
        json!({
            "id": provider.id, "capabilities": provider.capabilities, "schemes": provider.schemes,
            "dropped": dropped.collect::<Vec<_>>(),
        })
    };
    let text = if json {
        pretty(&providers.iter().map(as_json).collect())
    } else {
        let dropped: String = providers.iter().map(|provider| dropped(provider, "")).collect();
        let row = |provider: Provider| [provider.id, provider.capabilities.join(","), provider.schemes.join(",")];
        table(["ID", "CAPABILITIES", "SCHEMES"], &providers.into_iter().map(row).collect::<Vec<_>>()) + &dropped
    };
    Ok(out.write_all(text.as_bytes())?)
}

/// A line for each image of a provider that cannot be used and whose name begins with `prefix`.
pub(super) fn dropped(provider: &Provider, prefix: &str) -> String {
    let line = |image: &provider::Dropped| {
        format!("`{}` of `{}` is not used: {}\n", shown(&image.name), shown(&provider.id), shown(&image.reason))
    };
    provider.dropped.iter().filter(|image| image.name.starts_with(prefix)).map(line).collect()
}

/// Prints the providers that know their sources anew.
async fn refresh(client: &Client, provider: &str, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    for outcome in client.refresh_providers(provider).await.map_err(|error| vec![error])? {
        if !outcome.error.is_empty() {
            failed.push(ImageError::NotRefreshed { provider: outcome.provider, why: outcome.error }.into());
        } else if let Err(error) = writeln!(out, "{}", shown(&outcome.provider)) {
            failed.push(error.into());
        }
    }
    none_of(failed)
}
