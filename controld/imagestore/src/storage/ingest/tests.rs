use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use sha2::{Digest as _, Sha256, Sha512};
use vmimage::decode::compress;
use vmimage::digest::{Digest, hex};
use vmimage::error::ErrorKind;

use super::*;
use crate::sources::provider::{Covers, ImageHash};
use crate::storage::content::{Disk, DiskError, Partials, Resumable};

const BLOCK: usize = block::SIZE;
const LIMITS: OutputLimits = OutputLimits { bytes: 1 << 30, ratio: 200, ratio_from: 1 << 30 };

fn disk(root: &Path) -> Arc<Disk> {
    Arc::new(Disk::open(&root.join("images")).expect("opened"))
}

fn part(disk: &Arc<Disk>) -> Part {
    Part::create(disk, 0).expect("created")
}

/// Bytes without zeros in them.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8 | 1).collect()
}

fn plan(compression: Option<Compression>) -> Plan {
    Plan {
        compression,
        decompressor: Decompressor::default(),
        unpack: None,
        promises: Vec::new(),
        limits: LIMITS,
        judge: Box::new(|_, _| Ok(())),
    }
}

/// Blocks as the receiver fills them.
async fn push_all(ingest: &mut Ingest, bytes: &[u8], first: bool) -> Result<(), IngestError> {
    let mut rest = bytes;
    let mut first = first.then(Ingest::first_block);
    while !rest.is_empty() {
        let mut block = match first.take() {
            Some(first) => first,
            None => ingest.room().await?,
        };
        let count = block.room().len().min(rest.len());
        block.room()[..count].copy_from_slice(&rest[..count]);
        block.advance(count);
        rest = &rest[count..];
        ingest.push(block).await?;
    }
    Ok(())
}

async fn take_in(disk: &Arc<Disk>, bytes: &[u8], plan: Plan) -> Result<Received, IngestError> {
    let mut ingest = Ingest::start(part(disk), plan)?;
    push_all(&mut ingest, bytes, true).await?;
    ingest.finish().await
}

/// Bytes as they come, of which nothing is asked.
pub(crate) async fn take_in_plain(disk: &Arc<Disk>, bytes: &[u8]) -> Received {
    take_in(disk, bytes, plan(None)).await.expect("taken")
}

fn stored(received: &Received) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(received.length).expect("small")];
    let file = received.part.file();
    assert_eq!(file.metadata().expect("there").len(), received.length);
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

fn promise(alg: HashAlg, covers: Covers, bytes: &[u8]) -> Promise {
    let mut sums = Sums::default();
    let mut hashers = Hashers::new([alg]);
    hashers.update(bytes);
    hashers.finish(Place::Content, &mut sums);
    let sum = sums.raw(Place::Content, alg).expect("computed");
    Promise { hash: ImageHash::new(alg, &hex(sum)).expect("a hash"), covers }
}

#[tokio::test]
async fn bytes_come_out_as_they_went_in() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    for length in
        [1, 511, 4095, 4096, 4097, HEAD - 1, HEAD, HEAD + 1, HEAD + BLOCK - 1, HEAD + BLOCK, 3 * BLOCK + 70_000]
    {
        let bytes = noise(length);
        let mut plan = plan(None);
        plan.promises = vec![promise(HashAlg::Sha512, Covers::Hosted, &bytes)];
        let received = take_in(&disk, &bytes, plan).await.expect("taken");
        assert!(stored(&received) == bytes, "{length}");
        assert_eq!(received.sha256, Digest::computed(Algorithm::Sha256, &Sha256::digest(&bytes)), "{length}");
        assert_eq!(received.sha512, Some(Digest::computed(Algorithm::Sha512, &Sha512::digest(&bytes))), "{length}");
        assert_eq!(received.part.file().metadata().expect("there").mode() & 0o777, 0o444);
    }
    assert_eq!(disk.data.names().expect("listed"), [""; 0], "parts that nobody publishes go");
}

#[tokio::test]
async fn more_blocks_than_there_are_go_round() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let bytes = noise((2 * BLOCKS + 2) * BLOCK + 5);
    for by in [None, Some(Compression::Gzip), Some(Compression::Zstd)] {
        let hosted = by.map_or(bytes.clone(), |by| compress(by, &bytes));
        let received = take_in(&disk, &hosted, plan(by)).await.expect("taken");
        assert!(stored(&received) == bytes, "{by:?}");
    }
}

#[tokio::test]
async fn zeros_stay_holes_wherever_they_are() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let zeros = vec![0; 3 * BLOCK];
    let mut middle = zeros.clone();
    middle[BLOCK + 65_536 * 3..BLOCK + 65_536 * 4].fill(7);
    let mut tail = zeros.clone();
    tail.extend([0, 0, 1]);
    for (bytes, most) in [(zeros, 0), (middle, 65_536), (tail, 4096)] {
        for by in [None, Some(Compression::Xz)] {
            let hosted = by.map_or(bytes.clone(), |by| compress(by, &bytes));
            let received = take_in(&disk, &hosted, plan(by)).await.expect("taken");
            assert!(stored(&received) == bytes);
            let allocated = received.part.file().metadata().expect("there").blocks() * 512;
            assert!(allocated <= most, "{allocated} bytes of disk");
        }
    }
}

/// Takes what is between two markers.
#[derive(Debug)]
struct Envelope;

const FRONT: &[u8] = b"<<<";
const BACK: &[u8] = b">>> and a tail that nobody reads";

impl Unpack for Envelope {
    fn unpack<'a>(&self, archive: &'a mut (dyn Read + Send)) -> io::Result<Box<dyn Read + 'a>> {
        let mut front = [0; 3];
        archive.read_exact(&mut front)?;
        if front != FRONT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no envelope"));
        }
        let mut length = [0; 8];
        archive.read_exact(&mut length)?;
        Ok(Box::new(archive.take(u64::from_le_bytes(length))))
    }
}

fn enveloped(bytes: &[u8]) -> Vec<u8> {
    [FRONT, &(bytes.len() as u64).to_le_bytes(), bytes, BACK].concat()
}

/// Every kind of promise, kept and broken, in every shape of the pass.
#[tokio::test]
async fn every_promise_is_held_to() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let content = noise(HEAD + 5000);
    let archive = enveloped(&content);
    for (by, archived) in
        [(None, false), (Some(Compression::Gzip), false), (None, true), (Some(Compression::Zstd), true)]
    {
        let unpacked = if archived { &archive } else { &content };
        let hosted = by.map_or(unpacked.clone(), |by| compress(by, unpacked));
        for alg in [HashAlg::Md5, HashAlg::Sha1, HashAlg::Sha256, HashAlg::Sha512] {
            for (covers, of) in [(Covers::Hosted, &hosted), (Covers::Unpacked, unpacked), (Covers::Content, &content)] {
                let case = format!("{by:?} {archived} {alg:?} {covers:?}");
                let with = |promise| Plan {
                    unpack: archived.then(|| Arc::new(Envelope) as Arc<dyn Unpack>),
                    promises: vec![promise],
                    ..plan(by)
                };
                let kept = take_in(&disk, &hosted, with(promise(alg, covers, of))).await.expect(&case);
                assert!(stored(&kept) == content, "{case}");
                let mut other = of.clone();
                other[100] ^= 1;
                for other in [&other[..], &of[..of.len() - 1], &[&of[..], b"x"].concat()] {
                    let error = take_in(&disk, &hosted, with(promise(alg, covers, other))).await.expect_err(&case);
                    assert_eq!(error.kind(), ErrorKind::DigestMismatch, "{case}");
                    let text = error.to_string();
                    let (wanted, got) = (promise(alg, covers, other).hash, promise(alg, covers, of).hash);
                    assert!(text.contains(&wanted.to_string()) && text.contains(&got.to_string()), "{case}: {text}");
                }
            }
        }
    }
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn an_archive_is_read_to_its_end_and_told_if_it_is_none() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let content = noise(2 * BLOCK);
    let with = |by| Plan { unpack: Some(Arc::new(Envelope)), ..plan(by) };
    let whole = compress(Compression::Gzip, &enveloped(&content));
    // The disk is whole long before the stream is.
    let error = take_in(&disk, &whole[..whole.len() - 3], with(Some(Compression::Gzip))).await.expect_err("cut off");
    assert!(matches!(error, IngestError::Decode(_)), "{error:?}");
    let error = take_in(&disk, &content, with(None)).await.expect_err("no archive");
    assert!(matches!(error, IngestError::Unpack(_)) && error.kind() == ErrorKind::Refused, "{error:?}");
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn junk_is_refused_while_the_rest_is_still_coming() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    // What cannot be compressed, so that the beginning is not the whole of it.
    let junk: Vec<u8> = (0..62_500_u32).flat_map(|at| Sha256::digest(at.to_le_bytes())).collect();
    for by in [None, Some(Compression::Gzip), Some(Compression::Xz), Some(Compression::Zstd), Some(Compression::Bzip2)]
    {
        let plan = Plan {
            judge: Box::new(|head, whole| {
                assert_eq!((head.len(), whole), (HEAD, false));
                Err(Refusal::Empty)
            }),
            ..plan(by)
        };
        let hosted = by.map_or(junk.clone(), |by| compress(by, &junk));
        let mut ingest = Ingest::start(part(&disk), plan).expect("started");
        let half = &hosted[..hosted.len() / 2 + HEAD];
        let error = match push_all(&mut ingest, half, true).await {
            Err(error) => error,
            // No end was pushed: the outcome comes by itself.
            Ok(()) => ingest.outcome(FLUSH_DEADLINE).await.expect_err("refused"),
        };
        assert!(matches!(error, IngestError::Refused(Refusal::Empty)), "{by:?}: {error:?}");
    }
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn what_grows_too_much_is_given_up() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let pattern = [[7; 4096], [9; 4096]].concat().repeat(1000);
    let zeros = vec![0; pattern.len()];
    let limits = |bytes, ratio_from| OutputLimits { bytes, ratio: 20, ratio_from };
    let large = pattern.len() as u64;
    for by in [Compression::Gzip, Compression::Xz, Compression::Zstd, Compression::Bzip2] {
        let bomb = compress(by, &pattern);
        let bounded = |limits| Plan { limits, ..plan(Some(by)) };
        let error = take_in(&disk, &bomb, bounded(limits(large, 1 << 20))).await.expect_err("a bomb");
        assert!(matches!(error, IngestError::Bomb { ratio: 20 }) && error.kind() == ErrorKind::Refused, "{error:?}");
        let error = take_in(&disk, &bomb, bounded(limits(large - 1, large))).await.expect_err("too large");
        assert!(matches!(error, IngestError::TooLarge { .. }) && error.kind() == ErrorKind::Exhausted, "{error:?}");
        // Below the floor, and holes, may grow.
        take_in(&disk, &bomb, bounded(limits(large, large))).await.expect("small");
        take_in(&disk, &compress(by, &zeros), bounded(limits(large, 1 << 20))).await.expect("nothing but holes");
    }
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn broken_streams_leave_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let content = noise(3 * BLOCK);
    for by in [Compression::Gzip, Compression::Xz, Compression::Zstd, Compression::Bzip2] {
        let hosted = compress(by, &content);
        for broken in [hosted[..hosted.len() - 1].to_vec(), [&hosted[..], b"trailing"].concat()] {
            let error = take_in(&disk, &broken, plan(Some(by))).await.expect_err("broken");
            assert!(matches!(error, IngestError::Decode(_)) && error.kind() == ErrorKind::Refused, "{by}: {error:?}");
        }
    }
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_intake_leaves_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    for by in [None, Some(Compression::Zstd)] {
        let mut ingest = Ingest::start(part(&disk), plan(by)).expect("started");
        let bytes = noise(3 * BLOCK);
        let hosted = by.map_or(bytes.clone(), |by| compress(by, &bytes));
        push_all(&mut ingest, &hosted[..hosted.len() - 1], true).await.expect("taken");
        assert_eq!(disk.data.names().expect("listed").len(), 1);
        drop(ingest);
        eventually(|| disk.data.names().expect("listed").is_empty()).await;
    }
}

async fn eventually(done: impl Fn() -> bool) {
    let gone = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), gone).await.expect("done");
}

fn partial(disk: &Arc<Disk>, total: usize) -> Option<(Part, u64)> {
    let file = Partials::new(disk).open("key").expect("opened")?;
    let from = Part::frontier(&file);
    let facts = Resumable { source: "x".into(), etag: Some("\"a\"".into()), total: total as u64 };
    Some((Part::of_partial(file, from, facts, 0).expect("begun"), from))
}

/// Given up after any amount, it goes on with what is there, and the hash is that of the whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_goes_on_where_it_was_given_up() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let mut bytes = noise(4 * BLOCK + 777);
    // Blocks that end in zeros, and one of nothing else.
    bytes[HEAD + BLOCK - 70_000..HEAD + 3 * BLOCK].fill(0);
    let blocks = [HEAD, HEAD + BLOCK, HEAD + 2 * BLOCK, HEAD + 3 * BLOCK];
    for (number, end) in blocks.into_iter().enumerate() {
        let (part, from) = partial(&disk, bytes.len()).expect("free");
        assert_eq!(from, if number == 0 { 0 } else { blocks[number - 1] as u64 });
        let mut ingest = Ingest::start(part, plan(None)).expect("started");
        push_all(&mut ingest, &bytes[usize::try_from(from).expect("small")..end], from == 0).await.expect("taken");
        drop(ingest);
        // The last thread has it locked until it is done.
        eventually(|| Partials::new(&disk).open("key").expect("looked").is_some()).await;
    }
    let (part, from) = partial(&disk, bytes.len()).expect("free");
    let judge: Judge = Box::new(|head, whole| {
        assert!(head == &noise(HEAD)[..] && !whole);
        Ok(())
    });
    let promises = vec![promise(HashAlg::Sha1, Covers::Content, &bytes)];
    let mut ingest = Ingest::start(part, Plan { judge, promises, ..plan(None) }).expect("started");
    push_all(&mut ingest, &bytes[usize::try_from(from).expect("small")..], false).await.expect("taken");
    let mut received = ingest.finish().await.expect("whole");
    assert!(stored(&received) == bytes);
    received.part.publish(&"a".repeat(64)).expect("published");
    assert_eq!(disk.partial.names().expect("listed"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_that_fails_is_not_gone_on_with() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let bytes = noise(BLOCK);
    let (part, _) = partial(&disk, bytes.len()).expect("free");
    let promises = vec![promise(HashAlg::Sha256, Covers::Content, b"other")];
    let mut ingest = Ingest::start(part, Plan { promises, ..plan(None) }).expect("started");
    push_all(&mut ingest, &bytes, true).await.expect("taken");
    assert_eq!(ingest.finish().await.expect_err("other bytes").kind(), ErrorKind::DigestMismatch);
    assert_eq!(disk.partial.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn a_part_that_was_swapped_is_not_published() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let mut received = take_in(&disk, b"good", plan(None)).await.expect("taken");
    let part = disk.data.names().expect("listed").remove(0);
    std::fs::remove_file(disk.data.path().join(&part)).expect("removed");
    std::fs::write(disk.data.path().join(&part), "evil").expect("written");
    assert!(matches!(received.part.publish("aa"), Err(DiskError::Obstructed { .. })));
}
