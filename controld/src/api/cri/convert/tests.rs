use std::path::Path;
use std::time::Duration;

use proto::cri;
use proto::pause::Pause;
use vmspec::plan::{Cpus, Disk, DiskImage, DiskSource, Guest, Hardware, Layer, MachinePlan, Memory, RootDisk, Serial};
use vmspec::{MachineId, MountOptions, SandboxConfig};

use super::*;
use crate::container::Usage;
use crate::hypervisor::process::ProcessUsage;
use crate::model::{
    CONTAINER_VERSION, Container, ContainerState, Exit, ExitReason, SANDBOX_VERSION, Sandbox, SandboxState,
};
use crate::volumes::DiskUsage;

/// A change that makes a request wrong, and what the refusal must say.
type Case<T> = (fn(&mut T), &'static str);

fn sandbox_request() -> cri::RunPodSandboxRequest {
    let metadata = cri::PodSandboxMetadata { name: "vm".into(), uid: "u-1".into(), namespace: "ns".into(), attempt: 2 };
    let config = cri::PodSandboxConfig {
        metadata: Some(metadata),
        dns_config: Some(cri::DnsConfig { servers: vec!["10.96.0.10".into()], ..Default::default() }),
        labels: HashMap::from([("app".into(), "web".into())]),
        ..Default::default()
    };
    cri::RunPodSandboxRequest { config: Some(config), runtime_handler: "virtlet".into() }
}

fn container_request() -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "main".into(), attempt: 1 }),
        image: Some(cri::ImageSpec {
            image: "sha256:00".into(),
            user_specified_image: "x/y".into(),
            ..Default::default()
        }),
        mounts: vec![cri::Mount { container_path: "/etc/hosts".into(), host_path: "/x".into(), ..Default::default() }],
        ..Default::default()
    }
}

pub(crate) fn sandbox() -> Sandbox {
    let nic = serde_json::json!({
        "name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1500, "queues": 1,
        "addresses": ["10.1.0.2/24", "10.1.0.3/24", "fd00::2/64"], "routes": []
    });
    let net = serde_json::json!({
        "netns": "/run/netns/x", "nics": [nic], "dns": {"servers": [], "searches": [], "options": []}
    });
    Sandbox {
        version: SANDBOX_VERSION,
        id: "0123456789abcdef".parse().expect("id"),
        state: SandboxState::Ready,
        boot: String::new(),
        created_at: 5,
        config: sandbox_config(sandbox_request()).expect("valid"),
        net: serde_json::from_value(net).expect("net"),
    }
}

pub(crate) fn container() -> Container {
    Container {
        version: CONTAINER_VERSION,
        id: "00112233445566778899aabbccddeeff".parse().expect("id"),
        sandbox: sandbox().id,
        config: container_config(container_request()).expect("valid"),
        image_id: "sha256:00".into(),
        image_handler: "vm-arm64".into(),
        machine: MachinePlan {
            passed: Default::default(),
            guest: Guest::default(),
            share: None,
            disks: Vec::new(),
            id: MachineId::from(uuid::Uuid::from_u128(7)),
            domain: "virtlet-x".into(),
            cpus: Cpus::fixed(1),
            memory: Memory::fixed(1 << 30),
            hardware: Hardware::default(),
            root: RootDisk {
                overlay: "/r".into(),
                images: vec![Layer { path: "/b".into(), format: "qcow2".into() }],
                persistent: None,
                volume: None,
            },
            huge_page: None,
            smbios: None,
            cgroup: None,
        },
        machine_annotations: BTreeMap::new(),
        state: ContainerState::Exited,
        created_at: 1,
        started_at: 2,
        applied: None,
        boot: String::new(),
        process: None,
        pod_oom_kills: 0,
        exit: Some(Exit { code: 137, reason: ExitReason::Error, message: "late".into(), finished_at: 3 }),
        checkpoint: None,
        restore: None,
        warm: None,
        pause: None,
    }
}

#[test]
fn what_a_sandbox_lacks_or_cannot_have_is_named() {
    let cases: [Case<cri::RunPodSandboxRequest>; 10] = [
        (|r| r.config = None, "no sandbox config"),
        (|r| r.config.as_mut().expect("config").metadata = None, "no metadata"),
        (|r| config_of(r).metadata.as_mut().expect("metadata").uid.clear(), "no uid"),
        (
            |r| config_of(r).dns_config.as_mut().expect("dns").servers.push("dns.local".into()),
            "`dns.local` is not an IP",
        ),
        (|r| config_of(r).windows = Some(cri::WindowsPodSandboxConfig::default()), "Windows"),
        (|r| port_of(r).container_port = 0, "container port 0"),
        (|r| port_of(r).host_port = 65_536, "host port 65536"),
        (|r| port_of(r).host_ip = "node".into(), "host IP `node`"),
        (
            |r| {
                let group = Some(cri::Int64Value { value: 1 });
                let context = cri::LinuxSandboxSecurityContext { run_as_group: group, ..Default::default() };
                let linux = cri::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
                config_of(r).linux = Some(linux);
            },
            "run_as_group",
        ),
        (|r| set_users(r, cri::NamespaceMode::Pod), "unset hostUsers"),
    ];
    for (change, wanted) in cases {
        let mut request = sandbox_request();
        change(&mut request);
        let error = sandbox_config(request).expect_err(wanted);
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_sandbox_may_have_the_nodes_users() {
    let mut request = sandbox_request();
    set_users(&mut request, cri::NamespaceMode::Node);
    sandbox_config(request).expect("as `hostUsers: true` comes from kubelet");
}

fn set_users(request: &mut cri::RunPodSandboxRequest, mode: cri::NamespaceMode) {
    let users = cri::UserNamespace { mode: mode.into(), ..Default::default() };
    let options = cri::NamespaceOption { userns_options: Some(users), ..Default::default() };
    let context = cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    let linux = cri::LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
    config_of(request).linux = Some(linux);
}

/// A port that is right so far.
fn port_of(request: &mut cri::RunPodSandboxRequest) -> &mut cri::PortMapping {
    let ports = &mut config_of(request).port_mappings;
    ports.push(cri::PortMapping { host_port: 8080, container_port: 80, ..Default::default() });
    ports.last_mut().expect("pushed")
}

#[test]
fn pod_services_come_over() {
    let mut request = sandbox_request();
    port_of(&mut request).host_ip = "192.0.2.1".into();
    port_of(&mut request).protocol = cri::Protocol::Udp.into();
    config_of(&mut request).port_mappings.push(cri::PortMapping { container_port: 22, ..Default::default() });
    config_of(&mut request).linux = Some(cri::LinuxPodSandboxConfig {
        cgroup_parent: "/kubepods/pod1".into(),
        sysctls: [("net.ipv4.ip_forward".to_owned(), "1".to_owned())].into(),
        resources: Some(cri::LinuxContainerResources { cpu_quota: 150_000, ..Default::default() }),
        overhead: Some(cri::LinuxContainerResources { memory_limit_in_bytes: 128 << 20, ..Default::default() }),
        ..Default::default()
    });
    let config = sandbox_config(request).expect("valid");
    let ports: Vec<String> = config.host_ports.iter().map(|port| format!("{port:?}")).collect();
    insta::assert_snapshot!(ports.join("\n"));
    assert_eq!((config.cgroup_parent.as_str(), config.cpus), ("/kubepods/pod1", Some(2)));
    assert_eq!(config.memory_overhead, Some(128 << 20));
    assert_eq!(config.sysctls.keys().collect::<Vec<_>>(), ["net.ipv4.ip_forward"]);
}

#[test]
fn counters_are_the_guests() {
    let nic = |name: &str, rx_bytes| {
        serde_json::json!({
            "name": name, "rx_bytes": rx_bytes, "rx_packets": 2, "rx_errors": 3, "rx_dropped": 4, "tx_bytes": 5,
            "tx_packets": 6, "tx_errors": 7, "tx_dropped": 8
        })
    };
    let counters = serde_json::json!({ "pod": "0123456789abcdef", "nics": [nic("eth0", 1), nic("net1", 9)] });
    let stats = sandbox_stats(&sandbox(), Vec::new(), Some(&serde_json::from_value(counters).expect("stats")));
    let network = stats.linux.and_then(|linux| linux.network).expect("network");
    let first = network.default_interface.expect("default");
    let value = |value: Option<cri::UInt64Value>| value.expect("counted").value;
    assert_eq!((first.name.as_str(), value(first.rx_bytes), value(first.tx_bytes)), ("eth0", 1, 5));
    assert_eq!((value(first.rx_errors), value(first.tx_errors)), (3, 7));
    assert_eq!(network.interfaces.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(), ["net1"]);
    assert!(sandbox_stats(&sandbox(), Vec::new(), None).linux.expect("linux").network.is_none());
}

fn config_of(request: &mut cri::RunPodSandboxRequest) -> &mut cri::PodSandboxConfig {
    request.config.as_mut().expect("config")
}

#[test]
fn what_a_container_lacks_or_cannot_have_is_named() {
    let cases: [Case<cri::ContainerConfig>; 12] = [
        (|c| c.metadata = None, "no metadata"),
        (|c| c.metadata.as_mut().expect("metadata").name.clear(), "no name"),
        (|c| c.image = None, "no image"),
        (|c| c.image.as_mut().expect("image").image.clear(), "no image"),
        (|c| c.stop_signal = 15, "stop signal"),
        (|c| c.mounts[0].host_path.clear(), "no host path"),
        (|c| c.mounts[0].recursive_read_only = true, "recursively read-only"),
        (|c| c.mounts[0].mount_options = vec!["noexec".into(), "sync".into()], "the option `sync`"),
        (|c| c.mounts[0] = image_volume("", "", ""), "`/models`: it names no image"),
        (
            |c| c.mounts[0] = image_volume("x", "/srv", ""),
            "ImageVolumeMountFailed: image volume at `/models`: it has a host path",
        ),
        (
            |c| c.mounts[0] = image_volume("x", "", "a/b"),
            "ImageVolumeMountFailed: image volume at `/models`: `subPath` `a/b`",
        ),
        (
            |c| c.mounts[0] = cri::Mount { recursive_read_only: true, propagation: 1, ..image_volume("x", "", "") },
            "not read-only and private",
        ),
    ];
    for (change, wanted) in cases {
        let mut config = container_request();
        change(&mut config);
        let error = container_config(config).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

fn image_volume(image: &str, host_path: &str, image_sub_path: &str) -> cri::Mount {
    cri::Mount {
        container_path: "/models".into(),
        host_path: host_path.into(),
        image: Some(cri::ImageSpec {
            image: image.into(),
            user_specified_image: "images.example.com/models".into(),
            ..Default::default()
        }),
        image_sub_path: image_sub_path.into(),
        ..Default::default()
    }
}

#[test]
fn a_mount_has_its_options_and_its_status_shows_them() {
    let mut config = container_request();
    config.mounts[0].mount_options = vec!["nosuid".into(), "noexec".into()];
    let mut container = container();
    container.config = container_config(config).expect("valid");
    let options = container.config.mounts[0].options;
    assert_eq!(options, MountOptions { noexec: true, nodev: false, nosuid: true });
    let shown = container_status(&container, &sandbox().config, None, "").mounts[0].mount_options.clone();
    assert_eq!(shown, ["noexec", "nosuid"]);
}

#[test]
fn an_image_volume_is_read_only_and_its_status_has_the_images_id() {
    let config = cri::ContainerConfig { mounts: vec![image_volume("x@1", "", "")], ..container_request() };
    let mut container = container();
    container.config = container_config(config).expect("valid");
    let of = |container: &Container| {
        let mount = container_status(container, &sandbox().config, None, "").mounts[0].clone();
        let image = mount.image.expect("an image");
        (mount.readonly, image.image, image.image_ref, image.user_specified_image)
    };
    let user_image = "images.example.com/models".to_owned();
    assert_eq!(of(&container), (true, "x@1".into(), String::new(), user_image.clone()));
    container.machine.disks = vec![Disk {
        name: String::new(),
        serial: Serial::of_path("/models"),
        source: DiskSource::Image(DiskImage { id: "sha256:00".into(), ..DiskImage::default() }),
        path: "/models".into(),
        read_only: true,
        options: MountOptions::default(),
    }];
    assert_eq!(of(&container), (true, "sha256:00".into(), "sha256:00".into(), user_image));
}

#[test]
fn a_ready_sandbox_shows_one_address_of_each_family_and_a_stopped_one_none() {
    let mut sandbox = sandbox();
    let network = sandbox_status(&sandbox).network.expect("network");
    assert_eq!(network.ip, "10.1.0.2");
    assert_eq!(network.additional_ips.iter().map(|ip| ip.ip.as_str()).collect::<Vec<_>>(), ["fd00::2"]);
    sandbox.state = SandboxState::NotReady;
    assert!(sandbox_status(&sandbox).network.is_none());
}

#[test]
fn a_sandbox_shows_no_address_of_other_networks_than_the_default_one() {
    let mut sandbox = sandbox();
    let net = sandbox.net.as_mut().expect("a network");
    net.nics.push(net.nics[0].clone());
    net.nics[0].addresses = vec!["127.0.0.1/8".parse().expect("an address"), "fd00::2/64".parse().expect("an address")];
    let network = sandbox_status(&sandbox).network.expect("network");
    assert_eq!((network.ip.as_str(), network.additional_ips.len()), ("fd00::2", 0));
    // kubelet would replace the sandbox for ever if it said that it has a network without an address.
    sandbox.net.as_mut().expect("a network").nics[0].addresses.clear();
    assert!(sandbox_status(&sandbox).network.is_none());
}

#[test]
fn sandbox_filters_are_anded_and_half_made_ones_are_hidden() {
    let mut sandbox = sandbox();
    let filter = |id: &str, state: Option<i32>, label: Option<(&str, &str)>| cri::PodSandboxFilter {
        id: id.into(),
        state: state.map(|state| cri::PodSandboxStateValue { state }),
        label_selector: label.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
    };
    for (filter, wanted) in [
        (filter("", None, None), true),
        (filter("0123", Some(0), Some(("app", "web"))), true),
        (filter("0123", Some(1), None), false),
        (filter("9", None, None), false),
        (filter("", None, Some(("app", "db"))), false),
        (filter("", None, Some(("other", "web"))), false),
    ] {
        assert_eq!(matches_sandbox(Some(&filter), &sandbox), wanted, "{filter:?}");
    }
    assert!(matches_sandbox(None, &sandbox));
    sandbox.state = SandboxState::Creating;
    assert!(!matches_sandbox(None, &sandbox));
}

#[test]
fn a_container_that_ended_says_when_and_how() {
    let container = container();
    let sandbox = SandboxConfig { log_directory: "/var/log/pods/p".into(), ..sandbox().config };
    let mut config = container.clone();
    config.config.log_path = "main/1.log".into();
    let status = container_status(&config, &sandbox, Some("x/y@sha256:00"), "vm");
    assert_eq!((status.exit_code, status.reason.as_str(), status.finished_at), (137, "Error", 3));
    assert_eq!(status.log_path, "/var/log/pods/p/main/1.log");
    assert_eq!(status.image.expect("image").image, "x/y", "as the user wrote it");
    assert_eq!((status.image_ref.as_str(), status.image_id.as_str()), ("x/y@sha256:00", "sha256:00"));
    assert_eq!(status.mounts.len(), 1, "mounts are echoed");
    assert_eq!(container_status(&container, &sandbox, None, "vm").log_path, "", "no log path, no log");
}

#[test]
fn a_paused_machine_runs_and_says_why_it_does_not() {
    for pause in [Pause::DiskFull, Pause::ByHand] {
        let paused = Container { state: ContainerState::Running, exit: None, pause: Some(pause), ..container() };
        let status = container_status(&paused, &sandbox().config, None, "virtlet");
        assert_eq!(status.state(), cri::ContainerState::ContainerRunning);
        assert_eq!((status.reason.as_str(), status.message.as_str()), (pause.as_str(), pause.message()));
    }
}

pub(crate) fn process_usage() -> ProcessUsage {
    ProcessUsage {
        cpu: Duration::from_millis(1500),
        resident: 900,
        private: 700,
        swapped: 50,
        minor_faults: 8,
        major_faults: 2,
        threads: 4,
    }
}

fn usage() -> Usage {
    Usage { at: 7, process: Some(process_usage()), disk: DiskUsage { bytes: 4096, inodes: 3 } }
}

#[test]
fn a_machine_uses_what_its_qemu_uses_and_its_pod_the_same() {
    let mut container = container();
    container.config.resources = Some(Resources { memory_limit: 1000, ..Resources::default() });
    let stats = container_stats(&container, &usage(), Path::new("/disks"));
    let of = |value: Option<cri::UInt64Value>| value.expect("a value").value;
    let (cpu, memory) = (stats.cpu.expect("cpu"), stats.memory.expect("memory"));
    assert_eq!((cpu.timestamp, of(cpu.usage_core_nano_seconds)), (7, 1_500_000_000));
    assert_eq!((of(memory.working_set_bytes), of(memory.usage_bytes), of(memory.available_bytes)), (700, 900, 300));
    assert_eq!((of(memory.page_faults), of(memory.major_page_faults)), (10, 2));
    let layer = stats.writable_layer.expect("layer");
    assert_eq!((layer.fs_id.expect("fs").mountpoint.as_str(), of(layer.used_bytes)), ("/disks", 4096));

    let pod = sandbox_stats(&sandbox(), vec![container_stats(&container, &usage(), Path::new("/disks"))], None);
    let linux = pod.linux.expect("linux");
    assert_eq!((linux.cpu, linux.memory), (Some(cpu), Some(memory)));
    assert_eq!(linux.containers.len(), 1);

    container.config.resources = None;
    let ended = Usage { process: None, ..usage() };
    let stats = container_stats(&container, &ended, Path::new("/disks"));
    assert!(stats.cpu.is_none() && stats.memory.is_none() && stats.writable_layer.is_some(), "only the disk is left");
    let unlimited = container_stats(&container, &usage(), Path::new("/disks"));
    assert_eq!(unlimited.memory.expect("memory").available_bytes, None, "without a limit");
}

#[test]
fn only_running_containers_are_in_a_list_of_usage() {
    let running = Container { state: ContainerState::Running, exit: None, ..container() };
    let filter = |id: &str, pod_sandbox_id: &str, label: Option<(&str, &str)>| cri::ContainerStatsFilter {
        id: id.into(),
        pod_sandbox_id: pod_sandbox_id.into(),
        label_selector: label.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
    };
    for (filter, wanted) in [
        (filter("", "", None), true),
        (filter("0011", "0123", None), true),
        (filter("0011", "9", None), false),
        (filter("9", "", None), false),
        (filter("", "", Some(("app", "db"))), false),
    ] {
        assert_eq!(matches_container_stats(Some(&filter), &running), wanted, "{filter:?}");
    }
    assert!(matches_container_stats(None, &running) && !matches_container_stats(None, &container()));
}
