//! What holds of one kind alone.

use super::{Rule, rule};

pub(super) fn instance() -> Vec<Rule> {
    vec![rule("", "", "cannot be changed: an instance is one run of a VM; make another one", "self == oldSelf")]
}

pub(super) fn machine() -> Vec<Rule> {
    vec![
        rule(
            "",
            "",
            "has both running and runStrategy; write one of them",
            "!has(self.running) || !has(self.runStrategy) || self.runStrategy == ''",
        ),
        rule(
            "",
            "runStrategy",
            "is required, unless running says it",
            "has(self.running) || has(self.runStrategy) && self.runStrategy != ''",
        ),
    ]
}

pub(super) fn replica_set() -> Vec<Rule> {
    vec![
        rule("selector", "", "cannot be changed", "self == oldSelf"),
        rule(
            "selector",
            "",
            "selects nothing",
            "has(self.matchLabels) && self.matchLabels.size() > 0 || has(self.matchExpressions) && self.matchExpressions.size() > 0",
        ),
        rule(
            "template.spec.volumes[].persistentVolumeClaim",
            "",
            "is one VM's, and there are several; use ephemeral, or readOnly",
            "has(self.readOnly) && self.readOnly",
        ),
    ]
}
