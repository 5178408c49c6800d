//! What Secrets the operator makes and removes: roles cannot say it, as these are made wherever VMs are.

use serde_json::{Value, json};

use super::{Policy, Settings, quoted};
use crate::names::{OPERATOR, TLS_SECRET, USER_DATA_SUFFIX};

/// The policy and its binding.
pub(super) fn policy(settings: &Settings) -> [Value; 2] {
    let user = format!("system:serviceaccount:{}:{OPERATOR}", settings.namespace);
    let policy = Policy {
        name: "virtlet-operator-secrets",
        action: "Deny",
        group: "",
        resources: vec!["secrets"],
        operations: &["CREATE", "UPDATE", "DELETE"],
        conditions: vec![("operator", format!("request.userInfo.username == {}", quoted(&user)))],
        variables: vec![(
            "name".to_owned(),
            "request.operation == 'DELETE' ? oldObject.metadata.name : object.metadata.name".to_owned(),
        )],
        validations: vec![json!({
            "expression": format!(
                "variables.name.endsWith({}) || request.namespace == {} && variables.name == {}",
                quoted(USER_DATA_SUFFIX),
                quoted(&settings.namespace),
                quoted(TLS_SECRET),
            ),
            "message": format!("the operator has to do with Secrets alone whose names end in {USER_DATA_SUFFIX}"),
            "reason": "Forbidden",
        })],
    };
    policy.to_values()
}
