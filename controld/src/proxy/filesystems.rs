//! `ImageFsInfo` of both sides. kubelet reads the first entry alone, and collects images when the file system of that one is full.
//!
//! On one file system (the same `st_dev`) the first entry is both sides' usage together. On two it is the default's, and ours stands
//! behind it, where people see it: our store has a limit of its own. Where containers' layers are is the default's to say.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use common::off_reactor;
use prost::Message as _;
use proto::cri::{FilesystemUsage, ImageFsInfoResponse, UInt64Value};
use tokio::time::timeout;
use tonic::Status;

use super::ask::{self, Question};
use super::uses::Uses;

const IMAGE_FS_INFO: &str = "/runtime.v1.ImageService/ImageFsInfo";
/// How long a look at two directories may take.
const LOOK: Duration = Duration::from_millis(500);

/// The answer's pieces.
pub(super) async fn answer(uses: &Uses) -> Result<Vec<Bytes>, Status> {
    let own = uses.own.ask(Question::new(IMAGE_FS_INFO, Bytes::new()));
    let (theirs, own) = tokio::join!(of_default(uses), own);
    let theirs = theirs?;
    // Ours is of the disk, which may be slow; without it kubelet collects no image too many.
    let Ok(own) = own else { return Ok(vec![theirs]) };
    let (Ok(first), Ok(own)) = (ImageFsInfoResponse::decode(theirs.clone()), ImageFsInfoResponse::decode(own)) else {
        return Ok(vec![theirs]);
    };
    let shared = match (mountpoint(&first), mountpoint(&own)) {
        (Some(one), Some(other)) => are_one(one.to_owned(), other.to_owned()).await,
        _ => false,
    };
    Ok(vec![merged(first, own, shared).encode_to_vec().into()])
}

async fn of_default(uses: &Uses) -> Result<Bytes, Status> {
    let asked = async {
        let question = Question::new(IMAGE_FS_INFO, Bytes::new());
        match timeout(uses.backend.deadline(), ask::one(uses.backend.clone(), question)).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_elapsed) => {
                uses.backend.doubt();
                Err(Status::deadline_exceeded("the container runtime did not answer in time"))
            }
        }
    };
    match asked.await {
        Ok(answer) => {
            uses.saved.keep_image_fs_info(answer.clone());
            Ok(answer)
        }
        Err(status) => uses.saved.image_fs_info().ok_or(status),
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

fn merged(mut theirs: ImageFsInfoResponse, own: ImageFsInfoResponse, shared: bool) -> ImageFsInfoResponse {
    let sum = |one: Option<UInt64Value>, other: Option<UInt64Value>| {
        let value = |value: Option<UInt64Value>| value.map_or(0, |value| value.value);
        (one.is_some() || other.is_some()).then(|| UInt64Value { value: value(one).saturating_add(value(other)) })
    };
    match (theirs.image_filesystems.first_mut(), own.image_filesystems.first()) {
        (Some(first), Some(ours)) if shared => {
            first.used_bytes = sum(first.used_bytes, ours.used_bytes);
            first.inodes_used = sum(first.inodes_used, ours.inodes_used);
            let _: &FilesystemUsage = first;
        }
        _ => theirs.image_filesystems.extend(own.image_filesystems),
    }
    theirs
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

    #[test]
    fn on_one_file_system_the_first_entry_is_both_and_on_two_ours_is_behind() {
        let (theirs, own) = (info("/c", 7, Some(1)), info("/v", u64::MAX, None));
        let both = merged(theirs.clone(), own.clone(), true);
        assert_eq!(both.image_filesystems.len(), 1);
        assert_eq!(both.image_filesystems[0].used_bytes, Some(UInt64Value { value: u64::MAX }), "no overflow");
        assert_eq!(both.image_filesystems[0].inodes_used, Some(UInt64Value { value: 1 }));
        let two = merged(theirs.clone(), own.clone(), false);
        assert_eq!(mountpoint(&two), Some("/c"));
        assert_eq!(two.image_filesystems[1], own.image_filesystems[0]);
        assert_eq!(
            (&both.container_filesystems, &two.container_filesystems),
            (&theirs.container_filesystems, &theirs.container_filesystems)
        );
        let none = merged(ImageFsInfoResponse::default(), own.clone(), true);
        assert_eq!(none.image_filesystems, own.image_filesystems, "kubelet wants one");
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
