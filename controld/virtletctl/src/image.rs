//! The commands of `image`: what a node has, gets and loses. `inspect` of a file is [`inspect`](super::inspect).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use proto::images::{Auth, Image, ImportHead, Offline, PullWithProgressRequest};
use serde_json::{Value, json};

use super::cli::{self, Form, ImageCommand};
use super::client::Client;
use super::error::{CtlError, ImageError};
use super::interrupt::Interrupt;
use super::source::{Source, name_of};
use super::text::{ID_SHOWN, harmless, shown, size, table};
use super::{document, import, pull};

mod details;
mod providers;
mod prune;
mod remove;
mod save;
mod search;
mod upkeep;

/// Longest secret in a file; tokens of registries are a few KiB.
const MAX_SECRET: u64 = 64 << 10;

/// Does one of the commands.
pub(super) async fn run(
    client: &Client,
    command: ImageCommand,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), Vec<CtlError>> {
    let done = match command {
        ImageCommand::Verify(wanted) => upkeep::verify(client, &wanted, out).await,
        ImageCommand::Providers { command } => providers::run(client, command, out).await,
        ImageCommand::Ls(wanted) => list(client, &wanted, out).await.map_err(|error| vec![error]),
        ImageCommand::Pull(wanted) => pull(client, wanted, out, interrupt).await.map_err(|error| vec![error]),
        ImageCommand::Search(wanted) => search::run(client, wanted, out).await.map_err(|error| vec![error]),
        ImageCommand::Import(wanted) => bring(client, wanted, out, interrupt).await.map_err(|error| vec![error]),
        ImageCommand::Save(wanted) => save::run(client, &wanted, out, interrupt).await.map_err(|error| vec![error]),
        ImageCommand::Prune(wanted) => prune::run(client, &wanted, out, interrupt).await,
        ImageCommand::Rm(wanted) => remove::run(client, &wanted, out).await,
        ImageCommand::Inspect(wanted) => details::run(client, &wanted, out).await.map_err(|error| vec![error]),
        ImageCommand::Gc(wanted) => upkeep::collect(client, &wanted, out).await.map_err(|error| vec![error]),
        ImageCommand::Pin(wanted) => upkeep::pin(client, &wanted, true, out).await.map_err(|error| vec![error]),
        ImageCommand::Unpin(wanted) => upkeep::pin(client, &wanted, false, out).await.map_err(|error| vec![error]),
    };
    done.map_err(|errors| errors.into_iter().map(CtlError::of_images).collect())
}

async fn list(client: &Client, wanted: &cli::List, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let mut images = client.list_images("", optional(&wanted.handler)).await?;
    images.sort_by(|a, b| (&a.repo_tags, &a.handler, &a.id).cmp(&(&b.repo_tags, &b.handler, &b.id)));
    let text = match wanted.output.form() {
        None if wanted.quiet => lines(images.iter().map(|image| image.id.clone())),
        None => as_table(&images, short),
        Some(Form::Wide) => as_table(&images, str::to_owned),
        Some(Form::Name) => lines(images.iter().flat_map(names)),
        Some(form) => document::of(images.iter().map(as_json).collect(), form)?,
    };
    Ok(out.write_all(text.as_bytes())?)
}

async fn pull(
    client: &Client,
    wanted: cli::Pull,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let offline = match wanted.offline {
        None => Offline::Unspecified,
        Some(cli::Mode::Never) => Offline::Never,
        Some(cli::Mode::Auto) => Offline::Auto,
        Some(cli::Mode::Always) => Offline::Always,
    };
    let (name, url) = match Source::of(&wanted.name)? {
        Source::Name(name) => (name, String::new()),
        Source::Url { url, name } => (name, url),
        Source::File { path, name } => {
            if let Some(option) = of_sources(&wanted) {
                let what = format!("{option} is for images that are fetched, and `{}` is a file", path.display());
                return Err(CtlError::Usage(what));
            }
            let head = ImportHead { name, handler: wanted.handler.unwrap_or_default(), ..ImportHead::default() };
            let image = import::run(client, &path, head, wanted.progress, interrupt).await?;
            return Ok(writeln!(out, "{}", shown(&image.id))?);
        }
    };
    let request = PullWithProgressRequest {
        auth: auth(wanted.credentials)?,
        name,
        url,
        handler: wanted.handler.unwrap_or_default(),
        provider: wanted.provider.unwrap_or_default(),
        offline: offline.into(),
        force: wanted.force,
        no_recursive: wanted.no_recursive,
    };
    let id = pull::run(client, request, wanted.progress, interrupt).await?;
    Ok(writeln!(out, "{}", shown(&id))?)
}

/// An option of a pull that means nothing for a file.
fn of_sources(wanted: &cli::Pull) -> Option<&'static str> {
    let given = [
        (wanted.provider.is_some(), "--provider"),
        (wanted.offline.is_some(), "--offline"),
        (wanted.force, "--force"),
        (wanted.no_recursive, "--no-recursive"),
        (wanted.credentials.username.is_some(), "--username"),
        (wanted.credentials.token_file.is_some(), "--token-file"),
    ];
    given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

/// Sends a file.
async fn bring(
    client: &Client,
    wanted: cli::Import,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let name = match wanted.name {
        Some(name) => name,
        None if import::is_stdin(&wanted.file) => return Err(ImageError::Nameless.into()),
        None => name_of(&wanted.file)
            .map_err(|cause| ImageError::Place { text: wanted.file.display().to_string(), cause })?,
    };
    let head = ImportHead {
        name,
        handler: wanted.handler.unwrap_or_default(),
        format: wanted.format.unwrap_or_default(),
        length: 0,
    };
    let image = import::run(client, &wanted.file, head, wanted.progress, interrupt).await?;
    Ok(writeln!(out, "{}", shown(&image.id))?)
}

/// Each once, as several handlers may have the same.
fn lines(all: impl Iterator<Item = String>) -> String {
    all.collect::<BTreeSet<_>>().iter().map(|line| format!("{}\n", shown(line))).collect()
}

fn names(image: &Image) -> Vec<String> {
    if image.repo_tags.is_empty() { image.repo_digests.clone() } else { image.repo_tags.clone() }
}

fn as_table(images: &[Image], id: fn(&str) -> String) -> String {
    let mut rows = Vec::new();
    for image in images {
        let mut names = names(image);
        if names.is_empty() {
            names.push(String::new());
        }
        let handler = &image.handler;
        let virtual_size = if image.virtual_size == 0 { String::new() } else { size(image.virtual_size) };
        let flags = flags(image).join(",");
        rows.extend(
            names.into_iter().map(|name| {
                [name, handler.clone(), id(&image.id), size(image.size), virtual_size.clone(), flags.clone()]
            }),
        );
    }
    table(["NAME", "RUNTIME", "ID", "SIZE", "VIRTUAL", "FLAGS"], &rows)
}

fn flags(image: &Image) -> Vec<&'static str> {
    let flags = [
        ("weak", image.weak),
        ("stale", image.stale),
        ("pinned", image.pinned),
        ("incomplete", !image.missing.is_empty()),
    ];
    flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
}

fn as_json(image: &Image) -> Value {
    let Image { id, handler, repo_tags, repo_digests, size, virtual_size, format, .. } = image;
    json!({
        "id": id, "runtimeHandler": handler, "repoTags": repo_tags, "repoDigests": repo_digests, "size": size,
        "virtualSize": virtual_size, "format": format, "provider": known(&image.provider), "weak": image.weak,
        "stale": image.stale, "pinned": image.pinned, "missing": known(&image.missing),
    })
}

/// What the credentials' files say.
fn auth(credentials: cli::Credentials) -> Result<Option<Auth>, CtlError> {
    let mut auth = Auth::default();
    if let Some(path) = credentials.token_file {
        auth.bearer_token = secret(&path)?;
    } else if let (Some(username), Some(path)) = (credentials.username, credentials.password_file) {
        auth.username = username;
        auth.password = secret(&path)?;
    } else {
        return Ok(None);
    }
    Ok(Some(auth))
}

/// A secret in a file, without the end of its line.
fn secret(path: &Path) -> Result<String, CtlError> {
    let failed = |cause| CtlError::File { action: "read", path: PathBuf::from(path), cause };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_SECRET + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(CtlError::TooLong { path: path.to_owned(), limit: MAX_SECRET });
    }
    let secret = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if secret.is_empty() {
        return Err(CtlError::Empty(path.to_owned()));
    }
    Ok(secret.to_owned())
}

/// An option as the service wants it.
fn optional(option: &Option<String>) -> &str {
    option.as_deref().unwrap_or_default()
}

/// A text that is empty if there is none.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn pretty(json: &Value) -> String {
    harmless(&format!("{json:#}\n"))
}

fn bare(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_algorithm, hex)| hex)
}

/// The beginning of an image's id, without its algorithm.
fn short(id: &str) -> String {
    bare(id).chars().take(ID_SHOWN).collect()
}
