//! Whatever is changed in a sound image: no panic, and nothing taken that the rules forbid.

use proptest::prelude::*;

use super::*;

/// Offset and width of each field of the header.
pub(super) const FIELDS: [(usize, usize); 20] = [
    (0, 4),
    (4, 4),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 8),
    (32, 4),
    (36, 4),
    (40, 8),
    (48, 8),
    (56, 4),
    (60, 4),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 4),
    (100, 8),
    (112, 4),
    (116, 4),
];

/// Numbers that are likely to matter: small ones, powers of two and their neighbours, places in the file, anything.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..20,
        (0_u32..64, 0_u64..3).prop_map(|(power, beside)| (1_u64 << power).wrapping_add(beside).wrapping_sub(1)),
        (0_u64..8).prop_map(|cluster| cluster * CLUSTER as u64),
        any::<u64>(),
    ]
}

proptest! {
    // Each case is judged in several ways, and most images are of 400 KB.
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn one_changed_field_breaks_no_rule(field in prop::sample::select(&FIELDS[..]), value in number(), sound in 0_usize..11) {
        let sounds = super::sound();
        let mut image = changed(&sounds[sound % sounds.len()].1);
        let (at, width) = field;
        put(&mut image, at, &value.to_be_bytes()[8 - width..]);
        exercise(&image);
    }

    #[test]
    fn one_changed_entry_breaks_no_rule(at in prop::sample::select(&[CLUSTER, L1, L1 + 8, L2, L2 + 8][..]), value in number()) {
        let mut image = image();
        put(&mut image, at, &value.to_be_bytes());
        exercise(&image);
    }

    #[test]
    fn any_header_is_judged_without_panic(
        changes in prop::collection::vec((0_usize..600, prop::collection::vec(any::<u8>(), 1..9)), 0..6),
        length in 0_usize..LENGTH,
    ) {
        let mut image = image();
        for (at, bytes) in changes {
            put(&mut image, at, &bytes);
        }
        image.truncate(length.max(8));
        exercise(&image);
        let _ = check_head(&image, None, false, false, WITH_RAW);
    }

    #[test]
    fn any_bytes_are_judged_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        exercise(&bytes);
    }
}
