//! A block of memory that direct I/O accepts.

/// Size of a block. Measured: 4 MiB is slower, as a block then leaves the cache between receiver, hash and disk.
pub(super) const SIZE: usize = 1 << 20;
/// What direct I/O wants addresses, lengths and offsets to be multiples of, on any disk of today.
pub(super) const ALIGN: usize = 4096;

/// Up to [`SIZE`] bytes, beginning at a multiple of [`ALIGN`].
pub(super) struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    pub(super) fn new() -> Self {
        let memory = vec![0; SIZE + ALIGN];
        // The vector never grows, so the place stays.
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { memory, start, length: 0 }
    }

    /// Takes as many of the bytes as there is room for, and says how many.
    pub(super) fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(SIZE - self.length);
        let at = self.start + self.length;
        self.memory[at..at + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
        taken
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, with zeros behind them up to a multiple of [`ALIGN`].
    pub(super) fn padded(&mut self) -> &[u8] {
        let end = self.length.next_multiple_of(ALIGN);
        self.memory[self.start + self.length..self.start + end].fill(0);
        &self.memory[self.start..self.start + end]
    }

    pub(super) fn is_full(&self) -> bool {
        self.length == SIZE
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Block({} bytes)", self.length)
    }
}
