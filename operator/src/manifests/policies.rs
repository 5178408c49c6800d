//! ValidatingAdmissionPolicies: what a schema cannot say, as which of several things is wrong, and warnings.
//!
//! An object is refused with all that is wrong with it in one answer. None stands in the way of who only wants to get rid of an object,
//! or to write its status.

mod commands;
mod reporter;
mod rules;
mod secrets;
mod warnings;

use kubevirt::Kind;
use serde_json::{Value, json};

use super::crds::{DEFINITIONS, Definition};
use super::{Settings, object};
use crate::group::{Group, VERSION};

const API: &str = "admissionregistration.k8s.io/v1";
/// Without it nobody could take a finalizer off an object that has become wrong.
const NOT_DELETED: (&str, &str) = ("not-deleted", "!has(object.metadata.deletionTimestamp)");
/// A label of an object that was taken before a rule was there may change.
const CHANGED: (&str, &str) = ("changed", "request.operation == 'CREATE' || object.spec != oldObject.spec");
const TOO_MUCH: &str = "more is wrong with it than fits here; `virtletctl vm lint` tells all of it";

/// What goes into a policy.
#[derive(Debug)]
struct Policy<'a> {
    name: &'a str,
    /// `Deny` or `Warn`.
    action: &'a str,
    /// Resources of a group, and what is done to them.
    group: &'a str,
    resources: Vec<&'a str>,
    operations: &'a [&'a str],
    conditions: Vec<(&'a str, String)>,
    /// Each may use those before it.
    variables: Vec<(String, String)>,
    validations: Vec<Value>,
}

/// Those of our kinds, each with its binding.
pub(super) fn all(group: Group) -> Vec<Value> {
    let of_kinds = DEFINITIONS.iter().filter_map(|definition| of_kind(definition, group));
    of_kinds.chain([warnings::policy(group)]).flatten().collect()
}

/// Those of what the operator itself may do.
pub(super) fn of_operator(settings: &Settings) -> [Value; 2] {
    secrets::of_operator(settings)
}

/// Those of what the server of subresources may do.
pub(super) fn of_subresources(settings: &Settings) -> Vec<Value> {
    [secrets::of_subresources(settings), commands::of_subresources(settings)].concat()
}

/// Those of what nodes may tell of VMs.
pub(super) fn of_reporter() -> [Value; 2] {
    reporter::policy()
}

fn of_kind(definition: &Definition, group: Group) -> Option<[Value; 2]> {
    let (name, operations): (_, &[&str]) = match definition.kind {
        // Its spec does not change.
        Kind::VirtualMachineInstance => ("virtlet-vmi", &["CREATE"]),
        Kind::VirtualMachine => ("virtlet-vm", &["CREATE", "UPDATE"]),
        Kind::ReplicaSet => ("virtlet-vmirs", &["CREATE", "UPDATE"]),
        Kind::Preset | Kind::Refused(_) | Kind::Other => return None,
    };
    let rules = rules::of(definition.kind);
    let mut variables = rules::variables(definition.kind);
    let wrong: Vec<String> = rules.iter().map(|(name, _)| format!("variables.{name}")).collect();
    variables.extend(rules.into_iter().map(|(name, wrong)| (name.to_owned(), wrong)));
    variables.push(("wrong".to_owned(), wrong.join(" + ")));
    let policy = Policy {
        name,
        action: "Deny",
        group: group.name(),
        resources: vec![definition.plural],
        operations,
        conditions: [NOT_DELETED, CHANGED].map(|(name, holds)| (name, holds.to_owned())).into(),
        variables,
        validations: vec![json!({
            "expression": "variables.wrong.size() == 0",
            "messageExpression": "variables.wrong.join('; ')",
            "message": TOO_MUCH,
            "reason": "Invalid",
        })],
    };
    Some(policy.to_values())
}

impl Policy<'_> {
    /// It, and what makes it hold.
    fn to_values(&self) -> [Value; 2] {
        let mut policy = object(API, "ValidatingAdmissionPolicy", self.name);
        let version = if self.group.is_empty() { "v1" } else { VERSION };
        let named = |(name, expression): (&str, &str)| json!({"name": name, "expression": expression});
        policy["spec"] = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [self.group],
                "apiVersions": [version],
                "operations": self.operations,
                "resources": self.resources,
            }]},
            "matchConditions": self.conditions.iter().map(|(name, holds)| named((name, holds))).collect::<Vec<_>>(),
            "variables": self.variables.iter().map(|(name, is)| named((name, is))).collect::<Vec<_>>(),
            "validations": self.validations,
        });
        let mut binding = object(API, "ValidatingAdmissionPolicyBinding", self.name);
        binding["spec"] = json!({"policyName": self.name, "validationActions": [self.action]});
        [policy, binding]
    }
}

/// A text of CEL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
