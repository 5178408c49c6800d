//! An interpreter of classic BPF for tests: what the kernel would decide about a frame, without a kernel.
//!
//! Knows exactly the instructions that the assembler can emit, written from the kernel's description of the machine
//! and not from the assembler's constants, so that a wrong encoding shows.

use super::Program;

/// A frame and what the kernel knows about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    /// From the destination MAC address on.
    pub(crate) frame: &'a [u8],
    /// Whether a VLAN tag was taken off it.
    pub(crate) vlan_tagged: bool,
}

/// What the program returns for `input`; a load beyond the end returns 0, as in the kernel.
///
/// Panics on whatever the kernel's checker would refuse: a jump out of the program, an unknown instruction.
pub(crate) fn run(program: &Program, input: Input<'_>) -> u32 {
    let Input { frame, vlan_tagged } = input;
    let load = |at: u32, size: usize| -> Option<u32> {
        if at == 0xffff_f000 + 48 {
            return Some(u32::from(vlan_tagged));
        }
        let at = usize::try_from(at).expect("64-bit machine");
        let bytes = frame.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    let code = program.instructions();
    let (mut a, mut x, mut memory, mut pc) = (0_u32, 0_u32, [0_u32; 16], 0_usize);
    loop {
        let now = code.get(pc).expect("program runs off its end");
        pc += 1;
        let k = now.k;
        let mut jump = |holds: bool| pc += usize::from(if holds { now.jt } else { now.jf });
        let loaded = match now.code {
            0x30 => load(k, 1),
            0x28 => load(k, 2),
            0x20 => load(k, 4),
            0x40 => load(x.wrapping_add(k), 4),
            0x50 => load(x.wrapping_add(k), 1),
            0x48 => load(x.wrapping_add(k), 2),
            0xb1 => {
                let Some(byte) = load(k, 1) else { return 0 };
                x = 4 * (byte & 0xf);
                continue;
            }
            _ => {
                match now.code {
                    0x80 => a = u32::try_from(frame.len()).expect("short frame"),
                    0x00 => a = k,
                    0x01 => x = k,
                    0x07 => x = a,
                    0x04 => a = a.wrapping_add(k),
                    0x0c => a = a.wrapping_add(x),
                    0x1c => a = a.wrapping_sub(x),
                    0x54 => a &= k,
                    0x64 => a <<= k,
                    0x74 => a >>= k,
                    0x02 => memory[usize::try_from(k).expect("64-bit machine")] = a,
                    0x60 => a = memory[usize::try_from(k).expect("64-bit machine")],
                    0x05 => pc += usize::try_from(k).expect("64-bit machine"),
                    0x15 => jump(a == k),
                    0x35 => jump(a >= k),
                    0x3d => jump(a >= x),
                    0x45 => jump(a & k != 0),
                    0x06 => return k,
                    other => panic!("instruction {other:#x} is not known"),
                }
                continue;
            }
        };
        let Some(value) = loaded else { return 0 };
        a = value;
    }
}
