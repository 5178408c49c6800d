//! File systems that are full, or without direct I/O. Each test runs again in a mount namespace of its own, where it
//! may mount what it needs; nothing of the machine is touched.

use std::path::{Path, PathBuf};
use std::process::Command;

use imagestore::Store;
use nix::mount::{MsFlags, mount};
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Server, disk, hex};

const INSIDE: &str = "IMAGESTORE_TEST_INSIDE";

/// Where the run inside the namespace may mount. Outside, makes a namespace, runs the test there, and gives nothing.
fn inside(test: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(INSIDE) {
        return Some(dir.into());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let this = std::env::current_exe().expect("this binary");
    let done = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(this)
        .args(["--exact", test])
        .env(INSIDE, dir.path())
        .output()
        .expect("unshare; install the package `util-linux`");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&done.stderr));
    None
}

fn bed_on(at: &Path, kind: &str, options: &str, url: &str) -> Bed {
    mount(Some("none"), at, Some(kind), MsFlags::empty(), Some(options)).expect("mounted");
    Bed::within(tempfile::tempdir_in(at).expect("a directory"), url, |_| {})
}

/// A body whose end the server does not tell before.
fn chunked(image: Vec<u8>) -> Server {
    Server::plain(move |call| {
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in image.chunks(100_000) {
            call.send(format!("{:x}\r\n", piece.len()));
            call.send(piece);
            call.send("\r\n");
        }
        call.send("0\r\n\r\n");
    })
}

async fn pull_small(bed: &Bed) {
    let server = Server::plain(|call| call.ok(&disk(9, 4096)));
    bed.translate(&server.url("/small"));
    let image = bed.pull().await.expect("a small one still fits");
    bed.store.remove(&image.id.to_string(), "").await.expect("removed");
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing() {
    let Some(at) = inside("full::a_full_disk_is_told_and_leaves_nothing") else { return };
    let server = chunked(disk(1, 16 << 20));
    let bed = bed_on(&at, "tmpfs", "size=6m,mode=0755", &server.url("/x"));
    let (kind, error) = bed.pull().await.expect_err("it does not fit");
    assert!(kind == ErrorKind::Exhausted && error.contains("No space left on device"), "{error}");
    bed.assert_empty().await;
    pull_small(&bed).await;

    // With a length it is known before a byte comes.
    let server = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n");
        call.hold();
    });
    bed.translate(&server.url("/x"));
    let (kind, error) = bed.pull().await.expect_err("it does not fit");
    assert!(kind == ErrorKind::Exhausted && error.contains("image needs 16777216 bytes"), "{error}");
    bed.assert_empty().await;
    pull_small(&bed).await;
}

#[tokio::test]
async fn a_disk_without_room_for_records_is_told_and_leaves_nothing() {
    let Some(at) = inside("full::a_disk_without_room_for_records_is_told_and_leaves_nothing") else { return };
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = bed_on(&at, "tmpfs", "size=6m,mode=0755,nr_inodes=64", &server.url("/x"));
    // Takes inodes away until a pull fails at its first file, at its record, at its name's record, at its link.
    let filler = |number: usize| bed.dir.path().join(format!("filler{number}"));
    let fill = |number: usize| std::fs::write(filler(number), "").is_ok();
    let filled = (0..).take_while(|number| fill(*number)).count();
    let mut failures = 0;
    for free in 0..10 {
        match bed.pull().await {
            Ok(image) => {
                assert!(free >= 4, "part, record, name's record and link need an inode each");
                assert_eq!(image.id.hex(), hex(&disk(1, 4096)));
                break;
            }
            Err((kind, error)) => {
                assert_eq!(kind, ErrorKind::Exhausted, "{error}");
                bed.assert_empty().await;
                failures += 1;
            }
        }
        std::fs::remove_file(filler(filled - 1 - free)).expect("removed");
    }
    assert_eq!(failures, 4);
    let config = bed.config.clone();
    drop(bed.store);
    let store = Store::open(config).expect("opened");
    assert!(store.findings().is_empty() && store.get("img", "").expect("a handler").is_some());
}

#[tokio::test]
async fn a_file_system_without_direct_io_will_do() {
    let Some(at) = inside("full::a_file_system_without_direct_io_will_do") else { return };
    let image = disk(3, (9 << 20) + 5);
    let body = image.clone();
    let server = Server::plain(move |call| call.ok(&body));
    let bed = bed_on(&at, "ramfs", "mode=0755", &server.url("/x"));
    assert!(!has_direct_io(bed.dir.path()), "or this test shows nothing");
    let pulled = bed.pull().await.expect("pulled");
    assert!(std::fs::read(pulled.path).expect("read") == image);
}

fn has_direct_io(dir: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = nix::fcntl::OFlag::O_DIRECT.bits();
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(dir.join("probe"))
        .is_ok()
}
