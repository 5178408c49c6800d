//! Who may do what: the operator and nodes, as little as they need; users, by the roles that they have.

use serde_json::{Value, json};

use super::crds::DEFINITIONS;
use super::{Settings, object, object_in};
use crate::group::Group;
use crate::names::{OPERATOR, REPORTER, REPORTER_NAMESPACE, TLS_SECRET, WEBHOOK_CONFIGURATION};

const API: &str = "rbac.authorization.k8s.io/v1";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const SCALE: &str = "virtualmachineinstancereplicasets/scale";

/// Of users: added to Kubernetes' own roles. Consoles and ports are of pods, and `edit` has those.
pub(super) fn of_users(group: Group) -> [Value; 3] {
    let role = |of: &str, verbs: &[&str], scale: &[&str]| {
        let mut role = object(API, "ClusterRole", &format!("virtlet-{of}"));
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{of}")] = "true".into();
        let plurals: Vec<&str> = DEFINITIONS.iter().map(|definition| definition.plural).collect();
        role["rules"] = json!([rule(group.name(), &plurals, verbs), rule(group.name(), &[SCALE], scale)]);
        role
    };
    let changes = &["get", "patch", "update"];
    [role("admin", WRITE, changes), role("edit", WRITE, changes), role("view", READ, &["get"])]
}

/// Of the operator, whose account is there even if it runs outside the cluster.
pub(super) fn of_operator(settings: &Settings) -> Vec<Value> {
    let account = object_in(settings, "v1", "ServiceAccount", OPERATOR);
    let mut cluster = object(API, "ClusterRole", OPERATOR);
    cluster["rules"] = everywhere(settings.group).into();
    let mut local = object_in(settings, API, "Role", OPERATOR);
    local["rules"] = json!([
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "patch", "update", "watch"]),
        // Of others' it reads none: what it makes beside pods it knows without.
        named(rule("", &["secrets"], &["get", "list", "patch", "update", "watch"]), TLS_SECRET),
    ]);
    let mut everywhere = object(API, "ClusterRoleBinding", OPERATOR);
    bind(&mut everywhere, "ClusterRole", (OPERATOR, &settings.namespace));
    let mut here = object_in(settings, API, "RoleBinding", OPERATOR);
    bind(&mut here, "Role", (OPERATOR, &settings.namespace));
    vec![account, cluster, everywhere, local, here]
}

/// Of nodes, to tell of their VMs: of which pods and what, the policy `virtlet-reporter` says.
pub(super) fn of_reporter() -> [Value; 3] {
    let mut account = object("v1", "ServiceAccount", REPORTER);
    account["metadata"]["namespace"] = REPORTER_NAMESPACE.into();
    let mut role = object(API, "ClusterRole", REPORTER);
    role["rules"] = json!([rule("", &["pods/status"], &["get", "patch"])]);
    let mut binding = object(API, "ClusterRoleBinding", REPORTER);
    bind(&mut binding, "ClusterRole", (REPORTER, REPORTER_NAMESPACE));
    [account, role, binding]
}

fn everywhere(group: Group) -> Vec<Value> {
    let of_kinds = |suffix: &str| -> Vec<String> {
        let all = DEFINITIONS.iter().filter(|definition| suffix.is_empty() || definition.has_status);
        all.map(|definition| format!("{}{suffix}", definition.plural)).collect()
    };
    let ours = |suffix: &str, verbs: &[&str]| {
        let resources = of_kinds(suffix);
        rule(group.name(), &resources.iter().map(String::as_str).collect::<Vec<_>>(), verbs)
    };
    vec![
        ours("", &["create", "delete", "get", "list", "patch", "update", "watch"]),
        ours("/status", &["get", "patch", "update"]),
        ours("/finalizers", &["update"]),
        rule("", &["pods"], &["create", "delete", "get", "list", "watch"]),
        // The policy `virtlet-operator-secrets` says which of them.
        rule("", &["secrets"], &["create", "delete", "get"]),
        rule("", &["events"], &["create", "patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        // As which volume a pod has a claim depends on the claim.
        rule("", &["persistentvolumeclaims"], &["get"]),
        named(
            rule(
                "admissionregistration.k8s.io",
                &["mutatingwebhookconfigurations"],
                &["get", "list", "patch", "watch"],
            ),
            WEBHOOK_CONFIGURATION,
        ),
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Of one object alone.
fn named(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

/// To the account that has the role's name.
fn bind(binding: &mut Value, kind: &str, (name, namespace): (&str, &str)) {
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
}
