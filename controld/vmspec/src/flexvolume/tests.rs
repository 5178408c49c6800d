use common::Chain;

use super::*;

const KEY: &str = "QVFCU1RUSU5HS0VZT0ZURVNUUw==";

fn parse(pairs: &[(&str, &str)]) -> Result<FlexVolume, Reason> {
    FlexVolume::of(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn refused(pairs: &[(&str, &str)]) -> String {
    Chain(&parse(pairs).expect_err("refused")).to_string()
}

const CEPH: [(&str, &str); 4] = [("type", "ceph"), ("monitor", "10.0.0.1:6789"), ("pool", "rbd"), ("volume", "web")];

fn ceph(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let others = CEPH.into_iter().filter(|(key, _)| more.iter().all(|(other, _)| other != key));
    others.chain(more.iter().copied()).collect()
}

#[test]
fn a_new_disk_is_as_large_as_it_says_or_as_virtlets() {
    let ext4 = Some(FileSystem::Ext4);
    for (pairs, size, file_system) in [
        (&[("type", "qcow2")][..], 977 << 20, ext4),
        (&[("type", "qcow2"), ("capacity", "2GiB"), ("part", "1"), ("uuid", "x")], 2 << 30, ext4),
        (&[("type", "qcow2"), ("capacity", "300M"), (FS_TYPE, "xfs")], 300 << 20, Some(FileSystem::Xfs)),
        (&[("type", "qcow2"), ("capacity", "16M"), (FS_TYPE, "none")], 16 << 20, None),
        (&[("type", "qcow2"), ("capacity", ""), (FS_TYPE, ""), ("kubernetes.io/readwrite", "rw")], 977 << 20, ext4),
    ] {
        assert_eq!(parse(pairs), Ok(FlexVolume::Qcow2 { size, file_system }), "{pairs:?}");
    }
}

#[test]
fn a_device_is_named_and_the_first_partition_meant_unless_another_is() {
    let raw = |partition| {
        let on = Some(OnDisk { partition, file_system: FileSystem::Ext4 });
        Ok(FlexVolume::Raw { path: "/dev/loop0".into(), on })
    };
    assert_eq!(parse(&[("type", "raw"), ("path", "/dev/loop0")]), raw(1));
    assert_eq!(parse(&[("type", "raw"), ("path", "/dev/loop0"), ("part", "0")]), raw(0));
    assert_eq!(parse(&[("type", "raw"), ("path", "/dev/loop0"), ("part", "128")]), raw(128));
}

#[test]
fn an_image_has_monitors_and_a_login() {
    let key = STANDARD.decode(KEY).expect("base64");
    let FlexVolume::Ceph { monitors, login, .. } =
        parse(&ceph(&[("monitor", "10.0.0.1, [fd00::1]:3300,mon.example"), ("user", "admin"), ("secret", KEY)]))
            .expect("parses")
    else {
        panic!("an image")
    };
    let shown: Vec<_> = monitors.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.1:6789", "[fd00::1]:3300", "mon.example:6789"]);
    assert_eq!(login, Some(Login { user: "admin".into(), key: Key(key.clone()) }));
    assert!(!format!("{login:?}").contains("83"), "{login:?}");
    // By a Secret, kubelet says it in base64 once more; with the line's end that a file has.
    let of_pod: &'static str = STANDARD.encode(format!("{KEY}\n")).leak();
    let FlexVolume::Ceph { login, .. } = parse(&ceph(&[("user", "admin"), (SECRET_OF_POD, of_pod)])).expect("parses")
    else {
        panic!("an image")
    };
    assert_eq!(login.map(|login| login.key), Some(Key(key)));
    assert!(matches!(parse(&CEPH), Ok(FlexVolume::Ceph { login: None, .. })));
}

#[test]
fn what_is_no_disk_is_refused_by_name() {
    let long: &'static str = "x".repeat(200).leak();
    let many: &'static str = ["mon"; 17].join(",").leak();
    let shown = [
        refused(&[]),
        refused(&[("type", "nfs")]),
        refused(&[("type", "qcow2"), ("capacity", "many")]),
        refused(&[("type", "qcow2"), ("capacity", "1M")]),
        refused(&[("type", "qcow2"), ("capacity", "17TiB")]),
        refused(&[("type", "qcow2"), ("capacity", "20M"), (FS_TYPE, "xfs")]),
        refused(&[("type", "qcow2"), ("part", "2")]),
        refused(&[("type", "qcow2"), ("path", "/dev/loop0")]),
        refused(&[("type", "qcow2"), ("size", "1G")]),
        refused(&[("type", "qcow2"), (FS_TYPE, "ntfs")]),
        refused(&[("type", "raw")]),
        refused(&[("type", "raw"), ("path", "/etc/shadow")]),
        refused(&[("type", "raw"), ("path", "/dev/../etc/shadow")]),
        refused(&[("type", "raw"), ("path", "/dev")]),
        refused(&[("type", "raw"), ("path", "/dev/x\ny")]),
        refused(&[("type", "raw"), ("path", "/dev/loop0"), ("part", "129")]),
        refused(&[("type", "raw"), ("path", "/dev/loop0"), ("part", "+1")]),
        refused(&ceph(&[("monitor", "")])),
        refused(&ceph(&[("monitor", "10.0.0.1,")])),
        refused(&ceph(&[("monitor", "fd00::1")])),
        refused(&ceph(&[("monitor", "a:1;auth_supported=none")])),
        refused(&ceph(&[("monitor", many)])),
        refused(&ceph(&[("pool", "a/b")])),
        refused(&ceph(&[("pool", "<x/>")])),
        refused(&ceph(&[("volume", "web@snap")])),
        refused(&ceph(&[("volume", "web:conf=/etc/passwd")])),
        refused(&ceph(&[("volume", long)])),
        refused(&ceph(&[("user", "admin")])),
        refused(&ceph(&[("secret", KEY)])),
        refused(&ceph(&[("user", "client.admin"), ("secret", KEY)])),
        refused(&ceph(&[("user", "a b"), ("secret", KEY)])),
        refused(&ceph(&[("user", "admin"), ("secret", "not base64!")])),
        refused(&ceph(&[("user", "admin"), (SECRET_OF_POD, "!")])),
        refused(&ceph(&[("user", "admin"), ("secret", KEY), (SECRET_OF_POD, KEY)])),
    ];
    insta::assert_snapshot!(shown.join("\n"));
    assert!(!shown.join("\n").contains("not base64!"), "a secret is shown");
}

#[test]
fn what_is_no_object_of_texts_is_refused_and_not_shown() {
    let shown = |json: &str| Chain(&options(json.as_bytes()).expect_err("refused")).to_string();
    for json in
        ["", "\"hidden\"", "{\"secret\": 5}", "{\"secret\": \"hidden\"", "[\"hidden\"]", "{\"a\": {\"b\": \"hidden\"}}"]
    {
        let said = shown(json);
        assert!(
            said.starts_with("the options are no JSON object of texts (line ") && !said.contains("hidden"),
            "{said}"
        );
    }
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_BYTES));
    assert_eq!(shown(&long), "the options are longer than 64 KiB");
}

#[test]
fn a_volume_is_known_by_where_kubelet_has_it() {
    let of = |path: &str| {
        let mount = Mount { host_path: path.into(), ..Mount::default() };
        name_of(&mount, "u").map(str::to_owned)
    };
    assert_eq!(of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/data"), Some("data".into()));
    assert_eq!(of("/var/lib/kubelet/pods/w/volumes/virtlet~flexvolume_driver/data"), None);
    assert_eq!(of("/var/lib/kubelet/pods/u/volumes/other~driver/data"), None);
    assert_eq!(of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/data/x"), None);
    assert_eq!(of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/.."), None);
}
