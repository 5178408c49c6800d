//! The driver of flexvolumes, as kubelet runs it: this program by another name, `flexvolume_driver`. It answers in JSON on standard output
//! (Kubernetes, "FlexVolume", call-outs), and says nothing else, since kubelet takes both outputs for the answer.
//!
//! A volume is a file system in memory at kubelet's directory for it, with one file in it: what the pod says of the disk. controld
//! reads that when the pod's container is made. It may have a key, so it is on no disk, nobody but root sees it, and it goes with the
//! mount; kubelet is told not to give it to the pod's `fsGroup`.

mod tmpfs;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Component, Path};
use std::process::ExitCode;

use common::{Chain, Reason};
use serde::Serialize;
use vmspec::flexvolume::{self, DIR, FlexVolume, PROGRAM, split};

/// Of a volume's name.
const MAX_NAME: usize = 253;

/// What kubelet is answered.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Answer {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Capabilities>,
}

/// What kubelet takes for granted unless it is told.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capabilities {
    attach: bool,
    #[serde(rename = "selinuxRelabel")]
    selinux: bool,
    fs_group: bool,
    supports_metrics: bool,
    #[serde(rename = "requiresFSResize")]
    resize: bool,
}

/// What is done to directories.
trait Mounts {
    fn mount(&self, dir: &Path, description: &[u8]) -> Result<(), Reason>;
    fn unmount(&self, dir: &Path) -> Result<(), Reason>;
}

/// Whether the program was called by the driver's name.
#[must_use]
pub fn is_called(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(PROGRAM)))
}

/// Does what kubelet wants.
#[must_use]
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Option<Vec<String>> = words.map(|word| word.into_string().ok()).collect();
    let answer =
        words.map_or_else(|| Answer::failed("an argument is not UTF-8"), |words| answer(&words, &tmpfs::Tmpfs));
    let mut line = serde_json::to_string(&answer).unwrap_or_default();
    line.push('\n');
    let told = std::io::stdout().write_all(line.as_bytes());
    if told.is_err() || answer.status == Answer::FAILURE { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn answer(words: &[String], mounts: &impl Mounts) -> Answer {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["init"] => return Answer { capabilities: Some(Capabilities::default()), ..Answer::success() },
        ["mount", dir, options] => mount(dir, options, mounts),
        ["unmount", dir] => directory(dir).and_then(|dir| mounts.unmount(dir)),
        ["init" | "mount" | "unmount", ..] => {
            Err(Reason::new("arguments are `init`, `mount DIR JSON` or `unmount DIR`"))
        }
        // Of no use here, or a call of a later Kubernetes.
        _ => return Answer { status: "Not supported", ..Answer::success() },
    };
    done.map_or_else(|error| Answer::failed(&Chain(&error).to_string()), |()| Answer::success())
}

fn mount(dir: &str, options: &str, mounts: &impl Mounts) -> Result<(), Reason> {
    let dir = directory(dir)?;
    let options = flexvolume::options(options.as_bytes())?;
    // Told to whoever asks for the pod's events, rather than when its container is made.
    FlexVolume::of(&options)?;
    let kept: BTreeMap<&str, &str> = flexvolume::kept(&options);
    let description = serde_json::to_vec(&kept).map_err(Reason::because("the options cannot be written down"))?;
    mounts.mount(dir, &description)
}

/// # Errors
/// When it is not kubelet's directory for a volume of ours.
fn directory(text: &str) -> Result<&Path, Reason> {
    let path = Path::new(text);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let is_name = |name: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain)
    };
    if path.is_absolute() && is_plain && split(path).is_some_and(|(_, name)| is_name(name)) {
        return Ok(path);
    }
    let shown: String = text.chars().take(256).collect();
    Err(Reason::new(format!("`{}` is no directory `.../pods/UID/volumes/{DIR}/NAME`", shown.escape_debug())))
}

impl Answer {
    const FAILURE: &str = "Failure";

    const fn success() -> Self {
        Self { status: "Success", message: None, capabilities: None }
    }

    fn failed(why: &str) -> Self {
        Self { status: Self::FAILURE, message: Some(why.to_owned()), capabilities: None }
    }
}

#[cfg(test)]
mod tests;
