//! Where virt-builder finds its sources: `repos.d/*.conf`. Read at start-up, for [`super::super::Registry`].
//!
//! As virt-builder has it, a file that a directory before had under the same name is passed over. Its settings that are
//! not known here are, too. What cannot be used is told, and left out alone.
//!
//! ```text
//! [libguestfs.org]
//! uri=http://builder.libguestfs.org/index.asc
//! gpgkey=file:///etc/virt-builder/libguestfs.gpg
//! proxy=no
//! format=native
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use url::Url;
use vmimage::error::printable;

use crate::sources::provider::ProviderError;

/// Largest file.
const LIMIT: u64 = 1024 * 1024;

/// Why a file of sources, or one of them, is left out.
#[derive(Debug, thiserror::Error)]
pub enum ReposError {
    /// It cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// Not what it must be.
    #[error("`{}`, line {line}: {what}", path.display())]
    Syntax {
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A source without a place.
    #[error("`{}`: source `{id}` has no `uri`", path.display())]
    Uri {
        path: PathBuf,
        /// The source.
        id: String,
    },
    /// A source without a key.
    #[error("`{}`: source `{id}` has no `gpgkey`; configure a provider with `insecure` to take what nobody signed", path.display())]
    Unsigned {
        path: PathBuf,
        /// The source.
        id: String,
    },
    /// A name that no provider can have.
    #[error("`{}`: the name of source `{id}` can be no provider's: it must be lower-case letters, digits, `.`, `_` or `-`", path.display())]
    Id {
        path: PathBuf,
        /// The source.
        id: String,
    },
    /// A source that was there before.
    #[error("`{}`: source `{id}` is in `{}`, too, which counts", path.display(), first.display())]
    Twice {
        path: PathBuf,
        /// The source.
        id: String,
        /// The file that counts.
        first: PathBuf,
    },
    /// A source that makes no provider.
    #[error("`{}`: source `{id}` cannot be used", path.display())]
    Source {
        path: PathBuf,
        /// The source.
        id: String,
        #[source]
        cause: Box<ProviderError>,
    },
}

/// How a source's index is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    /// virt-builder's own.
    #[default]
    Native,
    Simplestreams,
}

/// Which proxy leads to a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Proxy {
    /// That of the environment.
    #[default]
    System,
    /// None.
    Off,
    /// This one.
    At(Url),
}

/// A source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repo {
    /// Its name.
    pub id: String,
    /// Where its index is.
    pub uri: Url,
    /// File with the key that signs it.
    pub key: Option<PathBuf>,
    pub proxy: Proxy,
    /// How the index is written.
    pub format: Format,
    /// The file that it stands in.
    pub file: PathBuf,
}

/// Sources of all `*.conf` files of these directories: of one after the other, in the order of the files' names. And what
/// is wrong with the rest.
pub(crate) fn read(dirs: &[PathBuf]) -> (Vec<Repo>, Vec<ReposError>) {
    let (mut repos, mut problems) = (Vec::new(), Vec::new());
    let mut read = BTreeSet::new();
    for dir in dirs {
        let names = names(dir).map_err(|cause| ReposError::Read { path: dir.clone(), cause });
        for name in names.unwrap_or_else(|problem| {
            problems.push(problem);
            BTreeSet::new()
        }) {
            let path = dir.join(&name);
            if read.contains(&name) {
                continue;
            }
            let text = text(&path).map_err(|cause| ReposError::Read { path: path.clone(), cause });
            match text.and_then(|text| parse(&text, &path)) {
                Ok(found) => {
                    read.insert(name);
                    repos.extend(found);
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
    (repos, problems)
}

/// Names of a directory's files of sources.
fn names(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let names = fs::read_dir(dir)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
    let names = names.filter(|name| {
        name.as_ref().map_or(true, |name| name.extension().is_some_and(|extension| extension == "conf"))
    });
    names.collect()
}

fn text(path: &Path) -> io::Result<String> {
    // Before it is opened: a pipe would keep the daemon from starting.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Sources of one file.
fn parse(text: &str, path: &Path) -> Result<Vec<Repo>, ReposError> {
    struct Open {
        id: String,
        uri: Option<Url>,
        repo: (Option<PathBuf>, Proxy, Format),
    }
    let mut open: Vec<Open> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let syntax = |what| ReposError::Syntax { path: path.to_owned(), line: at + 1, what };
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let id = header
                .strip_suffix(']')
                .map(str::trim)
                .filter(|id| !id.is_empty())
                .ok_or(syntax("no name of a source"))?;
            if open.iter().any(|known| known.id == id) {
                return Err(syntax("the source comes twice"));
            }
            open.push(Open { id: id.to_owned(), uri: None, repo: Default::default() });
            continue;
        }
        let (key, value) = line.split_once('=').ok_or(syntax("neither a source nor a setting"))?;
        let value = value.trim();
        let Open { uri, repo: (gpg, proxy, format), .. } =
            open.last_mut().ok_or(syntax("a setting before the first source"))?;
        match key.trim() {
            "uri" => *uri = Some(Url::parse(value).map_err(|_| syntax("`uri` is no URL"))?),
            "gpgkey" => *gpg = Some(local(value).ok_or(syntax("`gpgkey` must be a `file:///` URL"))?),
            "proxy" => {
                *proxy = match value {
                    "no" | "off" => Proxy::Off,
                    "system" => Proxy::System,
                    url => Proxy::At(Url::parse(url).map_err(|_| syntax("`proxy` is `no`, `off`, `system` or a URL"))?),
                }
            }
            "format" => {
                *format = match value {
                    "native" | "" => Format::Native,
                    "simplestreams" => Format::Simplestreams,
                    _ => return Err(syntax("`format` is `native` or `simplestreams`")),
                }
            }
            // As virt-builder has it.
            _ => {}
        }
    }
    let closed = open.into_iter().map(|Open { id, uri, repo: (key, proxy, format) }| match uri {
        Some(uri) => Ok(Repo { id, uri, key, proxy, format, file: path.to_owned() }),
        None => Err(ReposError::Uri { path: path.to_owned(), id: printable(&id) }),
    });
    closed.collect()
}

fn local(value: &str) -> Option<PathBuf> {
    Url::parse(value).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Repo>, String> {
        parse(text, Path::new("x.conf")).map_err(|error| error.to_string())
    }

    #[test]
    fn sources_are_read() {
        let text = "# sources\n; all\n\n[a.example]\nuri = https://a.example/index.asc\ngpgkey=file:///etc/a%20key.gpg\nproxy=no\nother=x\n\
                    [b]\nuri=https://b.example/\nformat=simplestreams\nproxy=http://proxy.example:3128\n[c]\nuri=file:///srv/index\nproxy=system\nformat=native\n";
        let repos = read(text).expect("sources");
        assert_eq!(
            repos[0],
            Repo {
                id: "a.example".into(),
                uri: Url::parse("https://a.example/index.asc").expect("a URL"),
                key: Some("/etc/a key.gpg".into()),
                proxy: Proxy::Off,
                format: Format::Native,
                file: "x.conf".into(),
            }
        );
        assert_eq!((&repos[1].format, &repos[1].key), (&Format::Simplestreams, &None));
        assert_eq!(repos[1].proxy, Proxy::At(Url::parse("http://proxy.example:3128").expect("a URL")));
        assert_eq!((repos[2].id.as_str(), &repos[2].proxy), ("c", &Proxy::System));
        assert_eq!(read(""), Ok(vec![]));
    }

    #[test]
    fn nonsense_names_its_line() {
        for (text, expected) in [
            ("uri=x", "`x.conf`, line 1: a setting before the first source"),
            ("[a]\njunk", "`x.conf`, line 2: neither a source nor a setting"),
            ("[]", "`x.conf`, line 1: no name of a source"),
            ("[a", "`x.conf`, line 1: no name of a source"),
            ("[a]\nuri=x", "`x.conf`, line 2: `uri` is no URL"),
            ("[a]\nuri=http://x/\n\n[a]", "`x.conf`, line 4: the source comes twice"),
            ("[a]\ngpgkey=http://x/k", "`x.conf`, line 2: `gpgkey` must be a `file:///` URL"),
            ("[a]\ngpgkey=/etc/k", "`x.conf`, line 2: `gpgkey` must be a `file:///` URL"),
            ("[a]\nformat=xml", "`x.conf`, line 2: `format` is `native` or `simplestreams`"),
            ("[a]\nproxy=maybe", "`x.conf`, line 2: `proxy` is `no`, `off`, `system` or a URL"),
            ("[a]\nformat=native", "`x.conf`: source `a` has no `uri`"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn files_are_read_in_order_and_what_is_no_use_is_told() {
        let root = tempfile::tempdir().expect("a directory");
        let [own, theirs] = ["own", "theirs"].map(|name| root.path().join(name));
        let put = |dir: &Path, name: &str, text: &[u8]| {
            fs::create_dir_all(dir).expect("made");
            fs::write(dir.join(name), text).expect("written");
        };
        put(&own, "b.conf", b"[b]\nuri=http://b/");
        put(&own, "a.conf", b"[a]\nuri=http://a/\n[z]\nuri=http://z/");
        put(&own, "key.gpg", b"\0");
        put(&own, "c.conf", b"junk");
        put(&own, "latin.conf", b"[\xe4]\nuri=http://a/");
        put(&own, "long.conf", &b"# long\n".repeat(200_000));
        fs::create_dir(own.join("dir.conf")).expect("made");
        std::os::unix::fs::symlink("nowhere", own.join("dangling.conf")).expect("made");
        nix::unistd::mkfifo(&own.join("pipe.conf"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        // Of the same name as one that was read, and as one that could not be.
        put(&theirs, "a.conf", b"[hidden]\nuri=http://hidden/");
        put(&theirs, "c.conf", b"[c]\nuri=http://c/");
        let (repos, problems) = super::read(&[own, root.path().join("none"), theirs]);
        let ids: Vec<_> =
            repos.iter().map(|repo| (repo.id.as_str(), repo.file.parent().and_then(Path::file_name))).collect();
        let in_dir = |name| Some(std::ffi::OsStr::new(name));
        assert_eq!(ids, [("a", in_dir("own")), ("z", in_dir("own")), ("b", in_dir("own")), ("c", in_dir("theirs"))]);
        let told: Vec<_> = problems
            .iter()
            .map(|problem| match problem {
                ReposError::Read { path, .. } | ReposError::Syntax { path, .. } => {
                    path.strip_prefix(root.path()).expect("below")
                }
                other => panic!("{other}"),
            })
            .collect();
        let expected = [
            "own/c.conf",
            "own/dangling.conf",
            "own/dir.conf",
            "own/latin.conf",
            "own/long.conf",
            "own/pipe.conf",
            "none",
        ];
        assert_eq!(told, expected.map(Path::new));
    }
}
