//! What the probe boots: an initramfs with one program of a few dozen bytes. Pure.
//!
//! The program says its line on the console and powers off. It is written here byte by byte, so that nothing has to be
//! installed for it, and it is 64-bit code, because what KVM was seen to fail at is getting there.

/// What the program says.
pub(super) const MARKER: &str = "virtlet-probe: init reached";

const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const LOAD_ADDRESS: u64 = 0x40_0000;

/// An initramfs in cpio's `newc` form (kernel, `Documentation/driver-api/early-userspace/buffer-format.rst`).
pub(super) fn initramfs() -> Vec<u8> {
    let mut archive = Vec::new();
    let directory = 0o040_755;
    let device = 0o020_600;
    entry(&mut archive, "dev", directory, (0, 0), &[]);
    // The kernel opens it as the program's standard output.
    entry(&mut archive, "dev/console", device, (5, 1), &[]);
    entry(&mut archive, "init", 0o100_755, (0, 0), &program());
    entry(&mut archive, "TRAILER!!!", 0, (0, 0), &[]);
    archive
}

fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    archive.extend_from_slice(b"070701");
    let inode = length(archive.len());
    let fields = [inode, mode, 0, 0, 1, 0, length(contents.len()), 0, 0, device.0, device.1, length(name.len() + 1), 0];
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(contents);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// An ELF executable (System V ABI, AMD64 supplement) with one loaded segment: headers, code, text.
fn program() -> Vec<u8> {
    let text = format!("{MARKER}\n");
    let code = code(u32::try_from(text.len()).unwrap_or(u32::MAX));
    let start = ELF_HEADER + PROGRAM_HEADER;
    let size = (start + code.len() + text.len()) as u64;

    let mut elf = Vec::new();
    // Class 64, little endian, version 1, System V.
    elf.extend_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // ET_EXEC, EM_X86_64, version.
    elf.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend_from_slice(&(LOAD_ADDRESS + start as u64).to_le_bytes());
    elf.extend_from_slice(&(ELF_HEADER as u64).to_le_bytes());
    elf.extend_from_slice(&0_u64.to_le_bytes());
    elf.extend_from_slice(&0_u32.to_le_bytes());
    for half in [ELF_HEADER, PROGRAM_HEADER, 1, 0, 0, 0] {
        elf.extend_from_slice(&u16::try_from(half).unwrap_or_default().to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    elf.extend_from_slice(&1_u32.to_le_bytes());
    elf.extend_from_slice(&5_u32.to_le_bytes());
    for word in [0, LOAD_ADDRESS, LOAD_ADDRESS, size, size, 0x1000] {
        elf.extend_from_slice(&word.to_le_bytes());
    }
    elf.extend_from_slice(&code);
    elf.extend_from_slice(text.as_bytes());
    elf
}

/// `write(1, text, len); reboot(POWER_OFF); for (;;) pause();` The text follows the code.
fn code(len: u32) -> Vec<u8> {
    let mut after_lea = vec![0xba];
    after_lea.extend_from_slice(&len.to_le_bytes());
    after_lea.extend_from_slice(&[
        0x0f, 0x05, // syscall
        0xb8, 0xa9, 0, 0, 0, // mov eax, 169: reboot
        0xbf, 0xad, 0xde, 0xe1, 0xfe, // mov edi, LINUX_REBOOT_MAGIC1
        0xbe, 0x69, 0x19, 0x12, 0x28, // mov esi, LINUX_REBOOT_MAGIC2
        0xba, 0xdc, 0xfe, 0x21, 0x43, // mov edx, LINUX_REBOOT_CMD_POWER_OFF
        0x0f, 0x05, // syscall
        0xb8, 0x22, 0, 0, 0, // mov eax, 34: pause
        0x0f, 0x05, // syscall
        0xeb, 0xf7, // jmp to the mov
    ]);
    let mut code = vec![
        0xb8, 1, 0, 0, 0, // mov eax, 1: write
        0xbf, 1, 0, 0, 0, // mov edi, 1
        0x48, 0x8d, 0x35, // lea rsi, [rip + ...]
    ];
    code.extend_from_slice(&u32::try_from(after_lea.len()).unwrap_or_default().to_le_bytes());
    code.extend_from_slice(&after_lea);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_what_cpio_reads() {
        let archive = initramfs();
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        assert!(text.contains("dev/console") && text.contains("TRAILER!!!"));
        assert!(text.contains(MARKER));
    }

    #[test]
    fn the_text_is_where_the_code_looks_for_it() {
        let elf = program();
        let entry = u64::from_le_bytes(elf[24..32].try_into().expect("eight bytes"));
        let start = usize::try_from(entry - LOAD_ADDRESS).expect("small");
        assert_eq!(&elf[start + 10..start + 13], [0x48, 0x8d, 0x35], "the lea");
        let distance = u32::from_le_bytes(elf[start + 13..start + 17].try_into().expect("four bytes"));
        let text = start + 17 + usize::try_from(distance).expect("small");
        assert_eq!(&elf[text..], format!("{MARKER}\n").as_bytes());
    }
}
