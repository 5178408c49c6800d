//! A block of memory that direct I/O accepts.

/// Size of a block. Measured: 4 MiB is slower, as a block then leaves the cache between receiver, hash and disk.
pub(super) const SIZE: usize = 1 << 20;
/// What direct I/O wants addresses, lengths and offsets to be multiples of, on any disk of today.
pub(super) const ALIGN: usize = 4096;

/// Up to [`SIZE`] bytes, beginning at a multiple of [`ALIGN`].
pub(crate) struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    capacity: usize,
}

impl Block {
    pub(crate) fn new() -> Self {
        let memory = vec![0; SIZE + ALIGN];
        // The vector never grows, so the place stays.
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { memory, start, length: 0, capacity: SIZE }
    }

    /// The same block, full with `capacity` bytes already.
    pub(crate) fn limited(mut self, capacity: usize) -> Self {
        self.capacity = capacity.min(SIZE);
        self
    }

    /// Where the next bytes go.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start + self.length..self.start + self.capacity]
    }

    /// Says that so many bytes were put into the room.
    pub(crate) fn advance(&mut self, count: usize) {
        self.length = (self.length + count).min(self.capacity);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, with zeros behind them up to a multiple of [`ALIGN`].
    pub(super) fn padded(&mut self) -> &[u8] {
        let end = self.length.next_multiple_of(ALIGN);
        self.memory[self.start + self.length..self.start + end].fill(0);
        &self.memory[self.start..self.start + end]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.length == self.capacity
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.capacity = SIZE;
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Block({} bytes)", self.length)
    }
}
