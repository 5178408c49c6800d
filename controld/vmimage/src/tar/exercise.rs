//! Archives for tests, of this crate and of others: sound ones, odd ones, and some that GNU tar has made.

use super::BLOCK;

/// By GNU tar, in each of its forms, with one file `disk/disk.img` of 300 KiB, most of which are holes.
pub const SPARSE: [(&str, &[u8]); 4] = [
    ("gnu", include_bytes!("fixtures/gnu.tar")),
    ("pax 1.0", include_bytes!("fixtures/posix.tar")),
    ("pax 0.1", include_bytes!("fixtures/posix-0.1.tar")),
    ("pax 0.0", include_bytes!("fixtures/posix-0.0.tar")),
];

/// Makes an archive, entry by entry.
#[derive(Debug, Clone, Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// An entry of any kind, by the letter that its header has.
    #[must_use]
    pub fn entry(self, kind: u8, path: &str, data: &[u8]) -> Self {
        self.header(kind, path, data.len() as u64, |_| {}).data(data)
    }

    #[must_use]
    pub fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(b'0', path, data)
    }

    #[must_use]
    pub fn dir(self, path: &str) -> Self {
        self.entry(b'5', path, b"")
    }

    /// An extended header with these records.
    #[must_use]
    pub fn pax(self, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let digits = (rest.len() + 2).to_string().len();
            let digits = (rest.len() + digits).to_string().len();
            text += &format!("{}{rest}", rest.len() + digits);
        }
        self.entry(b'x', "pax", text.as_bytes())
    }

    /// A header alone, with what `change` makes of it, and the sum of that. Its path has a hundred bytes at most.
    #[must_use]
    pub fn header(mut self, kind: u8, path: &str, size: u64, change: impl FnOnce(&mut [u8; BLOCK])) -> Self {
        let mut block = [0_u8; BLOCK];
        block[..path.len()].copy_from_slice(path.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        change(&mut block);
        sum(&mut block);
        self.0.extend(block);
        self
    }

    /// Data, and what fills its last block.
    #[must_use]
    pub fn data(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// The archive with its end.
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }

    /// The archive without an end, which some writers leave out.
    #[must_use]
    pub fn cut(self) -> Vec<u8> {
        self.0
    }
}

/// Puts the right sum into a header; into nothing that is too short for one.
pub fn sum(header: &mut [u8]) {
    let Some(field) = header.get_mut(148..156) else { return };
    field.fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
