//! Nodes as kubeadm of each age makes them, as people do, and none.

use super::*;

const OURS: &str = "unix:///run/virtlet/cri.sock";
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

fn file(path: &str, text: Option<&str>) -> File {
    File { path: path.into(), text: text.map(str::to_owned) }
}

/// A node whose kubelet has this configuration.
fn node(kubelet: &str) -> Node {
    let endpoint = kubelet.lines().find_map(|line| line.strip_prefix("containerRuntimeEndpoint: "));
    Node {
        controld: file("/etc/virtlet/controld.toml", Some("#machine.accel = \"auto\"\n")),
        ours: OURS.into(),
        behind: None,
        kubelet: Some(Kubelet::of(CONFIG.into(), endpoint.map(str::to_owned))),
        kubelet_config: Some(kubelet.into()),
        instance: file("/var/lib/kubelet/instance-config.yaml", None),
        flags: file("/var/lib/kubelet/kubeadm-flags.env", None),
    }
}

#[test]
fn a_node_of_a_newer_kubeadm() {
    let told = format!("kind: KubeletConfiguration\ncontainerRuntimeEndpoint: {CONTAINERD}\n");
    let mut node = node(&told);
    node.instance.text = Some(told);
    node.flags.text = Some("KUBELET_KUBEADM_ARGS=\"--node-labels=a=b\"\n".into());
    insta::assert_snapshot!(text(&enable(&node, CONTAINERD)), @r#"
    1. /etc/virtlet/controld.toml
         + [proxy]
         + runtime_endpoint = "unix:///run/containerd/containerd.sock"
    2. systemctl restart controld   # VMs run on; `journalctl -u controld` says whether it reached the runtime
    3. /var/lib/kubelet/config.yaml
         - containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
         + containerRuntimeEndpoint: unix:///run/virtlet/cri.sock
    4. /var/lib/kubelet/instance-config.yaml
         - containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
         + containerRuntimeEndpoint: unix:///run/virtlet/cri.sock
    5. systemctl restart kubelet   # containers and VMs run on
    "#);
}

#[test]
fn an_empty_setting_is_none_and_images_are_asked_for_at_the_same_socket() {
    let mut node = node(&format!("containerRuntimeEndpoint: \"\"\nimageServiceEndpoint: {CONTAINERD}\n"));
    node.controld.text = Some(format!("[proxy]\nruntime_endpoint = '{CONTAINERD}'\n"));
    node.behind = Some(CONTAINERD.into());
    node.flags.text = Some(format!("KUBELET_KUBEADM_ARGS=\"{OPTION}={OURS}\"\n"));
    node.instance.text = Some("kind: KubeletConfiguration\n".into());
    if let Some(kubelet) = &mut node.kubelet {
        (kubelet.endpoint, kubelet.by_option) = (Some(OURS.into()), true);
    }
    insta::assert_snapshot!(text(&enable(&node, CONTAINERD)), @r"
    1. /var/lib/kubelet/config.yaml
         - imageServiceEndpoint: unix:///run/containerd/containerd.sock
         + imageServiceEndpoint: unix:///run/virtlet/cri.sock
    2. systemctl restart kubelet   # containers and VMs run on
    ");
}

#[test]
fn a_node_of_an_older_kubeadm_and_back() {
    let mut node = node("kind: KubeletConfiguration\n");
    node.flags.text = Some(format!("KUBELET_KUBEADM_ARGS=\"{OPTION}={CONTAINERD} --pod-infra-container-image=x\"\n"));
    if let Some(kubelet) = &mut node.kubelet {
        (kubelet.endpoint, kubelet.by_option) = (Some(CONTAINERD.into()), true);
    }
    insta::assert_snapshot!(text(&enable(&node, CONTAINERD)), @r#"
    1. /etc/virtlet/controld.toml
         + [proxy]
         + runtime_endpoint = "unix:///run/containerd/containerd.sock"
    2. systemctl restart controld   # VMs run on; `journalctl -u controld` says whether it reached the runtime
    3. /var/lib/kubelet/kubeadm-flags.env
         - --container-runtime-endpoint=unix:///run/containerd/containerd.sock
         + --container-runtime-endpoint=unix:///run/virtlet/cri.sock
    4. systemctl restart kubelet   # containers and VMs run on
    5. kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket=unix:///run/virtlet/cri.sock   # on the control plane: kubeadm before 1.34 goes by it at an upgrade
    "#);

    node.controld.text = Some(format!("[proxy]\nruntime_endpoint = '{CONTAINERD}' # ours\n[log]\n"));
    node.behind = Some(CONTAINERD.into());
    node.flags.text = Some(format!("KUBELET_KUBEADM_ARGS=\"{OPTION} {OURS}\"\n"));
    insta::assert_snapshot!(text(&disable(&node, CONTAINERD)), @r"
    1. /var/lib/kubelet/kubeadm-flags.env
         - --container-runtime-endpoint=unix:///run/virtlet/cri.sock
         + --container-runtime-endpoint=unix:///run/containerd/containerd.sock
    2. systemctl restart kubelet   # containers run on
    3. kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket=unix:///run/containerd/containerd.sock   # on the control plane: kubeadm before 1.34 goes by it at an upgrade
    4. /etc/virtlet/controld.toml
           [proxy]
         - runtime_endpoint = 'unix:///run/containerd/containerd.sock' # ours
    5. systemctl restart controld   # or, if the node is to have no VMs: systemctl disable --now controld tapmanager
    ");
}

#[test]
fn kubelets_of_other_hands() {
    // Told nothing: it has the default.
    let bare = node("kind: KubeletConfiguration\n");
    let steps = enable(&bare, CONTAINERD);
    let Some(Step::Edit { file, remove, add, .. }) = steps.get(2) else { panic!("{steps:?}") };
    assert_eq!(file, CONFIG);
    assert!(remove.is_empty() && *add == [format!("{SETTING}: {OURS}")], "{steps:?}");

    // By an option of a unit that somebody wrote.
    let mut by_option = node("kind: KubeletConfiguration\n");
    if let Some(kubelet) = &mut by_option.kubelet {
        (kubelet.endpoint, kubelet.by_option) = (Some(CONTAINERD.into()), true);
    }
    let steps = enable(&by_option, CONTAINERD);
    assert!(text(&steps).contains("3. the options that kubelet is started with"), "{steps:?}");
    assert_eq!(steps.len(), 4, "{steps:?}");

    // None at all.
    let mut without = node("");
    (without.kubelet, without.kubelet_config) = (None, None);
    assert_eq!(enable(&without, CONTAINERD).len(), 2);
    assert_eq!(disable(&without, CONTAINERD).len(), 2);
}

#[test]
fn what_is_as_wanted_is_not_to_be_changed() {
    let mut node = node(&format!("containerRuntimeEndpoint: \"{OURS}\" # by hand\n"));
    if let Some(kubelet) = &mut node.kubelet {
        kubelet.endpoint = Some(OURS.into());
    }
    node.behind = Some(CONTAINERD.into());
    assert_eq!(enable(&node, CONTAINERD), []);
    // Of machines alone: kubelet reads the name of its runtime when it starts.
    node.behind = None;
    let steps = enable(&node, CONTAINERD);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(matches!(&steps[2], Step::Run { command, .. } if command == RESTART_KUBELET), "{steps:?}");
}

#[test]
fn lines_of_controlds_file_are_found_however_they_are_written() {
    let edited = |text: Option<&str>, now: Option<&str>| {
        let Step::Edit { below, remove, add, .. } = edit_controld(&file("/c", text), now, Some("unix:///b")) else {
            panic!("an edit")
        };
        (below, remove.join("|"), add.join("|"))
    };
    let line = |of: &str| format!("{of} = \"unix:///b\"");
    let new = format!("[proxy]|{}", line("runtime_endpoint"));
    assert_eq!(edited(None, None), (None, String::new(), new.clone()));
    assert_eq!(edited(Some("#[proxy]\n"), None), (None, String::new(), new));
    assert_eq!(
        edited(Some("[proxy] # x\nlist_deadline_s = 3\n"), None),
        (Some("[proxy] # x".to_owned()), String::new(), line("runtime_endpoint"))
    );
    assert_eq!(
        edited(Some("proxy.runtime_endpoint='unix:///a'\n[log]\n"), Some("unix:///a")),
        (None, "proxy.runtime_endpoint='unix:///a'".into(), line("proxy.runtime_endpoint"))
    );
    assert_eq!(
        edited(Some("proxy.list_deadline_s = 3\n"), None),
        (Some("proxy.list_deadline_s = 3".to_owned()), String::new(), line("proxy.runtime_endpoint"))
    );
    let inline = edited(Some("proxy = { runtime_endpoint = 'unix:///a' }\n"), Some("unix:///a"));
    assert_eq!(inline.1, "proxy.runtime_endpoint = \"unix:///a\"");
}
