//! `virtlet.cloud/emptydir-disks`: `VOLUME=SIZE[,fs=ext4|xfs|none]`, one or more, with `;` between.

use std::collections::BTreeSet;

use super::{Problem, cut};
use crate::plan::{DiskFile, FileSystem};

const MAX_DISKS: usize = 60;

/// An emptyDir that the guest has as a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyDirDisk {
    /// Name of the volume in the pod.
    pub volume: String,
    /// Bytes, whole MiB.
    pub size: u64,
    /// What is made on it; `None` is nothing.
    pub file_system: Option<FileSystem>,
}

pub(super) fn parse(text: &str) -> Result<Vec<EmptyDirDisk>, Problem> {
    let disks = text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(one).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = disks.iter().find(|disk| !seen.insert(&disk.volume)) {
        return Err(problem(format!("names the volume `{}` twice", twice.volume)));
    }
    if disks.len() > MAX_DISKS {
        return Err(problem(format!("names {} volumes, the limit is {MAX_DISKS}", disks.len())));
    }
    Ok(disks)
}

fn one(text: &str) -> Result<EmptyDirDisk, Problem> {
    let mut words = text.split(',').map(str::trim);
    let (volume, size) = words.next().and_then(|first| first.split_once('=')).ok_or_else(|| no_form(text))?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if volume.is_empty() || volume.len() > 63 || !volume.chars().all(is_name) {
        return Err(problem(format!("{} is not the name of a volume", cut(volume))));
    }
    let bytes = super::bytes(size)?;
    let mut file_system = Some(FileSystem::Ext4);
    for word in words {
        file_system = match word.strip_prefix("fs=").ok_or_else(|| no_form(text))? {
            "none" => None,
            word => Some(FileSystem::of(word).ok_or_else(|| {
                let all = FileSystem::WORDS.iter().copied().chain(["none"]).collect();
                Problem::NotOneOf { value: word.to_owned(), all }
            })?),
        };
    }
    let least = DiskFile::least(file_system);
    if !(least..=DiskFile::MOST).contains(&bytes) {
        let (least, most) = (least >> 20, DiskFile::MOST >> 40);
        return Err(problem(format!("{} for `{volume}` is not within {least}Mi to {most}Ti", cut(size))));
    }
    Ok(EmptyDirDisk { volume: volume.to_owned(), size: bytes.next_multiple_of(1 << 20), file_system })
}

fn no_form(text: &str) -> Problem {
    problem(format!("{} is not VOLUME=SIZE[,fs=ext4|xfs|none]", cut(text)))
}

fn problem(what: String) -> Problem {
    Problem::NotEmptyDirDisks(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_read_with_their_sizes_and_file_systems() {
        let disk = |volume: &str, size, file_system| EmptyDirDisk { volume: volume.into(), size, file_system };
        assert_eq!(
            parse("scratch=1Gi; db=300Mi,fs=xfs;raw=16777217,fs=none;").expect("right"),
            [
                disk("scratch", 1 << 30, Some(FileSystem::Ext4)),
                disk("db", 300 << 20, Some(FileSystem::Xfs)),
                disk("raw", 17 << 20, None)
            ]
        );
        assert_eq!(parse("").expect("none"), []);
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let told: Vec<_> = [
            "scratch",
            "=1Gi",
            "a/b=1Gi",
            "a=much",
            "a=1Ki",
            "a=17Ti",
            "a=100Mi,fs=xfs",
            "a=1Gi,fs=ntfs",
            "a=1Gi,x=1",
            "a=1Gi;a=2Gi",
        ]
        .map(|text| parse(text).expect_err(text).to_string())
        .into();
        insta::assert_snapshot!(told.join("\n"), @r#"
        scratch is not VOLUME=SIZE[,fs=ext4|xfs|none]
         is not the name of a volume
        a/b is not the name of a volume
        "much" is not a quantity, such as 10Gi or 1.5G
        1Ki for `a` is not within 16Mi to 16Ti
        17Ti for `a` is not within 16Mi to 16Ti
        100Mi for `a` is not within 300Mi to 16Ti
        "ntfs" is not one of ext4, xfs, none
        a=1Gi,x=1 is not VOLUME=SIZE[,fs=ext4|xfs|none]
        names the volume `a` twice
        "#);
    }
}
