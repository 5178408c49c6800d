//! `controld validate`: would the pods of a manifest become machines here?

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use common::FileError;
use serde_json::{Value, json};
use vmspec::Accelerator;
use vmspec::manifest::{ManifestError, read};
use vmspec::settings::Accel;

use crate::config::Config;
use crate::manifest::{self, Verdict};

const KVM: &str = "/dev/kvm";
/// More than a manifest may have is not read.
const MAX_BYTES: u64 = (8 << 20) + 1;

/// Of all pods of some manifests.
#[derive(Debug, Default)]
pub struct Report(Vec<Judged>);

#[derive(Debug)]
struct Judged {
    file: String,
    object: String,
    verdict: Verdict,
}

/// Why there is no report, or not a good one.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    #[error("manifest not read")]
    File(#[from] FileError),
    #[error("manifest `{file}` not understood")]
    Manifest {
        file: String,
        #[source]
        cause: ManifestError,
    },
    #[error("{failed} of {all} pods would not become machines")]
    Refused { failed: usize, all: usize },
}

/// Judges the pods of these files, for machines that run on `accel`, if that is known. Blocks.
///
/// # Errors
/// When one of them cannot be read.
pub fn files(config: &Config, files: &[PathBuf], accel: Option<Accelerator>) -> Result<Report, ValidateError> {
    let accel = accel.unwrap_or_else(|| accelerator(config.machine.accel, Path::new(KVM)));
    let mut report = Report::default();
    for path in files {
        let text = text(path)?;
        let file = path.display().to_string();
        let manifest = read(&text).map_err(|cause| ValidateError::Manifest { file: file.clone(), cause })?;
        for pod in &manifest.pods {
            let verdict = manifest::judge(config, accel, &manifest, pod);
            report.0.push(Judged { file: file.clone(), object: pod.object.clone(), verdict });
        }
    }
    Ok(report)
}

/// What machines run on by all that shows without booting one: whether KVM works where it can be opened, the daemon finds out.
fn accelerator(configured: Accel, kvm: &Path) -> Accelerator {
    let is_open = || File::options().read(true).write(true).open(kvm).is_ok();
    match configured {
        Accel::Kvm => Accelerator::Kvm,
        Accel::Qemu => Accelerator::Qemu,
        Accel::Auto if is_open() => Accelerator::Kvm,
        Accel::Auto => Accelerator::Qemu,
    }
}

fn text(path: &Path) -> Result<String, FileError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().take(MAX_BYTES).read_to_string(&mut text),
        _ => File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(FileError::of("read", path))
}

impl Report {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Judged { file, object, verdict } in &self.0 {
            let outcome = if verdict.problems.is_empty() { "becomes a machine" } else { "is refused" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{file}: {} {outcome}", plain(object));
            for problem in &verdict.problems {
                let _ = writeln!(text, "  problem: {}", plain(problem));
            }
            for remark in &verdict.remarks {
                let _ = writeln!(text, "  note: {}", plain(remark));
            }
            for setting in &verdict.settings {
                let _ = writeln!(text, "  {:<20} {}  ({})", setting.name, plain(&setting.value), plain(&setting.from));
            }
        }
        text
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> String {
        let pods = self.0.iter().map(|Judged { file, object, verdict }| {
            json!({
                "file": file, "object": object, "problems": verdict.problems, "remarks": verdict.remarks,
                "settings": verdict.settings,
            })
        });
        format!("{:#}\n", pods.collect::<Value>())
    }

    /// # Errors
    /// When one of the pods would not become a machine.
    pub fn verdict(&self) -> Result<(), ValidateError> {
        let failed = self.0.iter().filter(|judged| !judged.verdict.problems.is_empty()).count();
        if failed == 0 { Ok(()) } else { Err(ValidateError::Refused { failed, all: self.0.len() }) }
    }
}

/// A manifest's words, without its control characters.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_kvm_machines_are_taken_to_be_emulated_as_by_the_daemon() {
        let device = tempfile::NamedTempFile::new().expect("file");
        let none = Path::new("/none");
        for (configured, kvm, wanted) in [
            (Accel::Auto, device.path(), Accelerator::Kvm),
            (Accel::Auto, none, Accelerator::Qemu),
            (Accel::Kvm, none, Accelerator::Kvm),
            (Accel::Qemu, device.path(), Accelerator::Qemu),
        ] {
            assert_eq!(accelerator(configured, kvm), wanted, "{configured:?}");
        }
    }
}
