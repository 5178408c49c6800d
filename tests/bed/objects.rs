//! Tier `objects`: what `virtlet-operator install` prints, before a real API server that judges KubeVirt's objects by it, and
//! the operator that looks after them: on a real node, in a storm, and as an installation of the documents that is upgraded and away. Beside
//! that, who may exec controld's verbs.

mod autoscaling;
mod exec_roles;
mod node;
mod refused;
mod served;
mod storm;
mod streams;
mod subresources;
mod told;
mod virtctl;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::controllers::Controllers;
use tests::daemon::Daemon;
use tests::wait::wait_for;

const DEADLINE: Duration = Duration::from_secs(240);
/// The server looks for new policies and definitions every few seconds.
const NEWS_DEADLINE: Duration = Duration::from_secs(60);

const KINDS: [&str; 4] = [
    "virtualmachines",
    "virtualmachineinstances",
    "virtualmachineinstancereplicasets",
    "virtualmachineinstancepresets",
];
/// Objects of `kubevirt`'s own tests. Of `presets.yaml`, which of them would do is the operator's part.
const FIXTURES: [&str; 11] = [
    include_str!("../../kubevirt/fixtures/claims.yaml"),
    include_str!("../../kubevirt/fixtures/cloud-init.yaml"),
    include_str!("../../kubevirt/fixtures/described.yaml"),
    include_str!("../../kubevirt/fixtures/firmware.yaml"),
    include_str!("../../kubevirt/fixtures/keys.yaml"),
    include_str!("../../kubevirt/fixtures/machine.yaml"),
    include_str!("../../kubevirt/fixtures/networks.yaml"),
    include_str!("../../kubevirt/fixtures/pod-fields.yaml"),
    include_str!("../../kubevirt/fixtures/refused.yaml"),
    include_str!("../../kubevirt/fixtures/replica-set.yaml"),
    include_str!("../../kubevirt/fixtures/size.yaml"),
];

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [CASES, exec_roles::CASES, node::CASES, served::CASES, storm::CASES, subresources::CASES]
        .into_iter()
        .flatten()
        .copied()
}

const CASES: &[Case] = &[
    Case { name: "objects::the_server_refuses_what_lint_refuses_and_says_where", deadline: DEADLINE, run: judged },
    Case { name: "objects::kubectl_shows_scales_and_ends_them", deadline: DEADLINE, run: handled },
    Case { name: "objects::an_installation_comes_and_goes", deadline: DEADLINE, run: installed },
];

/// An installation of which nothing runs.
const BARE: &[&str] = &["--without", "operator", "--without", "subresources", "--namespace", "default"];

/// A control plane with an installation.
struct World<'a> {
    bed: &'a Bed,
    cluster: Cluster,
    controllers: Controllers,
}

impl<'a> World<'a> {
    /// Without the operator's webhook and without subresources, which nobody would answer.
    fn start(bed: &'a Bed) -> Result<Self> {
        let cluster = Cluster::start(bed)?;
        let controllers = Controllers::start(bed, &cluster)?;
        let world = Self { bed, cluster, controllers };
        world.install(BARE)?;
        Ok(world)
    }

    /// The operator as a service, which reaches the API server by this kubeconfig.
    fn serve(&self, kubeconfig: &Path) -> Result<Daemon> {
        let words = ["run", "--namespace=default", "--listen=127.0.0.1:8080", "--name=first", "--kubeconfig"];
        let words = words.iter().map(OsStr::new).chain([kubeconfig.as_os_str()]);
        Daemon::start("operator", self.bed.program("virtlet-operator"), words, self.bed.logs().join("operator.log"))
    }

    fn operator(&self, words: &[&str]) -> Result<Ended> {
        let admin = self.cluster.admin.display().to_string();
        let words: Vec<&str> = [words, &["--kubeconfig", &admin]].concat();
        finish(&mut command(self.bed.program("virtlet-operator"), words), TOOL_DEADLINE)
    }

    /// Applies what `install` prints.
    fn apply(&self, words: &[&str]) -> Result<()> {
        let printed = self.operator(&[&["install"], words].concat())?;
        ensure!(printed.code == Some(0), "{}", printed.stderr);
        self.kubectl(&["apply", "--server-side", "-f", &self.file(&printed.stdout)?]).map(drop)
    }

    /// [`World::apply`], and waits until it holds.
    fn install(&self, words: &[&str]) -> Result<()> {
        self.apply(words)?;
        for kind in KINDS {
            let name = format!("crd/{kind}.kubevirt.io");
            self.kubectl(&["wait", "--for=condition=Established", "--timeout=240s", &name])?;
        }
        // The server may have come to know one before the others were made.
        wrong_for_each().into_iter().try_for_each(|(policy, wrong)| {
            wait_for(&format!("policy {policy} that holds"), NEWS_DEADLINE, || {
                let told = self.try_create(&wrong)?;
                Ok((told.code != Some(0) && told.stderr.contains(policy)).then_some(()))
            })
        })
    }

    fn file(&self, text: &str) -> Result<String> {
        let path: PathBuf = self.bed.dir.join("applied.yaml");
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Whether the server would make it; it does not.
    fn try_create(&self, object: &Value) -> Result<Ended> {
        let file = self.file(&object.to_string())?;
        self.tried(&["create", "--dry-run=server", "-f", &file])
    }

    fn create(&self, object: &Value) -> Result<String> {
        self.kubectl(&["create", "-f", &self.file(&object.to_string())?])
    }

    fn tried(&self, words: &[&str]) -> Result<Ended> {
        finish(&mut self.controllers.command(words), TOOL_DEADLINE)
    }

    /// What `kubectl` prints.
    fn kubectl(&self, words: &[&str]) -> Result<String> {
        let ended = self.tried(words)?;
        ensure!(ended.code == Some(0), "kubectl {words:?}: {}{}", ended.stdout, ended.stderr);
        Ok(ended.stdout)
    }

    /// What it is refused with.
    fn refused(&self, words: &[&str]) -> Result<String> {
        let ended = self.tried(words)?;
        ensure!(ended.code != Some(0), "kubectl {words:?} was not refused: {}", ended.stdout);
        Ok(ended.stderr)
    }
}

/// An object that each policy of kinds refuses: a disk without a volume.
fn wrong_for_each() -> [(&'static str, Value); 3] {
    let lost = json!({"disks": [{"name": "lost"}]});
    let mut vm = machine("testvm", "v1");
    vm["spec"]["template"]["spec"]["domain"]["devices"] = lost.clone();
    let mut spec = instance("any")["spec"].clone();
    spec["domain"]["devices"] = lost;
    let labels = json!({"set": "testvm"});
    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": "testvm"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    });
    [("virtlet-vmi", seed()), ("virtlet-vm", vm), ("virtlet-vmirs", set)]
}

/// The one that the seed shows: a disk without a volume.
fn seed() -> Value {
    let mut seed = instance("testvm");
    seed["spec"]["domain"]["devices"] = json!({"disks": [
        {"name": "root", "disk": {"bus": "virtio"}}, {"name": "registryvolume", "disk": {"bus": "virtio"}},
    ]});
    seed
}

fn instance(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {}},
            "volumes": [{"name": "root", "containerDisk": {"image": "x/y:1"}}],
        },
    })
}

fn machine(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": format!("kubevirt.io/{version}"), "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Halted", "template": {"metadata": {"creationTimestamp": null}, "spec": instance(name)["spec"]}},
    })
}

fn judged(bed: &Bed) -> Result<()> {
    let world = World::start(bed)?;
    let told = world.try_create(&seed())?.stderr;
    let wanted = "spec.domain.devices.disks[1].name \"registryvolume\" not found in spec.volumes";
    ensure!(told.contains(wanted), "{told}");

    // A verdict of the server's for each verdict of lint's.
    world.kubectl(&["create", "namespace", "web"])?;
    for text in FIXTURES {
        for document in kubevirt::read(text).map_err(|error| anyhow::anyhow!("{error}"))? {
            if !document.kind.makes_pods() {
                continue;
            }
            let name = document.value["metadata"].clone();
            let of_lint = kubevirt::lint(std::slice::from_ref(&document), &kubevirt::render::Options::default());
            let is_refused = of_lint
                .iter()
                .flatten()
                .any(|finding| finding.level == kubevirt::Level::Error && is_said_to_all(finding));
            let told = world.try_create(&document.value)?;
            ensure!(
                (told.code != Some(0)) == is_refused,
                "{name}: {}{}; and lint: {of_lint:?}",
                told.stdout,
                told.stderr
            );
        }
    }
    refused::fields(&world)?;

    // What clients write that set nothing, in the version of older days.
    let mut unset = machine("unset", "v1alpha3");
    unset["spec"]["template"]["spec"]["networks"] = Value::Null;
    unset["spec"]["template"]["spec"]["domain"]["devices"] = json!({"gpus": [], "autoattachVSOCK": false});
    unset["spec"]["template"]["spec"]["domain"]["cpu"] = json!({"model": ""});
    let told = world.try_create(&unset)?;
    ensure!(told.code == Some(0) && told.stderr.contains("v1alpha3 VirtualMachine is deprecated"), "{}", told.stderr);

    // All at once, each with its place.
    let mut wrong = machine("wrong", "v1");
    wrong["spec"]["template"]["spec"]["domain"]["devices"] = json!({
        "disks": [{"name": "root"}, {"name": "root", "bootOrder": 1}],
        "interfaces": [{"name": "lan", "bridge": {}, "bootOrder": 1}],
    });
    let told = world.try_create(&wrong)?.stderr;
    for wanted in [
        "devices.disks[1].name \"root\" is the name of another disk",
        "devices.interfaces[0].name \"lan\" not found in spec.template.spec.networks",
        "devices.interfaces[0].bootOrder 1 is that of spec.template.spec.domain.devices.disks[0], too",
    ] {
        ensure!(told.contains(wanted), "no `{wanted}` in {told}");
    }
    // Taken, and told.
    let mut warned = instance("warned");
    warned["spec"]["domain"]["devices"] = json!({"interfaces": [{"name": "lan", "masquerade": {}}]});
    warned["spec"]["networks"] = json!([{"name": "lan", "pod": {}}]);
    let told = world.try_create(&warned)?;
    let wanted = "spec.domain.devices.interfaces[0].masquerade: taken as `bridge`";
    ensure!(told.code == Some(0) && told.stderr.contains(wanted), "{}", told.stderr);
    largest(&world)
}

/// Whether a finding is the server's, too: it knows neither RuntimeClasses nor what is in Secrets.
fn is_said_to_all(finding: &kubevirt::Finding) -> bool {
    !finding.text.contains("RuntimeClass") && !finding.text.contains("--image")
}

/// As much of everything as there may be does not cost more than the server pays.
fn largest(world: &World<'_>) -> Result<()> {
    let mut largest = instance("largest");
    let all = |count: usize, of: &dyn Fn(usize) -> Value| (0..count).map(of).collect::<Vec<_>>();
    let devices = &mut largest["spec"]["domain"]["devices"];
    devices["disks"] = all(64, &|nth| json!({"name": format!("d{nth}"), "bootOrder": nth + 1})).into();
    devices["interfaces"] = all(15, &|nth| {
        let ports = all(256, &|port| json!({"name": format!("p{port}"), "port": port + 1}));
        json!({"name": format!("n{nth}"), "bridge": {}, "macAddress": format!("02:00:00:00:00:{nth:02x}"), "ports": ports})
    })
    .into();
    largest["spec"]["domain"]["cpu"]["features"] = all(256, &|nth| json!({"name": format!("f{nth}")})).into();
    largest["spec"]["networks"] =
        all(15, &|nth| json!({"name": format!("n{nth}"), "multus": {"networkName": "lan"}})).into();
    largest["spec"]["volumes"] =
        all(64, &|nth| json!({"name": format!("d{nth}"), "containerDisk": {"image": "x"}})).into();
    let told = world.try_create(&largest)?;
    ensure!(told.code == Some(0), "{}", told.stderr);
    Ok(())
}

fn handled(bed: &Bed) -> Result<()> {
    let world = World::start(bed)?;
    world.create(&instance("web"))?;
    let status = json!({"status": {
        "phase": "Running", "nodeName": "node1", "interfaces": [{"ipAddress": "10.1.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}], "ofLater": 1,
    }});
    world.kubectl(&["patch", "vmi", "web", "--subresource=status", "--type=merge", "-p", &status.to_string()])?;
    let shown = world.kubectl(&["get", "vvmi", "--field-selector=status.phase=Running"])?;
    let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(
        words.first().is_some_and(|head| head[..] == ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"]),
        "{shown}"
    );
    ensure!(
        words.get(1).is_some_and(|row| row.get(2..) == Some(&["Running", "10.1.1.1", "node1", "True"][..])),
        "{shown}"
    );
    world.kubectl(&["wait", "--for=condition=Ready", "vmi/web", "--timeout=10s"])?;
    let told = world.refused(&["patch", "vmi", "web", "--type=merge", "-p", r#"{"spec":{"hostname":"x"}}"#])?;
    ensure!(told.contains("spec: Invalid value: cannot be changed"), "{told}");
    // What is explained is published some time after what is served.
    wait_for("explanation", NEWS_DEADLINE, || {
        Ok(world.tried(&["explain", "vmi.spec.domain"])?.stdout.contains("ioThreadsPolicy").then_some(()))
    })?;

    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": {"name": "workers"},
        "spec": {
            "selector": {"matchLabels": {"set": "workers"}},
            "template": {"metadata": {"labels": {"set": "workers"}}, "spec": instance("any")["spec"]},
        },
    });
    world.create(&set)?;
    world.kubectl(&["scale", "vmirs", "workers", "--replicas=5"])?;
    let scale = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets/workers/scale";
    ensure!(world.cluster.get(scale)?["spec"]["replicas"] == 5, "not scaled");
    let told = world.refused(&[
        "patch",
        "vmirs",
        "workers",
        "--type=merge",
        "-p",
        r#"{"spec":{"selector":{"matchLabels":{"set":"x"}}}}"#,
    ])?;
    ensure!(told.contains("spec.selector: Invalid value: cannot be changed"), "{told}");
    let mut other = set.clone();
    other["spec"]["selector"]["matchLabels"]["set"] = "others".into();
    let told = world.try_create(&other)?.stderr;
    ensure!(told.contains("spec.template.metadata.labels are not those that spec.selector selects"), "{told}");

    // What was taken when no policy was there may be labelled, and may go.
    world.kubectl(&["delete", "validatingadmissionpolicybinding", "virtlet-vm"])?;
    let mut wrong = machine("wrong", "v1");
    wrong["metadata"]["finalizers"] = json!(["virtlet.k8s/vmi"]);
    wrong["spec"]["template"]["spec"]["domain"]["devices"] = json!({"disks": [{"name": "lost"}]});
    wait_for("no policy", NEWS_DEADLINE, || Ok(world.create(&wrong).is_ok().then_some(())))?;
    world.install(BARE)?;
    wait_for("a policy for machines", NEWS_DEADLINE, || {
        let mut next = wrong.clone();
        next["metadata"]["name"] = "next".into();
        Ok(world.try_create(&next)?.stderr.contains("virtlet-vm").then_some(()))
    })?;
    world.kubectl(&["label", "vm", "wrong", "a=b"])?;
    world.refused(&["patch", "vm", "wrong", "--type=merge", "-p", r#"{"spec":{"runStrategy":"Always"}}"#])?;
    world.kubectl(&["delete", "vm", "wrong", "--wait=false"])?;
    world.kubectl(&["patch", "vm", "wrong", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
    let gone = world.refused(&["get", "vm", "wrong"])?;
    ensure!(gone.contains("not found"), "{gone}");
    rights(&world)
}

/// Roles that people have already, and what the operator may do with Secrets.
fn rights(world: &World<'_>) -> Result<()> {
    world.kubectl(&["create", "rolebinding", "one", "--clusterrole=edit", "--user=one"])?;
    world.kubectl(&["create", "rolebinding", "two", "--clusterrole=view", "--user=two"])?;
    let may = |who: &str, what: &[&str]| -> Result<bool> {
        let as_who = format!("--as={who}");
        Ok(world.tried(&[&["auth", "can-i"], what, &[&as_who]].concat())?.code == Some(0))
    };
    wait_for("rights in the roles of Kubernetes", NEWS_DEADLINE, || {
        Ok((may("one", &["create", "virtualmachines.kubevirt.io"])? && may("two", &["list", "vmi"])?).then_some(()))
    })?;
    ensure!(!may("two", &["create", "virtualmachines.kubevirt.io"])?, "a viewer makes VMs");
    let operator = "system:serviceaccount:default:virtlet-operator";
    ensure!(may(operator, &["create", "pods"])?, "the operator makes no pods");
    ensure!(!may(operator, &["create", "pods", "--subresource=exec"])?, "the operator gets into pods");
    ensure!(!may(operator, &["list", "secrets"])?, "the operator reads all Secrets");
    let make = |name: &str| {
        world.tried(&["create", "secret", "generic", name, "--from-literal=a=b", &format!("--as={operator}")])
    };
    wait_for("policy for Secrets", NEWS_DEADLINE, || {
        Ok(make("theirs")?.stderr.contains("whose names end in -ci").then_some(()))
    })?;
    ensure!(make("web-ci")?.code == Some(0), "not even its own");
    Ok(())
}

fn installed(bed: &Bed) -> Result<()> {
    let world = World::start(bed)?;
    world.create(&instance("web"))?;
    let place = ["--namespace", "default"];
    let told = world.operator(&[&["uninstall"][..], &place].concat())?;
    ensure!(told.code == Some(1) && told.stderr.contains("VirtualMachineInstance `default/web`"), "{}", told.stderr);
    world.kubectl(&["get", "vmi", "web"])?;
    // With nobody who takes it off a finalizer is waited for.
    world.kubectl(&[
        "patch",
        "vmi",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":["virtlet.k8s/pod"]}}"#,
    ])?;
    let told = world.operator(&[&["uninstall", "--delete-vms", "--timeout=1"][..], &place].concat())?;
    ensure!(told.code == Some(1) && told.stderr.contains("is not gone after 1 s"), "{}", told.stderr);
    world.kubectl(&["patch", "vmi", "web", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])?;
    // What somebody else made in our place stays.
    world.kubectl(&["label", "clusterrole", "virtlet-view", "app.kubernetes.io/managed-by=me", "--overwrite"])?;
    for _ in 0..2 {
        let told = world.operator(&[&["uninstall", "--delete-vms"][..], &place].concat())?;
        ensure!(told.code == Some(0), "{}", told.stderr);
        ensure!(told.stdout.contains("ClusterRole `virtlet-view` stays: it is not ours"), "{}", told.stdout);
    }
    let left =
        world.kubectl(&["get", "crd,validatingadmissionpolicy,validatingadmissionpolicybinding", "-o", "name"])?;
    ensure!(!left.contains("virt"), "{left}");
    world.kubectl(&["delete", "clusterrole", "virtlet-view"])?;

    beside(&world)
}

/// KubeVirt's own definitions are there, by a text of ours.
fn beside(world: &World<'_>) -> Result<()> {
    let theirs = [("VirtualMachine", "vm"), ("VirtualMachineInstance", "vmi")].map(|(kind, short)| {
        let plural = format!("{}s", kind.to_lowercase());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.kubevirt.io"), "labels": {"app.kubernetes.io/managed-by": "virt-operator"}},
            "spec": {
                "group": "kubevirt.io", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "shortNames": [short, format!("{short}s")]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    });
    world.create(&json!({"apiVersion": "v1", "kind": "List", "items": theirs}))?;
    let told = world.operator(&["install"])?;
    let wanted = "`virtualmachines.kubevirt.io` of `virt-operator`";
    ensure!(told.code == Some(1) && told.stdout.is_empty() && told.stderr.contains(wanted), "{}", told.stderr);
    // Beside them, under the other group, and by names that mean ours.
    world.apply(&[&["--group", "virtlet.k8s"][..], BARE].concat())?;
    let all = ["virtualmachines", "virtualmachineinstances"]
        .map(|plural| [format!("crd/{plural}.kubevirt.io"), format!("crd/{plural}.virtlet.k8s")])
        .concat();
    let words = ["wait", "--for=condition=Established", "--timeout=240s"].into_iter();
    world.kubectl(&words.chain(all.iter().map(String::as_str)).collect::<Vec<_>>())?;
    let mut ours = machine("ours", "v1");
    ours["apiVersion"] = "virtlet.k8s/v1".into();
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [machine("theirs", "v1"), ours]});
    let file = world.file(&both.to_string())?;
    let mut last = String::new();
    let made = wait_for("objects of both groups", NEWS_DEADLINE, || {
        let told = world.tried(&["apply", "-f", &file])?;
        last = told.stderr;
        Ok((told.code == Some(0)).then_some(()))
    });
    made.with_context(|| format!("the last answer: {last}"))?;
    for (name, wanted) in [
        ("vvm", "virtualmachine.virtlet.k8s/ours\n"),
        ("vm.virtlet.k8s", "virtualmachine.virtlet.k8s/ours\n"),
        ("vm.kubevirt.io", "virtualmachine.kubevirt.io/theirs\n"),
    ] {
        let told = world.kubectl(&["get", name, "-o", "name"])?;
        ensure!(told == wanted, "{name} is {told}");
    }
    Ok(())
}

/// What is at a path of the object `db`; empty if there is none.
fn at(plane: &mut Controllers, kind: &str, path: &str) -> Result<String> {
    plane.kubectl(&["get", kind, "db", "--ignore-not-found", "-o", &format!("jsonpath={{{path}}}")])
}
