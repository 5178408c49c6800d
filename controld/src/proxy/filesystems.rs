//! `ImageFsInfo` of both sides. kubelet reads the first entry alone, and collects images when the file system of that one is full.
//!
//! On one file system (the same `st_dev`) the first entry is both sides' usage together. On two it is the default's, and ours stands
//! behind it, where people see it: our store has a limit of its own. Where containers' layers are is the default's to say. A file system
//! that kubelet cannot place is not named ([`super::stats`]).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use common::off_reactor;
use prost::Message as _;
use proto::cri::{FilesystemUsage, ImageFsInfoResponse, UInt64Value};
use tokio::time::timeout;
use tonic::Status;

use super::ask::{self, Question};
use super::uses::Uses;
use super::wire::{self, Malformed, Value};

const IMAGE_FS_INFO: &str = "/runtime.v1.ImageService/ImageFsInfo";
/// `ImageFsInfoResponse.image_filesystems`.
const IMAGES: u32 = 1;
/// How long a look at two directories may take.
const LOOK: Duration = Duration::from_millis(500);

/// The answer's pieces.
pub(super) async fn answer(uses: &Uses) -> Result<Vec<Bytes>, Status> {
    let mut pieces = of_both(uses).await?;
    for piece in &mut pieces {
        *piece = uses.lists.looks().image_fs_info(std::mem::take(piece)).await;
    }
    Ok(pieces)
}

async fn of_both(uses: &Uses) -> Result<Vec<Bytes>, Status> {
    let own = uses.own.ask(Question::new(IMAGE_FS_INFO, Bytes::new()));
    let (theirs, own) = tokio::join!(of_default(uses), own);
    let (theirs, read) = theirs?;
    // Ours is of the disk, which may be slow; without it kubelet collects no image too many.
    let Ok((_, own)) = own.and_then(ask::understood::<ImageFsInfoResponse>) else { return Ok(vec![theirs]) };
    let shared = match (mountpoint(&read), mountpoint(&own)) {
        (Some(one), Some(other)) => are_one(one.to_owned(), other.to_owned()).await,
        _ => false,
    };
    Ok(merged(theirs, &read, own, shared))
}

/// As it came, and what it says.
async fn of_default(uses: &Uses) -> Result<(Bytes, ImageFsInfoResponse), Status> {
    let asked = ask::one(uses.backend.clone(), Question::new(IMAGE_FS_INFO, Bytes::new()));
    let answer = uses.backend.within_deadline("ImageFsInfo", asked).await;
    match answer.and_then(|answer| ask::understood(answer.into_inner())) {
        Ok((answer, read)) => {
            uses.saved.keep_image_fs_info(answer.clone());
            Ok((answer, read))
        }
        Err(status) => ask::understood(uses.saved.image_fs_info().ok_or(status)?),
    }
}

fn mountpoint(info: &ImageFsInfoResponse) -> Option<&str> {
    Some(info.image_filesystems.first()?.fs_id.as_ref()?.mountpoint.as_str())
}

async fn are_one(one: String, other: String) -> bool {
    let device = |path: &str| std::fs::metadata(Path::new(path)).ok().map(|found| found.dev());
    let look = off_reactor(move || device(&one).is_some_and(|found| Some(found) == device(&other)));
    timeout(LOOK, look).await.unwrap_or_default()
}

/// The default's as it came, with ours in its first entry or behind it. `read` is what it says.
fn merged(theirs: Bytes, read: &ImageFsInfoResponse, own: ImageFsInfoResponse, shared: bool) -> Vec<Bytes> {
    if let (true, Some(first), Some(ours)) = (shared, read.image_filesystems.first(), own.image_filesystems.first()) {
        return vec![summed(&theirs, first, ours).map_or(theirs, Bytes::from)];
    }
    let behind = ImageFsInfoResponse { image_filesystems: own.image_filesystems, ..ImageFsInfoResponse::default() };
    vec![theirs, behind.encode_to_vec().into()]
}

/// With ours in the usage of the first entry, `first`: sums behind its own figures, of which the last ones count.
fn summed(theirs: &[u8], first: &FilesystemUsage, ours: &FilesystemUsage) -> Result<Vec<u8>, Malformed> {
    let sum = |one: Option<UInt64Value>, other: Option<UInt64Value>| {
        let value = |value: Option<UInt64Value>| value.map_or(0, |value| value.value);
        (one.is_some() || other.is_some()).then(|| UInt64Value { value: value(one).saturating_add(value(other)) })
    };
    let sums = FilesystemUsage {
        used_bytes: sum(first.used_bytes, ours.used_bytes),
        inodes_used: sum(first.inodes_used, ours.inodes_used),
        ..FilesystemUsage::default()
    };
    let mut sums = Some(sums.encode_to_vec());
    let mut both = Vec::with_capacity(theirs.len() + 32);
    for field in wire::fields(theirs) {
        let field = field?;
        match field.value {
            Value::Bytes(entry) if field.number == IMAGES => {
                wire::put(IMAGES, &[entry, &sums.take().unwrap_or_default()], &mut both);
            }
            _ => both.put_slice(field.whole),
        }
    }
    Ok(both)
}

#[cfg(test)]
mod tests {
    use proto::cri::FilesystemIdentifier;

    use super::*;

    fn info(mountpoint: &str, used: u64, inodes: Option<u64>) -> ImageFsInfoResponse {
        let usage = FilesystemUsage {
            timestamp: 1,
            fs_id: Some(FilesystemIdentifier { mountpoint: mountpoint.into() }),
            used_bytes: Some(UInt64Value { value: used }),
            inodes_used: inodes.map(|value| UInt64Value { value }),
        };
        ImageFsInfoResponse { image_filesystems: vec![usage.clone()], container_filesystems: vec![usage] }
    }

    fn read(pieces: &[Bytes]) -> ImageFsInfoResponse {
        ImageFsInfoResponse::decode(&*pieces.concat()).expect("an answer")
    }

    fn of_both(theirs: &ImageFsInfoResponse, own: &ImageFsInfoResponse, shared: bool) -> ImageFsInfoResponse {
        read(&merged(theirs.encode_to_vec().into(), theirs, own.clone(), shared))
    }

    #[test]
    fn on_one_file_system_the_first_entry_is_both_and_on_two_ours_is_behind() {
        let (theirs, own) = (info("/c", 7, Some(1)), info("/v", u64::MAX, None));
        let both = of_both(&theirs, &own, true);
        assert_eq!(both.image_filesystems.len(), 1);
        assert_eq!(both.image_filesystems[0].used_bytes, Some(UInt64Value { value: u64::MAX }), "no overflow");
        assert_eq!(both.image_filesystems[0].inodes_used, Some(UInt64Value { value: 1 }));
        assert_eq!((both.image_filesystems[0].timestamp, mountpoint(&both)), (1, Some("/c")));
        let two = of_both(&theirs, &own, false);
        assert_eq!(mountpoint(&two), Some("/c"));
        assert_eq!(two.image_filesystems[1], own.image_filesystems[0]);
        assert_eq!(
            (&both.container_filesystems, &two.container_filesystems),
            (&theirs.container_filesystems, &theirs.container_filesystems)
        );
        let none = of_both(&ImageFsInfoResponse::default(), &own, true);
        assert_eq!(none.image_filesystems, own.image_filesystems, "kubelet wants one");
        let more = ImageFsInfoResponse {
            image_filesystems: [theirs.image_filesystems.clone(), theirs.image_filesystems.clone()].concat(),
            ..Default::default()
        };
        let both = of_both(&more, &info("/v", 1, Some(1)), true);
        let used: Vec<_> = both.image_filesystems.iter().map(|one| one.used_bytes.map(|used| used.value)).collect();
        assert_eq!(used, [Some(8), Some(7)], "the first alone");
    }

    #[test]
    fn what_a_newer_runtime_says_besides_stays() {
        let unknown = &[0xfa, 0x7d, 2, b'o', b'k'][..];
        let of = info("/c", 7, Some(1));
        let mut theirs = Vec::new();
        wire::put(IMAGES, &[&of.image_filesystems[0].encode_to_vec(), unknown], &mut theirs);
        theirs.extend_from_slice(unknown);
        for shared in [true, false] {
            let both = merged(theirs.clone().into(), &of, info("/v", 1, None), shared).concat();
            assert_eq!(both.windows(unknown.len()).filter(|found| *found == unknown).count(), 2, "{shared}");
            assert_eq!(
                read(&[both.into()]).image_filesystems[0].used_bytes.map(|used| used.value),
                Some(if shared { 8 } else { 7 })
            );
        }
    }

    #[tokio::test]
    async fn file_systems_are_told_by_their_device() {
        let dir = tempfile::tempdir().expect("a directory").keep();
        assert!(are_one(dir.display().to_string(), dir.join("..").display().to_string()).await);
        assert!(!are_one(dir.display().to_string(), "/proc".into()).await);
        assert!(!are_one("/no/such".into(), "/no/such".into()).await);
        std::fs::remove_dir(dir).expect("removed");
    }
}
