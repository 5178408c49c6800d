//! For fuzzing: every verdict on the same bytes, and whether they agree with each other and with the rules.

use super::{DiskFormat, Expected, HEAD, ParentRef, Policy, Summary, check_head, examine, qcow2};

const POLICY: Policy = Policy { allow_raw: true, max_virtual_size: 2 << 40 };

/// Judges `bytes` as an image in every way.
///
/// # Panics
/// If something is accepted that the rules forbid, or two verdicts contradict each other.
#[doc(hidden)]
pub fn exercise(bytes: &[u8]) {
    for declared in [None, Some(DiskFormat::Qcow2), Some(DiskFormat::Raw)] {
        for (allow_raw, layered) in [(false, false), (true, true)] {
            let expected = Expected { policy: Policy { allow_raw, ..POLICY }, declared, layered, written: false };
            judge(bytes, expected);
        }
    }
}

fn judge(bytes: &[u8], expected: Expected) {
    let length = bytes.len() as u64;
    let verdict = examine(&bytes, length, expected).expect("a slice can be read");
    let Ok(summary) = verdict else { return };
    let head = &bytes[..bytes.len().min(HEAD)];
    let early = check_head(head, Some(length), false, false, expected);
    assert!(early.is_ok(), "taken whole, but not its beginning: {early:?}");
    assert!(summary.virtual_size > 0 && summary.virtual_size <= expected.policy.max_virtual_size, "{summary:?}");
    assert!(expected.declared.is_none_or(|declared| declared == summary.format), "{summary:?} for {expected:?}");
    match summary.format {
        DiskFormat::Raw => {
            assert!(expected.policy.allow_raw && summary.virtual_size == length, "{summary:?}");
            assert!(!bytes.starts_with(&qcow2::MAGIC), "qcow2 taken for raw");
        }
        DiskFormat::Qcow2 => hold_to_the_rules(bytes, &summary, expected.layered),
    }
}

/// The rules once more, as plainly as they can be said.
fn hold_to_the_rules(bytes: &[u8], summary: &Summary, layered: bool) {
    let number =
        |at: usize, width: usize| bytes[at..at + width].iter().fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    assert!(bytes.starts_with(&qcow2::MAGIC), "qcow2 without its mark");
    let version = number(4, 4);
    assert!(matches!(version, 2 | 3), "version {version}");
    assert_eq!(number(24, 8), summary.virtual_size);
    assert_eq!(number(32, 4), 0, "encrypted");
    let cluster = 1_u64 << number(20, 4);
    assert!((512..=2 << 20).contains(&cluster), "clusters of {cluster}");
    for (offset, size) in [(40, number(36, 4) * 8), (48, number(56, 4) * cluster)] {
        let start = number(offset, 8);
        assert!(start >= cluster && start % cluster == 0 && start + size <= bytes.len() as u64, "table at {start:#x}");
    }
    if version == 3 {
        assert_eq!(number(72, 8) & !0b1_1000, 0, "features");
        assert_eq!(number(88, 8) & 0b10, 0, "data in another file");
    }
    match summary.parent() {
        None => assert_eq!((number(8, 8), number(16, 4)), (0, 0), "a backing file, but no parent"),
        Some(parent) => {
            assert!(layered, "a parent where none may be");
            let at = usize::try_from(number(8, 8)).expect("in the header");
            let length = usize::try_from(number(16, 4)).expect("in the header");
            let name = std::str::from_utf8(&bytes[at..at + length]).expect("text");
            assert_eq!(ParentRef::parse(name).as_ref(), Some(&parent.reference));
        }
    }
}
