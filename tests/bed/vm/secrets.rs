//! Secrets of pods, of callers and of the node's configuration stay where they have to be, whatever is done with them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::stat::{Mode, umask};
use proto::cri::{
    AttachRequest, AuthConfig, ContainerStatusRequest, ImageStatusRequest, KeyValue, ListContainerStatsRequest,
    ListContainersRequest, ListImagesRequest, ListPodSandboxMetricsRequest, ListPodSandboxRequest,
    PodSandboxStatusRequest, PullImageRequest, StatusRequest,
};
use serde_json::json;
use tests::canary::{Canary, Search};
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish, sh};
use tests::controld_metrics::{self, ADDRESS};
use tests::cri;
use tests::image_server::{Fault, HOST};
use tests::kubelet_volumes::PodVolumes;
use tests::libvirt::{running_domains, virsh};
use tests::modes::open_to_others;
use tests::node::{CRI_SOCKET, Node, Vm};
use tonic::{Code, Status};

const GRACE: Duration = Duration::from_secs(30);
const RULES: &str = "/etc/virtlet/images.d";
const NODES_PASSWORD: &str = "/etc/virtlet/registry-password";
const STATE: &str = "/var/lib/virtlet";
const RUN: &str = "/run/virtlet";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::secrets_are_nowhere_but_in_records", deadline: Duration::from_secs(480), run: secrets },
    Case { name: "vm::a_canary_is_found_wherever_it_is", deadline: Duration::from_secs(480), run: found },
];

const fn canary(secret: &'static str, text: &'static str) -> Canary {
    Canary { secret, text }
}

/// What a pod brings that the records have: annotations, as kubelet wants them back, and variables for commands in the guest.
const USER_DATA: Canary = canary("user-data", "kKq3vXw81TzPfYd0Ruser");
const META_DATA: Canary = canary("meta-data", "b7HsLm2Qx9JcWgN4tmeta");
const KEY: Canary = canary("comment of an SSH key", "pZ5rVn8CkYe1Dh6Uasshk");
const VARIABLE: Canary = canary("variable of a container", "hW2eMf5XtGb0Vq9Ojvari");
const OF_PODS: [Canary; 4] = [USER_DATA, META_DATA, KEY, VARIABLE];

/// What volumes of a pod have that its seed is made of: there is no record of it either, and the seed itself is gone by then.
const VOLUME: Canary = canary("file of a volume", "nQ4yHb8TsKw1Rx7Gjvolu");
const VOLUME_KEY: Canary = canary("key of a volume", "cU2zMe6JpAv9Df5Nhvkey");
/// What stands in annotations that are refused: there is no record of it.
const BROKEN_DATA: Canary = canary("user-data that is no YAML", "xT6wQj3FmBv9Ls2Eobrok");
const PRIVATE_KEY: Canary = canary("private key given for a public one", "gR4uKd7NzPc8Ha1Iypriv");
/// What callers log in with.
const PASSWORD: Canary = canary("password", "dS8yLp1KnUz6Cw3Trpass");
const WRONG_PASSWORD: Canary = canary("wrong password", "mF7aJx4HgQv2Ed9Bkwron");
const IDENTITY: Canary = canary("identity token", "tN3cVb6YrZo5Kp8Liiden");
const REGISTRY: Canary = canary("registry token", "uG9sXe2DwMh7Ra4Ftregi");
const UNREADABLE: Canary = canary("login that is no base64", "jB1kPq5ZvTn8Yc6Wxunre");
/// What the configuration has.
const QUERY: Canary = canary("signed URL of a rule", "aE6oHt9SfLd3Ug1Mbquer");
const PROXY: Canary = canary("login of a rule's proxy", "yC4nWz7RkJp0Xi5Vgprox");
const NODES: Canary = canary("the node's login of a registry", "eV8mTh2BqFs6No3Ylnode");

const ALL: [Canary; 16] = [
    VOLUME,
    VOLUME_KEY,
    USER_DATA,
    META_DATA,
    KEY,
    BROKEN_DATA,
    PRIVATE_KEY,
    VARIABLE,
    PASSWORD,
    WRONG_PASSWORD,
    IDENTITY,
    REGISTRY,
    UNREADABLE,
    QUERY,
    PROXY,
    NODES,
];

/// Files with secrets of pods in them, and why. They are root's (0600), as [`OPEN`] has none of them.
const RECORDS: [(&str, &str); 2] = [
    (
        "/var/lib/virtlet/meta.redb",
        "kubelet wants a pod's annotations back, a seed is made at each start, and commands start at any time",
    ),
    ("/var/lib/virtlet/meta.log", "the same, on the way there"),
];

/// Files that others than root may open: how they begin and end, the mode, and why.
const OPEN: [(&str, &str, u32, &str); 3] = [
    ("volumes/", "/root.qcow2", 0o600, "QEMU's disk, its user's"),
    ("images/", "", 0o444, "QEMU reads images below its disks"),
    ("handoff.sock", "", 0o660, "vmwrapper fetches descriptors as QEMU's user"),
];

fn secrets(bed: &Bed) -> Result<()> {
    // The daemons must not count on whoever starts them.
    umask(Mode::empty());
    let mut node = start(bed)?;
    let mut search = Search::new(&ALL);

    pulls(bed, &node, &mut search)?;
    refused_pods(&node, &mut search)?;
    let vm = boot(bed, &node, "secret")?;
    look(bed, &node, Some(&vm), &mut search)?;
    let open = open_but_for_reason()?;
    ensure!(open.is_empty(), "others than root may open {open:?}");
    as_systemd_starts_it(bed, &mut node)?;

    node.cri.stop(&vm.container, GRACE)?;
    look(bed, &node, Some(&vm), &mut search)?;
    node.remove_vm(&vm, GRACE)?;
    look(bed, &node, None, &mut search)?;

    let of_pods = OF_PODS.map(|canary| canary.secret);
    let astray: Vec<_> = search
        .found()
        .iter()
        .filter(|found| !(of_pods.contains(&found.secret) && RECORDS.iter().any(|(file, _)| found.place == *file)))
        .collect();
    ensure!(astray.is_empty(), "secrets where they must not be: {astray:#?}");
    let recorded = |secret| search.found().iter().any(|found| found.secret == secret);
    ensure!(of_pods.into_iter().all(recorded), "the search finds nothing even in the records: {:?}", search.found());
    Ok(())
}

/// With `UMask=0077`, others have what they need all the same: QEMU its files, a collector of logs the pod's log.
fn as_systemd_starts_it(bed: &Bed, node: &mut Node) -> Result<()> {
    node.controld.terminate()?;
    umask(Mode::from_bits_truncate(0o077));
    node.controld.start_again()?;
    node.wait_ready()?;
    let vm = boot(bed, node, "closed")?;
    let mode = fs::metadata(&vm.log)?.permissions().mode() & 0o777;
    ensure!(mode == 0o640, "the pod's log has mode {mode:o}");
    node.remove_vm(&vm, GRACE)
}

/// The search itself.
fn found(bed: &Bed) -> Result<()> {
    let mut search = Search::new(&[USER_DATA, META_DATA, PASSWORD, PROXY, QUERY]);
    let dir = bed.dir.join("canaries");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("plain"), format!("before\0{}\0behind", USER_DATA.text))?;
    search.files(&dir)?;
    for before in ["u:", "us:", "use:"] {
        use base64::Engine as _;
        let packed = base64::engine::general_purpose::STANDARD.encode(format!("{before}{}", PASSWORD.text));
        let mut search = Search::new(&[PASSWORD]);
        search.said("somebody", &format!("Authorization: Basic {packed}"));
        ensure!(search.found().len() == 1, "not found behind `{before}`");
    }
    let mut named = command("sh", ["-c", "echo ready; read wait", META_DATA.text]);
    let named = named.env("LOGIN", PROXY.text).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut named = named.spawn()?;
    // From then on it has its words.
    named.stdout.take().context("no pipe")?.read_exact(&mut [0; 6])?;
    let looked = search.processes();
    named.kill()?;
    named.wait()?;
    looked?;
    let found: Vec<_> =
        search.found().iter().map(|it| (it.secret, it.place.rsplit('/').next().unwrap_or(""))).collect();
    let wanted = [(PROXY.secret, "environ of sh"), (META_DATA.secret, "cmdline of sh"), (USER_DATA.secret, "plain")];
    ensure!(found == wanted, "found {found:?}");

    let file = Path::new(STATE).join("open");
    for dir in [STATE, RUN] {
        fs::create_dir_all(dir)?;
    }
    sh(&format!("chmod 711 {STATE}"))?;
    sh(&format!("install -m 644 /dev/null {}", file.display()))?;
    ensure!(open_but_for_reason()? == ["/var/lib/virtlet/open 644"], "an open file is not found");
    Ok(())
}

fn start(bed: &Bed) -> Result<Node> {
    fs::create_dir_all(RULES)?;
    fs::write(NODES_PASSWORD, NODES.text)?;
    let rules = json!({
        "translations": [
            {"name": "signed", "url": format!("http://{HOST}/signed.qcow2?{}", QUERY.text)},
            {"name": "refused", "url": format!("http://{HOST}/absent.qcow2?{}", QUERY.text)},
            {"name": "around", "url": format!("http://{HOST}/signed.qcow2"), "transport": "around"},
            {"name": "registry", "url": format!("oci://{HOST}/vms/absent:latest")},
        ],
        "transports": {"around": {"proxy": format!("http://user:{}@127.0.0.1:9", PROXY.text)}},
    });
    fs::write(Path::new(RULES).join("bed.json"), rules.to_string())?;
    let node = Node::configured(
        bed,
        &format!(
            "metrics.address = '{ADDRESS}'\nhandlers.virtlet.credentials = true\n[[images.providers]]\nid = 'registry'\ntype = 'oci'\nplain_http = ['{HOST}']\n\
             [images.providers.logins.'{HOST}']\nusername = 'node'\npassword_file = '{NODES_PASSWORD}'\n"
        ),
    )?;
    Ok(node)
}

/// Pulls that succeed, and some that fail: what is said of each.
fn pulls(bed: &Bed, node: &Node, search: &mut Search) -> Result<()> {
    let tiny = bed.config.guest("tiny.qcow2")?;
    node.images.offer("signed.qcow2", &tiny, Fault::None);
    let private = node.images.offer("private.qcow2", &tiny, Fault::Login("user", PASSWORD.text));
    let login = |password: &str| AuthConfig {
        username: "user".into(),
        password: password.into(),
        server_address: HOST.into(),
        ..AuthConfig::default()
    };
    let with = |change: fn(&mut AuthConfig)| {
        let mut auth = AuthConfig { server_address: HOST.into(), ..AuthConfig::default() };
        change(&mut auth);
        auth
    };
    pull(node, "signed", AuthConfig::default()).context("by a signed URL")?;
    for (what, name, auth) in [
        ("a wrong password", private.as_str(), login(WRONG_PASSWORD.text)),
        ("an identity token", &private, with(|auth| auth.identity_token = IDENTITY.text.into())),
        ("a registry token", &private, with(|auth| auth.registry_token = REGISTRY.text.into())),
        ("what is no login", &private, with(|auth| auth.auth = format!("!{}", UNREADABLE.text))),
        ("a proxy that is not there", "around", AuthConfig::default()),
        ("a signed URL of nothing", "refused", AuthConfig::default()),
        ("a registry that has no such image", "registry", AuthConfig::default()),
    ] {
        let refused = pull(node, name, auth).err().with_context(|| format!("pulled with {what}"))?;
        ensure!(refused.code() != Code::Internal, "{what}: {refused}");
        search.said(&format!("the error of a pull with {what}"), &format!("{refused:?}"));
    }
    ensure!(node.images.downloads("private.qcow2") > 0, "the server was not asked for the private image");
    pull(node, &private, login(PASSWORD.text)).context("with the password")?;
    Ok(())
}

fn pull(node: &Node, name: &str, auth: AuthConfig) -> Result<String, Status> {
    let request = PullImageRequest { image: Some(cri::spec(name)), auth: Some(auth), ..Default::default() };
    node.cri.image_call(|mut client| async move { client.pull_image(request).await }).map(|answer| answer.image_ref)
}

/// Pods whose annotations are refused.
fn refused_pods(node: &Node, search: &mut Search) -> Result<()> {
    let private_key =
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n", PRIVATE_KEY.text);
    let key_of_keys = format!("ssh-ed25519 {} me", PRIVATE_KEY.text);
    for (name, key, value) in [
        ("broken", "VirtletCloudInitUserData", format!("password: [{}\n", BROKEN_DATA.text)),
        ("listed", "VirtletCloudInitUserData", format!("- {}\n", BROKEN_DATA.text)),
        ("metaless", "VirtletCloudInitMetaData", format!("- {}\n", BROKEN_DATA.text)),
        ("keyed", "VirtletSSHKeys", private_key),
        ("miskeyed", "VirtletSSHKeys", key_of_keys),
    ] {
        let mut pod = node.pod(name)?;
        pod.annotations.insert(key.into(), value.clone());
        let refused = node.cri.run_sandbox(&pod).err().with_context(|| format!("{name} was taken"))?;
        ensure!(refused.code() == Code::InvalidArgument && refused.message().contains(key), "{name}: {refused}");
        search.said(&format!("the error of a pod with {key}, {name}"), &format!("{refused:?}"));
    }
    Ok(())
}

/// A machine with all that a pod can bring.
fn boot(bed: &Bed, node: &Node, name: &str) -> Result<Vm> {
    let image = node.pull(bed, "tiny.qcow2")?;
    let annotations = [
        ("VirtletCloudInitUserDataScript", format!("#!/bin/sh\n: {}\n", USER_DATA.text)),
        ("VirtletCloudInitMetaData", format!("{{secret: {}}}", META_DATA.text)),
        (
            "VirtletSSHKeys",
            format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUm {}", KEY.text),
        ),
    ];
    let sources = ["VirtletSSHKeySource", "VirtletFilesFromDataSource"].map(|key| (key, "volume/kept".to_owned()));
    let annotations = annotations.into_iter().chain(sources).map(|(key, value)| (key.to_owned(), value));
    let mut container = cri::container(&image, annotations.collect());
    let volumes = PodVolumes::new(&bed.dir.join(name), name);
    let key =
        format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUm {}", VOLUME_KEY.text);
    let files =
        [("authorized_keys", key.as_str()), ("authorized_keys_path", "/srv/k"), ("authorized_keys_encoding", "plain")];
    let more = [("f", VOLUME.text), ("f_path", "/srv/f"), ("f_encoding", "plain")];
    container.mounts = vec![volumes.fill("secret", "kept", &[files, more].concat(), "/run/virtlet/seed/kept")?];
    container.envs = vec![KeyValue { key: "LOGIN".into(), value: VARIABLE.text.into() }];
    let vm = node.start_pod(node.pod(name)?, &container)?;
    vm.wait_up()?;
    Ok(vm)
}

/// Looks everywhere.
fn look(bed: &Bed, node: &Node, vm: Option<&Vm>, search: &mut Search) -> Result<()> {
    answers(node, vm, search)?;
    tools(bed, search)?;
    for domain in running_domains()? {
        search.said("virsh dumpxml", &virsh(&format!("dumpxml {domain} --security-info"))?);
    }
    search.said("the metrics", &controld_metrics::page()?);
    search.processes()?;
    let logs = [bed.logs(), bed.dir.join("podlogs")];
    let dirs = [
        STATE,
        RUN,
        "/run/libvirt",
        "/etc/libvirt",
        "/var/log",
        "/var/lib/libvirt",
        "/var/cache/libvirt",
        "/var/lib/cni",
    ];
    for dir in dirs.map(Path::new).into_iter().chain(logs.iter().map(|dir| dir.as_path())) {
        search.files(dir)?;
    }
    Ok(())
}

/// What controld's socket says. CRI has a field for annotations wherever it shows a pod or a container: they are in that field
/// alone.
fn answers(node: &Node, vm: Option<&Vm>, search: &mut Search) -> Result<()> {
    let status = node.cri.call(|mut client| async move { client.status(StatusRequest { verbose: true }).await })?;
    search.said("Status", &format!("{status:?}"));
    let mut listed = node
        .cri
        .call(|mut client| async move { client.list_containers(ListContainersRequest::default()).await })?
        .containers;
    listed.iter_mut().for_each(|container| container.annotations.clear());
    search.said("ListContainers", &format!("{listed:?}"));
    let mut listed = node
        .cri
        .call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?
        .items;
    listed.iter_mut().for_each(|sandbox| sandbox.annotations.clear());
    search.said("ListPodSandbox", &format!("{listed:?}"));
    let images =
        node.cri.image_call(|mut client| async move { client.list_images(ListImagesRequest::default()).await })?.images;
    search.said("ListImages", &format!("{images:?}"));
    for image in images {
        let request = ImageStatusRequest { image: Some(cri::spec(&image.id)), verbose: true };
        let status = node.cri.image_call(|mut client| async move { client.image_status(request).await })?;
        search.said("ImageStatus", &format!("{status:?}"));
    }
    let Some(vm) = vm else { return Ok(()) };
    let request = PodSandboxStatusRequest { pod_sandbox_id: vm.sandbox.clone(), verbose: true };
    let mut answer = node.cri.call(|mut client| async move { client.pod_sandbox_status(request).await })?;
    ensure!(answer.info.contains_key("info"), "nothing verbose of a sandbox: {:?}", answer.info);
    answer.status.as_mut().context("no status")?.annotations.clear();
    answer.containers_statuses.iter_mut().for_each(|container| container.annotations.clear());
    search.said("PodSandboxStatus", &format!("{answer:?}"));
    let request = ContainerStatusRequest { container_id: vm.container.clone(), verbose: true };
    let mut answer = node.cri.call(|mut client| async move { client.container_status(request).await })?;
    answer.status.as_mut().context("no status")?.annotations.clear();
    search.said("ContainerStatus", &format!("{answer:?}"));
    let request = AttachRequest { container_id: vm.container.clone(), stdin: true, stdout: true, ..Default::default() };
    match node.cri.call(|mut client| async move { client.attach(request).await }) {
        Ok(answer) => search.said("Attach", &format!("{answer:?}")),
        Err(refused) => search.said("the error of Attach", &format!("{refused:?}")),
    }
    let mut stats = node
        .cri
        .call(|mut client| async move { client.list_container_stats(ListContainerStatsRequest::default()).await })?
        .stats;
    stats.iter_mut().filter_map(|stats| stats.attributes.as_mut()).for_each(|whose| whose.annotations.clear());
    search.said("ListContainerStats", &format!("{stats:?}"));
    let request = ListPodSandboxMetricsRequest {};
    let metrics = node.cri.call(|mut client| async move { client.list_pod_sandbox_metrics(request).await });
    search.said("ListPodSandboxMetrics", &format!("{metrics:?}"));
    Ok(())
}

/// What our programs for people print.
fn tools(bed: &Bed, search: &mut Search) -> Result<()> {
    let virtletctl: [&[&str]; 6] = [
        &["ps", "--all"],
        &["ps", "--all", "--json"],
        &["logs", "secret"],
        &["orphans"],
        &["image", "ls"],
        &["image", "providers"],
    ];
    for words in virtletctl {
        let ended = finish(command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]).args(words), TOOL_DEADLINE)?;
        search.said(&format!("virtletctl {}", words.join(" ")), &format!("{ended:?}"));
    }
    for words in [["status"], ["list"]] {
        let ended = finish(&mut command(bed.program("tapmanager"), words), TOOL_DEADLINE)?;
        ensure!(ended.code == Some(0), "tapmanager {words:?}: {ended:?}");
        search.said(&format!("tapmanager {}", words.concat()), &format!("{ended:?}"));
    }
    let checked = finish(&mut command(bed.program("controld"), ["check-config"]), TOOL_DEADLINE)?;
    ensure!(checked.code == Some(0), "controld check-config: {checked:?}");
    search.said("controld check-config", &format!("{checked:?}"));
    Ok(())
}

/// Files of ours that others than root may open without a reason.
fn open_but_for_reason() -> Result<Vec<String>> {
    let mut without = Vec::new();
    for root in [STATE, RUN] {
        for file in open_to_others(Path::new(root))? {
            let reason = OPEN.iter().any(|(begins, ends, mode, _)| {
                file.path.starts_with(begins) && file.path.ends_with(ends) && file.mode == *mode
            });
            if !reason {
                without.push(format!("{root}/{} {:o}", file.path, file.mode));
            }
        }
    }
    Ok(without)
}
