//! The runtime with Debian's `bridge`, `host-local` and `tuning`, in network namespaces of their own.
//!
//! A thread leaves the machine's network namespace for a new one and runs everything from there, plugins included; a
//! second thread lends its namespace to be the pod's. Nothing of it outlives the test.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use super::super::{Cni, NetworkList, Places, Target};
use super::fakes::{LONG, Node};
use crate::spawner::Spawner;

const PLUGINS: &str = "/usr/lib/cni";

/// Runs `work` in a new network namespace; it is given the file of one more network namespace, the pod's.
fn on_a_node_of_its_own<F: Future<Output = ()>>(work: impl FnOnce(PathBuf) -> F + Send) {
    thread::scope(|scope| {
        let (lend, lent) = mpsc::channel();
        let (done, end) = mpsc::channel::<()>();
        scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace; this test needs root or `unshare -r`");
            let netns = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
            lend.send(PathBuf::from(netns)).unwrap();
            // Ends when the other end is dropped, also by a panic.
            let _ = end.recv();
        });
        let node = scope.spawn(move || {
            let _done = done;
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(work(lent.recv().unwrap()));
        });
        if let Err(panic) = node.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn debians_bridge_adds_checks_and_deletes() {
    assert!(Path::new(PLUGINS).join("bridge").exists(), "install the package containernetworking-plugins");
    let leases = tempfile::tempdir().unwrap();
    let data_dir = leases.path();
    on_a_node_of_its_own(|netns| async move {
        let node = Node::new();
        let target = Target { netns: &netns, ..node.target() };
        for version in ["0.3.1", "0.4.0", "1.0.0"] {
            let list: NetworkList = json!({
                "cniVersion": version,
                "name": "net",
                "plugins": [
                    {
                        "type": "bridge",
                        "bridge": "cni-test0",
                        "isGateway": true,
                        "mtu": 1400,
                        "ipam": {
                            "type": "host-local",
                            "dataDir": data_dir,
                            "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]],
                            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
                        },
                    },
                    {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_notify": "1"}},
                ],
            })
            .try_into()
            .unwrap();
            one_life(&list, &target, data_dir).await;
        }
    });
}

async fn one_life(list: &NetworkList, target: &Target<'_>, leases: &Path) {
    let places =
        Places { conf_dir: PathBuf::new(), plugin_dirs: vec![PathBuf::from(PLUGINS)], cache_dir: leases.join("cache") };
    let cni = Cni::new(places, LONG, Spawner::in_process().expect("spawner"));
    let added = cni.add(list, target).await.unwrap();
    assert_eq!(added.view.pod_links(target.ifname), std::slice::from_ref(target.ifname));
    let pod_side = added.view.interfaces.iter().position(|interface| interface.name == *target.ifname);
    assert_eq!(added.view.ips.len(), 2);
    assert!(added.view.ips.iter().all(|ip| ip.interface == pod_side && ip.gateway.is_some()), "{:?}", added.view);
    assert_eq!(added.view.ips.first().map(|ip| ip.address.prefix()), Some(24));
    assert!(links().contains("cni-test0"));

    let check = cni.check(list, target, &added.raw).await;
    if added.raw["cniVersion"] == "0.3.1" {
        check.expect_err("0.3.1 has no CHECK");
    } else {
        check.unwrap();
        // Of a result that the world does not agree with, the plugin's own words are told.
        let mut wrong = added.raw.clone();
        wrong["ips"][0]["address"] = "10.77.0.99/24".into();
        let error = cni.check(list, target, &wrong).await.expect_err("another address");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("Failed to match addr"), "{cause}");
    }

    cni.del(list, target, Some(&added.raw)).await.unwrap();
    cni.del(list, target, Some(&added.raw)).await.unwrap();
    assert!(!links().contains("veth"), "{}", links());
    let left = fs::read_dir(leases.join("net")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = left.filter(|name| name.starts_with("10.") || name.starts_with("fd")).collect();
    assert!(left.is_empty(), "leases left: {left:?}");
}

/// Of the namespace of this thread, by a process: the directory in /sys would show the machine's.
fn links() -> String {
    let output = Command::new("ip").args(["-oneline", "link"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
