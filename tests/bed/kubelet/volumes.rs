//! Volumes of every kind that kubelet makes, in a whole Kubernetes: in a guest that our agent sets up, and in a stock cloud image.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish, sh};
use tests::controllers::Controllers;
use tests::data_image::data_image;
use tests::flexvolumes;
use tests::http;
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, PLUGINS};
use tests::loop_device::LoopDevice;
use tests::node::Node;
use tests::wait::wait_for;

use super::whole::{self, STEP_DEADLINE, is_empty, runtime_class};

/// A whole Kubernetes starts, and a cloud image boots beside it.
const DEADLINE: Duration = Duration::from_secs(900);
/// Half a minute alone, and more on a busy machine; cloud-init goes on for as long again.
const CLOUD_DEADLINE: Duration = Duration::from_secs(500);
const PODS: &str = "/var/lib/kubelet/pods";
const MIB: u64 = 1 << 20;
/// Files of the stock image's pod belong to it.
const GROUP: u32 = 1234;
/// Whom that pod runs as; in the image it is who may become root.
const USER: u32 = 1000;

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::volumes_of_every_kind_in_a_whole_cluster", deadline: DEADLINE, run }];

/// A pod, with the disks that it has by block volumes.
struct Subject {
    name: &'static str,
    image: String,
    /// Of its image volume.
    words: String,
    memory: &'static str,
    group: Option<u32>,
    written: LoopDevice,
    read_only: LoopDevice,
}

fn run(bed: &Bed) -> Result<()> {
    let agent = bed.config.dist()?.join("virtlet-agent");
    let settings = format!("guest_agent = '{}'\nflexvolumes.enabled = true", agent.display());
    let (node, cluster, mut plane) = whole::start(bed, &settings)?;
    flexvolumes::install(bed, &bed.dir.join(PLUGINS))?;
    let _kubelet = Kubelet::start_in(bed, &cluster)?;
    let subjects = [
        ("tiny", tiny_with_agent(bed)?, "160Mi", None),
        ("cloud", bed.config.guest("debian.qcow2")?, "768Mi", Some(GROUP)),
    ];
    let [tiny, cloud] = subjects.map(|(name, file, memory, group)| {
        let device = |what: &str| LoopDevice::new(&bed.dir.join(format!("{name}-{what}.img")), MIB);
        let image = node.images.offer(&format!("{name}.qcow2"), &file, Fault::None);
        let words = data_image(&bed.dir, &format!("{name}-words"), name, group.is_some())?;
        let words = node.images.offer(&format!("{name}-words.qcow2"), &words, Fault::None);
        let (written, read_only) = (device("written")?, device("read-only")?);
        read_only.write(format!("disk of {name}\n").as_bytes(), 0)?;
        Ok::<_, anyhow::Error>(Subject { name, image, words, memory, group, written, read_only })
    });
    let subjects = [tiny?, cloud?];
    for dir in ["files", "node"] {
        fs::create_dir(bed.dir.join(dir))?;
    }
    plane.apply(&objects(bed, &subjects))?;

    for subject in &subjects {
        told(bed, &mut plane, subject).with_context(|| format!("pod {}", subject.name))?;
    }
    changed(&mut plane, &subjects)?;
    let uids =
        subjects.iter().map(|subject| plane.kubectl(&["get", "pod", subject.name, "-o", "jsonpath={.metadata.uid}"]));
    let dirs: Vec<PathBuf> = uids.map(|uid| Ok(PathBuf::from(PODS).join(uid?))).collect::<Result<_>>()?;
    ensure!(dirs.iter().all(|dir| dir.exists()), "kubelet keeps pods elsewhere: {dirs:?}");
    for dir in &dirs {
        // It may have a key of Ceph's, so it is not the group's, whatever group the pod has.
        let flex = fs::metadata(dir.join("volumes/virtlet~flexvolume_driver/flex"))?;
        ensure!((flex.gid(), flex.mode() & 0o077) == (0, 0), "what a pod says of its flexvolume: {flex:?}");
    }
    plane.kubectl(&["delete", "pod", "--all", "--wait=false"])?;
    wait_for("end of the pods and of their volumes", STEP_DEADLINE, || {
        Ok((is_empty(&mut plane)? && dirs.iter().all(|dir| !dir.exists())).then_some(()))
    })?;
    nothing_is_held(subjects.iter().flat_map(|subject| [&subject.written, &subject.read_only]))?;
    outlived(bed, &node, &mut plane)
}

/// A pod whose root disk is a volume, and the next pod with it: the guest counts its boots on its disk.
fn outlived(bed: &Bed, node: &Node, plane: &mut Controllers) -> Result<()> {
    let disk = LoopDevice::new(&bed.dir.join("pet.img"), 64 * MIB)?;
    let image = node.images.offer("pet.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pet"},
        "spec": {
            "runtimeClassName": "virtlet", "terminationGracePeriodSeconds": 20,
            "containers": [{
                "name": "vm", "image": image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": "160Mi", "cpu": "1"}},
                "volumeDevices": [{"name": "root", "devicePath": "/"}],
            }],
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "pet"}}],
        },
    });
    let mut items = Vec::from(claimed("pet", "Block", &disk.node().to_string_lossy()));
    items.push(pod);
    for boots in ["boots 1", "boots 2"] {
        plane.apply(&items)?;
        let mut last = String::new();
        wait_for("boot from the volume", STEP_DEADLINE, || {
            last =
                plane.kubectl(&["get", "pod", "pet", "-o", "jsonpath={.status.podIP} {.status.containerStatuses}"])?;
            let Some(ip) = last.split_whitespace().next().and_then(|ip| ip.parse().ok()) else { return Ok(None) };
            Ok(http::get(ip, "/cgi-bin/info").ok().filter(|info| info.lines().any(|line| line == boots)))
        })
        .with_context(|| format!("{boots}: {last}"))?;
        plane.kubectl(&["delete", "pod", "pet", "--wait=false"])?;
        wait_for("end of the pod", STEP_DEADLINE, || Ok(is_empty(plane)?.then_some(())))?;
    }
    nothing_is_held([&disk])
}

/// What a guest has of the volumes, with kubelet's modes, and what it may do with them.
fn told(bed: &Bed, plane: &mut Controllers, subject: &Subject) -> Result<()> {
    let name = subject.name;
    let mut last = String::new();
    let as_root = |words: &[&'static str]| {
        let sudo: &[&str] = if subject.group.is_some() { &["sudo", "-n"] } else { &[] };
        [&["exec", name, "--"], sudo, words].concat()
    };
    wait_for("volumes in the guest", CLOUD_DEADLINE, || {
        let ended = finish(&mut plane.command(&as_root(&["cat", "/srv/all/name"])), TOOL_DEADLINE)?;
        last = format!("{}{}", ended.stdout, ended.stderr);
        Ok((ended.stdout.trim() == name).then_some(()))
    })
    .with_context(|| last)?;
    let said = plane.kubectl(&as_root(&["sh", "-c", SCRIPT]))?;
    let [secret, token, scratch] = match subject.group {
        None => ["400 0", "644 0", "777 0"].map(str::to_owned),
        Some(group) => [format!("440 {group}"), format!("640 {group}"), format!("2777 {group}")],
    };
    let expected = format!(
        "first\nfirst\nhidden\nsecret {secret}\ntoken 2 {token}\nscratch {scratch}\n{name}\nRead-only\nRead-only\nRead-only\ndisk of {name}\nrefused\n"
    );
    ensure!(said == expected, "{said}\nand not\n{expected}");
    for dir in ["files", "node"] {
        let written = fs::read_to_string(bed.dir.join(dir).join(name))?;
        ensure!(written == "of the guest\n", "{dir}: {written:?}");
    }
    let written = subject.written.read(13, 512)?;
    ensure!(written == b"of the guest\n", "block volume: {written:?}");
    ensure!(subject.read_only.read(8, 512)? == [0; 8], "a block volume that is read-only was written to");
    let line = "echo x >/srv/flex/new; grep ' /srv/flex ' /proc/mounts | cut -d ' ' -f 3";
    let said = plane.kubectl(&as_root(&["sh", "-c", line]))?;
    ensure!(said == "ext4\n", "flexvolume: {said:?}");
    if subject.group.is_some() {
        // Links in a directory that all may write to, which are the pod's user's: root has followed them above, and so does that user.
        let said = plane.kubectl(&["exec", name, "--", "sh", "-c", BY_THE_USER])?;
        ensure!(said == format!("1\n{USER} {USER}\nfirst\nhidden\n2\n"), "as the pod's user: {said:?}");
    }
    Ok(())
}

/// A ConfigMap that changes, and what its `subPath` keeps.
fn changed(plane: &mut Controllers, subjects: &[Subject]) -> Result<()> {
    plane.kubectl(&["patch", "configmap", "app", "--patch", &json!({"data": {"word": "second\n"}}).to_string()])?;
    for Subject { name, .. } in subjects {
        wait_for("the other ConfigMap", STEP_DEADLINE, || {
            // For a moment the guest may remember a link to what kubelet has removed.
            let read = finish(&mut plane.command(&["exec", name, "--", "cat", "/etc/app/word"]), TOOL_DEADLINE)?;
            Ok((read.stdout == "second\n").then_some(()))
        })?;
        let kept = plane.kubectl(&["exec", name, "--", "cat", "/etc/word.conf"])?;
        ensure!(kept == "first\n", "file by `subPath`: {kept:?}");
    }
    Ok(())
}

/// No mount of kubelet's and no process of ours has a volume, and no device that kubelet put on top of one is left.
fn nothing_is_held<'a>(devices: impl IntoIterator<Item = &'a LoopDevice>) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(PODS), "kubelet's mounts: {mounts}");
    let stacked = sh("losetup --list --noheadings --output NAME,BACK-FILE")?;
    for device in devices {
        let node = device.node().to_string_lossy();
        ensure!(!stacked.lines().any(|line| line.ends_with(&*node)), "a device on {node} is left: {stacked}");
    }
    let left = finish(&mut command("pgrep", ["-a", "virtiofsd"]), TOOL_DEADLINE)?;
    ensure!(left.code == Some(1) && left.stdout.is_empty(), "processes: {left:?}");
    Ok(())
}

const SCRIPT: &str = "cat /etc/app/word /etc/word.conf /srv/secret/key
echo secret $(stat -L -c '%a %g' /srv/secret/key)
echo token $(tr -cd . </srv/all/token | wc -c) $(stat -L -c '%a %g' /srv/all/token)
echo scratch $(stat -c '%a %g' /scratch)
cat /srv/words/word
for dir in /scratch /srv/files /srv/node; do echo of the guest >$dir/$(hostname); done
for dir in /etc/app /srv/node-ro /srv/words; do { echo x >$dir/new; } 2>&1 | grep -o -i read-only; done
echo of the guest | dd of=/dev/written bs=512 seek=1 conv=fsync 2>/dev/null
head -n 1 /dev/read-only
echo x | dd of=/dev/read-only bs=512 seek=1 conv=fsync 2>/dev/null || echo refused";

const BY_THE_USER: &str = "cat /proc/sys/fs/protected_symlinks
echo $(id -u) $(stat -c %u /srv/all/token)
cat /etc/app/word /srv/secret/key
tr -cd . </srv/all/token | wc -c";

fn objects(bed: &Bed, subjects: &[Subject]) -> Vec<Value> {
    let mut items = vec![
        runtime_class(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"word": "first\n"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app"}, "stringData": {"key": "hidden\n"}}),
    ];
    items.extend(claimed("files", "Filesystem", &bed.dir.join("files").to_string_lossy()));
    for subject in subjects {
        for (what, device) in [("written", &subject.written), ("read-only", &subject.read_only)] {
            items.extend(claimed(&format!("{}-{what}", subject.name), "Block", &device.node().to_string_lossy()));
        }
        items.push(pod(bed, subject));
    }
    items
}

/// A volume of the node, and a claim that is bound to it.
fn claimed(name: &str, mode: &str, path: &str) -> [Value; 2] {
    let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]});
    let spec = json!({"accessModes": ["ReadWriteMany"], "volumeMode": mode, "storageClassName": "by-hand"});
    let with = |more: Value| {
        let mut spec = spec.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    };
    [
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": with(json!({
            "capacity": {"storage": "1Mi"}, "local": {"path": path},
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        }))}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": with(json!({
            "volumeName": name, "resources": {"requests": {"storage": "1Mi"}},
        }))}),
    ]
}

fn pod(bed: &Bed, subject: &Subject) -> Value {
    let name = subject.name;
    let claim = |what: &str, read_only: bool| json!({"name": what, "persistentVolumeClaim": {"claimName": format!("{name}-{what}"), "readOnly": read_only}});
    let all = json!([
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"configMap": {"name": "app"}},
    ]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {
            "virtlet.cloud/guest-agent": "true", "virtlet.cloud/shared-fs": "virtiofs",
        }},
        "spec": {
            "runtimeClassName": "virtlet", "terminationGracePeriodSeconds": 20, "serviceAccountName": "default",
            "securityContext": {"fsGroup": subject.group, "runAsUser": subject.group.map(|_| USER)},
            "containers": [{
                "name": "vm", "image": subject.image, "imagePullPolicy": "IfNotPresent",
                "resources": {"limits": {"memory": subject.memory, "cpu": "1"}},
                "volumeMounts": [
                    {"name": "app", "mountPath": "/etc/app", "readOnly": true},
                    {"name": "app", "mountPath": "/etc/word.conf", "subPath": "word"},
                    {"name": "secret", "mountPath": "/srv/secret"},
                    {"name": "all", "mountPath": "/srv/all"},
                    {"name": "scratch", "mountPath": "/scratch"},
                    {"name": "node", "mountPath": "/srv/node"},
                    {"name": "node", "mountPath": "/srv/node-ro", "readOnly": true},
                    {"name": "files", "mountPath": "/srv/files"},
                    {"name": "words", "mountPath": "/srv/words"},
                    {"name": "flex", "mountPath": "/srv/flex"},
                ],
                "volumeDevices": [
                    {"name": "written", "devicePath": "/dev/written"},
                    {"name": "read-only", "devicePath": "/dev/read-only"},
                ],
            }],
            "volumes": [
                {"name": "app", "configMap": {"name": "app"}},
                {"name": "secret", "secret": {"secretName": "app", "defaultMode": 0o400}},
                {"name": "all", "projected": {"sources": all}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "node", "hostPath": {"path": bed.dir.join("node"), "type": "Directory"}},
                {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
                {"name": "words", "image": {"reference": subject.words, "pullPolicy": "IfNotPresent"}},
                {"name": "flex", "flexVolume": {"driver": "virtlet/flexvolume_driver", "options": {"type": "qcow2", "capacity": "32MB"}}},
                claim("written", false),
                claim("read-only", true),
            ],
        },
    })
}
