//! How large a new disk a pod may ask for, so that one pod does not fill the node. Pure.

use crate::annotations::PodAnnotations;
use crate::error::{Error, Kind, Result};
use crate::plan::Disk;

const GIB: u64 = 1 << 30;

/// Looks at the root disk and at these; `most` is in bytes.
///
/// # Errors
/// When the pod asks for larger ones, with all of them.
pub(super) fn check(annotations: &PodAnnotations, files: &[&Disk], most: Option<u64>) -> Result<()> {
    let Some(most) = most else { return Ok(()) };
    let root = annotations.root_volume_size.map(|size| ("annotation VirtletRootVolumeSize".to_owned(), size));
    let of_file = |disk: &&Disk| Some((format!("disk `{}`", disk.serial), disk.source.file()?.size));
    let wrong: Vec<Error> = (root.into_iter().chain(files.iter().filter_map(of_file)))
        .filter(|(_, size)| *size > most)
        .map(|(what, size)| {
            let (size, most) = (size.div_ceil(GIB), most / GIB);
            let what = format!(
                "{what}: {size} GiB are more than the {most} GiB that controld gives a disk; ask for less, or have \
                 `max_disk_gib` of `machine` or of the runtime handler raised"
            );
            Error::new(Kind::Invalid, what)
        })
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(Error::all(&wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountOptions;
    use crate::plan::{DiskFile, DiskSource, Serial};

    fn of_file(name: &str, size: u64) -> Disk {
        let file = DiskFile { dir: "/scratch".into(), size, file_system: None };
        Disk {
            name: String::new(),
            serial: Serial::of_name(name),
            source: DiskSource::File(file),
            path: format!("/srv/{name}"),
            read_only: false,
            options: MountOptions::default(),
        }
    }

    #[test]
    fn each_disk_that_is_too_large_is_named() {
        let annotations = |size| PodAnnotations { root_volume_size: size, ..PodAnnotations::default() };
        let [small, large] = [of_file("small", 2 * GIB), of_file("large", 2 * GIB + 1)];
        let both = [&small, &large];
        check(&annotations(Some(u64::MAX)), &both, None).expect("no limit");
        check(&annotations(Some(2 * GIB)), &[&small], Some(2 * GIB)).expect("as large as may be");
        check(&annotations(None), &[], Some(GIB)).expect("as large as its image");
        let refused = check(&annotations(Some(3 * GIB)), &both, Some(2 * GIB)).expect_err("too large").to_string();
        for said in ["VirtletRootVolumeSize: 3 GiB are more than the 2 GiB", "disk `large`: 3 GiB are more"] {
            assert!(refused.contains(said), "{refused}");
        }
        assert!(!refused.contains("small"), "{refused}");
    }
}
