//! What becomes of a device that is to be a pod's root disk. Pure: what is on it has been read.
//!
//! | the device has | and | then |
//! |---|---|---|
//! | a header of a newer release, or a damaged one | | refused |
//! | a header, ready, or Virtlet's | of the image that the pod wants | its guest boots |
//! | | of another image, and the pod's was converted here | its guest boots if the handler has it kept, else refused |
//! | | of another image | by the handler's word: the copy is made anew, or its guest boots, or it is refused |
//! | a header, being written | | the copy is made anew: that one was cut short |
//! | no header | all zeros | the copy is made |
//! | | anything else | refused |
//!
//! A copy is made only if it has room. A device that is taken as it is may have anything but a header, and is never written.

use vmspec::plan::OnImageChange;

use super::super::volume_name;
use super::header::{DATA, DATA_V1, Header, HeaderError, ImageHash, State};
use crate::model::domain::Slice;
use uuid::Uuid;

/// The least unit of a disk.
const SECTOR: u64 = 512;

/// What is on a device.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// In bytes.
    pub(super) size: u64,
    pub(super) header: Result<Option<Header>, HeaderError>,
    /// What it holds beside a header of ours; `None` if it is blank.
    pub(super) data: Option<&'static str>,
}

/// What is wanted of it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) image: ImageHash,
    /// Bytes of the image's disk.
    pub(super) virtual_size: u64,
    pub(super) on_image_change: OnImageChange,
    /// The cluster's name of the volume.
    pub(super) volume: String,
    /// It is a disk already, and no image is copied.
    pub(super) as_is: bool,
    /// The image was converted on this node: elsewhere the same one may have another hash.
    pub(super) converted: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The guest boots from what is there.
    Boot { slice: Slice, uuid: Uuid, image: Booted },
    /// The image is copied to it.
    Copy(Why),
}

/// Which image a guest boots from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Booted {
    /// The one that the pod wants.
    Wanted,
    /// Another one, which is kept.
    Kept,
    /// None: it was a disk before.
    AsIs,
}

/// Why an image is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Blank,
    /// A copy was cut short.
    Unfinished,
    OtherImage,
}

/// Why a device cannot be the root disk. It has not been written to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(
        "it holds data ({0}), and no root disk of virtlet; take another volume, wipe this one (`wipefs -a DEVICE`, then blank its \
         first MiB) if nothing on it is wanted, or set annotation \
         `virtlet.cloud/root-device: as-is` to boot from what it holds"
    )]
    Foreign(&'static str),
    #[error("it has {size} bytes, and the image needs {needed} there; take a larger volume")]
    Small { size: u64, needed: u64 },
    #[error("it has {size} bytes, and its header says that there were {needed} in use; it has shrunk")]
    Shrunk { size: u64, needed: u64 },
    #[error("it has a copy of another image, and the runtime handler's `root_on_image_change` is `error`")]
    OtherImage,
    #[error(
        "it has a copy of another image, or of this one as another node has converted it, which cannot be told apart, so it is not \
         overwritten; to boot from it set `root_on_image_change = \"keep\"` in the runtime handler, or take another volume, or an image \
         that need not be converted (qcow2 or raw)"
    )]
    Converted,
    #[error(
        "it begins with a header of virtlet, and so is no disk as it is; unset annotation `virtlet.cloud/root-device`"
    )]
    NotAsIs,
}

/// Decides.
///
/// # Errors
/// When the device cannot be the root disk.
pub(super) fn judge(seen: &Seen, wanted: &Wanted) -> Result<Decision, Refusal> {
    if wanted.as_is {
        return as_is(seen, wanted);
    }
    let copy = |why| {
        let needed = DATA.saturating_add(wanted.virtual_size);
        if seen.size < needed { Err(Refusal::Small { size: seen.size, needed }) } else { Ok(Decision::Copy(why)) }
    };
    let (image, slice, uuid) = match (seen.header.clone()?, seen.data) {
        (None, None) => return copy(Why::Blank),
        (None, Some(data)) => return Err(Refusal::Foreign(data)),
        (Some(Header::V2(written)), _) if written.state == State::Writing => return copy(Why::Unfinished),
        (Some(Header::V2(written)), _) => {
            (written.image, slice(seen.size, written.offset, written.virtual_size), written.uuid)
        }
        // Nothing in it tells it from another copy of the image.
        (Some(Header::V1 { image }), _) => {
            (image, slice(seen.size, DATA_V1, SECTOR), volume_name::uuid(&wanted.volume))
        }
    };
    if image == wanted.image {
        return Ok(Decision::Boot { slice: slice?, uuid, image: Booted::Wanted });
    }
    match wanted.on_image_change {
        OnImageChange::Reimage if wanted.converted => Err(Refusal::Converted),
        OnImageChange::Reimage => copy(Why::OtherImage),
        OnImageChange::Keep => Ok(Decision::Boot { slice: slice?, uuid, image: Booted::Kept }),
        OnImageChange::Error => Err(Refusal::OtherImage),
    }
}

fn as_is(seen: &Seen, wanted: &Wanted) -> Result<Decision, Refusal> {
    // Of whatever version: the guest would be shown it.
    if !matches!(seen.header, Ok(None)) {
        return Err(Refusal::NotAsIs);
    }
    let slice = Slice { offset: 0, size: seen.size };
    Ok(Decision::Boot { slice, uuid: volume_name::uuid(&wanted.volume), image: Booted::AsIs })
}

/// What the guest has of a device: all of it from `offset` on, in whole sectors.
fn slice(size: u64, offset: u64, least: u64) -> Result<Slice, Refusal> {
    let needed = offset.saturating_add(least);
    if size < needed {
        return Err(Refusal::Shrunk { size, needed });
    }
    Ok(of_size(size, offset))
}

/// The same of a device that has room.
pub(super) fn of_size(size: u64, offset: u64) -> Slice {
    let size = size.saturating_sub(offset);
    Slice { offset, size: size - size % SECTOR }
}

#[cfg(test)]
mod tests {
    use super::super::header::Written;
    use super::*;

    const SIZE: u64 = 64 << 20;
    const IMAGE: ImageHash = [1; 32];
    const OTHER: ImageHash = [2; 32];

    fn wanted() -> Wanted {
        let (on_image_change, volume) = (OnImageChange::Reimage, "pvc-1".into());
        Wanted { image: IMAGE, virtual_size: 32 << 20, on_image_change, volume, as_is: false, converted: false }
    }

    fn seen(header: Option<Header>) -> Seen {
        Seen { size: SIZE, header: Ok(header), data: None }
    }

    fn ours(image: ImageHash) -> Written {
        Written::begin(image, 32 << 20)
    }

    fn ready(image: ImageHash) -> Option<Header> {
        Some(Header::V2(ours(image).finished()))
    }

    fn refused(seen: &Seen, wanted: &Wanted) -> Refusal {
        judge(seen, wanted).expect_err("refused")
    }

    #[test]
    fn a_blank_device_gets_the_image() {
        assert_eq!(judge(&seen(None), &wanted()), Ok(Decision::Copy(Why::Blank)));
    }

    #[test]
    fn what_holds_something_else_is_refused() {
        let seen = Seen { data: Some("ext4"), ..seen(None) };
        assert_eq!(refused(&seen, &wanted()), Refusal::Foreign("ext4"));
        assert!(refused(&seen, &wanted()).to_string().contains("holds data (ext4)"));
    }

    #[test]
    fn a_copy_of_the_image_boots() {
        let header = ours(IMAGE).finished();
        let uuid = header.uuid;
        let slice = Slice { offset: DATA, size: SIZE - DATA };
        let boots = Decision::Boot { slice, uuid, image: Booted::Wanted };
        let mut device = Seen { data: Some("data"), ..seen(Some(Header::V2(header))) };
        assert_eq!(judge(&device, &wanted()), Ok(boots));
        // It has grown, and not by whole sectors.
        device.size = 2 * SIZE + 100;
        let Ok(Decision::Boot { slice, .. }) = judge(&device, &wanted()) else { panic!("boots") };
        assert_eq!(slice, Slice { offset: DATA, size: 2 * SIZE - DATA });
    }

    #[test]
    fn virtlets_disk_boots_from_its_first_sector_on_and_is_known_by_its_volume() {
        let device = seen(Some(Header::V1 { image: IMAGE }));
        let Ok(Decision::Boot { slice, uuid, image }) = judge(&device, &wanted()) else { panic!("boots") };
        assert_eq!((slice, image), (Slice { offset: 512, size: SIZE - 512 }, Booted::Wanted));
        let Ok(Decision::Boot { uuid: again, .. }) = judge(&device, &wanted()) else { panic!("boots") };
        let elsewhere = Wanted { volume: "pvc-2".into(), ..wanted() };
        let Ok(Decision::Boot { uuid: other, .. }) = judge(&device, &elsewhere) else { panic!("boots") };
        assert!(uuid == again && uuid != other);
    }

    #[test]
    fn the_handler_says_what_becomes_of_another_image() {
        for header in [ready(OTHER), Some(Header::V1 { image: OTHER })] {
            let by = |on_image_change| judge(&seen(header.clone()), &Wanted { on_image_change, ..wanted() });
            assert_eq!(by(OnImageChange::Reimage), Ok(Decision::Copy(Why::OtherImage)));
            assert!(matches!(by(OnImageChange::Keep), Ok(Decision::Boot { image: Booted::Kept, .. })));
            assert_eq!(by(OnImageChange::Error), Err(Refusal::OtherImage));
        }
    }

    #[test]
    fn an_image_that_was_converted_is_copied_to_what_is_blank_and_never_over_a_disk_that_may_be_the_same() {
        let converted = |on_image_change| Wanted { converted: true, on_image_change, ..wanted() };
        let by_default = converted(OnImageChange::Reimage);
        for header in [ready(OTHER), Some(Header::V1 { image: OTHER })] {
            let device = seen(header);
            assert_eq!(refused(&device, &by_default), Refusal::Converted);
            let kept = judge(&device, &converted(OnImageChange::Keep));
            assert!(matches!(kept, Ok(Decision::Boot { image: Booted::Kept, .. })), "{kept:?}");
            assert_eq!(refused(&device, &converted(OnImageChange::Error)), Refusal::OtherImage);
        }
        assert_eq!(judge(&seen(None), &by_default), Ok(Decision::Copy(Why::Blank)));
        assert!(matches!(judge(&seen(ready(IMAGE)), &by_default), Ok(Decision::Boot { image: Booted::Wanted, .. })));
        let unfinished = seen(Some(Header::V2(ours(OTHER))));
        assert_eq!(judge(&unfinished, &by_default), Ok(Decision::Copy(Why::Unfinished)));
    }

    #[test]
    fn a_copy_that_was_cut_short_is_made_anew_whatever_the_handler_says() {
        for image in [IMAGE, OTHER] {
            for on_image_change in OnImageChange::ALL.iter().copied() {
                let device = seen(Some(Header::V2(ours(image))));
                let decision = judge(&device, &Wanted { on_image_change, ..wanted() });
                assert_eq!(decision, Ok(Decision::Copy(Why::Unfinished)));
            }
        }
    }

    #[test]
    fn a_header_that_is_not_understood_is_refused_before_anything_else() {
        for error in [HeaderError::Newer(3), HeaderError::Damaged("x")] {
            let device = Seen { header: Err(error.clone()), size: 0, ..seen(None) };
            assert_eq!(refused(&device, &wanted()), Refusal::Header(error));
        }
    }

    #[test]
    fn a_copy_needs_room_for_header_and_disk() {
        for header in [None, ready(OTHER), Some(Header::V2(ours(IMAGE)))] {
            let wanted = Wanted { virtual_size: SIZE - DATA, ..wanted() };
            let device = seen(header);
            assert!(matches!(judge(&device, &wanted), Ok(Decision::Copy(_))));
            let more = Wanted { virtual_size: SIZE - DATA + 1, ..wanted };
            assert_eq!(refused(&device, &more), Refusal::Small { size: SIZE, needed: SIZE + 1 });
            let absurd = Wanted { virtual_size: u64::MAX, ..more };
            assert_eq!(refused(&device, &absurd), Refusal::Small { size: SIZE, needed: u64::MAX });
        }
    }

    #[test]
    fn a_device_that_has_shrunk_below_its_disk_is_refused() {
        let device = Seen { size: (32 << 20) + DATA - 1, ..seen(ready(IMAGE)) };
        assert!(matches!(refused(&device, &wanted()), Refusal::Shrunk { .. }));
        let mut hostile = ours(IMAGE).finished();
        hostile.offset = u64::MAX - 4095;
        assert!(matches!(refused(&seen(Some(Header::V2(hostile))), &wanted()), Refusal::Shrunk { .. }));
        let tiny = Seen { size: 512, ..seen(Some(Header::V1 { image: IMAGE })) };
        assert!(matches!(refused(&tiny, &wanted()), Refusal::Shrunk { .. }));
    }

    #[test]
    fn a_device_is_taken_as_it_is_if_it_has_no_header() {
        let as_is = Wanted { as_is: true, ..wanted() };
        let device = Seen { data: Some("ext4"), ..seen(None) };
        let Ok(Decision::Boot { slice, image, .. }) = judge(&device, &as_is) else { panic!("boots") };
        assert_eq!((slice, image), (Slice { offset: 0, size: SIZE }, Booted::AsIs));
        for header in [Ok(ready(IMAGE)), Err(HeaderError::Newer(3))] {
            assert_eq!(refused(&Seen { header, ..seen(None) }, &as_is), Refusal::NotAsIs);
        }
    }
}
