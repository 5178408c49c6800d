//! What `run` and `pull` are given: the name of an image, where one is, or a file of one on this machine.
//!
//! | text | what it is |
//! |---|---|
//! | begins with `/`, `./` or `../` | a file, whose bytes are sent to controld: it opens no path that a caller names |
//! | has `://` in it | where the image is, for controld to fetch |
//! | anything else | a name, as a pod has it |

use std::path::{Path, PathBuf};

use proto::images::{ImportHead, PullWithProgressRequest};
use vmimage::name::{ImageRef, given_url};

use super::client::Client;
use super::error::{CtlError, ImageError};
use super::interrupt::Interrupt;
use super::{cli, import, pull};

/// How files are told from names, as shells have it of programs.
const PATHS: [&str; 3] = ["/", "./", "../"];

/// What an image is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Wherever rules and providers say.
    Name(String),
    /// A place, and what the image from there is called.
    Url { url: String, name: String },
    /// A file, and what its image is called.
    File { path: PathBuf, name: String },
}

impl Source {
    /// What is meant by an argument.
    ///
    /// # Errors
    /// If it looks like a place and is none that can be asked.
    pub(super) fn of(text: &str) -> Result<Self, CtlError> {
        let unusable = |cause| ImageError::Place { text: text.to_owned(), cause };
        if PATHS.iter().any(|start| text.starts_with(start)) {
            let path = PathBuf::from(text);
            return Ok(Self::File { name: name_of(&path).map_err(unusable)?, path });
        }
        if !text.contains("://") {
            return Ok(Self::Name(text.to_owned()));
        }
        let name = given_url(text).and_then(|url| ImageRef::of_url(&url)).map_err(unusable)?.to_string();
        Ok(Self::Url { url: text.to_owned(), name })
    }

    /// What the image is called on this node.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Url { name, .. } | Self::File { name, .. } => name,
        }
    }

    /// Has the image on this node, for a runtime handler (the daemon's own if empty): a file in any case, as it may have changed; the
    /// others if they are not there yet.
    pub(super) async fn bring(&self, client: &Client, handler: &str, interrupt: &Interrupt) -> Result<(), CtlError> {
        let (name, url) = match self {
            Self::File { path, name } => {
                let head = ImportHead { name: name.clone(), handler: handler.to_owned(), ..ImportHead::default() };
                return import::run(client, path, head, cli::Progress::Auto, interrupt).await.map(drop);
            }
            Self::Name(name) => (name.clone(), String::new()),
            Self::Url { url, name } => (name.clone(), url.clone()),
        };
        if client.image(&name, handler).await?.image.is_some() {
            return Ok(());
        }
        let request =
            PullWithProgressRequest { name, url, handler: handler.to_owned(), ..PullWithProgressRequest::default() };
        pull::run(client, request, cli::Progress::Auto, interrupt).await.map(drop)
    }
}

/// What the image of a file is called if nobody says.
pub(super) fn name_of(path: &Path) -> Result<String, common::Reason> {
    let file = path.file_name().unwrap_or_default();
    Ok(ImageRef::of_file(&file.to_string_lossy())?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Line;

    #[test]
    fn names_places_and_files_are_told_apart() {
        for name in ["debian:13", "quay.io/containerdisks/fedora:40", "a.b/c@sha256:00", "disk.qcow2", ".hidden"] {
            assert_eq!(Source::of(name).expect("a name"), Source::Name(name.into()));
        }
        for (file, name) in [
            ("./Disk.qcow2", "localhost/disk.qcow2:latest"),
            ("/a/b/x_y", "localhost/x_y:latest"),
            ("../..", "localhost/disk:latest"),
        ] {
            let expected = Source::File { path: file.into(), name: name.into() };
            assert_eq!(Source::of(file).expect("a file"), expected);
        }
        let url = "https://host/Path/Image.qcow2?x=Y";
        let source = Source::of(url).expect("a place");
        assert!(source.name().starts_with("host/path/image.qcow2:url-"), "{source:?}");
        assert!(matches!(&source, Source::Url { url: kept, .. } if kept == url), "{source:?}");
        let digest = format!("quay.io/a/b@sha256:{}", "0".repeat(64));
        for (url, name) in [("oci://me:secret@quay.io/a/b:1", "quay.io/a/b:1"), (&format!("oci://{digest}"), &digest)] {
            assert_eq!(Source::of(url).expect("a place").name(), name, "{url}");
        }
        let registry = Source::of("oci://quay.io/a/b:1").expect("a place");
        assert_eq!(registry, Source::Url { url: "oci://quay.io/a/b:1".into(), name: "quay.io/a/b:1".into() });
    }

    #[test]
    fn what_is_no_place_is_told() {
        for (text, expected) in [
            ("file:///etc/passwd", "`file:///etc/passwd` cannot be asked for an image: scheme `file` is not one of"),
            ("ftp://h/x", "`ftp://h/x` cannot be asked for an image: scheme `ftp`"),
            ("https://", "`https://` cannot be asked for an image: not a URL"),
            ("oci://quay.io", "`oci://quay.io` cannot be asked for an image: "),
            ("oci://quay.io/A/b", "`oci://quay.io/A/b` cannot be asked for an image: "),
            ("://x", "`://x` cannot be asked for an image: not a URL"),
        ] {
            let error = Source::of(text).expect_err(text);
            assert!(Line(&error).to_string().starts_with(expected), "{}", Line(&error));
            assert_eq!(error.exit_code(), 2);
        }
    }
}
