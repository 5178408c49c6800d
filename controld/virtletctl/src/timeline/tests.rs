//! Answers of controld as they are read, drawn and printed for programs.

use super::*;
use crate::tests::ctl;
use crate::tests::fake::{Fake, serve};

fn phase(name: &str, from: u64, took: Option<u64>) -> Value {
    json!({ "phase": name, "fromMicros": from, "tookMicros": took, "failed": false })
}

fn told() -> Value {
    json!({
        "beganNanos": 1_700_000_000_000_000_000_i64,
        "phases": [
            phase("sandbox", 0, Some(800_000)), phase("network", 100_000, Some(650_000)),
            phase("pull", 900_000, Some(2_000_000)), phase("plan", 3_000_000, Some(20_000)),
            phase("launch", 3_100_000, Some(900_000)), phase("output", 3_100_000, Some(1_500_000)),
            phase("agent", 3_100_000, Some(9_000_000)),
        ],
        "unseen": ["disks", "sources"],
    })
}

#[test]
fn a_start_is_drawn_as_bars() {
    let timeline = read(&told()).expect("understood");
    let text = bars::draw("web", &timeline, 80, false);
    insta::assert_snapshot!(text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_json_snapshot!(timeline.document("web"));
    let colored = bars::draw("web", &timeline, 80, true);
    assert_eq!(colored.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), text);
}

#[test]
fn what_failed_or_is_under_way_is_told_apart() {
    let mut told = told();
    told["phases"][2]["failed"] = true.into();
    told["phases"][4]["tookMicros"] = Value::Null;
    insta::assert_snapshot!(bars::draw("web", &read(&told).expect("understood"), 60, false));
}

#[test]
fn odd_answers_are_drawn_or_are_none_and_harm_no_terminal() {
    for none in [json!(null), json!({}), json!({ "phases": [] }), json!({ "phases": [{ "phase": 7 }] }), json!([1])] {
        assert_eq!(read(&none), None, "{none}");
    }
    let evil = "\u{1b}[2J\u{202e}".repeat(40);
    let phases = [
        phase(&evil, u64::MAX, Some(u64::MAX)),
        phase("plan", 0, Some(0)),
        phase("turn", 0, None),
        phase("", u64::MAX, None),
    ];
    let odd = json!({ "beganNanos": i64::MIN, "phases": phases, "unseen": [evil, 7] });
    let timeline = read(&odd).expect("understood");
    for width in [0, 79, usize::MAX] {
        let text = bars::draw(&evil, &timeline, width, false);
        assert!(text.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{202e}')), "{text:?}");
    }
    let still = json!({ "phases": [phase("plan", 0, Some(0))] });
    assert!(
        bars::draw("web", &read(&still).expect("understood"), 80, false).contains('#'),
        "a bar has a sign at least"
    );
    let many = json!({ "phases": vec![phase("plan", 0, Some(1)); 1000] });
    assert_eq!(read(&many).expect("understood").phases.len(), MOST);
}

#[tokio::test]
async fn a_start_that_was_not_seen_is_an_error_that_says_so() {
    let (dir, _fake, socket) = serve(Fake::default());
    let logs = dir.path().join("logs");
    let made = ["run", "x/tiny.qcow2", "--name", "web", "--log-dir", logs.to_str().expect("UTF-8")];
    assert_eq!(ctl(&socket, &made).await.1, [""; 0]);
    for name in ["web", "default/web", "pod/web"] {
        let (out, errors) = ctl(&socket, &["timeline", name]).await;
        assert!(out.is_empty() && errors[0].contains("has not seen how `web` was started"), "{errors:?}");
    }
}
