//! What the server of subresources may have pods do. Its role has to say all of `pods/exec` and `pods/attach`: RBAC knows no commands.

use serde_json::{Value, json};

use super::{Policy, Settings, quoted};
use crate::names::SUBRESOURCES;

/// The container that is the VM, and what its node's own commands begin with; all others are run in guests.
const CONTAINER: &str = "vm";
const RESERVED: &str = "virtlet:";

/// The policy and its binding.
pub(super) fn of_subresources(settings: &Settings) -> [Value; 2] {
    let user = format!("system:serviceaccount:{}:{SUBRESOURCES}", settings.namespace);
    let refused = |expression: String, message: &str| {
        let message = format!("the server of subresources has to do with {message} alone");
        json!({"expression": expression, "message": message, "reason": "Forbidden"})
    };
    let policy = Policy {
        name: &format!("{SUBRESOURCES}-commands"),
        action: "Deny",
        group: "",
        resources: vec!["pods/attach", "pods/exec"],
        operations: &["CONNECT"],
        conditions: vec![("server", format!("request.userInfo.username == {}", quoted(&user)))],
        variables: Vec::new(),
        validations: vec![
            refused(
                format!("object.?container.orValue('') == {}", quoted(CONTAINER)),
                &format!("container {CONTAINER}"),
            ),
            refused(
                format!(
                    "request.subResource == 'attach' || object.?command[?0].orValue('').startsWith({})",
                    quoted(RESERVED)
                ),
                &format!("commands {RESERVED}*"),
            ),
        ],
    };
    policy.to_values()
}
