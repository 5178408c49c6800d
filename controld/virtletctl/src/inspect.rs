//! `image inspect`: the verdict of the image store on a local file. There is no daemon in it.

use std::io::Write;

use serde_json::json;
use vmimage::inspect::{Compression, DiskFormat, InspectError, InspectOptions, Qcow2Summary, Summary, inspect_path};

use super::cli::{Format, Inspect};
use super::error::{CtlError, ImageError};
use super::text::{harmless, shown, size};

/// Room for the longest name of a line.
const NAMES: usize = 15;

pub(super) fn run(wanted: &Inspect, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let judged = judge(wanted);
    match (&judged, wanted.json) {
        (Ok(summary), true) => out.write_all(as_json(summary).as_bytes())?,
        (Ok(summary), false) => out.write_all(as_lines(summary).as_bytes())?,
        (Err(error), true) => {
            if let Some(reason) = error.refusal() {
                out.write_all(harmless(&format!("{:#}\n", json!({ "taken": false, "reason": reason }))).as_bytes())?;
            }
        }
        (Err(_), false) => {}
    }
    Ok(judged.map(drop)?)
}

/// Whether a store would take the file, as far as a file alone can tell.
fn judge(wanted: &Inspect) -> Result<Summary, ImageError> {
    let format = match wanted.format.unwrap_or(Format::Qcow2) {
        Format::Qcow2 => DiskFormat::Qcow2,
        Format::Raw => DiskFormat::Raw,
    };
    let options = InspectOptions { format: Some(format), ..InspectOptions::default() };
    let summary = inspect_path(&wanted.path, options).map_err(|error| {
        let path = wanted.path.clone();
        match error {
            InspectError::Refused(cause) => ImageError::Refused { path, cause },
            cause => ImageError::Inspect { path, cause },
        }
    })?;
    match summary.parent() {
        Some(parent) if !wanted.layered => {
            Err(ImageError::Layered { path: wanted.path.clone(), named: parent.reference.to_string() })
        }
        _ => Ok(summary),
    }
}

fn as_lines(summary: &Summary) -> String {
    let bytes = |bytes: u64| format!("{} ({bytes} bytes)", size(bytes));
    let mut lines = vec![
        ("format", summary.format.to_string()),
        ("virtual size", bytes(summary.virtual_size)),
        ("file size", bytes(summary.file_size)),
    ];
    if let Some(qcow2) = &summary.qcow2 {
        lines.extend([
            ("version", qcow2.version.to_string()),
            ("cluster size", bytes(qcow2.cluster_size)),
            ("compression", compression(qcow2).into()),
            ("refcount bits", qcow2.refcount_bits.to_string()),
            ("features", if qcow2.features.is_empty() { "-".into() } else { qcow2.features.join(", ") }),
            ("snapshots", qcow2.snapshots.to_string()),
            ("bitmaps", qcow2.bitmaps.to_string()),
            ("parent", qcow2.parent.as_ref().map_or("-".into(), |parent| shown(&parent.reference.to_string()))),
        ]);
        if let Some(format) = qcow2.parent.as_ref().and_then(|parent| parent.format) {
            lines.push(("parent's format", format.to_string()));
        }
    }
    lines.iter().map(|(name, value)| format!("{name:NAMES$}   {value}\n")).collect()
}

fn as_json(summary: &Summary) -> String {
    let mut all = json!({
        "taken": true,
        "format": summary.format,
        "virtualSize": summary.virtual_size,
        "fileSize": summary.file_size,
    });
    if let Some(qcow2) = &summary.qcow2 {
        let parent = qcow2.parent.as_ref();
        all["version"] = json!(qcow2.version);
        all["clusterSize"] = json!(qcow2.cluster_size);
        all["compression"] = json!(compression(qcow2));
        all["refcountBits"] = json!(qcow2.refcount_bits);
        all["features"] = json!(qcow2.features);
        all["snapshots"] = json!(qcow2.snapshots);
        all["bitmaps"] = json!(qcow2.bitmaps);
        all["parent"] = json!(parent.map(|parent| parent.reference.to_string()));
        all["parentFormat"] = json!(parent.and_then(|parent| parent.format));
    }
    format!("{all:#}\n")
}

fn compression(qcow2: &Qcow2Summary) -> &'static str {
    match qcow2.compression {
        Compression::Zlib => "zlib",
        Compression::Zstd => "zstd",
    }
}

#[cfg(test)]
mod tests;
