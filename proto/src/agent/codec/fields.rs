//! Reading of a body, field by field; `None` as soon as it has no such field.

use super::{NODEV, NOEXEC, NOSUID};
use crate::agent::{Disk, MAX_WORDS, Mount, MountOptions, Size, Start};

/// What has not been read of a body.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn size(&mut self) -> Option<Size> {
        Some(Size { width: self.u16()?, height: self.u16()? })
    }

    pub(super) fn command(&mut self) -> Option<Start> {
        let [tty, stdin] = self.array()?;
        let size = self.size()?;
        let tty = (tty != 0).then_some(size);
        let (argv, env) = (self.words()?, self.words()?);
        let (cwd, user, groups) = (self.text()?, self.text()?, self.numbers()?);
        Some(Start { argv, env, cwd, user, groups, tty, stdin: stdin != 0 })
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn numbers(&mut self) -> Option<Vec<u32>> {
        let count = usize::from(self.u16()?);
        (0..count).map(|_| self.u32()).collect()
    }

    pub(super) fn words(&mut self) -> Option<Vec<String>> {
        let count = usize::from(self.u16()?);
        if count > MAX_WORDS { None } else { (0..count).map(|_| self.text()).collect() }
    }

    pub(super) fn mounts(&mut self) -> Option<Vec<Mount>> {
        let count = self.u16()?;
        let mount = |_| {
            let (entry, read_only) = (self.u16()?, self.byte()? != 0);
            Some(Mount { entry, path: self.text()?, read_only, options: MountOptions::default() })
        };
        (0..count).map(mount).collect()
    }

    pub(super) fn disks(&mut self) -> Option<Vec<Disk>> {
        let count = self.u16()?;
        let disk = |_| {
            let read_only = self.byte()? != 0;
            let (serial, path, file_system) = (self.text()?, self.text()?, self.text()?);
            Some(Disk { serial, path, file_system, read_only, partition: 0, options: MountOptions::default() })
        };
        (0..count).map(disk).collect()
    }

    /// None with an option that is not known: it could not be held.
    pub(super) fn options(&mut self) -> Option<MountOptions> {
        let bits = self.byte()?;
        let of = |bit| bits & bit != 0;
        let options = MountOptions { noexec: of(NOEXEC), nodev: of(NODEV), nosuid: of(NOSUID) };
        (bits & !(NOEXEC | NODEV | NOSUID) == 0).then_some(options)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
