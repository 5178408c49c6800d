//! Warnings to who makes an object that is taken and is not all of what KubeVirt would make of it: one for each such row of the table.

use kubevirt::table::{Verdict, rows};
use serde_json::{Value, json};

use super::{DEFINITIONS, NOT_DELETED, Policy, quoted};
use crate::group::Group;

const PRESETS: &str = "presets are deprecated with KubeVirt, and may go; write what they say into the VMs";

/// The policy and its binding.
pub(super) fn policy(group: Group) -> [Value; 2] {
    let mut validations = vec![json!({
        "expression": "object.kind != 'VirtualMachineInstancePreset'",
        "message": PRESETS,
    })];
    validations.extend(rows().into_iter().filter_map(|row| match row.verdict {
        Verdict::Warned(text) => Some(warning(&row.path, text)),
        Verdict::Supported | Verdict::Later(_) | Verdict::Refused(_) => None,
    }));
    let policy = Policy {
        name: "virtlet-warn",
        action: "Warn",
        group: group.name(),
        resources: DEFINITIONS.iter().map(|definition| definition.plural).collect(),
        operations: &["CREATE", "UPDATE"],
        conditions: vec![(NOT_DELETED.0, NOT_DELETED.1.to_owned())],
        variables: vec![
            ("spec".to_owned(), "object.spec.?template.?spec.orValue(object.spec)".to_owned()),
            ("at".to_owned(), "object.spec.?template.?spec.hasValue() ? 'spec.template.spec' : 'spec'".to_owned()),
        ],
        validations,
    };
    policy.to_values()
}

/// Of a path, such as `spec.a.b` or `spec.a.list[].b`.
fn warning(path: &str, text: &str) -> Value {
    let path = path.trim_start_matches("spec.");
    let field = |root: &str, path: &str| {
        let parts: String = path.split('.').map(|part| format!(".?{part}")).collect();
        format!("{root}{parts}")
    };
    let (said, place) = match path.split_once("[].") {
        None => {
            (format!("{}.orValue(false) == false", field("variables.spec", path)), quoted(&format!(".{path}: {text}")))
        }
        Some((list, inner)) => {
            let all = format!("{}.orValue([])", field("variables.spec", list));
            let is_said = format!("{}.orValue(false) != false", field("e", inner));
            let nth = format!("string({all}.indexOf({all}.filter(e, {is_said})[0]))");
            (
                format!("!{all}.exists(e, {is_said})"),
                format!("{} + {nth} + {}", quoted(&format!(".{list}[")), quoted(&format!("].{inner}: {text}"))),
            )
        }
    };
    json!({"expression": said, "messageExpression": format!("variables.at + {place}"), "message": text})
}
