//! Where virt-builder finds its sources: `repos.d/*.conf`.
//!
//! ```text
//! [libguestfs.org]
//! uri=http://builder.libguestfs.org/index.asc
//! gpgkey=file:///etc/virt-builder/libguestfs.gpg
//! proxy=no
//! format=native
//! ```

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use url::Url;

use crate::name::printable;

/// Largest file.
const LIMIT: u64 = 1024 * 1024;

/// Why a file of sources is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReposError {
    /// It cannot be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Not what it must be.
    #[error("`{}`, line {line}: {what}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A source without a place.
    #[error("`{}`: source `{id}` has no `uri`", path.display())]
    Uri {
        /// The file.
        path: PathBuf,
        /// The source.
        id: String,
    },
}

/// How a source's index is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// virt-builder's own.
    #[default]
    Native,
    /// Simple Streams.
    Simplestreams,
}

/// Which proxy leads to a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Proxy {
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
pub struct Repo {
    /// Its name.
    pub id: String,
    /// Where its index is.
    pub uri: Url,
    /// File with the key that signs it.
    pub key: Option<PathBuf>,
    /// The proxy.
    pub proxy: Proxy,
    /// How the index is written.
    pub format: Format,
}

/// Sources of all `*.conf` files of a directory, in the order of the files' names.
///
/// # Errors
/// When one of them cannot be read: a source left out might let another one answer for its names.
pub fn read_dir(dir: &Path) -> Result<Vec<Repo>, ReposError> {
    let broken = |path: &Path| {
        let path = path.to_owned();
        move |cause| ReposError::Read { path, cause }
    };
    let entries = fs::read_dir(dir).map_err(broken(dir))?;
    let mut files =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().map_err(broken(dir))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
    files.sort();
    let mut repos = Vec::new();
    for path in files {
        let mut text = String::new();
        let file = File::open(&path).map_err(broken(&path))?;
        file.take(LIMIT).read_to_string(&mut text).map_err(broken(&path))?;
        repos.extend(parse(&text, &path)?);
    }
    Ok(repos)
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
        Some(uri) => Ok(Repo { id, uri, key, proxy, format }),
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
                format: Format::Native
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
    fn files_are_read_in_order_and_all_of_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("written");
        put("b.conf", "[b]\nuri=http://b/");
        put("a.conf", "[a]\nuri=http://a/");
        put("c.gpg", "\0");
        let ids: Vec<_> = read_dir(dir.path()).expect("read").into_iter().map(|repo| repo.id).collect();
        assert_eq!(ids, ["a", "b"]);
        put("c.conf", "junk");
        assert!(read_dir(dir.path()).is_err());
        assert!(matches!(read_dir(&dir.path().join("none")), Err(ReposError::Read { .. })));
    }
}
