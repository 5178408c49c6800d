//! What of the node a guest has at a path of its own, as docker's `-v` writes it.

use std::path::{Path, PathBuf};

use proto::cri::Mount;

use super::error::CtlError;

/// A directory or file of the node, and where the guest has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    of_node: PathBuf,
    of_guest: String,
    read_only: bool,
}

/// `PATH:PATH`, with `:ro` or `:rw`; the guest's path is absolute.
pub(super) fn parse(text: &str) -> Result<Share, String> {
    let (paths, read_only) = match text.rsplit_once(':') {
        Some((paths, "ro")) => (paths, true),
        Some((paths, "rw")) => (paths, false),
        _ => (text, false),
    };
    let Some((of_node, of_guest)) = paths.split_once(':').filter(|(of_node, _)| !of_node.is_empty()) else {
        return Err("write PATH:PATH, first the node's; volumes without a place on the node there are none".into());
    };
    if !of_guest.starts_with('/') || of_guest.contains(':') {
        return Err(format!("`{of_guest}` is no absolute path in the guest; behind it only :ro or :rw may stand"));
    }
    if !of_node.contains('/') && of_node != "." && of_node != ".." {
        return Err(format!(
            "`{of_node}` is no path; a directory here is `./{of_node}`, volumes by name there are none"
        ));
    }
    Ok(Share { of_node: of_node.into(), of_guest: of_guest.to_owned(), read_only })
}

impl Share {
    /// As CRI has it. What is not there yet is not made.
    pub(super) fn mount(&self) -> Result<Mount, CtlError> {
        let failed = |cause| CtlError::File { action: "share", path: self.of_node.clone(), cause };
        let path = std::path::absolute(&self.of_node).map_err(failed)?;
        path.metadata().map_err(failed)?;
        let host_path = utf8(&path)?;
        Ok(Mount { container_path: self.of_guest.clone(), host_path, readonly: self.read_only, ..Mount::default() })
    }
}

fn utf8(path: &Path) -> Result<String, CtlError> {
    path.to_str().map(str::to_owned).ok_or_else(|| CtlError::NotUtf8(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_docker_reads_them() {
        for (text, of_node, of_guest, read_only) in [
            ("/srv:/srv", "/srv", "/srv", false),
            ("./site:/var/www:ro", "./site", "/var/www", true),
            (".:/here:rw", ".", "/here", false),
        ] {
            let wanted = Share { of_node: of_node.into(), of_guest: of_guest.into(), read_only };
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for text in ["", "/srv", "/srv:srv", ":/srv", "data:/srv", "/srv:/a:z", "/a:/b:/c"] {
            parse(text).expect_err(text);
        }
    }

    #[test]
    fn what_is_not_there_is_not_shared() {
        let dir = tempfile::tempdir().expect("directory");
        let text = |name: &str| format!("{}:/x:ro", dir.path().join(name).display());
        let mount = parse(&text("")).expect("a share").mount().expect("it is there");
        assert!(mount.readonly && mount.container_path == "/x", "{mount:?}");
        let error = parse(&text("none")).expect("a share").mount().expect_err("absent");
        assert!(matches!(error, CtlError::File { action: "share", .. }), "{error}");
    }
}
