use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

const BLOCK: usize = block::SIZE;

fn disk(root: &Path) -> Arc<Disk> {
    Arc::new(Disk::open(&root.join("images")).expect("opened"))
}

/// Bytes without zeros in them.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8 | 1).collect()
}

async fn take_in(disk: &Arc<Disk>, bytes: &[u8]) -> Received {
    let mut intake = Intake::start(disk, Algorithm::Sha512).expect("started");
    // Odd pieces, so that they never fit the blocks.
    for piece in bytes.chunks(100_003) {
        intake.push(piece).await.expect("taken");
    }
    intake.finish().await.expect("finished")
}

fn stored(received: &Received) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(received.length).expect("small")];
    let file = received.part.file();
    assert_eq!(file.metadata().expect("there").len(), received.length);
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

#[tokio::test]
async fn bytes_come_out_as_they_went_in() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    for length in [1, 511, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 70_000] {
        let bytes = noise(length);
        let received = take_in(&disk, &bytes).await;
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
    let bytes = noise((BLOCKS + 2) * BLOCK + 5);
    let received = take_in(&disk, &bytes).await;
    assert!(stored(&received) == bytes);
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
        let received = take_in(&disk, &bytes).await;
        assert!(stored(&received) == bytes);
        let allocated = received.part.file().metadata().expect("there").blocks() * 512;
        assert!(allocated <= most, "{allocated} bytes of disk");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_intake_leaves_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let mut intake = Intake::start(&disk, Algorithm::Sha256).expect("started");
    intake.push(&noise(BLOCK + 1)).await.expect("taken");
    assert_eq!(disk.data.names().expect("listed").len(), 1);
    drop(intake);
    // The threads hold the directories until they end.
    let gone = || Arc::strong_count(&disk) == 1;
    tokio::time::timeout(Duration::from_secs(10), async {
        while !gone() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the threads end");
    assert_eq!(disk.data.names().expect("listed"), [""; 0]);
}

#[tokio::test]
async fn a_part_that_was_swapped_is_not_published() {
    let root = tempfile::tempdir().expect("a directory");
    let disk = disk(root.path());
    let mut received = take_in(&disk, b"good").await;
    let part = disk.data.names().expect("listed").remove(0);
    std::fs::remove_file(disk.data.path().join(&part)).expect("removed");
    std::fs::write(disk.data.path().join(&part), "evil").expect("written");
    assert!(matches!(received.part.publish("aa"), Err(DiskError::Obstructed { .. })));
}
