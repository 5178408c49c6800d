//! `image verify`, `gc`, `pin` and `unpin`.

use std::io::Write;

use proto::images::gc_response::Gone;
use proto::images::verify_response::Verdict;
use proto::images::{GcRequest, GcResponse, VerifyResponse};
use serde_json::{Value, json};

use super::{known, optional, pretty};
use crate::cli;
use crate::client::Client;
use crate::error::{CtlError, ImageError, none_of};
use crate::text::{harmless, shown, size, table};

/// Prints the verdict on each image as it comes.
pub(super) async fn verify(
    client: &Client,
    wanted: &cli::Verify,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    // No name means all images to the service, and none on the command line is the same.
    let names = if wanted.names.is_empty() { vec![String::new()] } else { wanted.names.clone() };
    let (mut bad, mut all, mut failed) = (0, 0, Vec::new());
    for name in names {
        let tally = (&mut bad, &mut all);
        if let Err(error) = verify_one(client, &name, wanted.json, tally, out).await {
            failed.push(error);
        }
    }
    if bad > 0 {
        // The worst of it: its code is what the process ends with.
        failed.insert(0, ImageError::Bad { bad, all }.into());
    }
    none_of(failed)
}

async fn verify_one(
    client: &Client,
    name: &str,
    as_json: bool,
    (bad, all): (&mut u64, &mut u64),
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let mut messages = client.verify_images(name).await?;
    while let Some(verified) = messages.next().await? {
        *all += 1;
        *bad += u64::from(verified.verdict() != Verdict::Sound);
        let line = if as_json { harmless(&json(&verified).to_string()) } else { shown(&verdict(&verified)) };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn verdict(verified: &VerifyResponse) -> String {
    let VerifyResponse { id, found, names, holders, pinned, .. } = verified;
    let mut line = format!("{id} {}", word(verified.verdict()));
    if verified.verdict() == Verdict::Sound {
        return line;
    }
    for (what, values) in [("is", std::slice::from_ref(found)), ("was", names), ("used by", holders)] {
        let values = values.join(", ");
        if !values.is_empty() {
            line.push_str(&format!("; {what} {values}"));
        }
    }
    if *pinned {
        line.push_str("; pinned");
    }
    line
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "sound",
        Verdict::Corrupt => "corrupt",
        Verdict::Missing => "missing",
        Verdict::Unspecified => "unknown",
    }
}

fn json(verified: &VerifyResponse) -> Value {
    let VerifyResponse { id, found, names, holders, pinned, .. } = verified;
    json!({
        "id": id, "verdict": word(verified.verdict()), "found": known(found), "names": names, "holders": holders,
        "pinned": pinned,
    })
}

/// Prints what is gone.
pub(super) async fn collect(client: &Client, wanted: &cli::Gc, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let request =
        GcRequest { partials: wanted.partials, orphan_handlers: wanted.orphan_handlers, quarantine: wanted.quarantine };
    let report = client.collect_images(request).await?;
    if wanted.json {
        return Ok(out.write_all(pretty(&report_json(&report)).as_bytes())?);
    }
    let gone = [("images", report.images), ("partials", report.partials), ("quarantine", report.quarantine)];
    let mut rows: Vec<[String; 3]> = gone
        .into_iter()
        .map(|(what, gone)| (what, gone.unwrap_or_default()))
        .map(|(what, gone)| [what.into(), gone.count.to_string(), size(gone.bytes)])
        .collect();
    rows.push(["names".into(), report.names.to_string(), String::new()]);
    let mut text = table(["REMOVED", "COUNT", "SIZE"], &rows);
    if report.kept_back {
        text.push_str("images were kept, since it cannot be read who needs them; see controld's log\n");
    }
    Ok(out.write_all(text.as_bytes())?)
}

fn report_json(report: &GcResponse) -> Value {
    let gone = |gone: Option<Gone>| {
        let Gone { count, bytes } = gone.unwrap_or_default();
        json!({ "count": count, "bytes": bytes })
    };
    json!({
        "images": gone(report.images), "partials": gone(report.partials), "quarantine": gone(report.quarantine),
        "names": report.names, "keptBack": report.kept_back,
    })
}

pub(super) async fn pin(
    client: &Client,
    wanted: &cli::Pin,
    pinned: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let id = client.pin_image(&wanted.name, optional(&wanted.handler), pinned).await?;
    Ok(writeln!(out, "{}", shown(&id))?)
}
