//! What a node may tell of VMs by the account of nodes: of the pods on it, the conditions and the annotation that are for that.
//!
//! Whoever may patch a pod's status may patch its labels and annotations, too, and may say that it is ready or over. So all else has to be as it was,
//! also what later releases of Kubernetes put there. Of an object that is deleted it holds, too: nobody else's patch is judged by it.

use kubevirt::guest::{CONDITIONS, GUEST, MAX_GUEST};
use serde_json::{Value, json};

use super::{Policy, quoted};
use crate::names::{REPORTER, REPORTER_NAMESPACE};

/// Of a token that is of a pod, or of a node: the node that this is, or is on.
const NODE: &str = "authentication.kubernetes.io/node-name";
/// Of metadata, what the server itself changes, and what is looked at apart.
const OF_SERVER: &str = "['annotations', 'managedFields', 'resourceVersion', 'generation']";

/// The policy and its binding.
pub(super) fn policy() -> [Value; 2] {
    let user = format!("system:serviceaccount:{REPORTER_NAMESPACE}:{REPORTER}");
    let (node, guest, conditions) = (quoted(NODE), quoted(GUEST), quoted(CONDITIONS));
    let others =
        |object: &str| format!("{object}.status.?conditions.orValue([]).filter(c, !c.type.startsWith({conditions}))");
    let annotations = |object: &str| format!("dyn({object}.metadata.?annotations.orValue({{}}))");
    // Whatever it has, and nothing that it had not.
    let same = |part: &str, but: &str| {
        let all = |a: &str, b: &str| {
            format!(
                "dyn({a}.{part}).all(k, k in {but} || k in dyn({b}.{part}) && dyn({a}.{part})[k] == dyn({b}.{part})[k])"
            )
        };
        format!("{} && {}", all("object", "oldObject"), all("oldObject", "object"))
    };
    let variables = [
        ("was", annotations("oldObject")),
        ("is", annotations("object")),
        ("conditionsWere", others("oldObject")),
        ("conditionsAre", others("object")),
    ];
    let refused = |expression: String, message: &str| json!({"expression": expression, "message": format!("a node tells of VMs {message}"), "reason": "Forbidden"});
    let policy = Policy {
        name: REPORTER,
        action: "Deny",
        group: "",
        resources: vec!["pods/status"],
        operations: &["UPDATE"],
        conditions: vec![("reporter", format!("request.userInfo.username == {}", quoted(&user)))],
        variables: variables.map(|(name, is)| (name.to_owned(), is)).into(),
        validations: vec![
            refused(
                format!(
                    "{node} in request.userInfo.?extra.orValue({{}}) && request.userInfo.extra[{node}] == [oldObject.spec.?nodeName.orValue('')]"
                ),
                "that are on it, by a token that is bound to it or to a pod on it",
            ),
            refused(
                format!(
                    "variables.conditionsAre == variables.conditionsWere && ({})",
                    same("status", "['conditions']")
                ),
                &format!("by conditions {CONDITIONS}*, and leaves the rest of the status alone"),
            ),
            refused(
                format!(
                    "variables.is.all(k, k == {guest} || k in variables.was && variables.is[k] == variables.was[k]) \
                     && variables.was.all(k, k == {guest} || k in variables.is) \
                     && size(variables.is[?{guest}].orValue('')) <= {MAX_GUEST} && ({})",
                    same("metadata", OF_SERVER)
                ),
                &format!(
                    "by annotation {GUEST}, of at most {MAX_GUEST} bytes, and leaves the rest of the metadata alone"
                ),
            ),
        ],
    };
    policy.to_values()
}
