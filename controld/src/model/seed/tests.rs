use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use common::Reason;
use proto::tap::{Dns, Nic, NicKind, Tap};

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIGY8yBGq0dNL3ZpV7c6vXTXQYV0sHSFdp7JzTQkzDq5 me";

fn annotations(pairs: &[(&str, &str)]) -> PodAnnotations {
    let all: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    PodAnnotations::parse(&all).expect("right annotations")
}

fn nic(name: &str, last_byte: u8, addresses: &[&str]) -> Nic {
    Nic {
        name: name.parse().expect("name"),
        network: "pods".into(),
        kind: NicKind::Tap(Tap { data_path: proto::tap::DataPath::Tc, queues: 1 }),
        mac: proto::tap::MacAddr::new([2, 0, 0, 0xAB, 0, last_byte]).expect("mac"),
        mtu: 1450,
        addresses: addresses.iter().map(|net| net.parse().expect("net")).collect(),
        routes: Vec::new(),
    }
}

fn net() -> PodNet {
    PodNet {
        netns: "/run/netns/virtlet-x".into(),
        nics: vec![nic("eth0", 1, &["10.77.0.2/32", "fd00::2/64"])],
        dns: Dns {
            servers: vec![IpAddr::from([10, 96, 0, 10])],
            searches: vec!["default.svc.cluster.local".into(), "cluster.local".into()],
            options: vec!["ndots:5".into()],
        },
    }
}

fn seed_of(annotations: &PodAnnotations, net: &PodNet, hostname: &str) -> Result<Seed, Reason> {
    assemble(&SeedInput { pod_name: "vm", namespace: "default", uid: "6f0b", hostname, annotations, net, agent: None })
}

fn file(seed: &Seed, name: &str) -> String {
    let (_, bytes) = seed.files().into_iter().find(|(other, _)| *other == name).expect("file");
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn shown(seed: &Seed) -> String {
    seed.files().iter().map(|(name, _)| format!("== {name}\n{}", file(seed, name))).collect()
}

#[test]
fn a_pod_that_says_nothing() {
    let seed = seed_of(&annotations(&[]), &net(), "vm-0").expect("seed");
    insta::assert_snapshot!(shown(&seed), @r#"
    == meta-data
    {"instance-id":"vm.default.6f0b","local-hostname":"vm-0"}
    == network-config
    {"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":true,"dhcp6":true,"accept-ra":true,"nameservers":{"addresses":["10.96.0.10"],"search":["default.svc.cluster.local","cluster.local"]}}}}
    == user-data
    #cloud-config
    "#);
}

#[test]
fn a_pod_that_says_all() {
    let said = annotations(&[
        ("VirtletSSHKeys", &format!("{KEY}\n{KEY} too\n")),
        ("VirtletCloudInitMetaData", "{instance-id: mine, zone: [a, 1, yes]}"),
        ("VirtletCloudInitUserData", "#cloud-config\r\npassword: \"h\u{fc}tte\"  # mine\r\n"),
    ]);
    let mut net = net();
    net.nics.push(nic("eth1", 2, &["fd01::2/64"]));
    net.nics.push(nic("net2", 3, &["192.168.1.7/24"]));
    let seed = seed_of(&said, &net, "").expect("seed");
    assert_eq!(file(&seed, "user-data"), "#cloud-config\r\npassword: \"h\u{fc}tte\"  # mine\r\n");
    insta::assert_snapshot!(shown(&seed).replace("\r\n", "\n"), @r#"
    == meta-data
    {"instance-id":"mine","local-hostname":"vm","public-keys":["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIGY8yBGq0dNL3ZpV7c6vXTXQYV0sHSFdp7JzTQkzDq5 me","ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIGY8yBGq0dNL3ZpV7c6vXTXQYV0sHSFdp7JzTQkzDq5 me too"],"zone":["a",1,true]}
    == network-config
    {"version":2,"ethernets":{"eth0":{"match":{"macaddress":"02:00:00:ab:00:01"},"set-name":"eth0","mtu":1450,"dhcp4":true,"dhcp6":true,"accept-ra":true,"nameservers":{"addresses":["10.96.0.10"],"search":["default.svc.cluster.local","cluster.local"]}},"eth1":{"match":{"macaddress":"02:00:00:ab:00:02"},"set-name":"eth1","mtu":1450,"dhcp4":false,"dhcp6":true,"accept-ra":true},"net2":{"match":{"macaddress":"02:00:00:ab:00:03"},"set-name":"net2","mtu":1450,"dhcp4":true}}}
    == user-data
    #cloud-config
    password: "hütte"  # mine
    "#);
    // Sizes only: it may be in a log.
    assert_eq!(format!("{seed:?}"), r#"{"meta-data": 257, "network-config": 469, "user-data": 43}"#);
}

#[test]
fn a_pod_that_wants_no_network_config_has_no_such_file() {
    let seed = seed_of(&annotations(&[("virtlet.cloud/network-config", "none")]), &net(), "").expect("seed");
    let names: Vec<_> = seed.files().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["meta-data", "user-data"]);
}

#[test]
fn no_resolver_no_nameservers() {
    let bare = PodNet { dns: Dns { options: vec!["ndots:5".into()], ..Dns::default() }, ..net() };
    let seed = seed_of(&annotations(&[]), &bare, "").expect("seed");
    assert!(!file(&seed, "network-config").contains("nameservers"));
    let searching = PodNet { dns: Dns { searches: vec!["a.b".into()], ..Dns::default() }, ..net() };
    let seed = seed_of(&annotations(&[]), &searching, "").expect("seed");
    assert!(file(&seed, "network-config").contains(r#""nameservers":{"search":["a.b"]}"#));
}

#[test]
fn keys_given_as_meta_data_replace_those_of_the_other_annotation() {
    let said =
        annotations(&[("VirtletSSHKeys", KEY), ("VirtletCloudInitMetaData", "public-keys: [x]\nlocal-hostname: h")]);
    let seed = seed_of(&said, &net(), "vm-0").expect("seed");
    assert_eq!(
        file(&seed, "meta-data"),
        "{\"instance-id\":\"vm.default.6f0b\",\"local-hostname\":\"h\",\"public-keys\":[\"x\"]}\n"
    );
}

#[test]
fn host_names_are_cut_to_a_label() {
    let long = format!("{}-.{}", "a".repeat(61), "b".repeat(10));
    for (hostname, expected) in [("", "vm"), ("h", "h"), ("h.example.com", "h.example.com"), (&long, &"a".repeat(61))] {
        let seed = seed_of(&annotations(&[]), &net(), hostname).expect("seed");
        let meta_data: Value = serde_json::from_str(&file(&seed, "meta-data")).expect("JSON");
        assert_eq!(meta_data["local-hostname"], *expected);
    }
    assert!(seed_of(&annotations(&[]), &net(), &"\u{e9}".repeat(40)).is_ok());
}

#[test]
fn what_is_too_large_is_refused() {
    let data = |len: usize| format!("#!/bin/sh\n{}", "x".repeat(len - 10));
    let fits = annotations(&[("VirtletCloudInitUserDataScript", &data(MAX_USER_DATA))]);
    assert!(seed_of(&fits, &net(), "").is_ok());
    let over = annotations(&[("VirtletCloudInitUserDataScript", &data(MAX_USER_DATA + 1))]);
    let error = seed_of(&over, &net(), "").expect_err("too large");
    assert_eq!(error.to_string(), "cloud-init user-data is 2.1 MiB, limit 2 MiB; use a volume");
    let meta_data = format!("a: {}", "x".repeat(MAX_SEED));
    let error = seed_of(&annotations(&[("VirtletCloudInitMetaData", &meta_data)]), &net(), "").expect_err("too large");
    assert_eq!(error.to_string(), "cloud-init seed is 16.1 MiB, limit 16 MiB; use a volume");
}

// === the image ===

#[test]
fn the_image_holds_the_files_under_its_label() {
    let script = format!("#!/bin/sh\n{}\n", "# \u{fc}\n".repeat(100_000));
    for user_data in ["#!/bin/sh\n", &script] {
        let seed = seed_of(&annotations(&[("VirtletCloudInitUserDataScript", user_data)]), &net(), "").expect("seed");
        let image = seed.to_iso().expect("image");
        assert!(image.len() >= 384 << 10 && image.len().is_multiple_of(2048));
        // Primary and Joliet descriptors (ECMA-119, 8.4.7; Joliet Specification, "SVD Volume Identifier").
        assert_eq!(image[16 * 2048..][40..72], *b"cidata                          ");
        let joliet = (17..32).map(|sector| &image[sector * 2048..][..2048]).find(|descriptor| descriptor[0] == 2);
        let label: Vec<u8> = "cidata".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(joliet.expect("a Joliet descriptor")[40..].starts_with(&label));

        let dir = tempfile::tempdir().expect("tempdir");
        std::fs::write(dir.path().join("seed.iso"), &image).expect("write");
        for names in ["any", "norock"] {
            let out = dir.path().join(names);
            extract(&dir.path().join("seed.iso"), &out, names);
            let mut names: Vec<String> = std::fs::read_dir(&out)
                .expect("read")
                .map(|entry| entry.expect("entry").file_name().into_string().expect("name"))
                .collect();
            names.sort();
            assert_eq!(names, ["meta-data", "network-config", "user-data"]);
            for (name, bytes) in seed.files() {
                assert!(std::fs::read(out.join(name)).expect("read") == bytes, "{name} differs");
            }
        }
    }
}

/// By a reader that is not the writer's sibling, by Rock Ridge's names (`any`) or by Joliet's (`norock`).
fn extract(image: &std::path::Path, out: &std::path::Path, names: &str) {
    let output = Command::new("xorriso")
        .args(["-abort_on", "WARNING", "-osirrox", "on", "-read_fs", names, "-indev"])
        .arg(image)
        .args(["-extract", "/"])
        .arg(out)
        .output()
        .expect("xorriso runs; install it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_agent_comes_with_what_installs_it() {
    let (annotations, net) = (annotations(&[("virtlet.cloud/guest-agent", "true")]), net());
    assert!(annotations.guest_agent);
    let input = SeedInput {
        pod_name: "vm",
        namespace: "default",
        uid: "6f0b",
        hostname: "",
        annotations: &annotations,
        net: &net,
        agent: Some(b"program"),
    };
    let seed = assemble(&input).expect("seed");
    assert_eq!(file(&seed, "virtlet-agent"), "program");
    assert!(file(&seed, "vendor-data").starts_with("#!/bin/sh\n"));
    let checked = Command::new("sh").args(["-n", "-c", &file(&seed, "vendor-data")]).status().expect("sh");
    assert!(checked.success());
}
