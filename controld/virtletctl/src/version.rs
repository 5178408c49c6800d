//! `version`: of this program and of the daemon that it asks.

use std::io::Write;

use serde_json::json;

use super::cli;
use super::client::Client;
use super::document;
use super::error::CtlError;
use super::text::shown;

/// Prints both; `ours` also if the daemon cannot be asked, which is an error then. Without a connection, ours alone.
pub(super) async fn run(
    client: Option<Result<Client, CtlError>>,
    wanted: &cli::Version,
    ours: &str,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let server = match client {
        None => Ok(None),
        Some(Ok(client)) => client.version().await.map(Some),
        Some(Err(error)) => Err(error),
    };
    let told = server.as_ref().ok().and_then(Option::as_ref);
    if let Some(form) = wanted.output.form() {
        let server = told.map(|server| {
            json!({
                "name": server.runtime_name,
                "version": server.runtime_version,
                "apiVersion": server.runtime_api_version,
            })
        });
        let both = json!({ "client": { "name": "virtletctl", "version": ours }, "server": server });
        out.write_all(document::of(both, form)?.as_bytes())?;
    } else {
        writeln!(out, "Client: virtletctl {ours}")?;
        if let Some(server) = told {
            let [name, version, api] =
                [&server.runtime_name, &server.runtime_version, &server.runtime_api_version].map(|text| shown(text));
            writeln!(out, "Server: {name} {version} (CRI {api})")?;
        }
    }
    out.flush()?;
    server.map(drop)
}
