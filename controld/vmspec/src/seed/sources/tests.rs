use std::collections::BTreeMap;

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIGY8yBGq0dNL3ZpV7c6vXTXQYV0sHSFdp7JzTQkzDq5";

fn volume(files: &[(&str, &[u8])]) -> Volume {
    let file = |bytes: &[u8]| VolumeFile { bytes: bytes.to_owned(), mode: 0o640 };
    Volume(files.iter().map(|(name, bytes)| ((*name).to_owned(), file(bytes))).collect())
}

fn sources(files: &[(&str, &[u8])]) -> Sources {
    Sources { named: [(Source::Volume("v".into()), volume(files))].into(), copies: Vec::new() }
}

fn annotations(pairs: &[(&str, &str)]) -> PodAnnotations {
    let all: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    PodAnnotations::parse(&all).expect("right annotations")
}

const SOURCE: (&str, &str) = ("VirtletCloudInitUserDataSource", "volume/v");
const BASE64: (&str, &str) = ("VirtletCloudInitUserDataSourceEncoding", "base64");
const OVERWRITE: (&str, &str) = ("VirtletCloudInitUserDataOverwrite", "true");

const fn key(name: &str) -> (&str, &str) {
    ("VirtletCloudInitUserDataSourceKey", name)
}

const fn own(text: &str) -> (&str, &str) {
    ("VirtletCloudInitUserData", text)
}

fn user_data(files: &[(&str, &[u8])], pairs: &[(&str, &str)]) -> Result<String, Reason> {
    let data = sources(files).user_data(&annotations(pairs))?.expect("user-data");
    Ok(String::from_utf8(data.for_cloud_init().into_owned()).expect("text"))
}

#[test]
fn user_data_of_a_source() {
    let map: &[(&str, &[u8])] = &[("packages", b"[nginx]"), ("runcmd", b"- [ls, yes]\n"), ("timezone", b"UTC\n")];
    let raw: &[(&str, &[u8])] = &[("u", b"#cloud-config\nx: 1 # mine\n"), ("s", b"#!/bin/sh\n")];
    for (files, pairs, expected) in [
        (
            map,
            &[SOURCE][..],
            "#cloud-config\n{\"packages\":[\"nginx\"],\"runcmd\":[[\"ls\",true]],\"timezone\":\"UTC\"}\n",
        ),
        (
            map,
            &[SOURCE, own("packages: [vim]\ntimezone: CET")],
            "#cloud-config\n{\"packages\":[\"nginx\",\"vim\"],\"runcmd\":[[\"ls\",true]],\"timezone\":\"CET\"}\n",
        ),
        (map, &[SOURCE, own("packages: [vim]"), OVERWRITE], "#cloud-config\npackages: [vim]"),
        (map, &[SOURCE, OVERWRITE, ("VirtletCloudInitUserDataScript", "#!/bin/sh")], "#!/bin/sh"),
        (raw, &[SOURCE, key("u")], "#cloud-config\nx: 1 # mine\n"),
        (raw, &[SOURCE, key("s")], "#!/bin/sh\n"),
        (raw, &[SOURCE, key("u"), own("y: 2")], "#cloud-config\n{\"x\":1,\"y\":2}\n"),
        (&[("k", b"\x49yEvYmlu\nL3NoCg==\n")], &[SOURCE, key("k"), BASE64], "#!/bin/sh\n"),
        (&[("k", b"WzFd")], &[SOURCE, BASE64], "#cloud-config\n{\"k\":[1]}\n"),
        (&[], &[SOURCE], "#cloud-config\n"),
    ] {
        assert_eq!(user_data(files, pairs).as_deref(), Ok(expected), "{pairs:?}");
    }
    let gzip = sources(&[("k", b"\x1f\x8b\x08\0")]).user_data(&annotations(&[SOURCE, key("k")])).expect("user-data");
    assert_eq!(gzip.expect("user-data").as_written(), b"\x1f\x8b\x08\0");
    assert_eq!(Sources::default().user_data(&annotations(&[])), Ok(None));
}

#[test]
fn what_is_wrong_with_a_source_is_told_and_its_content_is_not() {
    let large = vec![b'#'; MAX_USER_DATA + 1];
    let many: Vec<String> = (10..40).map(|n| format!("k{n}")).collect();
    let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b"secret"[..])).collect();
    let script = ("VirtletCloudInitUserDataScript", "#!/bin/sh secret");
    let mut lines = Vec::new();
    for (files, pairs) in [
        (&[("a", &b"secret"[..]), ("b", b"secret")][..], &[SOURCE, key("k")][..]),
        (&[], &[SOURCE, key("k")]),
        (&many, &[SOURCE, key("k\n\x1b")]),
        (&[("a", b"secret: [1")], &[SOURCE]),
        (&[("a", b"x: 1\nsecret: *b")], &[SOURCE]),
        (&[("a", b"secret\0")], &[SOURCE]),
        (&[("a", b"\xff\xfe")], &[SOURCE]),
        (&[("a", b"#cloud-config\nsecret\n")], &[SOURCE, key("a")]),
        (&[("a", b"secret")], &[SOURCE, key("a")]),
        (&[("a", b"#!/bin/sh \0")], &[SOURCE, key("a")]),
        (&[("a", b"secret!")], &[SOURCE, key("a"), BASE64]),
        (&[("a", b"secret!")], &[SOURCE, BASE64]),
        (&[("a", b"#!/bin/sh secret")], &[SOURCE, key("a"), own("x: secret")]),
        (&[("a", b"x: secret")], &[SOURCE, script]),
        (&[("a", &large)], &[SOURCE, key("a")]),
    ] {
        let line = user_data(files, pairs).expect_err("refused").to_string();
        assert!(!line.contains("secret") && !line.contains(char::is_control), "{line:?}");
        lines.push(line);
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn keys_are_no_more_together_than_user_data_may_be() {
    let aliases = |count: usize| format!("x: &x {}\nall: [{}]\n", "a".repeat(4 << 10), vec!["*x"; count].join(", "));
    let refusal = |text: &str, keys: usize| {
        let names: Vec<String> = (0..keys).map(|n| format!("k{n}")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), text.as_bytes())).collect();
        user_data(&files, &[SOURCE]).expect_err("refused").to_string()
    };
    assert!(refusal(&aliases(10_000), 1).contains("not valid YAML"));
    let many = refusal(&"a".repeat(300 << 10), 10);
    assert!(many.contains("limit 2 MiB"), "{many}");
}

#[test]
fn keys_of_a_source_come_first_and_none_twice() {
    let all = |files: &[(&str, &[u8])], pairs: &[(&str, &str)]| {
        let keys = sources(files).ssh_keys(&annotations(pairs))?;
        Ok::<_, Reason>(keys.iter().map(|key| key.as_str().rsplit(' ').next().unwrap_or_default().to_owned()).collect())
    };
    let of = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>());
    let text = format!("# mine\n{KEY} a\n\n{KEY} b\n");
    let file: &[(&str, &[u8])] = &[("authorized_keys", text.as_bytes())];
    let own = format!("{KEY} b\n{KEY} c");
    let source = ("VirtletSSHKeySource", "volume/v");
    assert_eq!(all(file, &[source]), of(&["a", "b"]));
    assert_eq!(all(file, &[source, ("VirtletSSHKeys", &own)]), of(&["a", "b", "c"]));
    assert_eq!(all(file, &[source, ("VirtletSSHKeys", &own), OVERWRITE]), of(&["b", "c"]));
    assert_eq!(all(file, &[source, OVERWRITE]), of(&["a", "b"]));
    assert_eq!(all(&[("k", text.as_bytes())], &[("VirtletSSHKeySource", "volume/v/k")]), of(&["a", "b"]));
    let refusal = |files: &[(&str, &[u8])]| all(files, &[source]).expect_err("refused").to_string();
    assert_eq!(
        refusal(&[("authorized_keys", b"x\nsecret")]),
        "annotation VirtletSSHKeySource: key \"authorized_keys\" of volume/v: line 1 is not an OpenSSH public key"
    );
    assert!(refusal(&[("k", b"")]).ends_with("key \"authorized_keys\" not in volume/v; it has k"));
}

#[test]
fn files_of_a_source_are_where_it_says() {
    let of = |files: &[(&str, &[u8])]| {
        let files = sources(files).files(&annotations(&[("VirtletFilesFromDataSource", "volume/v")]))?;
        let entry =
            |file: &GuestFile| format!("{} {:o} {}", file.path, file.mode, String::from_utf8_lossy(&file.bytes));
        Ok::<_, Reason>(files.iter().map(entry).collect::<Vec<_>>())
    };
    let files: &[(&str, &[u8])] = &[
        ("a", b"aGVsbG8="),
        ("a_path", b"/etc/a b\n"),
        ("b", b"plain text"),
        ("b_path", b"/srv/b"),
        ("b_encoding", b"plain\n"),
        ("c_path", b"aGVsbG8="),
        ("c_path_path", b"/c"),
    ];
    assert_eq!(of(files), Ok(vec!["/etc/a b 644 hello".into(), "/srv/b 644 plain text".into(), "/c 644 hello".into()]));
    let large = vec![b'A'; MAX_FILE / 3 * 4 + 8];
    let mut lines = Vec::new();
    for files in [
        &[("a", &b"secret"[..])][..],
        &[("a_path", b"/x")],
        &[("a", b"aGVsbG8="), ("a_path", b"secret/x")],
        &[("a", b"aGVsbG8="), ("a_path", b"/a/../x")],
        &[("a", b"aGVsbG8="), ("a_path", b"/x/")],
        &[("a", b"aGVsbG8="), ("a_path", b"")],
        &[("a", b"aGVsbG8="), ("a_path", b"/x\0")],
        &[("a", b"aGVsbG8="), ("a_path", b"/\xff")],
        &[("a", b"no base64!"), ("a_path", b"/x")],
        &[("a", b"aGVsbG8="), ("a_path", b"/x"), ("a_encoding", b"gzip")],
        &[("a", &large), ("a_path", b"/x")],
    ] {
        lines.push(of(files).expect_err("refused").to_string());
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn copies_have_the_modes_of_what_they_are_copies_of() {
    let copies = vec![("/etc/app/".to_owned(), volume(&[("k", b"\0\xff"), ("d/k", b"x")]))];
    let sources = Sources { copies, ..Sources::default() };
    let files = sources.files(&PodAnnotations::default()).expect("files");
    let entries: Vec<String> = files.iter().map(|file| file.to_entry().to_string()).collect();
    insta::assert_snapshot!(entries.join("\n"), @r#"
    {"content":"eA==","encoding":"b64","path":"/etc/app/d/k","permissions":"0640"}
    {"content":"AP8=","encoding":"b64","path":"/etc/app/k","permissions":"0640"}
    "#);
    assert_eq!(format!("{sources:?}"), r#"Sources { named: {}, copies: [("/etc/app/", {"d/k": 1, "k": 2})] }"#);
}
