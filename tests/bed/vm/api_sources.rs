//! Seeds that are made of ConfigMaps and Secrets by the API of a real server.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use proto::cri::PodSandboxConfig;
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::cri;
use tests::node::{BOOT_DEADLINE, Node};
use tonic::Code;

use super::seeds::again;

const GRACE: Duration = Duration::from_secs(30);
/// In base64 it is in the seed alone.
const CANARY: &str = "canary-of-the-secret";
const SOURCE: &str = "VirtletCloudInitUserDataSource";

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::a_seed_is_made_of_what_the_api_lets_the_node_read", deadline: Duration::from_secs(480), run }];

fn run(bed: &Bed) -> Result<()> {
    let mut cluster = Cluster::start(bed)?;
    let put = |cluster: &Cluster, path: &str, object: Value| cluster.apply(path, &object).map(drop);
    let script = |said: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud"},
            "data": {"user-data": format!("#!/bin/sh\necho said {said} >/dev/console\n")},
        })
    };
    let core = "/api/v1/namespaces/default";
    put(&cluster, &format!("{core}/configmaps"), script("first"))?;
    for name in ["files", "others"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"f": CANARY, "f_path": "/etc/of-the-secret", "f_encoding": "plain"},
        });
        put(&cluster, &format!("{core}/secrets"), secret)?;
    }
    // What a kubelet gets by the node authorizer, for what its pods refer to.
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "of-pods"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets"], "resourceNames": ["cloud", "files", "absent"], "verbs": ["get"]}],
    });
    put(&cluster, &format!("{rbac}/roles"), role)?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "of-pods"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "of-pods"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    put(&cluster, &format!("{rbac}/rolebindings"), binding)?;

    let node = Node::configured(bed, &format!("seed_kubeconfig = '{}'", cluster.kubeconfig.display()))?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let with = |pairs: &[(&str, &str)]| {
        let said: HashMap<_, _> = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        cri::container(&image, said)
    };
    let plain = node.pod("api")?;
    let refused = |node: &Node, pairs: &[(&str, &str)], code: Code, said: &str| {
        let container = with(pairs);
        let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..plain.clone() };
        let sandbox = node.cri.run_sandbox(&pod)?;
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("not refused: {said}") };
        ensure!(error.code() == code && error.message().contains(said), "{error}");
        Ok(node.cri.remove_sandbox(&sandbox)?)
    };
    refused(
        &node,
        &[(SOURCE, "configmap/absent")],
        Code::FailedPrecondition,
        "namespace \"default\" has no configmap/absent",
    )?;
    let files = "VirtletFilesFromDataSource";
    refused(&node, &[(files, "secret/others")], Code::PermissionDenied, "does not let this node read secret/others")?;

    let key = ("VirtletCloudInitUserDataSourceKey", "user-data");
    let container = with(&[(SOURCE, "configmap/cloud"), key]);
    let vm =
        node.start_pod(PodSandboxConfig { annotations: container.annotations.clone(), ..plain.clone() }, &container)?;
    vm.wait_log("said first", BOOT_DEADLINE)?;

    // As it is at the next start; another instance, or the script would not be run.
    put(&cluster, &format!("{core}/configmaps"), script("second"))?;
    let vm = again(
        &node,
        &vm,
        &with(&[(SOURCE, "configmap/cloud"), key, ("VirtletCloudInitMetaData", "instance-id: another")]),
        1,
    )?;
    vm.wait_log("said second", BOOT_DEADLINE)?;
    node.remove_vm(&vm, GRACE)?;

    // A Secret's content is in no record and no log.
    let container = with(&[(files, "secret/files")]);
    let vm =
        node.start_pod(PodSandboxConfig { annotations: container.annotations.clone(), ..plain.clone() }, &container)?;
    vm.wait_up()?;
    ensure!(!node.controld.log()?.contains(CANARY), "the Secret is in the log");
    node.remove_vm(&vm, GRACE)?;

    // kubelet tries again.
    cluster.apiserver.kill9()?;
    refused(
        &node,
        &[(SOURCE, "configmap/cloud"), key],
        Code::Unavailable,
        "the API server did not give configmap/cloud",
    )?;
    cluster.apiserver.start_again()?;
    cluster.wait_ready()?;
    let container = with(&[(SOURCE, "configmap/cloud"), key]);
    let vm = node.start_pod(PodSandboxConfig { annotations: container.annotations.clone(), ..plain }, &container)?;
    vm.wait_log("said second", BOOT_DEADLINE)?;
    node.remove_vm(&vm, GRACE)
}
