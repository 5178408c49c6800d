//! A node's files in a tree, and runtimes on sockets of their own.

use clap::Parser as _;
use proto::cri::{PodSandboxMetadata, RuntimeHandler, StatusResponse};

use super::*;
use crate::cli::{Cli, Command, ProxyCommand};
use crate::tests::fake::{Fake, serve};

const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

fn check(words: &[&str]) -> ProxyCheck {
    let words = ["virtletctl", "proxy", "disable", "--check"].iter().chain(words);
    match Cli::try_parse_from(words).expect("it parses").command {
        Command::Proxy { command: Some(ProxyCommand::Disable(wanted)) } => wanted.check,
        other => panic!("{other:?}"),
    }
}

fn settings() -> Settings {
    let told = serde_json::json!({
        "run_dir": "/run/virtlet", "state_dir": "/s", "images_dir": "/i", "images_reserve": 0, "cri_socket": "/run/virtlet/cri.sock",
        "tap_socket": "/t", "handoff_socket": "/h", "libvirt_uri": "u", "emulator": "/e", "vmwrapper": "/v", "fswrapper": "/f",
        "virtiofsd": "/d", "accel": "auto", "cgroup_driver": "systemd", "cgroup_driver_set": true, "handlers": ["virtlet"],
    });
    serde_json::from_value(told).expect("settings")
}

fn node(kubelet: &str) -> Node {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::create_dir_all(dir.path().join("var/lib/kubelet")).expect("directory");
    std::fs::write(dir.path().join("var/lib/kubelet/config.yaml"), kubelet).expect("written");
    look(&Host::new(dir.path()), &settings(), &check(&[])).expect("looked at")
}

#[tokio::test]
async fn a_runtime_is_asked_at_its_own_socket() {
    let runtime_handlers = vec![RuntimeHandler { name: "runc".into(), features: None }];
    let (_dir, _fake, socket) = serve(Fake::on(StatusResponse { runtime_handlers, ..StatusResponse::default() }));
    let runtime = doctor::runtime(&socket).await.expect("it answers");
    assert_eq!(runtime.name, "controld 9\u{1b}");
    assert_eq!(runtime.handlers, ["runc".to_owned()].into());
    assert_eq!((runtime.cgroup_driver, runtime.running, runtime.with_stats), (None, 0, 0));
    let nobody = doctor::runtime(Path::new("/nowhere.sock")).await.expect_err("nobody is there");
    assert!(nobody.starts_with("No such file"), "{nobody}");
}

#[test]
fn nothing_is_in_the_way_of_a_node_that_fits() {
    let runtime = Ok(Runtime { cgroup_driver: Some("systemd"), ..Runtime::default() });
    for kubelet in ["", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"] {
        let told = against_enabling(&node(kubelet), &settings(), CONTAINERD, &runtime);
        assert_eq!(told, [""; 0], "{kubelet}");
    }
}

#[test]
fn what_is_in_the_way_is_named() {
    let runtime = Runtime {
        name: "containerd 2".into(),
        handlers: ["virtlet".to_owned()].into(),
        cgroup_driver: Some("cgroupfs"),
        ..Runtime::default()
    };
    let node = node("containerRuntimeEndpoint: unix:///run/crio/crio.sock\n");
    let told = against_enabling(&node, &settings(), CONTAINERD, &Ok(runtime));
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, wanted) in told.iter().zip(["handlers virtlet, too", "leave it out", "`unix:///run/crio/crio.sock`"]) {
        assert!(told.contains(wanted), "{told}");
    }
    let away = against_enabling(&node, &settings(), "unix:///run/crio/crio.sock", &Err("nobody".into()));
    assert_eq!(away, ["no container runtime answers at `unix:///run/crio/crio.sock`: nobody"]);
    let own = against_enabling(&node, &settings(), "unix:///run/virtlet/cri.sock", &Err("nobody".into()));
    assert_eq!(own, ["`unix:///run/virtlet/cri.sock` is controld's own socket"]);
}

#[test]
fn machines_are_in_the_way_back() {
    let metadata = PodSandboxMetadata { name: "web".into(), namespace: "default".into(), ..Default::default() };
    let machines = [PodSandbox { metadata: Some(metadata), ..PodSandbox::default() }];
    let told = against_disabling(&machines, CONTAINERD, &Ok(Runtime::default()));
    assert_eq!(told, ["pods of this node are VMs, default/web: drain the node first, or remove them"]);
    let mut out = Vec::new();
    let error = tell(&[], told, "x", &check(&["-o", "json"]), &mut out).expect_err("refused");
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().starts_with("in the way: pods of this node are VMs, default/web"), "{error}");
    let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert!(told["inTheWay"][0].as_str().is_some_and(|text| text.contains("default/web")), "{told}");
    assert_eq!(against_disabling(&[], CONTAINERD, &Err("x".into())).len(), 1);
}

#[tokio::test]
async fn without_check_nothing_is_said_to_be_done() {
    let Ok(Cli { command: Command::Proxy { command: Some(ProxyCommand::Enable(wanted)) }, .. }) =
        Cli::try_parse_from(["virtletctl", "proxy", "enable", "--runtime-endpoint", CONTAINERD])
    else {
        panic!("it parses")
    };
    let error = enable(&wanted, &mut Vec::new()).await.expect_err("refused");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("changes nothing by itself"), "{error}");
    for endpoint in ["/run/x.sock", "unix://x.sock", "tcp://127.0.0.1:1", "unix:///a\"b"] {
        let words = ["virtletctl", "proxy", "enable", "--check", "--runtime-endpoint", endpoint];
        assert!(Cli::try_parse_from(words).is_err(), "{endpoint}");
    }
}
