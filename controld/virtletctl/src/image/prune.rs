//! `image prune`: removes the images that nothing uses.
//!
//! What counts is what controld says of each image: pods that have disks on it, a pin, an image in use that stands on it. A pod
//! that is made meanwhile keeps the file of its image; kubelet pulls again what went before its pod was made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, IsTerminal as _, Write};

use proto::images::{Image, InspectResponse, Name};
use tokio::sync::oneshot;
use vmimage::name::IMPORT;

use super::{bare, names};
use crate::cli;
use crate::client::Client;
use crate::error::{CtlError, ImageError, none_of};
use crate::interrupt::Interrupt;
use crate::tell::tell;
use crate::text::{ID_SHOWN, shown, size, table};

/// An image that may go.
#[derive(Debug, PartialEq, Eq)]
struct Unused {
    id: String,
    names: Vec<String>,
    size: u64,
}

pub(super) async fn run(
    client: &Client,
    wanted: &cli::Prune,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), Vec<CtlError>> {
    let one = |error| vec![error];
    let unused = find(client, wanted.all).await.map_err(one)?;
    if wanted.dry_run {
        let rows: Vec<_> = unused.iter().map(row).collect();
        return out.write_all(table(["NAME", "ID", "SIZE"], &rows).as_bytes()).map_err(|cause| one(cause.into()));
    }
    if unused.is_empty() {
        tell("nothing to remove\n");
        return Ok(());
    }
    let mut unused = unused;
    if !wanted.force {
        if !confirmed(&unused, interrupt).await.map_err(one)? {
            tell("nothing was removed\n");
            return Ok(());
        }
        // The answer may have taken its time: what was brought or taken into use meanwhile stays.
        let still = find(client, wanted.all).await.map_err(one)?;
        unused.retain(|image| still.contains(image));
    }
    let (mut failed, mut freed) = (Vec::new(), 0);
    for image in &unused {
        match remove(client, image, out).await {
            Ok(true) => freed += image.size,
            Ok(false) => {}
            Err(error) => failed.push(error),
        }
    }
    tell(&format!("{} are free again\n", size(freed)));
    none_of(failed)
}

/// The images that nothing uses, also those that were brought by hand if `all` are to go.
async fn find(client: &Client, all: bool) -> Result<Vec<Unused>, CtlError> {
    let mut facts: BTreeMap<String, (InspectResponse, BTreeSet<String>)> = BTreeMap::new();
    let mut images = client.list_images("", "").await?;
    // Those first that their handler finds by the id.
    images.sort_by_key(|image| !is_found(image));
    for image in images {
        let names = names(&image).into_iter();
        if let Some((_, known)) = facts.get_mut(&image.id) {
            known.extend(names);
            continue;
        }
        let details = match is_found(&image) {
            true => client.inspect_image(&image.id, &image.handler).await?,
            false => unknown(&image),
        };
        facts.insert(image.id, (details, names.collect()));
    }
    Ok(unused(facts, all))
}

/// Whether its handler finds it by its id: not if it is only pinned, or for another platform by now.
fn is_found(image: &Image) -> bool {
    !image.handler.is_empty() && !image.stale
}

/// What is said of an image that cannot be asked about. It may have been brought by hand, and is kept as if it was.
fn unknown(image: &Image) -> InspectResponse {
    let by_hand = Name { provider: IMPORT.into(), ..Name::default() };
    InspectResponse { image: Some(image.clone()), names: vec![by_hand], ..InspectResponse::default() }
}

fn unused(facts: BTreeMap<String, (InspectResponse, BTreeSet<String>)>, all: bool) -> Vec<Unused> {
    let is_kept = |details: &InspectResponse| {
        let by_hand = details.names.iter().any(|name| name.provider == IMPORT);
        !details.holders.is_empty() || details.image.as_ref().is_some_and(|image| image.pinned) || (by_hand && !all)
    };
    let kept = facts.values().filter(|(details, _)| is_kept(details));
    let needed: BTreeSet<String> = kept.flat_map(|(details, _)| details.chain.iter().cloned()).collect();
    let free = facts.into_iter().filter(|(id, (details, _))| !is_kept(details) && !needed.contains(id));
    free.map(|(id, (details, names))| {
        let Image { size, .. } = details.image.unwrap_or_default();
        Unused { id, names: names.into_iter().collect(), size }
    })
    .collect()
}

fn row(image: &Unused) -> [String; 3] {
    let id = bare(&image.id).chars().take(ID_SHOWN).collect();
    [image.names.join(", "), id, size(image.size)]
}

/// Asks on the terminal.
async fn confirmed(unused: &[Unused], interrupt: &Interrupt) -> Result<bool, CtlError> {
    if !io::stdin().is_terminal() {
        return Err(ImageError::Unasked.into());
    }
    let rows: Vec<_> = unused.iter().map(row).collect();
    let all = size(unused.iter().map(|image| image.size).sum());
    tell(&format!(
        "{}Remove these {} images, {all} in all? [y/N] ",
        table(["NAME", "ID", "SIZE"], &rows),
        unused.len()
    ));
    let (to, answer) = oneshot::channel();
    // A thread of its own, which nobody waits for: the answer may never come.
    let asking = std::thread::Builder::new().name("ask".into()).spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        // Nobody listens once the command was interrupted.
        let _ = to.send(read.map(|_count| line));
    });
    asking.map_err(|cause| CtlError::Terminal { action: "start a thread", cause })?;
    tokio::select! {
        line = answer => match line {
            Ok(Ok(line)) => Ok(is_yes(&line)),
            Ok(Err(cause)) => Err(CtlError::Terminal { action: "read the answer", cause }),
            Err(_gone) => Ok(false),
        },
        signal = interrupt.fired() => Err(CtlError::Interrupted(signal)),
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Removes an image with all of its names, and prints what went. Whether its file went, too.
async fn remove(client: &Client, image: &Unused, out: &mut (dyn Write + Send)) -> Result<bool, CtlError> {
    let removed = client.remove_image(&image.id, "").await?;
    for name in removed.iter().flat_map(|removed| &removed.names) {
        writeln!(out, "{}", shown(&format!("{} removed", name.name)))?;
    }
    for removed in &removed {
        let what = if removed.kept.is_some() { "kept, as it is in use by now" } else { "removed" };
        writeln!(out, "{}", shown(&format!("{} {what}", removed.id)))?;
    }
    Ok(removed.iter().any(|removed| removed.kept.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(id: &str, change: impl FnOnce(&mut InspectResponse)) -> (String, (InspectResponse, BTreeSet<String>)) {
        let image = Image { id: id.into(), size: 7, ..Image::default() };
        let mut details = InspectResponse { image: Some(image), chain: vec![id.into()], ..InspectResponse::default() };
        change(&mut details);
        (id.to_owned(), (details, BTreeSet::from([format!("x/{id}")])))
    }

    #[test]
    fn what_is_used_pinned_or_below_stays() {
        let all = || {
            BTreeMap::from([
                facts("free", |_| {}),
                facts("held", |details| {
                    details.holders = vec!["pod".into()];
                    details.chain.push("base".into());
                }),
                facts("base", |_| {}),
                facts("pinned", |details| details.image.as_mut().expect("there").pinned = true),
                facts("sent", |details| {
                    details.names = vec![Name { provider: IMPORT.into(), ..Name::default() }];
                }),
            ])
        };
        let ids = |with_sent| unused(all(), with_sent).into_iter().map(|image| image.id).collect::<Vec<_>>();
        assert_eq!(ids(false), ["free"]);
        assert_eq!(ids(true), ["free", "sent"], "no source has it");
    }

    #[test]
    fn what_cannot_be_asked_about_may_have_been_brought_by_hand() {
        let stale = Image { id: "stale".into(), handler: "arm".into(), stale: true, ..Image::default() };
        assert!(!is_found(&stale));
        let all = || BTreeMap::from([("stale".to_owned(), (unknown(&stale), BTreeSet::new()))]);
        assert_eq!(unused(all(), false), []);
        assert_eq!(unused(all(), true).len(), 1, "who says all means it");
    }

    #[test]
    fn only_yes_is_yes() {
        for (line, expected) in
            [("y\n", true), (" YES \n", true), ("\n", false), ("no\n", false), ("yy", false), ("", false)]
        {
            assert_eq!(is_yes(line), expected, "{line:?}");
        }
    }
}
