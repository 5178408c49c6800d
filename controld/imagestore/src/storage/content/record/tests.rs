use super::*;

fn id() -> ImageId {
    ImageId::from_hex(&"ab".repeat(32)).expect("an id")
}

#[test]
fn an_image_of_an_earlier_release_was_converted_if_a_digest_says_so() {
    let text = r#"{"version":2,"size":1,"format":"qcow2","virtual_size":512,"verified_at":1}"#;
    let record: ImageRecord = parse(text).expect("read");
    assert!(!record.is_converted());
    let alias = Alias {
        hash: format!("sha256:{}", "ab".repeat(32)),
        covers: Cover::Unpacked,
        provider: None,
        foreign: Some(ForeignFormat::Vmdk),
    };
    assert!(ImageRecord { aliases: vec![alias], ..record.clone() }.is_converted());
    assert!(ImageRecord { converted: true, ..record }.is_converted());
}

#[test]
fn the_forms_on_disk_are_pinned() {
    let sha512 = format!("sha512:{}", "cd".repeat(64));
    let image = ImageRecord {
        version: VERSION,
        size: 1000,
        format: DiskFormat::Qcow2,
        virtual_size: 1 << 30,
        flags: vec!["zstd".into()],
        aliases: vec![
            Alias { hash: sha512.clone(), covers: Cover::Hosted, provider: None, foreign: None },
            Alias { hash: "md5:0".into(), covers: Cover::Content, provider: Some("corp".into()), foreign: None },
        ],
        parent: Some(Parent { named: "base:v1".into(), format: Some(DiskFormat::Raw), id: Some(id()) }),
        given: vec![Giver { site: "ac".repeat(32), host: Some("https://example.com".into()) }],
        converted: false,
        verified_at: 1_795_000_000,
    };
    let name = RefRecord {
        version: VERSION,
        image: "cirros:latest".into(),
        id: Some(id()),
        origin: Origin {
            source: Some("https://example.com/CirrOS.img".into()),
            by: Some("rule 1 (`cirros`) of `a.yaml`".into()),
            provider: Some("http".into()),
            place: Some("ab".repeat(32)),
            site: Some("ac".repeat(32)),
            host: Some("https://example.com".into()),
            granted: Some(vec![
                serde_json::from_str(r#"{"salt": "00ff", "to": "abcd", "at": 1795000000}"#).expect("one"),
            ]),
            etag: Some("\"x\"".into()),
            last_modified: None,
            artifact: Some(sha512),
            manifest: Some(format!("sha256:{}", "ef".repeat(32)).parse().expect("a digest")),
            platform: Some("linux/amd64".into()),
            weak: true,
            user: Some("1000".into()),
            labels: BTreeMap::from([("a".into(), "b".into())]),
        },
        pulled_at: 1_795_000_000,
    };
    let lease = LeaseRecord { version: VERSION, images: vec![id()] };
    let texts = [encode(&image), encode(&name), encode(&lease)].map(|text| String::from_utf8(text).expect("text"));
    insta::assert_snapshot!(texts.join(""));
    assert_eq!(parse::<ImageRecord>(&texts[0]), Some(image));
    assert_eq!(parse::<RefRecord>(&texts[1]), Some(name));
    assert_eq!(parse::<LeaseRecord>(&texts[2]), Some(lease));
    for version in [0, 3] {
        assert_eq!(parse::<LeaseRecord>(&texts[2].replace(": 2", &format!(": {version}"))), None);
    }
}

/// Records of version 2 as they were before it was noted to whom a source gave an image.
#[test]
fn records_without_grants_are_read() {
    let name = r#"{"version": 2, "image": "cirros:latest", "id": null, "origin": {"source": "https://example.com/x",
        "by": "rule 1 (`cirros`) of `a.yaml`", "place": "abab", "etag": "\"x\"", "last_modified": null},
        "pulled_at": 1795000000}"#;
    let read = parse::<RefRecord>(name).expect("a record");
    assert_eq!((read.origin.place.as_deref(), read.origin.site, read.origin.granted), (Some("abab"), None, None));
}

/// Records as the first version wrote them.
#[test]
fn records_of_version_1_are_read() {
    let sha512 = format!("sha512:{}", "cd".repeat(64));
    let image = format!(
        r#"{{"version": 1, "size": 1000, "format": "qcow2", "virtual_size": 1073741824,
            "aliases": ["{sha512}"], "verified_at": 1795000000}}"#
    );
    let image: ImageRecord = parse(&image).expect("read");
    assert_eq!((image.size, image.format, image.virtual_size), (1000, DiskFormat::Qcow2, 1 << 30));
    assert_eq!(image.aliases, [Alias::of_content(&sha512.parse().expect("a digest"))]);
    assert!(image.has(&sha512.parse().expect("a digest")) && image.parent.is_none());
    let name = r#"{"version": 1, "image": "cirros:latest", "source": "https://example.com/x", "by": null,
        "etag": "\"x\"", "last_modified": null, "pulled_at": 1795000000}"#;
    let name: RefRecord = parse(name).expect("read");
    assert_eq!((name.image.as_str(), name.id, name.pulled_at), ("cirros:latest", None, 1_795_000_000));
    assert_eq!(name.origin.source.as_deref(), Some("https://example.com/x"));
    assert_eq!(name.origin.platform, None);
    let lease: LeaseRecord = parse(&format!(r#"{{"version": 1, "images": ["{}"]}}"#, id())).expect("read");
    assert_eq!(lease.images, [id()]);
}

#[test]
fn weak_aliases_answer_their_provider_alone() {
    let alias = |hash: &str, covers, provider: Option<&str>| Alias {
        hash: hash.into(),
        covers,
        provider: provider.map(str::to_owned),
        foreign: None,
    };
    let strong = format!("sha256:{}", "ab".repeat(32));
    let weak = format!("md5:{}", "ab".repeat(16));
    let cases = [
        (alias(&strong, Cover::Content, None), Cover::Content, "any", true),
        (alias(&strong, Cover::Content, None), Cover::Hosted, "any", false),
        (alias(&strong, Cover::Hosted, Some("a")), Cover::Hosted, "a", true),
        (alias(&strong, Cover::Hosted, Some("a")), Cover::Hosted, "b", false),
        (alias(&weak, Cover::Content, Some("a")), Cover::Content, "a", true),
        (alias(&weak, Cover::Content, Some("a")), Cover::Content, "b", false),
        (alias(&weak, Cover::Content, None), Cover::Content, "a", false),
    ];
    for (alias, covers, provider, expected) in cases {
        let sought = |hash: &str, foreign| Sought { hash: hash.to_owned(), covers, foreign };
        assert_eq!(alias.answers(&sought(&alias.hash, None), provider), expected, "{alias:?} {provider}");
        assert!(!alias.answers(&sought("sha256:0", None), provider));
        // The same bytes as another format may be another disk.
        let (vmdk, vdi) = (Some(ForeignFormat::Vmdk), Some(ForeignFormat::Vdi));
        let converted = Alias { foreign: vmdk, ..alias.clone() };
        assert_eq!(converted.answers(&sought(&alias.hash, vmdk), provider), expected, "{alias:?} {provider}");
        for (alias, foreign) in [(&alias, vmdk), (&converted, None), (&converted, vdi)] {
            assert!(!alias.answers(&sought(&alias.hash, foreign), provider));
        }
    }
}
