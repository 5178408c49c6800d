//! Pulls of compressed files by a store that has a decoder.

use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Chain;
use imagestore::{Config, PullError, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{RngCore as _, SeedableRng as _};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{interval, timeout};
use vmimage::decode::{Compression, compress};
use vmimage::error::ErrorKind;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("every_compression_comes_out_as_it_went_in", every_compression_comes_out_as_it_went_in),
    ("broken_streams_are_told_by_what_is_wrong", broken_streams_are_told_by_what_is_wrong),
    ("a_decoder_that_is_killed_is_one_failed_pull", a_decoder_that_is_killed_is_one_failed_pull),
    ("a_decoder_that_hangs_goes_with_the_pull", a_decoder_that_hangs_goes_with_the_pull),
    ("a_program_that_is_no_decoder_is_named", a_program_that_is_no_decoder_is_named),
];

/// However busy the machine is.
const DEADLINE: Duration = Duration::from_secs(120);
const KINDS: [&str; 4] = ["gzip", "xz", "zstd", "bzip2"];

struct Rig {
    dir: TempDir,
    store: Store,
}

impl Rig {
    fn new() -> Self {
        Self::with(&std::env::current_exe().expect("a path"))
    }

    fn with(decoder: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (files, rules) = (dir.path().join("files"), dir.path().join("rules"));
        for dir in [&files, &rules] {
            fs::create_dir(dir).expect("made");
        }
        let mut config = Config::new(dir.path().join("images"));
        config.translations_dir = Some(rules);
        config.local_roots = vec![files];
        config.allow_raw = true;
        config.net.policy.allow_loopback = true;
        config.decoder = Some(decoder.to_owned());
        let store = Store::open(config).expect("opened");
        Self { dir, store }
    }

    /// Pulls what is at a URL, and gives the file.
    async fn pull(&self, name: &str, url: &str) -> Result<PathBuf, std::sync::Arc<PullError>> {
        let rule = format!(r#"{{"translations": [{{"name": "{name}", "url": "{url}"}}]}}"#);
        fs::write(self.dir.path().join(format!("rules/{name}.json")), rule).expect("written");
        Ok(self.store.pull(name).await?.path)
    }

    async fn pull_bytes(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, std::sync::Arc<PullError>> {
        let file = self.dir.path().join("files").join(name);
        fs::write(&file, bytes).expect("written");
        self.pull(name, &format!("file://{}", file.display())).await
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { timeout(DEADLINE, work).await.expect("within the deadline") })
}

/// A raw disk of a few blocks, of noise with a hole in it.
fn disk(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 5 << 20];
    rand::rngs::StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes[1_000_000..3_000_000].fill(0);
    bytes
}

fn compressed(kind: &str, bytes: &[u8]) -> Vec<u8> {
    match kind {
        "gzip" => compress(Compression::Gzip, bytes),
        "zstd" => compress(Compression::Zstd, bytes),
        "bzip2" => compress(Compression::Bzip2, bytes),
        _ => {
            // Several blocks: the decoder has threads.
            let check = liblzma::stream::Check::Crc64;
            let blocks =
                liblzma::stream::MtStreamBuilder::new().threads(2).block_size(1 << 20).preset(0).check(check).encoder();
            let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), blocks.expect("an encoder"));
            encoder.write_all(bytes).expect("written");
            encoder.finish().expect("finished")
        }
    }
}

fn every_compression_comes_out_as_it_went_in() {
    let rig = Rig::new();
    block_on(async {
        for (seed, kind) in (10..).zip(KINDS) {
            let bytes = disk(seed);
            let path = rig.pull_bytes(kind, &compressed(kind, &bytes)).await.expect("pulled");
            assert!(fs::read(path).expect("read") == bytes, "{kind}");
        }
    });
    assert_eq!(decoders(), [0_i32; 0], "none is left");
}

fn broken_streams_are_told_by_what_is_wrong() {
    let rig = Rig::new();
    block_on(async {
        for kind in KINDS {
            let sound = compressed(kind, &disk(9));
            let mut flipped = sound.clone();
            let middle = flipped.len() / 2;
            flipped[middle] ^= 0x55;
            let cases = [
                ("cut", sound[..sound.len() - 9].to_vec(), "is cut off"),
                ("junk", [&sound[..], b"junk"].concat(), ""),
                ("flipped", flipped, ""),
            ];
            for (case, bytes, part) in cases {
                let pulled = rig.pull_bytes(&format!("{kind}-{case}"), &bytes).await;
                let error = pulled.expect_err(&format!("{kind} {case}"));
                let text = chain(&*error);
                assert!(text.contains(&format!("{kind} stream")) && text.contains(part), "{kind} {case}: {text}");
                assert_eq!(error.kind(), ErrorKind::Refused, "{kind} {case}");
            }
        }
        // Descriptor without a content size; a window of 2 GiB; one last raw block.
        let wide = [&b"\x28\xb5\x2f\xfd"[..], &[0, 21 << 3], &[0x21, 0, 0], b"tiny"].concat();
        let text = chain(&*rig.pull_bytes("wide", &wide).await.expect_err("refused"));
        assert!(text.contains("needs more than 128 MiB of memory"), "{text}");
    });
    assert_eq!(decoders(), [0_i32; 0], "none is left");
}

fn a_decoder_that_is_killed_is_one_failed_pull() {
    let rig = Rig::new();
    block_on(async {
        let url = half(compressed("zstd", &disk(3))).await;
        let pull = rig.pull("killed", &url);
        tokio::pin!(pull);
        tokio::select! {
            done = &mut pull => panic!("half a file is none: {done:?}"),
            pid = decoder() => kill(pid, Signal::SIGKILL).expect("killed"),
        }
        let error = pull.await.expect_err("it died");
        let text = chain(&*error);
        // Not a word about the image.
        assert_eq!(error.kind(), ErrorKind::Internal, "{text}");
        assert!(text.contains("the process that decompressed a zstd stream died"), "{text}");
        let bytes = disk(4);
        let path = rig.pull_bytes("next", &compressed("zstd", &bytes)).await.expect("pulled");
        assert!(fs::read(path).expect("read") == bytes);
    });
    assert_eq!(decoders(), [0_i32; 0], "none is left");
}

fn a_decoder_that_hangs_goes_with_the_pull() {
    let rig = Rig::new();
    block_on(async {
        let url = half(compressed("gzip", &disk(5))).await;
        {
            // By reference: `select!` drops what it was given before the other arm runs, and the decoder with it.
            let pull = rig.pull("hanging", &url);
            tokio::pin!(pull);
            tokio::select! {
                done = &mut pull => panic!("half a file is none: {done:?}"),
                pid = decoder() => kill(pid, Signal::SIGSTOP).expect("stopped"),
            }
        }
        // The one who asked is gone, and so is everything that worked for it.
        until(|| decoders().is_empty()).await;
    });
}

fn a_program_that_is_no_decoder_is_named() {
    for (program, part) in [("/no/such/decoder", "failed to start decompressing"), ("/bin/true", "died")] {
        let rig = Rig::with(Path::new(program));
        let error = block_on(rig.pull_bytes("image", &compressed("gzip", &disk(6)))).expect_err("refused");
        let text = chain(&*error);
        assert!(text.contains(part), "{program}: {text}");
    }
    assert_eq!(decoders(), [0_i32; 0], "none is left");
}

/// A URL whose server sends half of the bytes and then nothing, for as long as the runtime lives.
async fn half(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                // An answer before the question is none.
                let _ = peer.read(&mut [0; 4096]).await;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
                let _ = peer.write_all(head.as_bytes()).await;
                let _ = peer.write_all(&bytes[..bytes.len() / 2]).await;
                std::future::pending::<()>().await;
            });
        }
    });
    format!("http://{address}/image")
}

/// Our children.
fn decoders() -> Vec<i32> {
    let me = std::process::id().to_string();
    let processes = fs::read_dir("/proc").expect("listed").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let of = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Name, in brackets; state; parent.
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.split_whitespace().nth(1) == Some(&me))
    };
    pids.filter(of).collect()
}

async fn decoder() -> Pid {
    until(|| !decoders().is_empty()).await;
    Pid::from_raw(decoders()[0])
}

async fn until(done: impl Fn() -> bool) {
    let mut tick = interval(Duration::from_millis(20));
    while !done() {
        tick.tick().await;
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    Chain(error).to_string()
}
