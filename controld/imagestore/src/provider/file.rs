//! Images in files of this machine, below directories that the operator named.
//!
//! A rule's `file:` URL is opened beneath one of these directories by the kernel's own rule (`openat2` with
//! `RESOLVE_BENEATH`), so neither `..` nor a link leads out of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use super::{Caps, ImageMetadata, Locator, Provider, ProviderError, RemoteImage, Source, Want};
use crate::net::{Artifact, Ask, Body, FetchError, Opened, Validators};

/// The provider.
#[derive(Debug)]
pub struct LocalFiles {
    roots: Vec<PathBuf>,
}

impl LocalFiles {
    /// A provider of the files below `roots`; without any it gives nothing.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self { roots }
    }

    fn open_file(&self, path: &Path) -> Result<File, ProviderError> {
        let beneath = self.roots.iter().find_map(|root| Some((root, path.strip_prefix(root).ok()?)));
        let Some((root, rest)) = beneath else { return Err(ProviderError::NotAllowed { path: path.to_owned() }) };
        let failed = |cause: io::Error| ProviderError::File { path: path.to_owned(), cause };
        let dir = File::open(root).map_err(failed)?;
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .mode(Mode::empty())
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = match openat2(&dir, rest, how) {
            Ok(fd) => File::from(fd),
            Err(nix::errno::Errno::EXDEV) => return Err(ProviderError::NotAllowed { path: path.to_owned() }),
            Err(cause) => return Err(failed(cause.into())),
        };
        if file.metadata().map_err(failed)?.is_file() {
            Ok(file)
        } else {
            Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")))
        }
    }

    pub(super) fn open_image(&self, path: &Path, ask: &Ask) -> Result<Opened, ProviderError> {
        let file = self.open_file(path)?;
        let failed = |cause: io::Error| ProviderError::File { path: path.to_owned(), cause };
        let facts = file.metadata().map_err(failed)?;
        let etag =
            format!("\"{}-{}-{}-{}.{:09}\"", facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec());
        if ask.known.as_ref().and_then(|known| known.etag.as_ref()) == Some(&etag) {
            return Ok(Opened::Unchanged);
        }
        let from = match &ask.from {
            Some(resume) if resume.etag.as_ref() == Some(&etag) && resume.at <= facts.len() => resume.at,
            _ => 0,
        };
        if facts.len() == 0 {
            return Err(FetchError::Empty.into());
        }
        Ok(Opened::Artifact(Artifact {
            length: Some(facts.len()),
            from,
            delimited: true,
            web_page: false,
            // A file may change while it is read, and its times may be set: this is no strong validator.
            resumable: false,
            validators: Validators { etag: Some(etag), last_modified: None },
            body: Box::new(FileBody { file: Arc::new(file), at: from, end: facts.len() }),
        }))
    }
}

impl Provider for LocalFiles {
    fn id(&self) -> &str {
        "file"
    }

    fn caps(&self) -> Caps {
        Caps { range: true, conditional: true, ..Caps::default() }
    }

    fn schemes(&self) -> &[&str] {
        &["file"]
    }

    fn resolve<'a>(
        &'a self,
        locator: &'a Locator,
        _want: &'a Want,
    ) -> BoxFuture<'a, Result<RemoteImage, ProviderError>> {
        let path = locator.url().to_file_path();
        let image = path.map(|path| RemoteImage {
            key: format!("file {}", path.display()),
            shown: locator.to_string(),
            source: Source::File(path),
            promises: Vec::new(),
            size: None,
            unpack: None,
            metadata: ImageMetadata { provider: self.id().to_owned(), ..ImageMetadata::default() },
        });
        ready(image.map_err(|()| ProviderError::NotAllowed { path: locator.to_string().into() })).boxed()
    }

    fn find<'a>(
        &'a self,
        _name: &'a str,
        _want: &'a Want,
    ) -> BoxFuture<'a, Result<Option<RemoteImage>, ProviderError>> {
        ready(Ok(None)).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> BoxFuture<'a, Result<Opened, ProviderError>> {
        let opened = match &image.source {
            Source::File(path) => self.open_image(path, ask),
            Source::Http(_) => Err(ProviderError::Unsupported { provider: self.id().into(), what: "network" }),
        };
        ready(opened).boxed()
    }
}

/// A file's bytes. Its length was told when it was opened; it must not shrink or grow on the way.
#[derive(Debug)]
struct FileBody {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Body for FileBody {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            if self.at == self.end || room.is_empty() {
                return Ok(0);
            }
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let (file, at, length) = (self.file.clone(), self.at, room.len().min(left));
            // Off the reactor, as a disk may take its time.
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; length];
                file.read_at(&mut bytes, at).map(|count| {
                    bytes.truncate(count);
                    bytes
                })
            });
            let bytes = match read.await {
                Ok(read) => read.map_err(FetchError::File)?,
                Err(cause) => return Err(FetchError::File(io::Error::other(cause))),
            };
            if bytes.is_empty() {
                return Err(FetchError::Interrupted { received: self.at, announced: Some(self.end), cause: None });
            }
            room[..bytes.len()].copy_from_slice(&bytes);
            self.at += bytes.len() as u64;
            Ok(bytes.len())
        }
        .boxed()
    }
}
