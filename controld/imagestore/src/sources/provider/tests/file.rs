//! Files of this machine, and what must not be taken for one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::stat::Mode;

use super::super::*;
use super::locator;
use crate::sources::net::{Artifact, FetchError, Resume, Validators};

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
    files: LocalFiles,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("images");
        fs::create_dir_all(root.join("sub")).expect("made");
        fs::write(root.join("disk"), b"0123456789").expect("written");
        fs::write(dir.path().join("secret"), b"not an image").expect("written");
        Self { files: LocalFiles::new(vec!["/nowhere".into(), root.clone()]), root, _dir: dir }
    }

    async fn open(&self, url: &str, ask: &Ask) -> Result<Opened, ProviderError> {
        let image = self.files.resolve(&locator(url), &Want::default()).await?;
        self.files.open(&image, ask).await
    }

    async fn artifact(&self, ask: &Ask) -> Artifact {
        let url = format!("file://{}", self.root.join("disk").display());
        match self.open(&url, ask).await.expect("opened") {
            Opened::Artifact(artifact) => artifact,
            Opened::Unchanged => panic!("unchanged"),
        }
    }
}

async fn read(artifact: &mut Artifact) -> Result<Vec<u8>, String> {
    let (mut all, mut room) = (Vec::new(), [0; 4]);
    loop {
        match artifact.body.read(&mut room).await {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend_from_slice(&room[..count]),
            Err(FetchError::File(cause)) => return Err(cause.to_string()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn resume(at: u64, etag: Option<&str>) -> Option<Resume> {
    Some(Resume { at, etag: etag.map(str::to_owned), total: None })
}

#[tokio::test]
async fn a_file_is_read_from_where_it_is_asked_for() {
    let place = Place::new();
    let mut whole = place.artifact(&Ask::default()).await;
    assert_eq!((whole.length, whole.from, whole.delimited, whole.resumable), (Some(10), 0, true, false));
    assert_eq!(read(&mut whole).await.expect("read"), b"0123456789");
    let etag = whole.validators.etag.clone().expect("one");
    for (from, until, begin, bytes) in [
        (resume(4, Some(&etag)), None, 4, &b"456789"[..]),
        (resume(4, Some(&etag)), Some(6), 4, b"45"),
        (resume(4, Some(&etag)), Some(60), 4, b"456789"),
        (None, Some(3), 0, b"012"),
        (resume(4, Some("\"other\"")), None, 0, b"0123456789"),
        (resume(4, None), None, 0, b"0123456789"),
        (resume(10, Some(&etag)), None, 0, b"0123456789"),
        (resume(11, Some(&etag)), None, 0, b"0123456789"),
    ] {
        let ask = Ask { known: None, from, until };
        let mut artifact = place.artifact(&ask).await;
        assert_eq!((artifact.from, artifact.length), (begin, Some(10)), "{ask:?}");
        assert_eq!(read(&mut artifact).await.expect("read"), bytes, "{ask:?}");
    }
    let known = Ask { known: Some(Validators { etag: Some(etag), last_modified: None }), ..Ask::default() };
    let url = format!("file://{}", place.root.join("disk").display());
    assert!(matches!(place.open(&url, &known).await, Ok(Opened::Unchanged)));
    fs::write(place.root.join("disk"), b"another").expect("written");
    assert!(matches!(place.open(&url, &known).await, Ok(Opened::Artifact(_))));
}

#[tokio::test]
async fn a_file_that_changes_on_the_way_is_an_error() {
    for change in [&b"012"[..], b"0123456789abc", b"9876543210"] {
        let place = Place::new();
        let mut artifact = place.artifact(&Ask::default()).await;
        assert_eq!(artifact.body.read(&mut [0; 4]).await.expect("read"), 4);
        // Of another inode at times, or of another length or time.
        fs::write(place.root.join("disk"), change).expect("written");
        let file = fs::File::options().append(true).open(place.root.join("disk")).expect("opened");
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("set");
        let error = read(&mut artifact).await.expect_err("changed");
        assert_eq!(error, "it changed while it was read");
    }
}

#[tokio::test]
async fn nothing_leads_out_of_the_directories() {
    let place = Place::new();
    let root = &place.root;
    let outside = root.parent().expect("a parent").join("secret");
    symlink(&outside, root.join("absolute")).expect("linked");
    symlink("../secret", root.join("relative")).expect("linked");
    symlink("../..", root.join("sub/up")).expect("linked");
    symlink("../disk", root.join("sub/within")).expect("linked");
    nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).expect("made");
    let url = |path: &str| format!("file://{}/{path}", root.display());
    assert!(place.open(&url("sub/within"), &Ask::default()).await.is_ok(), "a link that stays within");
    for path in ["absolute", "relative", "sub/up/secret", "../secret", "sub/%2e%2e/../../secret", "..%2fsecret"] {
        let error = place.open(&url(path), &Ask::default()).await.expect_err(path);
        assert_eq!(error.kind(), vmimage::error::ErrorKind::Denied, "{path}: {error}");
    }
    for (path, kind) in [
        ("none", vmimage::error::ErrorKind::NotFound),
        ("sub", vmimage::error::ErrorKind::Internal),
        ("fifo", vmimage::error::ErrorKind::Internal),
        ("", vmimage::error::ErrorKind::NotFound),
        ("disk/x", vmimage::error::ErrorKind::Internal),
    ] {
        let error = place.open(&url(path), &Ask::default()).await.expect_err(path);
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
    for url in [format!("file://{}", outside.display()), "file:///etc/passwd".into(), "file://host/images/disk".into()]
    {
        let error = place.open(&url, &Ask::default()).await.expect_err(&url);
        assert_eq!(error.kind(), vmimage::error::ErrorKind::Denied, "{url}: {error}");
    }
    let closed = LocalFiles::new(Vec::new());
    let image = closed.resolve(&locator(&url("disk")), &Want::default()).await.expect("an image");
    assert!(closed.open(&image, &Ask::default()).await.is_err(), "without directories there are no files");
    fs::write(root.join("disk"), b"").expect("written");
    assert!(place.open(&url("disk"), &Ask::default()).await.is_err(), "an empty file is no image");
}
