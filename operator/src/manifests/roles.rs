//! Who may do what: the operator and nodes, as little as they need; users, by the roles that they have.

use serde_json::{Value, json};

use super::crds::DEFINITIONS;
use super::{Settings, object, object_in};
use crate::group::Group;
use crate::names::{OPERATOR, REPORTER, REPORTER_NAMESPACE, TLS_SECRET, WEBHOOK_CONFIGURATION};
use crate::verbs::{self, REFUSED, VERBS, Verb};

const API: &str = "rbac.authorization.k8s.io/v1";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const SCALE: &str = "virtualmachineinstancereplicasets/scale";

/// Of users: added to Kubernetes' own roles. Who may change pods gets at consoles and ports.
pub(super) fn of_users(group: Group) -> [Value; 3] {
    let role = |of: &str, verbs: &[&str], scale: &[&str]| {
        let mut role = object(API, "ClusterRole", &format!("virtlet-{of}"));
        role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{of}")] = "true".into();
        let plurals: Vec<&str> = DEFINITIONS.iter().map(|definition| definition.plural).collect();
        let mut rules = vec![rule(group.name(), &plurals, verbs), rule(group.name(), &[SCALE], scale)];
        rules.extend(of_subresources(group, of != "view"));
        role["rules"] = rules.into();
        role
    };
    let changes = &["get", "patch", "update"];
    [role("admin", WRITE, changes), role("edit", WRITE, changes), role("view", READ, &["get"])]
}

/// To ask for subresources; for all of them, also those that there are not, as otherwise nobody would be told what does instead.
fn of_subresources(group: Group, all: bool) -> Vec<Value> {
    let name = verbs::group(group);
    let by = |right: &str| -> Vec<String> {
        let verbs = VERBS.iter().filter(|verb| verb.right() == right && (all || verb.only_reads()));
        verbs.map(Verb::resource).collect()
    };
    let refused = REFUSED.iter().map(|(of, name, _)| format!("{of}/{name}"));
    let mut changed = by("update");
    let mut rules = vec![rule(&name, &texts(&by("get")), &["get"])];
    if all {
        changed.push(verbs::EXPAND.to_owned());
        rules.push(rule(&name, &texts(&changed), &["update"]));
        rules.push(rule(&name, &texts(&refused.collect::<Vec<_>>()), &["get", "update"]));
    }
    rules
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
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
    bind(&mut everywhere, "ClusterRole", (OPERATOR, OPERATOR), &settings.namespace);
    let mut here = object_in(settings, API, "RoleBinding", OPERATOR);
    bind(&mut here, "Role", (OPERATOR, OPERATOR), &settings.namespace);
    vec![account, cluster, everywhere, local, here]
}

/// Of nodes, to tell of their VMs: of which pods and what, the policy `virtlet-reporter` says. They read a pod by a patch that changes nothing, as no
/// policy judges who gets one.
pub(super) fn of_reporter() -> [Value; 3] {
    let mut account = object("v1", "ServiceAccount", REPORTER);
    account["metadata"]["namespace"] = REPORTER_NAMESPACE.into();
    let mut role = object(API, "ClusterRole", REPORTER);
    role["rules"] = json!([rule("", &["pods/status"], &["patch"])]);
    let mut binding = object(API, "ClusterRoleBinding", REPORTER);
    bind(&mut binding, "ClusterRole", (REPORTER, REPORTER), REPORTER_NAMESPACE);
    [account, role, binding]
}

fn everywhere(group: Group) -> Vec<Value> {
    let of_kinds = |suffix: &str| -> Vec<String> {
        let all = DEFINITIONS.iter().filter(|definition| suffix.is_empty() || definition.has_status);
        all.map(|definition| format!("{}{suffix}", definition.plural)).collect()
    };
    let ours = |suffix: &str, verbs: &[&str]| {
        let resources = of_kinds(suffix);
        rule(group.name(), &texts(&resources), verbs)
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

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Of one object alone.
pub(super) fn named(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

/// Gives a role to an account of this namespace.
pub(super) fn bind(binding: &mut Value, kind: &str, (role, account): (&str, &str), namespace: &str) {
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
}
