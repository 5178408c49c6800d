//! What `cp` copies from and to, as kubectl writes it.

use std::path::PathBuf;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A path on this node.
    Local(PathBuf),
    /// Our standard input or output, for an archive of tar.
    Stream,
    /// A path in a guest.
    Guest {
        /// As `exec` takes it.
        pod: String,
        /// Where relative paths begin, `tar` in the guest knows.
        path: String,
    },
}

/// `POD:PATH`, a path of ours, or `-`. What has a slash before its first colon is one, such as `./a:b`, unless it is
/// NAMESPACE/POD.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let local = || Ok(Place::Local(PathBuf::from(text)));
    if text == "-" {
        return Ok(Place::Stream);
    }
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    let Some((pod, path)) = text.split_once(':') else { return local() };
    if pod.starts_with(['/', '.']) {
        return local();
    }
    match (pod, path) {
        ("", _) => Err("a pod's name must be in front of the colon".into()),
        (pod, _) if pod.contains('@') => {
            Err("no user is in front of the pod: the guest's agent copies, and nobody logs in; leave USER@ out".into())
        }
        (_, "") => Err("a path in the guest must be behind the colon".into()),
        _ => Ok(Place::Guest { pod: pod.to_owned(), path: path.to_owned() }),
    }
}

/// A path in a guest as its directory and the name in it, which is `.` for what has none.
pub(crate) fn split(path: &str) -> (&str, &str) {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or((if path.starts_with('/') { "" } else { "." }, trimmed));
    let dir = if dir.is_empty() { "/" } else { dir };
    match name {
        "" | "." | ".." => (path, "."),
        _ => (dir, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_kubectl_reads_them() {
        for (text, wanted) in [
            ("web:/etc/passwd", Some(("web", "/etc/passwd"))),
            ("prod/web:a:b", Some(("prod/web", "a:b"))),
            ("/a:b", None),
            ("./a:b", None),
            ("../a:b", None),
            ("file", None),
            ("a/b", None),
        ] {
            let wanted = match wanted {
                Some((pod, path)) => Place::Guest { pod: pod.into(), path: path.into() },
                None => Place::Local(text.into()),
            };
            assert_eq!(place(text), Ok(wanted), "{text}");
        }
        assert_eq!((place("-"), place("./-")), (Ok(Place::Stream), Ok(Place::Local("./-".into()))));
        for text in ["", ":a", "web:", "user@web:x"] {
            place(text).expect_err(text);
        }
    }

    #[test]
    fn a_path_is_a_name_in_a_directory() {
        for (path, wanted) in [
            ("/etc/passwd", ("/etc", "passwd")),
            ("/etc/", ("/", "etc")),
            ("/etc", ("/", "etc")),
            ("a", (".", "a")),
            ("a//", (".", "a")),
            ("a/b", ("a", "b")),
            ("/", ("/", ".")),
            (".", (".", ".")),
            ("/srv/.", ("/srv/.", ".")),
            ("/srv/..", ("/srv/..", ".")),
        ] {
            assert_eq!(split(path), wanted, "{path}");
        }
    }
}
