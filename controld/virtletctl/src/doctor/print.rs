//! Findings as a table for people, and as JSON or YAML for programs. Pure.

use serde_json::json;

use super::finding::{Finding, State};
use crate::cli::Form;
use crate::document;
use crate::error::CtlError;
use crate::text::shown;

/// Most characters of a cell: what a file or a daemon says may be long.
const MAX_CELL: usize = 1000;

/// What is printed.
pub(super) fn text(findings: &[Finding], form: Option<Form>) -> Result<String, CtlError> {
    match form {
        None | Some(Form::Wide) => Ok(table(findings)),
        Some(Form::Name) => Ok(findings.iter().map(|finding| format!("{}\n", finding.check)).collect()),
        Some(form) => {
            let worst = findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok);
            let checks: Vec<_> = findings.iter().map(Finding::as_json).collect();
            document::of(json!({ "state": worst.to_string(), "checks": checks }), form)
        }
    }
}

/// Harmless, and no longer than somebody would read.
fn cell(text: &str) -> String {
    let mut cell: String = text.chars().take(MAX_CELL).collect();
    if cell.len() < text.len() {
        cell.push_str("...");
    }
    shown(&cell)
}

/// What mends a finding stands below it: both may be long.
fn table(findings: &[Finding]) -> String {
    let heads = ("CHECK", "STATE", "SEEN");
    let width = findings.iter().map(|finding| finding.check.len()).chain([heads.0.len()]).max().unwrap_or_default();
    let mut text = format!("{:width$}   {:7}   {}\n", heads.0, heads.1, heads.2);
    for Finding { check, state, seen, mend } in findings {
        text.push_str(&format!("{check:width$}   {state:7}   {}\n", cell(seen)));
        if let Some(mend) = mend {
            text.push_str(&format!("{:width$}   {:7}     mend: {}\n", "", "", cell(mend)));
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (failures, warnings) = (count(State::Failure), count(State::Warning));
    text.push_str(&format!("\n{failures} failures, {warnings} warnings, {} ok\n", count(State::Ok)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        vec![
            Finding::ok("kvm", "it makes a VM"),
            Finding::warning("kernel.vhost-net", "not\u{1b} there\nat all", "modprobe vhost_net"),
            Finding::failure("vmwrapper", "gone", "install it"),
            Finding::unknown("iommu", "nobody says"),
        ]
    }

    #[test]
    fn people_get_a_table_with_what_mends() {
        let told = text(&findings(), None).expect("printed");
        assert_eq!(
            told,
            "\
CHECK              STATE     SEEN
kvm                ok        it makes a VM
kernel.vhost-net   warning   not\\u{1b} there\\nat all
                               mend: modprobe vhost_net
vmwrapper          failure   gone
                               mend: install it
iommu              warning   not known: nobody says

1 failures, 2 warnings, 1 ok
"
        );
    }

    #[test]
    fn what_is_long_is_cut_for_people() {
        let told = text(&[Finding::ok("kvm", "x".repeat(5000))], None).expect("printed");
        assert!(told.contains(&format!("{}...\n", "x".repeat(MAX_CELL))), "{told}");
    }

    #[test]
    fn programs_get_names_and_states() {
        let json = text(&findings(), Some(Form::Json)).expect("printed");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["state"], "failure");
        assert_eq!(
            read["checks"][2],
            json!({"check": "vmwrapper", "state": "failure", "seen": "gone", "mend": "install it"})
        );
        assert_eq!(read["checks"][0]["mend"], json!(null));
        assert_eq!(text(&findings()[..2], Some(Form::Name)).expect("printed"), "kvm\nkernel.vhost-net\n");
    }
}
