//! Images in files of this machine, below directories that the operator named.
//!
//! A rule's `file:` URL is opened beneath one of these directories by the kernel's own rule (`openat2` with
//! `RESOLVE_BENEATH`), so neither `..` nor a link leads out of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::off_reactor;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use super::{Answer, Caps, Locator, Provider, ProviderError, RemoteImage, Source, Want};
use crate::sources::net::{Artifact, Ask, Body, FetchError, Opened, Validators};

/// The provider.
#[derive(Debug, Clone)]
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

    /// Opens a file, off the reactor, as a disk may take its time.
    pub(super) async fn open_path(&self, path: &Path, ask: &Ask) -> Result<Opened, ProviderError> {
        let (this, path, ask) = (self.clone(), path.to_owned(), ask.clone());
        off_reactor(move || this.open_image(&path, &ask)).await
    }

    /// Opens a file and says what it is. Blocks.
    fn open_image(&self, path: &Path, ask: &Ask) -> Result<Opened, ProviderError> {
        let file = self.open_file(path)?;
        let version = Version::of(&file).map_err(|cause| ProviderError::File { path: path.to_owned(), cause })?;
        let etag = version.etag();
        if ask.known.as_ref().and_then(|known| known.etag.as_ref()) == Some(&etag) {
            return Ok(Opened::Unchanged);
        }
        if version.length == 0 {
            return Err(FetchError::Empty.into());
        }
        let from = match &ask.from {
            Some(resume) if resume.etag.as_ref() == Some(&etag) && resume.at < version.length => resume.at,
            _ => 0,
        };
        let end = ask.until.filter(|until| *until > from).map_or(version.length, |until| until.min(version.length));
        Ok(Opened::Artifact(Artifact {
            length: Some(version.length),
            from,
            delimited: true,
            web_page: false,
            // A file may change while it is read, and its times may be set: this is no strong validator.
            resumable: false,
            validators: Validators { etag: Some(etag), last_modified: None },
            body: Box::new(FileBody { file: Arc::new(file), version, at: from, end, spare: Vec::new() }),
        }))
    }
}

/// What of a file changes when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    length: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let facts = file.metadata()?;
        Ok(Self {
            device: facts.dev(),
            inode: facts.ino(),
            length: facts.len(),
            seconds: facts.mtime(),
            nanoseconds: facts.mtime_nsec(),
        })
    }

    fn etag(&self) -> String {
        let Self { device, inode, length, seconds, nanoseconds } = self;
        format!("\"{device}-{inode}-{length}-{seconds}.{nanoseconds:09}\"")
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

    fn resolve<'a>(&'a self, locator: &'a Locator, _want: &'a Want) -> Answer<'a, RemoteImage> {
        let path = locator.url().to_file_path();
        let image =
            path.map(|path| RemoteImage { shown: locator.to_string(), ..RemoteImage::in_file(self.id(), path) });
        ready(image.map_err(|()| ProviderError::NotAllowed { path: locator.to_string().into() })).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        async move {
            let Source::File(path) = &image.source else {
                return Err(ProviderError::Unsupported { provider: self.id().into(), what: "network" });
            };
            self.open_path(path, ask).await
        }
        .boxed()
    }
}

/// A file's bytes. It must stay as it was when it was opened.
#[derive(Debug)]
struct FileBody {
    file: Arc<File>,
    version: Version,
    at: u64,
    end: u64,
    /// Room for the next read, which happens off the reactor.
    spare: Vec<u8>,
}

impl Body for FileBody {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            let (file, at, length) = (self.file.clone(), self.at, room.len().min(left));
            let mut bytes = std::mem::take(&mut self.spare);
            let read = off_reactor(move || {
                bytes.resize(length, 0);
                let count = file.read_at(&mut bytes, at)?;
                bytes.truncate(count);
                Ok((bytes, Version::of(&file)?))
            });
            let (bytes, version) = read.await.map_err(FetchError::File)?;
            if version != self.version {
                return Err(FetchError::File(io::Error::other("it changed while it was read")));
            }
            if bytes.is_empty() && length > 0 {
                return Err(FetchError::Interrupted { received: self.at, announced: Some(self.end), cause: None });
            }
            room[..bytes.len()].copy_from_slice(&bytes);
            self.at += bytes.len() as u64;
            self.spare = bytes;
            Ok(self.spare.len())
        }
        .boxed()
    }
}
