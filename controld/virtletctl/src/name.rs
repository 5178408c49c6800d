//! Names that a command line gives or lacks.

use std::path::PathBuf;

use common::dns::{MAX_LABEL, is_label};

/// Characters of a random suffix.
const SUFFIX: usize = 5;
/// What image files end with, and pods' names need not.
const EXTENSIONS: [&str; 4] = [".qcow2", ".img", ".raw", ".qcow"];

/// An argument that must not be empty.
pub(super) fn non_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".into()) } else { Ok(text.to_owned()) }
}

/// The path of a socket, also as the address that crictl and kubelet take.
pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    non_empty(text.strip_prefix("unix://").unwrap_or(text)).map(PathBuf::from)
}

/// A container runtime's socket as kubelet names it.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') && !path.contains(|c: char| c.is_control() || c == '"' || c == '\\') => {
            Ok(text.to_owned())
        }
        _ => Err("must be unix:// and an absolute path, as `unix:///run/containerd/containerd.sock`".into()),
    }
}

/// A DNS label, as names and namespaces of pods are.
pub(super) fn label(text: &str) -> Result<String, String> {
    if !is_label(text) {
        return Err("must be 1 to 63 lower-case letters, digits or hyphens, and not begin or end with a hyphen".into());
    }
    Ok(text.to_owned())
}

/// `KEY=VALUE`.
pub(super) fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".into()),
    }
}

/// A network by its name, with or without the name of its link.
pub(super) fn network(text: &str) -> Result<String, String> {
    match text {
        "bridge" | "default" => {
            Err("every machine is in the default network; leave it out, or name one that `tapmanager networks` lists"
                .into())
        }
        "host" | "none" => Err("every machine has a network of its own; ports of it are published by -p".into()),
        _ if text.contains(':') => Err("a pod has a network of its own, and no other's".into()),
        _ if text.is_empty() || text.contains(|c: char| c == ',' || c.is_whitespace()) => {
            Err("must be NAME or NAME@LINK, of one network; `tapmanager networks` lists them".into())
        }
        _ => Ok(text.to_owned()),
    }
}

/// A signal of `kill`: of those of docker's, only one ends a machine.
pub(super) fn kill_signal(text: &str) -> Result<String, String> {
    match text.trim_start_matches("SIG") {
        "KILL" | "9" => Ok(text.to_owned()),
        _ => Err("a machine takes no signal but KILL; `virtletctl stop` has the guest shut down".into()),
    }
}

/// A pod's name of its image's file name and some of the characters of `random`.
pub(super) fn of_image(image: &str, random: &str) -> String {
    let named = image.split_once('@').map_or(image, |(named, _digest)| named);
    let file = named.rsplit('/').next().unwrap_or_default();
    // A port would be in the part before the last slash.
    let file = file.split_once(':').map_or(file, |(file, _tag)| file).to_ascii_lowercase();
    let stem = EXTENSIONS.iter().find_map(|extension| file.strip_suffix(extension)).unwrap_or(&file);
    let mut label = String::new();
    for c in stem.chars() {
        if c.is_ascii_alphanumeric() {
            label.push(c);
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
    }
    label.truncate(MAX_LABEL - SUFFIX - 1);
    let label = label.trim_end_matches('-');
    let label = if label.is_empty() { "vm" } else { label };
    let suffix: String = random.chars().filter(char::is_ascii_hexdigit).take(SUFFIX).collect();
    format!("{label}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_gives_its_pod_a_label() {
        for (image, wanted) in [
            ("images.example.com:8080/a/Debian_12.5-cloud.qcow2", "debian-12-5-cloud-01234"),
            ("x/tiny.qcow2:latest", "tiny-01234"),
            ("tiny@sha256:00", "tiny-01234"),
            ("x/..img", "vm-01234"),
            ("", "vm-01234"),
            ("x/\u{1b}[2J\u{e9}", "2j-01234"),
        ] {
            let name = of_image(image, "0123-4567");
            assert_eq!(name, wanted, "{image}");
            assert_eq!(label(&name), Ok(name.clone()));
        }
        let long = of_image(&format!("x/{}-y", "a".repeat(56)), "01234567");
        assert_eq!(label(&long), Ok(long.clone()), "no two hyphens at the cut, and not too long");
    }

    #[test]
    fn labels_and_annotations_are_checked() {
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", &"a".repeat(64)] {
            assert!(label(bad).is_err(), "{bad}");
        }
        assert!(label(&"a".repeat(63)).is_ok());
        assert_eq!(annotation("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(annotation("a="), Ok(("a".into(), String::new())));
        assert!(annotation("a").is_err() && annotation("=b").is_err());
        assert_eq!(socket("unix:///run/x.sock"), Ok("/run/x.sock".into()));
        assert_eq!(network("lab@net7"), Ok("lab@net7".into()));
        assert!(
            ["", "host", "none", "bridge", "container:web", "a,b", "a b"].iter().all(|text| network(text).is_err())
        );
        assert!(["KILL", "SIGKILL", "9"].iter().all(|text| kill_signal(text).is_ok()) && kill_signal("TERM").is_err());
    }
}
