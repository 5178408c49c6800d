//! The server of subresources: two replicas that keep nothing, each of which serves, and by what the API server comes to them.
//!
//! While none of them answers, the API server cannot list what is in their group, and so deletes no namespace. Hence two, a budget, and an
//! APIService that is applied last and removed first. Whom the API server trusts the server itself writes into it; so that applying it again
//! does not take that away, it is not in it.

use serde_json::{Value, json};

use super::roles::{bind, named, rule};
use super::workload::{HTTP, Program, budget, deployment, port};
use super::{Settings, object, object_in};
use crate::group::VERSION;
use crate::names::{SUBRESOURCES, SUBRESOURCES_TLS_SECRET};
use crate::verbs::{HEALTH, INSTANCES, MACHINES, VERSION as RELEASE, group};

const API: &str = "rbac.authorization.k8s.io/v1";
const HTTPS: u16 = 9443;
/// Where the cluster says by what front proxies are known, and the role by which that may be read.
const SYSTEM: &str = "kube-system";
const READER: &str = "extension-apiserver-authentication-reader";
/// Everybody who has logged in.
const EVERYBODY: &str = "system:authenticated";

/// All of it but the APIService.
pub(super) fn all(settings: &Settings) -> Vec<Value> {
    let mut all = roles(settings);
    all.extend([program(settings), service(settings), budget(settings, SUBRESOURCES)]);
    all
}

/// By what the API server comes. Last of all.
pub(super) fn registration(settings: &Settings) -> Value {
    let group = group(settings.group);
    let mut registration = object("apiregistration.k8s.io/v1", "APIService", &format!("{VERSION}.{group}"));
    registration["spec"] = json!({
        "group": group,
        "version": VERSION,
        "service": {"name": SUBRESOURCES, "namespace": settings.namespace, "port": 443},
        // As KubeVirt has it: behind all that is asked for without a group.
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
    });
    registration
}

fn roles(settings: &Settings) -> Vec<Value> {
    let group = group(settings.group);
    let mut cluster = object(API, "ClusterRole", SUBRESOURCES);
    cluster["rules"] = json!([
        // To ask the operator for something.
        rule(settings.group.name(), &[MACHINES], &["get", "patch"]),
        rule(settings.group.name(), &[INSTANCES], &["get"]),
        rule("", &["pods"], &["get"]),
        // WebSocket comes by GET, which newer API servers take for `create` as well. The policy `virtlet-subresources-commands` says what
        // is run and attached to.
        rule("", &["pods/attach", "pods/exec", "pods/portforward"], &["create", "get"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        named(
            rule("apiregistration.k8s.io", &["apiservices"], &["get", "list", "patch", "watch"]),
            &format!("{VERSION}.{group}"),
        ),
    ]);
    let mut local = object_in(settings, API, "Role", SUBRESOURCES);
    local["rules"] = json!([
        // The policy `virtlet-subresources-secrets` says which.
        rule("", &["secrets"], &["create"]),
        named(rule("", &["secrets"], &["get", "list", "patch", "update", "watch"]), SUBRESOURCES_TLS_SECRET),
    ]);
    let mut everywhere = object(API, "ClusterRoleBinding", SUBRESOURCES);
    bind(&mut everywhere, "ClusterRole", (SUBRESOURCES, SUBRESOURCES), &settings.namespace);
    let mut here = object_in(settings, API, "RoleBinding", SUBRESOURCES);
    bind(&mut here, "Role", (SUBRESOURCES, SUBRESOURCES), &settings.namespace);
    let mut proxies = object(API, "RoleBinding", SUBRESOURCES);
    proxies["metadata"]["namespace"] = SYSTEM.into();
    bind(&mut proxies, "Role", (READER, SUBRESOURCES), &settings.namespace);
    // `virtctl version`, whoever asks.
    let name = format!("{SUBRESOURCES}-{RELEASE}");
    let mut release = object(API, "ClusterRole", &name);
    release["rules"] = json!([rule(&group, &[RELEASE, HEALTH], &["get", "list"])]);
    let mut told = object(API, "ClusterRoleBinding", &name);
    told["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    told["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": EVERYBODY}]);
    let account = object_in(settings, "v1", "ServiceAccount", SUBRESOURCES);
    vec![account, cluster, everywhere, local, here, proxies, release, told]
}

fn program(settings: &Settings) -> Value {
    let words = [
        SUBRESOURCES.trim_start_matches("virtlet-").to_owned(),
        format!("--group={}", settings.group),
        format!("--namespace={}", settings.namespace),
        format!("--serve=[::]:{HTTPS}"),
    ];
    let program = Program {
        name: SUBRESOURCES,
        words: words.into(),
        env: json!([]),
        ports: vec![port("http", HTTP), port("https", HTTPS)],
        // Of a thousand streams.
        resources: json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}),
    };
    deployment(settings, &program)
}

fn service(settings: &Settings) -> Value {
    let mut service = object_in(settings, "v1", "Service", SUBRESOURCES);
    service["spec"] = json!({
        "selector": {super::workload::NAME: SUBRESOURCES},
        "ports": [{"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}],
    });
    service
}
