//! What controld itself says of the node, if it answers: the conditions of CRI's `Status`.

use super::facts::Facts;
use super::finding::Finding;
use super::host::Host;
use crate::text::shown;

/// controld's conditions as checks, and whether pods can run without them.
const CONDITIONS: [(&str, &str, bool); 12] = [
    ("RuntimeReady", "status.runtime-ready", false),
    ("NetworkReady", "status.network-ready", false),
    ("LibvirtConnected", "status.libvirt-connected", false),
    ("EmulatorStarts", "status.emulator-starts", false),
    ("PolicyAllows", "status.policy-allows", false),
    ("TapmanagerReady", "status.tapmanager-ready", false),
    ("CniReady", "status.cni-ready", false),
    ("StoreWritable", "status.store-writable", false),
    ("OwnersKnown", "status.owners-known", true),
    ("KvmUsable", "status.kvm-usable", true),
    ("ConsoleLogsWatched", "status.console-logs-watched", true),
    ("CheckpointsOver", "status.checkpoints-over", true),
];
/// Of an answer without conditions, and of one that is not there.
const CHECK: &str = "status";

pub(super) fn look(_host: &Host, facts: &Facts) -> Vec<Finding> {
    let conditions = match &facts.cri {
        Ok(answers) => answers.status.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
        Err(_) => return vec![Finding::unknown(CHECK, "controld does not answer")],
    };
    let mut findings = Vec::new();
    for (kind, check, can_do_without) in CONDITIONS {
        let Some(condition) = conditions.iter().find(|condition| condition.r#type == kind) else { continue };
        if condition.status {
            findings.push(Finding::ok(check, "so says controld"));
            continue;
        }
        let seen = shown(&format!("{}: {}", condition.reason, condition.message));
        let mend = match check {
            "status.owners-known" => "virtletctl orphans",
            "status.checkpoints-over" => {
                "have the directory answer, or unmount it; journalctl -u controld says what fails"
            }
            _ => "mend what it says; journalctl -u controld has more",
        };
        let found = if can_do_without { Finding::warning } else { Finding::failure };
        findings.push(found(check, seen, mend));
    }
    if findings.is_empty() {
        findings.push(Finding::unknown(CHECK, "controld's answer has none of the conditions that were expected"));
    }
    findings
}

/// Names of all checks that there may be.
#[cfg(test)]
pub(super) fn checks() -> impl Iterator<Item = &'static str> {
    CONDITIONS.iter().map(|(_, check, _)| *check).chain([CHECK])
}

#[cfg(test)]
mod tests {
    use proto::cri::{RuntimeCondition, RuntimeStatus, StatusResponse, VersionResponse};

    use super::super::facts::Answers;
    use super::super::finding::State;
    use super::super::tests::{facts, tree};
    use super::*;

    #[test]
    fn conditions_are_told_with_their_reasons() {
        let condition = |kind: &str, status| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: "Because".into(),
            message: "so\u{1b}".into(),
        };
        let told = vec![condition("RuntimeReady", false), condition("KvmUsable", false), condition("CniReady", true)];
        let status = StatusResponse { status: Some(RuntimeStatus { conditions: told }), ..Default::default() };
        let mut facts = facts();
        facts.cri = Ok(Answers { version: VersionResponse::default(), status });
        let (_dir, host) = tree(&[]);
        let told: Vec<_> =
            look(&host, &facts).into_iter().map(|found| (found.check, found.state, found.seen)).collect();
        let wanted = [
            ("status.runtime-ready", State::Failure, "Because: so\\u{1b}".into()),
            ("status.cni-ready", State::Ok, "so says controld".into()),
            ("status.kvm-usable", State::Warning, "Because: so\\u{1b}".into()),
        ];
        assert_eq!(told, wanted);
    }
}
