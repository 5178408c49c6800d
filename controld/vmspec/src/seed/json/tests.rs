use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn text(value: &impl Serialize) -> String {
    String::from_utf8(encode(value).expect("encodes")).expect("text")
}

#[test]
fn what_yaml_reads_otherwise_is_escaped() {
    for (value, expected) in [
        (
            json!("\u{7f}\u{80}\u{85}\u{9f}\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}"),
            r#""\u007f\u0080\u0085\u009f\u2028\u2029\ufeff\ufffe\uffff""#,
        ),
        (json!("\0\u{1b}\t\n\"\\/"), r#""\u0000\u001b\t\n\"\\/""#),
        (json!("caf\u{e9} \u{1f600} \u{a0}"), "\"caf\u{e9} \u{1f600} \u{a0}\""),
        (json!({"\u{85}": "yes", "0644": "22:30"}), r#"{"0644":"22:30","\u0085":"yes"}"#),
        (json!(1e300), "1.0e+300"),
        (json!(-1.5e-7), "-1.5e-7"),
        (json!(12345.678), "1.2345678e+4"),
        (json!(0.0), "0.0"),
        (json!(-0.0), "-0.0"),
        (json!(1.0), "1.0"),
        (json!([1.5, 42, -7, u64::MAX, true, null]), "[1.5,42,-7,18446744073709551615,true,null]"),
    ] {
        assert_eq!(text(&value), format!("{expected}\n"));
    }
}

proptest! {
    /// It stays JSON, and holds no raw character that YAML 1.1 takes for something else.
    #[test]
    fn strings_come_back(string in any::<String>(), key in any::<String>()) {
        let value = json!({ key: [string] });
        let text = text(&value);
        prop_assert!(!text.trim_end().contains(|c: char| c.is_control() || must_escape(c)), "{}", text);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn numbers_come_back(number in any::<f64>()) {
        let text = text(&json!([number]));
        let inside = text.trim_end().trim_matches(['[', ']']);
        prop_assert_eq!(inside.parse(), Ok(number));
        prop_assert!(inside.contains('.') && (!inside.contains('e') || inside.contains(['+', '-'])), "{}", inside);
    }
}
