//! libFuzzer around one target: `FUZZ_TARGET=name fuzz [libFuzzer's options] CORPUS...`. Started by `fuzz/run.sh`.
#![no_main]
#![expect(clippy::disallowed_methods, reason = "libFuzzer owns the arguments")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("`FUZZ_TARGET` is the name of a target");
    fuzz::target(&name).expect("`FUZZ_TARGET` is none of the targets")
});

/// What hash maps take their keys from, here always the same, so that the same seed leads to the same inputs.
///
/// # Safety
/// As the C library's: `bytes` has room for `length`.
#[expect(unsafe_code, reason = "the C library's own has this name and this shape: getrandom(2)")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(bytes: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: as the caller promises.
    unsafe { bytes.write_bytes(7, length) };
    length.cast_signed()
}

fuzz_target!(|bytes: &[u8]| RUN(bytes));
