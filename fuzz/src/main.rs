//! libFuzzer around one target: `FUZZ_TARGET=name fuzz [libFuzzer's options] CORPUS...`. Started by `fuzz/run.sh`.
#![no_main]
#![expect(clippy::disallowed_methods, reason = "libFuzzer owns the arguments")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static RUN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("`FUZZ_TARGET` is the name of a target");
    fuzz::target(&name).expect("`FUZZ_TARGET` is none of the targets")
});

fuzz_target!(|bytes: &[u8]| RUN(bytes));
