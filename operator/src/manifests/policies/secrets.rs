//! What Secrets our programs make and remove: roles cannot say it, as those of VMs are made wherever VMs are, and as nobody knows a name
//! beforehand that a rule for `create` could have.

use serde_json::{Value, json};

use super::{Policy, Settings, quoted};
use crate::names::{OPERATOR, SUBRESOURCES, SUBRESOURCES_TLS_SECRET, TLS_SECRET, USER_DATA_SUFFIX};

/// Of the operator: its policy and what makes it hold.
pub(super) fn of_operator(settings: &Settings) -> [Value; 2] {
    let may = format!("variables.name.endsWith({}) || {}", quoted(USER_DATA_SUFFIX), is_own(settings, TLS_SECRET));
    let message = format!("the operator has to do with Secrets alone whose names end in {USER_DATA_SUFFIX}");
    policy(settings, OPERATOR, &may, &message)
}

/// Of the server of subresources: one whose token it could have made is another's.
pub(super) fn of_subresources(settings: &Settings) -> [Value; 2] {
    let may = format!("{} && object.type == 'kubernetes.io/tls'", is_own(settings, SUBRESOURCES_TLS_SECRET));
    let message = format!("the server of subresources has to do with Secret {SUBRESOURCES_TLS_SECRET} alone");
    policy(settings, SUBRESOURCES, &may, &message)
}

fn is_own(settings: &Settings, name: &str) -> String {
    format!("request.namespace == {} && variables.name == {}", quoted(&settings.namespace), quoted(name))
}

fn policy(settings: &Settings, account: &str, may: &str, message: &str) -> [Value; 2] {
    let user = format!("system:serviceaccount:{}:{account}", settings.namespace);
    let policy = Policy {
        name: &format!("{account}-secrets"),
        action: "Deny",
        group: "",
        resources: vec!["secrets"],
        operations: &["CREATE", "UPDATE", "DELETE"],
        conditions: vec![("operator", format!("request.userInfo.username == {}", quoted(&user)))],
        variables: vec![(
            "name".to_owned(),
            "request.operation == 'DELETE' ? oldObject.metadata.name : object.metadata.name".to_owned(),
        )],
        validations: vec![json!({"expression": may, "message": message, "reason": "Forbidden"})],
    };
    policy.to_values()
}
