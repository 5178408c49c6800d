//! A small assembler for classic BPF, the filter language of packet sockets and of `cls_bpf`.
//!
//! Used by [`crate::net::filter`], which says what the programs decide, and by [`super::tc`] and [`super::packet`],
//! which hand them to the kernel. Jumps go forward only (the machine's rule), so a label is used first and bound later.
//! The machine's conditional jumps reach 255 instructions: where that is not enough, [`Assembler::finish`] makes two
//! instructions of one. A load beyond the end of the frame ends a program with 0, which `cls_bpf` takes for "let the
//! namespace's stack have it": programs for it must check lengths before they load, see [`Test::AtLeastX`].
//!
//! Encoding: kernel header `linux/bpf_common.h`, meaning: `Documentation/networking/filter.rst`.

use std::collections::BTreeSet;

#[cfg(test)]
pub(crate) mod interpreter;
#[cfg(test)]
pub(crate) mod trial;

/// `BPF_MAXINSNS`: the most instructions of a classic program.
const MAX_LEN: usize = 4096;

// Classes, sizes, modes and operations of `linux/bpf_common.h` and `linux/filter.h`.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;
const X: u16 = 0x08;
const TAX: u16 = 0x00;
/// Offset at which loads read what the kernel knows about the frame instead of its bytes (`SKF_AD_OFF`).
const ANCILLARY: u32 = (-0x1000_i32).cast_unsigned();
/// Whether the kernel took an 802.1Q tag off the frame (`SKF_AD_VLAN_TAG_PRESENT`).
pub(crate) const VLAN_TAG_PRESENT: u32 = ANCILLARY + 48;

/// One instruction, as `struct sock_filter` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// Operation.
    pub(crate) code: u16,
    /// Instructions to skip when a test holds.
    pub(crate) jt: u8,
    /// Instructions to skip when it does not.
    pub(crate) jf: u8,
    /// Operand.
    pub(crate) k: u32,
}

/// A finished program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    instructions: Vec<Instruction>,
}

/// A place in a program that is not yet known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label(usize);

/// What a program does besides jumping and returning. `A` is the accumulator, `X` the index register.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// `A` = byte of the frame.
    Byte(u32),
    /// `A` = 16 bits of the frame, big endian.
    Half(u32),
    /// `A` = 32 bits of the frame, big endian.
    Word(u32),
    /// `A` = byte of the frame at `X` plus this.
    ByteAtX(u32),
    /// `A` = 16 bits of the frame at `X` plus this.
    HalfAtX(u32),
    /// `A` = 32 bits of the frame at `X` plus this.
    WordAtX(u32),
    /// `A` = length of the frame.
    Length,
    /// `A` = 1 if the kernel took a VLAN tag off the frame, else 0.
    VlanTagged,
    /// `X` = 4 times the low four bits of this byte of the frame: the length of an IPv4 header.
    XIpv4HeaderLength(u32),
    /// `A` = this.
    AIs(u32),
    /// `X` = this.
    XIs(u32),
    /// `X` = `A`.
    XIsA,
    /// `A` += this.
    Add(u32),
    /// `A` += `X`.
    AddX,
    /// `A` -= `X`.
    SubX,
    /// `A` <<= this.
    ShiftLeft(u32),
    /// `A` >>= this.
    ShiftRight(u32),
    /// `A` = its bits that this has too.
    And(u32),
    /// Puts `A` into this cell of the scratch memory.
    Store(u32),
    /// Gets `A` from this cell.
    Recall(u32),
}

/// What a conditional jump asks of `A`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Test {
    /// Equals this.
    Is(u32),
    /// Is this or more.
    AtLeast(u32),
    /// Is `X` or more.
    AtLeastX,
    /// Has any of these bits.
    AnyBit(u32),
}

/// Why a program cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssembleError {
    /// A label was never bound.
    #[error("step {at} jumps to a label that is nowhere")]
    Unbound {
        /// The jump.
        at: usize,
    },
    /// A jump backwards.
    #[error("step {at} jumps backwards, which classic BPF cannot")]
    Backwards {
        /// The jump.
        at: usize,
    },
    /// More than the kernel takes.
    #[error("a program of {len} instructions, and the kernel takes {MAX_LEN}")]
    TooLong {
        /// Its length.
        len: usize,
    },
}

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Draft>,
    labels: Vec<Option<usize>>,
}

#[derive(Debug, Clone, Copy)]
enum Draft {
    Done(Instruction),
    Jump(Label),
    When { code: u16, k: u32, label: Label, holds: bool },
}

// === impl Program ===

impl Program {
    /// The instructions in order.
    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The program that returns one value whatever the frame.
    pub(crate) fn always(value: u32) -> Self {
        Self { instructions: vec![Instruction { code: RET, jt: 0, jf: 0, k: value }] }
    }
}

// === impl Assembler ===

impl Assembler {
    /// A label to jump to, to be [bound](Self::bind) further down.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts `label` here.
    pub(crate) fn bind(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.code.len());
        }
    }

    /// Appends a step.
    pub(crate) fn op(&mut self, op: Op) {
        let (code, k) = match op {
            Op::Byte(k) => (LD | B | ABS, k),
            Op::Half(k) => (LD | H | ABS, k),
            Op::Word(k) => (LD | W | ABS, k),
            Op::ByteAtX(k) => (LD | B | IND, k),
            Op::HalfAtX(k) => (LD | H | IND, k),
            Op::WordAtX(k) => (LD | W | IND, k),
            Op::Length => (LD | W | LEN, 0),
            Op::VlanTagged => (LD | W | ABS, VLAN_TAG_PRESENT),
            Op::XIpv4HeaderLength(k) => (LDX | B | MSH, k),
            Op::AIs(k) => (LD | W | IMM, k),
            Op::XIs(k) => (LDX | W | IMM, k),
            Op::XIsA => (MISC | TAX, 0),
            Op::Add(k) => (ALU | ADD, k),
            Op::AddX => (ALU | ADD | X, 0),
            Op::SubX => (ALU | SUB | X, 0),
            Op::ShiftLeft(k) => (ALU | LSH, k),
            Op::ShiftRight(k) => (ALU | RSH, k),
            Op::And(k) => (ALU | AND, k),
            Op::Store(cell) => (ST, cell),
            Op::Recall(cell) => (LD | W | MEM, cell),
        };
        self.push(code, k);
    }

    /// Goes to `label` when `test` holds, else on.
    pub(crate) fn when(&mut self, test: Test, label: Label) {
        self.branch(test, label, true);
    }

    /// Goes to `label` unless `test` holds, else on.
    pub(crate) fn unless(&mut self, test: Test, label: Label) {
        self.branch(test, label, false);
    }

    /// Goes to `label`, however far.
    pub(crate) fn jump(&mut self, label: Label) {
        self.code.push(Draft::Jump(label));
    }

    /// Ends the program with `value`.
    pub(crate) fn give(&mut self, value: u32) {
        self.push(RET, value);
    }

    /// The program.
    pub(crate) fn finish(self) -> Result<Program, AssembleError> {
        // The conditional jumps that reach their label only by a jump of their own. Each round finds more or is the
        // last.
        let mut far = vec![false; self.code.len()];
        loop {
            let (instructions, too_far) = self.emit(&far)?;
            if too_far.is_empty() {
                let len = instructions.len();
                return if len > MAX_LEN { Err(AssembleError::TooLong { len }) } else { Ok(Program { instructions }) };
            }
            far.iter_mut().enumerate().filter(|(at, _)| too_far.contains(at)).for_each(|(_, far)| *far = true);
        }
    }

    /// The instructions when these jumps are far ones, and which others should be.
    fn emit(&self, far: &[bool]) -> Result<(Vec<Instruction>, BTreeSet<usize>), AssembleError> {
        let mut starts = vec![0];
        starts.extend(far.iter().scan(0, |end, far| {
            *end += 1 + usize::from(*far);
            Some(*end)
        }));
        // From behind the instruction at `from` to the label.
        let distance = |at: usize, from: usize, label: Label| {
            let target = self.labels.get(label.0).copied().flatten().ok_or(AssembleError::Unbound { at })?;
            let target = starts.get(target).copied().ok_or(AssembleError::Unbound { at })?;
            let skipped = target.checked_sub(from + 1).ok_or(AssembleError::Backwards { at })?;
            u32::try_from(skipped).map_err(|_| AssembleError::TooLong { len: target })
        };
        let always = |k| Instruction { code: JMP | JA, jt: 0, jf: 0, k };
        let mut instructions = Vec::new();
        let mut too_far = BTreeSet::new();
        for (at, (draft, far)) in self.code.iter().zip(far).enumerate() {
            let here = instructions.len();
            match *draft {
                Draft::Done(instruction) => instructions.push(instruction),
                Draft::Jump(label) => instructions.push(always(distance(at, here, label)?)),
                Draft::When { code, k, label, holds } if *far => {
                    let (jt, jf) = if holds { (0, 1) } else { (1, 0) };
                    instructions.push(Instruction { code, jt, jf, k });
                    instructions.push(always(distance(at, here + 1, label)?));
                }
                Draft::When { code, k, label, holds } => {
                    let skipped = u8::try_from(distance(at, here, label)?).unwrap_or_else(|_| {
                        too_far.insert(at);
                        u8::MAX
                    });
                    let (jt, jf) = if holds { (skipped, 0) } else { (0, skipped) };
                    instructions.push(Instruction { code, jt, jf, k });
                }
            }
        }
        Ok((instructions, too_far))
    }

    fn branch(&mut self, test: Test, label: Label, holds: bool) {
        let (code, k) = match test {
            Test::Is(k) => (JMP | JEQ, k),
            Test::AtLeast(k) => (JMP | JGE, k),
            Test::AtLeastX => (JMP | JGE | X, 0),
            Test::AnyBit(k) => (JMP | JSET, k),
        };
        self.code.push(Draft::When { code, k, label, holds });
    }

    fn push(&mut self, code: u16, k: u32) {
        self.code.push(Draft::Done(Instruction { code, jt: 0, jf: 0, k }));
    }
}

#[cfg(test)]
mod tests;
