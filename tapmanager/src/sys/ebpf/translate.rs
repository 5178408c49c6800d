//! From classic to extended BPF, instruction by instruction, much as the kernel does it for itself.
//!
//! Called by [`super::load`]. `A` lives in register 7 and `X` in register 8, which calls and packet loads leave alone;
//! register 6 holds the context, where packet loads look for it; scratch cells are words on the stack. Packet loads
//! stay the legacy ones (`BPF_LD | BPF_ABS` and `BPF_IND`): as in classic BPF they end the program with 0 beyond the
//! frame's end, so the verifier asks for no proof of lengths.
//!
//! Encoding: kernel header `linux/bpf.h` and `Documentation/bpf/standardization/instruction-set.rst`.

use super::EbpfError;
use crate::sys::bpf::{self, Program};
use crate::sys::tc;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

// Registers.
const RESULT: u8 = 0;
const ARGUMENT_1: u8 = 1;
const ARGUMENT_2: u8 = 2;
const CONTEXT: u8 = 6;
const A: u8 = 7;
const X: u8 = 8;
const STACK: u8 = 10;

// Operation codes, put together from class, size or operation, and mode or source.
const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const MOVE_64: u8 = 0xbf;
const MOVE: u8 = 0xbc;
const MOVE_CONSTANT: u8 = 0xb4;
const AND_CONSTANT: u8 = 0x54;
const SHIFT_LEFT_CONSTANT: u8 = 0x64;
const LOAD_PACKET_BYTE: u8 = 0x30;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The class of jumps that compare 32 bits, in place of the classic jumps' class.
const JUMP_32: u8 = 0x06;

/// `BPF_FUNC_redirect`.
const REDIRECT: i32 = 23;
// Offsets in `struct __sk_buff`.
const LENGTH: i16 = 0;
const VLAN_PRESENT: i16 = 20;

/// Translates a guard. What it lets go on is redirected out of the link `redirect_to`.
pub(super) fn translate(guard: &Program, redirect_to: u32) -> Result<Vec<Instruction>, EbpfError> {
    let mut out = Output::default();
    out.push(MOVE_64, CONTEXT, ARGUMENT_1, 0, 0);
    out.push(MOVE_CONSTANT, A, 0, 0, 0);
    out.push(MOVE_CONSTANT, X, 0, 0, 0);
    for (at, instruction) in guard.instructions().iter().enumerate() {
        out.starts.push(out.code.len());
        out.add(*instruction, at, redirect_to)?;
    }
    Ok(out.finish())
}

#[derive(Default)]
struct Output {
    code: Vec<Instruction>,
    /// Where each classic instruction begins.
    starts: Vec<usize>,
    /// Jumps and the classic instructions that they go to.
    jumps: Vec<(usize, usize)>,
}

impl Output {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn jump(&mut self, code: u8, from: u8, immediate: i32, target: usize) {
        self.jumps.push((self.code.len(), target));
        self.push(code, if code == JUMP { 0 } else { A }, from, 0, immediate);
    }

    fn add(&mut self, instruction: bpf::Instruction, at: usize, redirect_to: u32) -> Result<(), EbpfError> {
        let bpf::Instruction { code, jt, jf, k } = instruction;
        let unknown = EbpfError::Untranslatable { code };
        let Ok(byte) = u8::try_from(code) else { return Err(unknown) };
        let number = k.cast_signed();
        // A program has 16 cells at most (the kernel refuses others).
        let cell = || i16::try_from(k).map(|k| -4 * (k % 16 + 1)).unwrap_or(-4);
        match byte {
            0x20 | 0x28 | 0x30 if k == bpf::VLAN_TAG_PRESENT => self.push(LOAD_WORD, A, CONTEXT, VLAN_PRESENT, 0),
            0x20 | 0x28 | 0x30 => {
                self.push(byte, 0, 0, 0, number);
                self.push(MOVE, A, RESULT, 0, 0);
            }
            0x40 | 0x48 | 0x50 => {
                self.push(byte, 0, X, 0, number);
                self.push(MOVE, A, RESULT, 0, 0);
            }
            0xb1 => {
                self.push(LOAD_PACKET_BYTE, 0, 0, 0, number);
                self.push(MOVE, X, RESULT, 0, 0);
                self.push(AND_CONSTANT, X, 0, 0, 0xf);
                self.push(SHIFT_LEFT_CONSTANT, X, 0, 0, 2);
            }
            0x80 => self.push(LOAD_WORD, A, CONTEXT, LENGTH, 0),
            0x00 => self.push(MOVE_CONSTANT, A, 0, 0, number),
            0x01 => self.push(MOVE_CONSTANT, X, 0, 0, number),
            0x60 => self.push(LOAD_WORD, A, STACK, cell(), 0),
            0x02 => self.push(STORE_WORD, STACK, A, cell(), 0),
            0x07 => self.push(MOVE, X, A, 0, 0),
            // Arithmetic is of 32 bits in both, with the same codes.
            0x04 | 0x54 | 0x64 | 0x74 => self.push(byte, A, 0, 0, number),
            0x0c | 0x1c => self.push(byte, A, X, 0, 0),
            0x05 => self.jump(JUMP, 0, 0, at.saturating_add(1).saturating_add(k as usize)),
            0x15 | 0x35 | 0x45 => self.branch(byte, 0, number, at, (jt, jf)),
            0x3d => self.branch(byte, X, 0, at, (jt, jf)),
            0x06 if k == tc::GO_ON => {
                self.push(MOVE_CONSTANT, ARGUMENT_1, 0, 0, redirect_to.cast_signed());
                self.push(MOVE_CONSTANT, ARGUMENT_2, 0, 0, 0);
                self.push(CALL, 0, 0, 0, REDIRECT);
                self.push(EXIT, 0, 0, 0, 0);
            }
            0x06 => {
                self.push(MOVE_CONSTANT, RESULT, 0, 0, number);
                self.push(EXIT, 0, 0, 0, 0);
            }
            _ => return Err(unknown),
        }
        Ok(())
    }

    fn branch(&mut self, code: u8, from: u8, immediate: i32, at: usize, (jt, jf): (u8, u8)) {
        self.jump(code & !0x07 | JUMP_32, from, immediate, at + 1 + usize::from(jt));
        if jf != 0 {
            self.jump(JUMP, 0, 0, at + 1 + usize::from(jf));
        }
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, target) in self.jumps {
            // A classic program has 4096 instructions and each becomes four at most. A jump out of it, which no
            // assembled program has, becomes an endless loop here, and those the verifier refuses.
            let target = self.starts.get(target).copied().unwrap_or(at);
            let distance = target.cast_signed() - at.cast_signed() - 1;
            if let Some(jump) = self.code.get_mut(at) {
                jump.offset = i16::try_from(distance).unwrap_or(-1);
            }
        }
        self.code
    }
}
