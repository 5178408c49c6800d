use proptest::prelude::*;

use super::*;

#[test]
fn quantities_are_exact_and_round_up() {
    for (text, value) in [
        ("0", 0),
        ("-0", 0),
        ("0Ei", 0),
        ("0e999999999999999999999", 0),
        ("1", 1),
        ("+1", 1),
        ("007", 7),
        ("1.", 1),
        (".5", 1),
        ("1.5", 2),
        ("100m", 1),
        ("1500m", 2),
        ("2000m", 2),
        ("1n", 1),
        ("1000000000n", 1),
        ("1000001u", 2),
        ("1k", 1000),
        ("1.5Gi", 1_610_612_736),
        ("0.1Ki", 103),
        ("0.0009765625Ki", 1),
        ("0.0009765626Ki", 2),
        ("0.00000000000000000000000000000000000000001Ei", 1),
        ("10Gi", 10_737_418_240),
        ("10G", 10_000_000_000),
        ("1E", 1_000_000_000_000_000_000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E+3", 1000),
        ("12345e-3", 13),
        ("1e-999999999999999999999", 1),
        ("7.999999999999999999Ei", MAX),
        ("9223372036854775807", MAX),
        ("9223372036854775806.5", MAX),
        ("00000000000000000000000000000000000000000000000000000000000000000001", 1),
    ] {
        assert_eq!(bytes(text), Ok(value), "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused() {
    use QuantityError::{Malformed, Negative, TooLarge};
    for (text, error) in [
        ("", Malformed),
        ("+", Malformed),
        (".", Malformed),
        ("Gi", Malformed),
        ("1.2.3", Malformed),
        ("--1", Malformed),
        ("+-1", Malformed),
        ("1 Gi", Malformed),
        (" 1", Malformed),
        ("1K", Malformed),
        ("1gi", Malformed),
        ("1GiB", Malformed),
        ("1GB", Malformed),
        ("1e", Malformed),
        ("1e+", Malformed),
        ("1Ee3", Malformed),
        ("1Eie3", Malformed),
        ("1e3Gi", Malformed),
        ("0x10", Malformed),
        ("1,5", Malformed),
        ("\u{661}", Malformed),
        ("-1", Negative),
        ("-1n", Negative),
        ("8Ei", TooLarge),
        ("9223372036854775808", TooLarge),
        ("9223372036854775807.1", TooLarge),
        ("10E", TooLarge),
        ("1e19", TooLarge),
        ("1e999999999999999999999", TooLarge),
        ("99999999999999999999999999999999999999999Ki", TooLarge),
    ] {
        assert_eq!(bytes(text), Err(error), "{text:?}");
    }
}

proptest! {
    /// Against integers: `whole.fraction` of six digits is `n` millionths.
    #[test]
    fn agrees_with_integer_arithmetic(n in 0_u64..1 << 50, suffix in 0_usize..9) {
        let (name, factor) = [
            ("", 1_u128), ("k", 1000), ("M", 1_000_000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30),
            ("e2", 100), ("E4", 10_000), ("Ti", 1 << 40),
        ][suffix];
        let text = format!("{}.{:06}{name}", n / 1_000_000, n % 1_000_000);
        let exact = (u128::from(n) * factor).div_ceil(1_000_000);
        let expected = u64::try_from(exact).ok().filter(|value| *value <= MAX).ok_or(QuantityError::TooLarge);
        prop_assert_eq!(bytes(&text), expected, "{}", text);
    }

    #[test]
    fn every_whole_number_is_itself(n in 0_u64..=MAX) {
        prop_assert_eq!(bytes(&n.to_string()), Ok(n));
    }

    #[test]
    fn nothing_makes_it_panic(text in "[-+0-9.eEinumkKMGTP]{0,80}|.{0,40}") {
        let _ = bytes(&text);
    }
}
