//! The head of a file with a machine's memory, as libvirt saves and restores one. Pure.
//!
//! libvirt makes the machine of the description in the head, and QEMU reads what follows. A description that differs by name or UUID is not
//! taken beside the file, so a machine that goes on as another one has another head.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | [`MAGIC`], or [`PARTIAL`] until all is written |
//! | 4 | version, 2 |
//! | 4 | bytes of the descriptions that follow the head |
//! | 4 | whether the guest ran |
//! | 4 | how the memory is compressed; 0 is not |
//! | 4 | where libvirt's own notes begin in the descriptions; 0 if there are none |
//! | 56 | unused |
//! | n | the machine's description, ended by a NUL, then those notes, also ended by one, then room for a longer description |
//!
//! Numbers are in the byte order of the node. The notes have the CPU that libvirt made of the description. A new head has none: what they would
//! add is compared before, and libvirtd, which is root, is to read nothing that we have not written.

/// Bytes before the descriptions.
pub const HEAD: usize = 92;
/// Of one that is whole.
const MAGIC: &[u8; 16] = b"LibvirtQemudSave";
/// Of one that libvirt has not come to the end of.
const PARTIAL: &[u8; 16] = b"LibvirtQemudPart";
const VERSION: u32 = 2;
/// Most bytes of the descriptions; a machine's takes some ten thousand, and libvirt adds 64 KiB of room.
const MOST: u32 = 4 << 20;
/// What QEMU's own part begins with: its mark, and the version of its form.
pub const QEMUS: [u8; 8] = *b"QEVM\0\0\0\x03";

/// What of a head is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedHead {
    /// Bytes of the descriptions.
    room: u32,
}

/// Why a file is none of saved memory that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrestorable {
    #[error("it has no head of a saved machine")]
    Foreign,
    #[error("libvirt has not written it to its end")]
    Partial,
    #[error("its head is of version {0}, and not of 2")]
    Version(u32),
    #[error(
        "it is compressed (form {0} of libvirt's), and is restored only as it is; see `snapshot_image_format` of the node that wrote it"
    )]
    Compressed(u32),
    #[error("its descriptions have {0} bytes, and not 1 to {MOST}")]
    Room(u32),
    #[error("QEMU's part of it does not begin where its head says")]
    NoMemory,
    #[error("the machine's description has {0} bytes, and the head has room for {1}")]
    Long(usize, u32),
    #[error("the machine's description has a NUL")]
    Nul,
}

impl SavedHead {
    /// Of the first [`HEAD`] bytes of a file.
    ///
    /// # Errors
    /// When they are none of a file that can be restored.
    pub fn parse(head: &[u8; HEAD]) -> Result<Self, Unrestorable> {
        let (magic, numbers) = head.split_at(MAGIC.len());
        if magic == PARTIAL {
            return Err(Unrestorable::Partial);
        }
        if magic != MAGIC {
            return Err(Unrestorable::Foreign);
        }
        let mut numbers = numbers.as_chunks::<4>().0.iter().map(|number| u32::from_ne_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        let (version, room, _ran, form) = (next(), next(), next(), next());
        if version != VERSION {
            return Err(Unrestorable::Version(version));
        }
        if form != 0 {
            return Err(Unrestorable::Compressed(form));
        }
        if !(1..=MOST).contains(&room) {
            return Err(Unrestorable::Room(room));
        }
        Ok(Self { room })
    }

    /// Where QEMU's part begins.
    #[must_use]
    pub fn memory_at(self) -> u64 {
        HEAD as u64 + u64::from(self.room)
    }

    /// All up to QEMU's part, with this description, of a guest that is not to run at once.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn with(self, description: &str) -> Result<Vec<u8>, Unrestorable> {
        if description.contains('\0') {
            return Err(Unrestorable::Nul);
        }
        let len = description.len().saturating_add(1);
        if u32::try_from(len).ok().is_none_or(|len| len > self.room) {
            return Err(Unrestorable::Long(len, self.room));
        }
        let mut bytes = Vec::with_capacity(HEAD + len);
        bytes.extend(MAGIC);
        for number in [VERSION, self.room, 0, 0, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.resize(HEAD, 0);
        bytes.extend(description.as_bytes());
        bytes.resize(usize::try_from(self.memory_at()).unwrap_or(usize::MAX), 0);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(magic: &[u8; 16], numbers: [u32; 5]) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..16].copy_from_slice(magic);
        for (nth, number) in numbers.iter().enumerate() {
            head[16 + 4 * nth..][..4].copy_from_slice(&number.to_ne_bytes());
        }
        head
    }

    /// As libvirt 11.3 writes it.
    fn whole() -> [u8; HEAD] {
        head(MAGIC, [2, 69_516, 0, 0, 3744])
    }

    #[test]
    fn a_head_has_another_description_at_the_same_place() {
        let saved = SavedHead::parse(&whole()).expect("whole");
        assert_eq!(saved.memory_at(), 92 + 69_516);
        let bytes = saved.with("<domain/>").expect("there is room");
        assert_eq!(bytes.len(), 92 + 69_516);
        assert_eq!(bytes[..HEAD], head(MAGIC, [2, 69_516, 0, 0, 0]), "without libvirt's notes");
        assert_eq!(bytes[HEAD..HEAD + 10], *b"<domain/>\0");
        assert!(bytes[HEAD + 10..].iter().all(|byte| *byte == 0));
        let again = SavedHead::parse(bytes.first_chunk().expect("a head")).expect("whole");
        assert_eq!(again, saved, "it can be written again");
    }

    #[test]
    fn what_cannot_be_restored_says_why() {
        let cases = [
            (head(b"LibvirtQemudPart", [2, 9, 0, 0, 0]), Unrestorable::Partial),
            (head(b"qemu-save-magic!", [2, 9, 0, 0, 0]), Unrestorable::Foreign),
            ([0; HEAD], Unrestorable::Foreign),
            (head(MAGIC, [3, 9, 0, 0, 0]), Unrestorable::Version(3)),
            (head(MAGIC, [2, 9, 0, 5, 0]), Unrestorable::Compressed(5)),
            (head(MAGIC, [2, 0, 0, 0, 0]), Unrestorable::Room(0)),
            (head(MAGIC, [2, u32::MAX, 0, 0, 0]), Unrestorable::Room(u32::MAX)),
        ];
        for (head, why) in cases {
            assert_eq!(SavedHead::parse(&head), Err(why));
        }
        let small = SavedHead::parse(&head(MAGIC, [2, 10, 0, 0, 0])).expect("whole");
        small.with("<domain/>").expect("just fits");
        assert_eq!(small.with("<domain />"), Err(Unrestorable::Long(11, 10)));
        assert_eq!(small.with("a\0b"), Err(Unrestorable::Nul));
    }
}
