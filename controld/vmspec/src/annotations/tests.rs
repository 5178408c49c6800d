use super::*;

fn of(pairs: &[(&str, &str)]) -> Result<PodAnnotations, AnnotationErrors> {
    PodAnnotations::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
}

fn refusal(pairs: &[(&str, &str)]) -> String {
    of(pairs).expect_err("to be refused").to_string()
}

#[test]
fn others_annotations_are_not_ours() {
    let parsed = of(&[
        ("kubernetes.io/target-runtime", "virtlet.cloud"),
        ("kubernetes.io/config.source", "file"),
        ("virtlet", "x"),
        ("example.com/VirtletVCPUCount", "x"),
        ("io.virtlet.cloud/x", "y"),
    ]);
    assert_eq!(parsed, Ok(PodAnnotations::default()));
}

#[test]
fn a_whole_pod() {
    let parsed = of(&[
        ("VirtletVCPUCount", "2"),
        ("VirtletRootVolumeSize", "1.5Gi"),
        ("VirtletSystemUUID", "53008994-44C0-4017-AD44-9C49758083DA"),
        ("VirtletDiskDriver", "VirtIO"),
        ("VirtletCloudInitImageType", "NoCloud"),
        ("VirtletCloudInitMetaData", "{\"instance-id\": \"x\", \"n\": 0644, \"yes\": [yes, null, 1.5]}"),
        ("VirtletCloudInitUserData", "users: [default]"),
        ("VirtletCloudInitUserDataOverwrite", "true"),
        ("VirtletForceDHCPNetworkConfig", "false"),
        ("VirtletChown9pfsMounts", "true"),
        ("virtlet.cloud/ssh-keys", "ssh-rsa AAAAB3NzaC1yc2EA me"),
        ("virtlet.cloud/network-config", "auto"),
        ("virtlet.cloud/config-delivery", "none"),
        ("virtlet.cloud/root-lifetime", "pod"),
        ("virtlet.cloud/root-device", "image"),
        ("VirtletCPUModel", "Westmere"),
        ("VirtletKeepVMEnvVars", ""),
    ])
    .expect("right");
    assert_eq!(parsed.vcpus, Some(2));
    assert_eq!(parsed.disk_bus, Some(DiskBus::Virtio));
    assert_eq!(parsed.cpu_model, Some(CpuModel::Named("Westmere".into())));
    assert_eq!(parsed.root_volume_size, Some(1_610_612_736));
    assert_eq!(
        parsed.system_uuid.map(|uuid| uuid.to_string()).as_deref(),
        Some("53008994-44c0-4017-ad44-9c49758083da")
    );
    let meta_data = serde_json::to_string(parsed.meta_data.entries()).expect("JSON");
    assert_eq!(meta_data, r#"{"instance-id":"x","n":420,"yes":[true,null,1.5]}"#);
    assert_eq!(parsed.user_data.as_ref().map(UserData::as_written), Some(&b"users: [default]"[..]));
    assert_eq!(parsed.ssh_keys.len(), 1);
    // Nothing that has to be kept is in a log.
    let debug = format!("{parsed:?}");
    for secret in ["default", "AAAA", "420"] {
        assert!(!debug.contains(secret), "{debug}");
    }
}

#[test]
fn a_guest_comes_by_its_addresses_as_the_pod_says() {
    let key = "virtlet.cloud/network-config";
    for (pairs, expected) in [
        (&[][..], None),
        (&[(key, "auto")], Some(NetworkConfig::Auto)),
        (&[(key, "dhcp")], Some(NetworkConfig::Dhcp)),
        (&[(key, "Static")], Some(NetworkConfig::Static)),
        (&[(key, "none")], Some(NetworkConfig::None)),
        (&[("VirtletForceDHCPNetworkConfig", "false")], None),
        (&[("VirtletForceDHCPNetworkConfig", "true")], Some(NetworkConfig::Dhcp)),
        (&[("virtlet.cloud/force-dhcp-network-config", "true"), (key, "dhcp")], Some(NetworkConfig::Dhcp)),
        (&[("VirtletForceDHCPNetworkConfig", "false"), (key, "static")], Some(NetworkConfig::Static)),
    ] {
        assert_eq!(of(pairs).expect("right").network_config, expected, "{pairs:?}");
    }
}

#[test]
fn a_uuid_needs_no_hyphens() {
    let plain = of(&[("VirtletSystemUUID", "53008994440c04017ad449c49758083d")]).expect("right");
    assert_eq!(plain.system_uuid.map(|uuid| uuid.to_string()).as_deref(), Some("53008994-440c-0401-7ad4-49c49758083d"));
}

#[test]
fn both_names_of_a_key_may_say_the_same() {
    assert_eq!(of(&[("VirtletVCPUCount", "3"), ("virtlet.cloud/vcpu-count", "3")]).expect("right").vcpus, Some(3));
    assert_eq!(of(&[("VirtletVCPUCount", ""), ("virtlet.cloud/vcpu-count", "3")]).expect("right").vcpus, Some(3));
    assert_eq!(of(&[("VirtletVCPUCount", "3"), ("virtlet.cloud/vcpu-count", "")]).expect("right").vcpus, Some(3));
}

#[test]
fn each_rule_has_its_text() {
    let long = "9".repeat(100);
    let script = ("VirtletCloudInitUserDataScript", "#!/bin/sh\n");
    let mut lines = Vec::new();
    for pairs in [
        &[("VirtletVCPUCount", "x")][..],
        &[("VirtletVCPUCount", "1.5")],
        &[("VirtletVCPUCount", " 1")],
        &[("VirtletVCPUCount", "0")],
        &[("VirtletVCPUCount", "-3")],
        &[("virtlet.cloud/vcpu-count", "256")],
        &[("VirtletVCPUCount", &long)],
        &[("VirtletVCPUCount", "a\x1b[2J\n")],
        &[("VirtletVCPUCount", "2"), ("virtlet.cloud/vcpu-count", "3")],
        &[("VirtletRootVolumeSize", "10GB")],
        &[("VirtletRootVolumeSize", "-1Gi")],
        &[("VirtletRootVolumeSize", "9Ei")],
        &[("VirtletDiskDriver", "ide")],
        &[("VirtletSystemUUID", "{53008994-44c0-4017-ad44-9c49758083da}")],
        &[("VirtletSystemUUID", "53008994-44c0-4017-ad44")],
        &[("VirtletCPUModel", "host,+vmx")],
        &[("VirtletLibvirtCPUSetting", "mode: custom")],
        &[("VirtletCloudInitImageType", "floppy")],
        &[("VirtletCloudInitUserDataSource", "pvc/x")],
        &[("VirtletCloudInitUserDataSource", "volume/")],
        &[("VirtletCloudInitUserDataSourceKey", "k")],
        &[("VirtletCloudInitUserDataSource", "volume/v"), ("VirtletCloudInitUserDataSourceEncoding", "gzip")],
        &[("VirtletCloudInitUserDataSourceEncoding", "base64")],
        &[("VirtletCloudInitUserDataOverwrite", "yes")],
        &[("VirtletSSHKeySource", "secret/")],
        &[("VirtletFilesFromDataSource", "configmap/a/b")],
        &[("VirtletChown9pfsMounts", "1")],
        &[("VirtletForceDHCPNetworkConfig", "True")],
        &[("VirtletVMIdentitySet", "x")],
        &[("VirtletKeepVMEnvVars", "true")],
        &[("VirtletForceDHCPNetworkConfig", "true"), ("virtlet.cloud/network-config", "static")],
        &[("virtlet.cloud/network-config", "bond")],
        &[("virtlet.cloud/data-path", "ebpf")],
        &[("virtlet.cloud/data-path", "ovs")],
        &[("virtlet.cloud/config-delivery", "copy")],
        &[("virtlet.cloud/emptydir-disks", "v=1Ki")],
        &[("virtlet.cloud/root-lifetime", "image")],
        &[("virtlet.cloud/root-device", "disk")],
        &[("virtlet.cloud/max-vcpus", "0")],
        &[("virtlet.cloud/max-memory", "much")],
        &[("VirtletCloudInitMetaData", "[secret]")],
        &[("VirtletCloudInitMetaData", "# secret\n")],
        &[("VirtletCloudInitMetaData", "a: secret\nb: [secret\n")],
        &[("VirtletCloudInitMetaData", "a: .inf")],
        &[("VirtletCloudInitMetaData", "instance-id: 42")],
        &[("VirtletCloudInitMetaData", "local-hostname: [secret]")],
        &[("VirtletCloudInitUserData", "secret")],
        &[("VirtletCloudInitUserData", "#cloud-config\na: secret\n b: secret\n")],
        &[("VirtletCloudInitUserData", "#cloud-config\n- secret\n")],
        &[("VirtletCloudInitUserData", "a: 1"), script],
        &[("virtlet.cloud/cloud-init-user-data", "a: 1"), script],
        &[("VirtletCloudInitUserDataScript", "secret\0")],
        &[("VirtletSSHKeys", "\nsecret")],
        &[("VirtletVCPUcount", "2")],
        &[("VirtletUnknown", "")],
        &[("virtlet.cloud/user-data", "secret")],
        &[("Virtlet\n\x1b[2Jx", "")],
        &[(
            "virtlet.k8s/vm",
            r#"{"v":1,"nics":[{"name":"secret","state":"absent"}],"devices":{"virtioTransitional":true}}"#,
        )],
        &[("virtlet.k8s/vm", r#"{"v":2,"a":"secret"}"#)],
        &[("virtlet.k8s/vm", "secret")],
    ] {
        let line = refusal(pairs);
        assert!(!line.contains("secret") || line.contains("secret/"), "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
        lines.push(line);
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn all_problems_are_told_at_once() {
    let line = refusal(&[
        ("virtlet.cloud/vcpu-count", "0"),
        ("VirtletSSHKeySource", "secret"),
        ("VirtletDiskDriver", "ide"),
        ("VirtletRootVolumeSize", "1Gi"),
    ]);
    assert_eq!(
        line,
        "annotation VirtletDiskDriver: \"ide\" is not one of virtio, scsi, sata; \
         annotation VirtletSSHKeySource: must be volume/NAME, configmap/NAME or secret/NAME, each with or without /KEY; annotation virtlet.cloud/vcpu-count: 0 is below 1"
    );
}
