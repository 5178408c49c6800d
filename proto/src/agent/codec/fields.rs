//! Reading of a body, field by field; `None` as soon as it has no such field.

use crate::agent::{Disk, MAX_WORDS, Mount, Size, Start};

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
            Some(Mount { entry, path: self.text()?, read_only })
        };
        (0..count).map(mount).collect()
    }

    pub(super) fn disks(&mut self) -> Option<Vec<Disk>> {
        let count = self.u16()?;
        let disk = |_| {
            let read_only = self.byte()? != 0;
            let (serial, path, file_system) = (self.text()?, self.text()?, self.text()?);
            Some(Disk { serial, path, file_system, read_only, partition: 0 })
        };
        (0..count).map(disk).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
