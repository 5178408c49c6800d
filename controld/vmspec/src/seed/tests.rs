use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use common::Reason;
use proto::tap::{Dns, Nic, NicKind, Tap};

use super::*;
use crate::MountOptions;
use crate::annotations::Source;
use crate::ids::smbios_uuid;

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
    assemble(&SeedInput { hostname, net, ..input(annotations, net, &Sources::default()) })
}

fn input<'a>(annotations: &'a PodAnnotations, net: &'a PodNet, sources: &'a Sources) -> SeedInput<'a> {
    SeedInput {
        pod_name: "vm",
        namespace: "default",
        uid: "6f0b",
        instance: None,
        hostname: "",
        hosts: "",
        annotations,
        net,
        agent: None,
        kind: annotations.seed.unwrap_or_default(),
        network: annotations.network_config.unwrap_or_default(),
        delivery: ConfigDelivery::default(),
        credentials: false,
        sources,
        env: &[],
        mounts: &[],
        disks: &[],
        has_agent: false,
    }
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
    // As long as `hostnameOverride` may be.
    let whole = format!("{}.example.com", "a".repeat(52));
    assert_eq!(whole.len(), 64);
    for (hostname, expected) in
        [("", "vm"), ("h", "h"), ("h.example.com", "h.example.com"), (&long, &"a".repeat(61)), (&whole, &whole)]
    {
        let seed = seed_of(&annotations(&[]), &net(), hostname).expect("seed");
        let meta_data: Value = serde_json::from_str(&file(&seed, "meta-data")).expect("JSON");
        assert_eq!(meta_data["local-hostname"], *expected);
    }
    assert!(seed_of(&annotations(&[]), &net(), &"\u{e9}".repeat(40)).is_ok());
}

#[test]
fn a_guest_with_a_name_in_dns_is_told_that() {
    let name = "db-0.db.prod.svc.cluster.local";
    let hosts = format!("127.0.0.1\tlocalhost\n10.77.0.2\t{name}\tdb-0\n");
    let (net, sources) = (net(), Sources::default());
    for (pairs, expected) in [(&[][..], name), (&[("VirtletCloudInitMetaData", "local-hostname: h")], "h")] {
        let said = annotations(pairs);
        let input = SeedInput { hostname: "db-0", hosts: &hosts, ..input(&said, &net, &sources) };
        let drive = SeedInput { kind: SeedKind::ConfigDrive, ..input };
        for (input, path, key) in
            [(input, "meta-data", "local-hostname"), (drive, "openstack/latest/meta_data.json", "hostname")]
        {
            let meta_data = file(&assemble(&input).expect("seed"), path);
            let meta_data: Value = serde_json::from_str(&meta_data).expect("JSON");
            assert_eq!(meta_data[key], expected, "{path}");
        }
    }
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
        let image = seed.to_iso().expect("image").expect("files");
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

#[test]
fn a_drive_of_openstack_has_its_files_in_directories() {
    let (said, net, sources) = (annotations(&[]), net(), Sources::default());
    let seed =
        assemble(&SeedInput { kind: SeedKind::ConfigDrive, agent: Some(b"program"), ..input(&said, &net, &sources) });
    let seed = seed.expect("seed");
    let image = seed.to_iso().expect("image").expect("files");
    assert_eq!(image[16 * 2048..][40..72], *b"config-2                        ");
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("seed.iso"), &image).expect("write");
    for names in ["any", "norock"] {
        let out = dir.path().join(names);
        extract(&dir.path().join("seed.iso"), &out, names);
        for (name, bytes) in seed.files() {
            assert!(std::fs::read(out.join(name)).expect(name) == bytes, "{name} differs");
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
    let sources = Sources::default();
    let input = SeedInput { agent: Some(b"program"), ..input(&annotations, &net, &sources) };
    let seed = assemble(&input).expect("seed");
    assert_eq!(file(&seed, "virtlet-agent"), "program");
    assert!(file(&seed, "vendor-data").starts_with("#!/bin/sh\n"));
    assert!(file(&seed, "vendor-data").contains("blkid -L cidata"));
    let checked = Command::new("sh").args(["-n", "-c", &file(&seed, "vendor-data")]).status().expect("sh");
    assert!(checked.success());
    // With what is made for the pod beside it.
    let env = ["A=1".to_owned()];
    let annotations = self::annotations(&[("virtlet.cloud/guest-agent", "true"), ("VirtletCloudInitUserData", "a: 1")]);
    let seed = assemble(&SeedInput { annotations: &annotations, env: &env, ..input }).expect("seed");
    let vendor_data = file(&seed, "vendor-data");
    let parts: Value =
        serde_json::from_str(vendor_data.strip_prefix("#cloud-config-archive\n").expect("an archive")).expect("JSON");
    assert_eq!(parts[0]["type"], "text/cloud-config");
    assert!(parts[0]["content"].as_str().is_some_and(|part| part.starts_with("#cloud-config\n{\"write_files\":")));
    assert_eq!(parts[1]["type"], "text/x-shellscript");
    assert!(parts[1]["content"].as_str().is_some_and(|part| part.starts_with("#!/bin/sh\n")));
}

// === what is made for the pod ===

fn volume(files: &[(&str, &str)]) -> Volume {
    let file = |text: &str| VolumeFile { bytes: text.into(), mode: 0o400 };
    Volume(files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect())
}

fn mounts() -> [GuestMount; 2] {
    let options = MountOptions::default();
    [
        GuestMount { entry: 0, path: "/data".into(), read_only: true, options, is_file: false },
        GuestMount { entry: 1, path: "/etc/one".into(), read_only: false, options, is_file: true },
    ]
}

/// A whole disk on virtio.
pub(super) fn disk(serial: &str, path: &str, file_system: &'static str) -> GuestDisk {
    let link = format!("/dev/disk/by-id/virtio-{serial}");
    let options = MountOptions::default();
    GuestDisk { serial: serial.into(), partition: 0, link, path: path.into(), file_system, read_only: false, options }
}

fn disks() -> [GuestDisk; 2] {
    [disk("scratch", "/scratch", "ext4"), disk("testpvc", "/dev/testpvc", "")]
}

/// The agent's link is there when cloud-init has mounted already.
#[test]
fn a_guest_mounts_a_volume_by_udevs_link_to_it_with_the_agent_too() {
    let (net, sources, disks) = (net(), Sources::default(), disks());
    let said = annotations(&[("VirtletCloudInitUserData", "mounts: [[/dev/testpvc, /mnt/a]]")]);
    let user_data = |has_agent| {
        let seed = assemble(&SeedInput { disks: &disks, has_agent, ..input(&said, &net, &sources) }).expect("seed");
        let text = file(&seed, "user-data");
        serde_json::from_str::<Value>(text.strip_prefix("#cloud-config\n").expect("a cloud-config")).expect("JSON")
    };
    let users = json!(["/dev/disk/by-id/virtio-testpvc", "/mnt/a"]);
    assert_eq!(user_data(true), json!({ "mounts": [users] }));
    let with_ours = user_data(false);
    assert_eq!((&with_ours["mounts"][0][1], &with_ours["mounts"][1]), (&json!("/scratch"), &users));
    assert_eq!(with_ours["bootcmd"][0][5], "/dev/testpvc");
}

#[test]
fn all_that_is_made_for_a_pod() {
    let said = annotations(&[
        ("VirtletFilesFromDataSource", "volume/files"),
        ("VirtletSSHKeySource", "volume/keys"),
        ("VirtletSSHKeys", &format!("{KEY} too")),
        ("VirtletCloudInitUserData", "packages: [vim]"),
    ]);
    let sources = Sources {
        named: [
            (Source::Volume("files".into()), volume(&[("f", "aGk="), ("f_path", "/srv/f")])),
            (Source::Volume("keys".into()), volume(&[("authorized_keys", KEY)])),
        ]
        .into(),
        copies: vec![("/etc/app".to_owned(), volume(&[("k", "v")]))],
    };
    let env = ["A=1".to_owned(), "B=two words".to_owned(), "C=x\ny".to_owned()];
    let (net, mounts) = (net(), mounts());
    let input = SeedInput { env: &env, mounts: &mounts, ..input(&said, &net, &sources) };
    let seed = assemble(&input).expect("seed");
    insta::assert_snapshot!(shown(&seed));
    assert_eq!(seed.skipped(), ["C"]);
    // The same by the other kind of disk.
    let drive = assemble(&SeedInput { kind: SeedKind::ConfigDrive, agent: Some(b"program"), ..input }).expect("seed");
    insta::assert_snapshot!(shown(&drive));
    let made = |seed: &Seed, name| -> Value { serde_json::from_str(&file(seed, name)).expect("JSON") };
    let vendor_data = made(&drive, "openstack/latest/vendor_data.json")["cloud-init"].as_str().map(str::to_owned);
    assert!(
        vendor_data.is_some_and(|text| text.contains("blkid -L config-2") && text.contains("/etc/cloud/environment"))
    );
}

#[test]
fn a_copy_on_a_disk_is_written_when_cloud_init_has_mounted_it() {
    let copies = ["/scratch/conf", "/etc/app"].map(|dir| (dir.to_owned(), volume(&[("k", "v")])));
    let sources = Sources { copies: copies.into(), ..Sources::default() };
    let (said, net, disks) = (annotations(&[]), net(), disks());
    let deferred = |has_agent| -> Vec<Value> {
        let seed = assemble(&SeedInput { disks: &disks, has_agent, ..input(&said, &net, &sources) }).expect("seed");
        let user_data = file(&seed, "user-data");
        let made: Value = serde_json::from_str(user_data.strip_prefix("#cloud-config\n").expect("one")).expect("JSON");
        made["write_files"].as_array().expect("a list").iter().map(|entry| entry["defer"].clone()).collect()
    };
    assert_eq!(deferred(false), [json!(true), Value::Null]);
    assert_eq!(deferred(true), [Value::Null, Value::Null]);
}

#[test]
fn a_root_disk_that_outlives_its_pod_is_the_instance_whose_network_is_told_anew() {
    let instance = Some(Uuid::from_u128(0xd15c));
    let made = |pairs: &[(&str, &str)]| {
        let annotations = annotations(pairs);
        let (net, sources) = (net(), Sources::default());
        assemble(&SeedInput { instance, ..input(&annotations, &net, &sources) }).expect("made")
    };
    let seed = made(&[]);
    assert!(file(&seed, "meta-data").contains("\"instance-id\":\"00000000-0000-0000-0000-00000000d15c\""));
    assert!(file(&seed, "user-data").contains("\"updates\":{\"network\":{\"when\":[\"boot\"]}}"));
    let seed = made(&[("VirtletCloudInitMetaData", "{instance-id: mine}"), ("virtlet.cloud/network-config", "none")]);
    assert!(file(&seed, "meta-data").contains("\"instance-id\":\"mine\""));
    assert!(!file(&seed, "user-data").contains("updates"));
}

/// cloud-init 22.4 fails there when it is to look at the network of an instance that it knows.
#[test]
fn by_configdrive_each_pod_with_a_root_disk_is_another_instance() {
    let (said, net, sources) = (annotations(&[]), net(), Sources::default());
    let [one, same, next] = ["6f0b", "6f0b", "7a1c"].map(|uid| {
        let drive = SeedInput { kind: SeedKind::ConfigDrive, uid, ..input(&said, &net, &sources) };
        let seed = assemble(&SeedInput { instance: Some(Uuid::from_u128(0xd15c)), ..drive }).expect("seed");
        assert!(!seed.files().iter().any(|(_, text)| String::from_utf8_lossy(text).contains("updates")));
        let meta_data: Value = serde_json::from_str(&file(&seed, "openstack/latest/meta_data.json")).expect("JSON");
        meta_data["uuid"].as_str().expect("a UUID").to_owned()
    });
    assert!(one == same && one != next, "{one} {same} {next}");
}

#[test]
fn a_drive_of_openstack_is_another_instance_when_the_pod_says_so() {
    let uuid = |pairs: &[(&str, &str)]| {
        let (said, net, sources) = (annotations(pairs), net(), Sources::default());
        let seed = assemble(&SeedInput { kind: SeedKind::ConfigDrive, ..input(&said, &net, &sources) }).expect("seed");
        let meta_data: Value = serde_json::from_str(&file(&seed, "openstack/latest/meta_data.json")).expect("JSON");
        assert!(meta_data.get("instance-id").is_none(), "{meta_data}");
        (
            meta_data["uuid"].as_str().expect("a UUID").to_owned(),
            meta_data["hostname"].as_str().expect("a name").to_owned(),
        )
    };
    let other = ("VirtletCloudInitMetaData", "{instance-id: other, local-hostname: h, zone: a}");
    assert_eq!(uuid(&[]), uuid(&[]));
    assert_ne!(uuid(&[]).0, uuid(&[other]).0);
    assert_eq!((uuid(&[]).1, uuid(&[other]).1), ("vm".into(), "h".into()));
    let given = ("VirtletCloudInitMetaData", "uuid: 53008994-44c0-4017-ad44-9c49758083da");
    assert_eq!(uuid(&[given]).0, "53008994-44c0-4017-ad44-9c49758083da");
}

/// cloud-init would not look at the drive again.
#[test]
fn a_drive_of_openstack_never_has_the_uuid_of_the_machine() {
    let (net, sources, given) = (net(), Sources::default(), "53008994-44c0-4017-ad44-9c49758083da");
    let system = ("VirtletSystemUUID", given);
    for (instance, pairs) in [
        (None, &[][..]),
        (None, &[system]),
        (Some(Uuid::from_u128(0xd15c)), &[]),
        (None, &[system, ("VirtletCloudInitMetaData", "instance-id: 53008994-44c0-4017-ad44-9c49758083da")]),
    ] {
        let said = annotations(pairs);
        let firmware = smbios_uuid(said.system_uuid, instance, "6f0b");
        let drive = |said: &PodAnnotations| {
            assemble(&SeedInput { kind: SeedKind::ConfigDrive, instance, ..input(said, &net, &sources) })
        };
        let meta_data = file(&drive(&said).expect("seed"), "openstack/latest/meta_data.json");
        let meta_data: Value = serde_json::from_str(&meta_data).expect("JSON");
        assert_ne!(meta_data["uuid"], firmware.to_string());
        // In capitals it is the same to cloud-init.
        let same = format!("uuid: {}", firmware.to_string().to_uppercase());
        let mut pairs = pairs.to_vec();
        pairs.retain(|(key, _)| *key != "VirtletCloudInitMetaData");
        pairs.push(("VirtletCloudInitMetaData", &same));
        let refusal = drive(&annotations(&pairs)).expect_err("refused").to_string();
        assert!(refusal.starts_with("annotation VirtletCloudInitMetaData: `uuid` is the machine's own"), "{refusal}");
    }
}

#[test]
fn openstacks_network_tells_what_it_has_words_for() {
    let mut net = net();
    net.nics.push(nic("eth1", 2, &["192.168.1.7/24", "fd01::2/64"]));
    net.nics[1].routes = vec![
        proto::tap::Route { dst: "0.0.0.0/0".parse().expect("net"), gateway: Some("192.168.1.1".parse().expect("ip")) },
        proto::tap::Route { dst: "::/0".parse().expect("net"), gateway: Some("fe80::1".parse().expect("ip")) },
        proto::tap::Route { dst: "10.1.0.0/16".parse().expect("net"), gateway: None },
    ];
    let sources = Sources::default();
    let said = |way: &str| {
        let said = annotations(&[("virtlet.cloud/network-config", way)]);
        let input = SeedInput { kind: SeedKind::ConfigDrive, ..input(&said, &net, &sources) };
        let seed = assemble(&input).expect("seed");
        let has = seed.files().iter().any(|(name, _)| name.ends_with("network_data.json"));
        if has { file(&seed, "openstack/latest/network_data.json") } else { "nothing\n".to_owned() }
    };
    insta::assert_snapshot!(["auto", "static", "none"].map(said).concat());
}

#[test]
fn a_script_has_the_mounting_where_it_says_so() {
    let text = "#!/bin/sh\n@virtlet-mount-script@\nls /data\n";
    let (net, mounts, sources) = (net(), mounts(), Sources::default());
    for pairs in [("VirtletCloudInitUserDataScript", text), ("VirtletCloudInitUserData", text)] {
        let said = annotations(&[pairs]);
        let all = SeedInput { mounts: &mounts, ..input(&said, &net, &sources) };
        let script = file(&assemble(&all).expect("seed"), "user-data");
        assert!(script.starts_with("#!/bin/sh\nvirtlet_share=") && script.ends_with("\nls /data\n"), "{script}");
        assert!(script.contains("virtlet_bind 1 '/etc/one'"), "{script}");
        let disks = disks();
        let script = file(&assemble(&SeedInput { disks: &disks, ..all }).expect("seed"), "user-data");
        assert!(
            script.starts_with("#!/bin/sh\nvirtlet_sys=")
                && script.contains("virtlet_mount 'scratch' '/scratch' ext4 rw")
        );
        assert!(script.find("virtlet_link 'testpvc'").is_some_and(|disk| Some(disk) < script.find("virtlet_bind 1")));
        // The agent sees to its disks itself.
        let none = SeedInput { disks: &disks, has_agent: true, ..input(&said, &net, &sources) };
        assert_eq!(file(&assemble(&none).expect("seed"), "user-data"), "#!/bin/sh\n\nls /data\n");
    }
}

// === other kinds ===

#[test]
fn ignition_has_user_data_alone_as_it_was_written() {
    let json = r#"{"ignition": {"version": "3.4.0"}}"#;
    let (net, sources) = (net(), Sources::default());
    let said = annotations(&[("VirtletCloudInitImageType", "Ignition"), ("VirtletCloudInitUserData", json)]);
    let service = ["KUBERNETES_SERVICE_HOST=10.96.0.1".to_owned(), "DB_PORT_5432_TCP=tcp://10.0.0.1:5432".to_owned()];
    let seed = assemble(&SeedInput { env: &service, ..input(&said, &net, &sources) }).expect("seed");
    assert!(seed.files().is_empty() && seed.to_iso() == Ok(None));
    let [config] = seed.firmware() else { panic!("one file") };
    assert_eq!((config.name.name, config.content.as_slice()), ("opt/com.coreos/config", json.as_bytes()));
    assert_eq!(format!("{seed:?}"), r#"{"opt/com.coreos/config": 34}"#);
    let nothing = annotations(&[("VirtletCloudInitImageType", "ignition")]);
    assert!(seed_of(&nothing, &net, "").expect("seed").firmware().is_empty());
}

#[test]
fn keys_are_credentials_of_systemd_where_the_node_says_so() {
    let (net, sources) = (net(), Sources::default());
    for kind in ["nocloud", "none"] {
        let said =
            annotations(&[("VirtletCloudInitImageType", kind), ("VirtletSSHKeys", &format!("{KEY}\n{KEY} too"))]);
        let seed = assemble(&SeedInput { credentials: true, ..input(&said, &net, &sources) }).expect("seed");
        let [keys] = seed.firmware() else { panic!("one file") };
        assert_eq!(keys.name.name, "opt/io.systemd.credentials/ssh.authorized_keys.root");
        assert_eq!(keys.content, format!("{KEY}\n{KEY} too\n").as_bytes());
        assert_eq!(seed.files().is_empty(), kind == "none");
    }
}

#[test]
fn what_only_cloud_init_brings_is_refused_without_it() {
    let (net, mounts, disks) = (net(), mounts(), disks());
    let copies = Sources { copies: vec![("/etc/app".to_owned(), volume(&[("k", "v")]))], ..Sources::default() };
    let files = Sources { named: [(Source::Volume("v".into()), volume(&[]))].into(), ..Sources::default() };
    let nothing = Sources::default();
    let env = ["A=secret".to_owned()];
    let mut deaf = net.clone();
    for (name, last_byte, addresses) in [("net1", 2, &["10.88.0.2/24"][..]), ("net2", 3, &[])] {
        let kind = NicKind::Tap(Tap { data_path: proto::tap::DataPath::Macvtap, queues: 1 });
        deaf.nics.push(Nic { kind, ..nic(name, last_byte, addresses) });
    }
    let mut lines = Vec::new();
    for kind in ["none", "ignition"] {
        let of = |pairs: &[(&str, &str)]| annotations(&[&[("VirtletCloudInitImageType", kind)], pairs].concat());
        let (plain, none) = (of(&[]), of(&[("virtlet.cloud/config-delivery", "none")]));
        let by = |way| of(&[("virtlet.cloud/network-config", way)]);
        let (told, asked, left) = (by("static"), by("dhcp"), by("none"));
        let said = [
            of(&[
                ("VirtletSSHKeys", KEY),
                ("VirtletCloudInitMetaData", "a: secret"),
                ("virtlet.cloud/guest-agent", "true"),
            ]),
            of(&[("VirtletCloudInitUserData", "a: secret")]),
            of(&[("VirtletFilesFromDataSource", "volume/v")]),
        ];
        for input in [
            input(&said[0], &net, &nothing),
            input(&said[1], &net, &nothing),
            input(&said[2], &net, &files),
            input(&plain, &net, &copies),
            SeedInput { mounts: &mounts, ..input(&plain, &net, &nothing) },
            SeedInput { disks: &disks, ..input(&plain, &net, &nothing) },
            SeedInput { disks: &disks, has_agent: true, ..input(&plain, &net, &nothing) },
            SeedInput {
                mounts: &mounts,
                disks: &disks,
                delivery: ConfigDelivery::None,
                ..input(&none, &net, &nothing)
            },
            SeedInput { env: &env, ..input(&plain, &net, &nothing) },
            input(&told, &net, &nothing),
            SeedInput { mounts: &mounts, ..input(&plain, &deaf, &nothing) },
            input(&asked, &deaf, &nothing),
            input(&left, &deaf, &nothing),
        ] {
            lines.push(assemble(&input).map_or_else(|reason| reason.to_string(), |_| "fine".to_owned()));
        }
    }
    assert!(lines.iter().all(|line| !line.contains("secret")), "{lines:?}");
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn nothing_that_is_kept_is_shown() {
    let said = annotations(&[("VirtletCloudInitUserData", "a: canary"), ("VirtletSSHKeys", &format!("{KEY} canary"))]);
    let sources = Sources { copies: vec![("/x".to_owned(), volume(&[("k", "canary")]))], ..Sources::default() };
    let (net, env) = (net(), ["A=canary".to_owned()]);
    let input = SeedInput { env: &env, credentials: true, ..input(&said, &net, &sources) };
    let seed = assemble(&input).expect("seed");
    for debug in [format!("{seed:?}"), format!("{said:?}"), format!("{sources:?}"), format!("{:?}", seed.firmware())] {
        assert!(!debug.contains("canary"), "{debug}");
    }
}

#[test]
fn what_is_described_of_a_seed_is_in_it() {
    let described = r#"{"v":1,"cloudInit":{"networkData":{"volume":"init","key":"networkdata"},"sshKeys":["keys"]}}"#;
    let volume = |files: &[(&str, &str)]| {
        let file = |text: &str| VolumeFile { bytes: text.into(), mode: 0o644 };
        Volume(files.iter().map(|(name, text)| ((*name).to_owned(), file(text))).collect())
    };
    let data = "version: 2\nethernets: {eth0: {addresses: [192.0.2.9/24]}}\n";
    let other = KEY.replace("IGY8", "IGY9");
    let sources = Sources {
        named: [
            (Source::Volume("init".into()), volume(&[("networkdata", data), ("userdata", "#!/bin/sh")])),
            (Source::Volume("keys".into()), volume(&[("a", KEY), ("b", &format!("# mine\n{other}\n{KEY}\n"))])),
        ]
        .into(),
        ..Sources::default()
    };
    let net = net();
    for (kind, file_name, meta_data) in [
        ("nocloud", "network-config", "meta-data"),
        ("configdrive", "openstack/latest/network_data.json", "openstack/latest/meta_data.json"),
    ] {
        let annotations = annotations(&[("virtlet.k8s/vm", described), ("VirtletCloudInitImageType", kind)]);
        let named: Vec<_> = annotations.seed_sources().iter().map(|(_, source)| source.to_string()).collect();
        assert_eq!(named, ["volume/init", "volume/keys"]);
        let seed = assemble(&input(&annotations, &net, &sources)).expect("made");
        assert_eq!(file(&seed, file_name), data, "as it is");
        assert_eq!(file(&seed, meta_data).matches("ssh-ed25519").count(), 2, "each once");
        let none = assemble(&input(&annotations, &net, &Sources::default())).expect_err("no such key").to_string();
        assert_eq!(none, "annotation virtlet.k8s/vm: key \"networkdata\" not in volume/init, which is empty");
    }
    let annotations = annotations(&[("virtlet.k8s/vm", described), ("VirtletCloudInitImageType", "none")]);
    let lost = assemble(&input(&annotations, &net, &sources)).expect_err("nobody reads it").to_string();
    assert!(lost.contains("SSH keys") && lost.contains("network-config"), "{lost}");
    check_unread(&input(&annotations, &net, &Sources::default())).expect_err("known before, too");
}
