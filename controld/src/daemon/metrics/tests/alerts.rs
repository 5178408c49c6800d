//! What the alerts and the dashboard ask for is in a scrape, and every alert has its line in the document and its case among the
//! tests that promtool runs.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::facts;
use crate::proxy;
use crate::store::moments::Moments;

const ALERTS: &str = include_str!("../../../../../deploy/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../../../deploy/grafana-dashboard.json");
const DOCUMENT: &str = include_str!("../../../../../docs/alerts.md");
const CASES: [&str; 4] = [
    include_str!("../../../../../tests/alerts/daemons.yaml"),
    include_str!("../../../../../tests/alerts/networks.yaml"),
    include_str!("../../../../../tests/alerts/machines.yaml"),
    include_str!("../../../../../tests/alerts/images.yaml"),
];
const HEALTHY: &str = include_str!("../../../../../tests/alerts/healthy.yaml");
/// Prometheus' own.
const TARGET: [&str; 2] = ["instance", "job"];

/// Names of metrics as queries have them, each with its labels and their values.
type Known = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn known() -> Known {
    let mut registry = registry(facts());
    // Of a node with another container runtime.
    proxy::metrics::Metrics::default().register(&mut registry);
    Moments::default().register(&mut registry);
    Tally::default().register(&mut registry);
    let text = text(&registry).expect("written");
    let mut known = Known::new();
    for line in text.lines() {
        if let Some(series) = line.strip_prefix("virtlet_").and_then(|line| line.rsplit_once(' ')).map(|(left, _)| left)
        {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let of = known.entry(format!("virtlet_{name}")).or_default();
            for (_, label, value) in matchers(labels.trim_end_matches('}')) {
                of.entry(label).or_default().insert(value);
            }
        }
    }
    // Nobody has called, so it is in no scrape of a test. The edge's own tests have its name and labels.
    for suffix in ["bucket", "count", "sum"] {
        let labels = ["call", "code", "le"].map(|label| (label.to_owned(), BTreeSet::new()));
        known.insert(format!("virtlet_call_duration_seconds_{suffix}"), labels.into());
    }
    known
}

/// Operator, label and value of each matcher of a selector.
fn matchers(selector: &str) -> Vec<(&str, String, String)> {
    let parts = selector.split("\",").filter(|part| !part.is_empty());
    let parsed = parts.map(|part| {
        let at = part.find(['=', '!']).unwrap_or_else(|| panic!("no matcher: {part}"));
        let value = part.find('"').unwrap_or_else(|| panic!("no value: {part}"));
        (&part[at..value], part[..at].to_owned(), part[value + 1..].trim_end_matches('"').to_owned())
    });
    parsed.collect()
}

/// What is asked for that no scrape has.
fn unknown(asked: &str, known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, _) in asked.match_indices("virtlet_") {
        let rest = &asked[at..];
        let name = &rest[..rest.find(|one: char| !one.is_ascii_lowercase() && one != '_').unwrap_or(rest.len())];
        let Some(labels) = known.get(name) else {
            wrong.push(format!("no metric `{name}`"));
            continue;
        };
        let selector =
            rest[name.len()..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(inside, _)| inside);
        for (operator, label, value) in selector.map(matchers).unwrap_or_default() {
            let values = labels.get(&label);
            if values.is_none() && !TARGET.contains(&label.as_str()) {
                wrong.push(format!("`{name}` has no label `{label}`"));
            }
            let is_open = values.is_none_or(BTreeSet::is_empty);
            if operator == "=" && !is_open && values.is_some_and(|values| !values.contains(&value)) {
                wrong.push(format!("`{name}` has no `{label}` that is `{value}`"));
            }
        }
    }
    wrong
}

#[test]
fn alerts_and_dashboard_ask_for_what_there_is() {
    let known = known();
    assert_eq!(unknown(ALERTS, &known), Vec::<String>::new());
    assert_eq!(unknown(&DASHBOARD.replace("\\\"", "\""), &known), Vec::<String>::new());
    // And what the cases feed is what a node says; handlers, cards and lanes are the node's own.
    for cases in CASES.iter().chain([&HEALTHY]) {
        assert_eq!(unknown(cases, &known), Vec::<String>::new());
    }
    let planted = "virtlet_gone + virtlet_machines{stat=\"x\"} + virtlet_machines{state=\"gone\",job=\"virtlet\"}";
    let wrong = [
        "no metric `virtlet_gone`",
        "`virtlet_machines` has no label `stat`",
        "`virtlet_machines` has no `state` that is `gone`",
    ];
    assert_eq!(unknown(planted, &known), wrong);
}

#[test]
fn every_alert_has_its_texts_its_line_and_its_case() {
    let alerts: Vec<&str> = ALERTS.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 20, "{}", alerts.len());
    for alert in alerts {
        let name = alert.lines().next().unwrap_or_default();
        let severity = ["critical", "warning"].into_iter().find(|one| alert.contains(&format!("{{severity: {one}}}")));
        let severity = severity.unwrap_or_else(|| panic!("`{name}` has no severity"));
        for text in ["summary: ", "description: ", "command: "] {
            assert!(alert.contains(&format!("\n          {text}")), "`{name}` has no {text}");
        }
        assert!(DOCUMENT.contains(&format!("| `{name}` | {severity} |")), "`{name}` is not in the document");
        let fires = format!("alertname=\"{name}\",severity=\"{severity}\"");
        assert!(CASES.iter().any(|cases| cases.contains(&fires)), "no case shows that `{name}` fires");
    }
}
