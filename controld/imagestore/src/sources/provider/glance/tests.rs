use proptest::prelude::*;
use serde_json::{Value, json};
use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::inspect::DiskFormat;

use super::keystone::{Domain, Who};
use super::*;
use crate::sources::provider::{Covers, Revision};

const ID: &str = "71c675ab-d94f-49cd-a114-e12490b328d9";

/// A record as Glance 33 writes it, with something else in it.
fn record(change: &Value) -> Record {
    let mut record = json!({
        "id": ID, "name": "cirros", "status": "active", "disk_format": "qcow2", "container_format": "bare",
        "size": 3, "virtual_size": null, "checksum": "c".repeat(32),
        "os_hash_algo": "sha512", "os_hash_value": "a".repeat(128), "os_hidden": false, "visibility": "shared",
        "protected": false, "min_disk": 2, "min_ram": 64, "owner": "o", "tags": ["a", "b"],
        "created_at": "2026-11-21T13:00:00Z", "updated_at": "2026-11-21T13:00:01Z",
        "self": "/v2/images/x", "file": "/v2/images/x/file", "schema": "/v2/schemas/image"
    });
    for (key, value) in change.as_object().expect("an object") {
        record[key] = value.clone();
    }
    Record::parse(record.to_string().as_bytes()).expect("a record")
}

#[test]
fn only_an_active_bare_disk_of_a_known_format_with_a_known_hash_counts() {
    for (name, format) in [
        ("qcow2", Declared::Kept(DiskFormat::Qcow2)),
        ("raw", Declared::Kept(DiskFormat::Raw)),
        ("vmdk", Declared::Foreign(ForeignFormat::Vmdk)),
        ("vhd", Declared::Foreign(ForeignFormat::Vhd)),
        ("vhdx", Declared::Foreign(ForeignFormat::Vhdx)),
        ("vdi", Declared::Foreign(ForeignFormat::Vdi)),
    ] {
        let record = record(&json!({ "disk_format": name }));
        assert_eq!(record.checked().expect("sound"), format);
        assert_eq!(record.metadata("corp").format, Some(format));
    }
    for (change, why) in [
        // A rejected upload: has its hashes, and a file that answers 200 with nothing.
        (json!({ "status": "queued", "size": null }), "is `queued`"),
        (json!({ "status": "deactivated" }), "is `deactivated`"),
        (json!({ "status": "killed" }), "is `killed`"),
        (json!({ "status": "Active" }), "is `Active`"),
        (json!({ "status": "" }), "is ``"),
        (json!({ "container_format": "ova" }), "container format `ova`"),
        (json!({ "container_format": "docker" }), "container format `docker`"),
        (json!({ "container_format": "compressed" }), "container format `compressed`"),
        (json!({ "container_format": null }), "container format `none`"),
        (json!({ "disk_format": "vmdk", "container_format": "ova" }), "container format `ova`"),
        (json!({ "disk_format": "VMDK" }), "disk format `VMDK`"),
        (json!({ "disk_format": "aki" }), "disk format `aki`"),
        (json!({ "disk_format": "ari" }), "disk format `ari`"),
        (json!({ "disk_format": "ploop" }), "disk format `ploop`"),
        (json!({ "disk_format": "ami", "container_format": "bare" }), "disk format `ami`"),
        (json!({ "disk_format": "iso" }), "disk format `iso`"),
        (json!({ "disk_format": null }), "disk format `none`"),
    ] {
        let error = record(&change).checked().expect_err("refused").to_string();
        assert!(error.contains(why), "{change}: {error}");
    }
}

#[test]
fn the_hash_is_the_one_that_glance_was_told_to_make() {
    let promise = |change: Value| {
        let made = record(&change).promise();
        made.map(|promise| (promise.hash.to_string(), promise.covers)).map_err(|error| error.to_string())
    };
    let a = |count| "a".repeat(count);
    assert_eq!(promise(json!({})), Ok((format!("sha512:{}", a(128)), Covers::Hosted)));
    let change = json!({ "os_hash_algo": "sha256", "os_hash_value": a(64) });
    assert_eq!(promise(change), Ok((format!("sha256:{}", a(64)), Covers::Hosted)));
    let none = json!({ "os_hash_algo": null, "os_hash_value": null });
    assert_eq!(promise(none), Ok((format!("md5:{}", "c".repeat(32)), Covers::Hosted)));
    for (change, why) in [
        (json!({ "os_hash_algo": "blake2b" }), "unknown algorithm `blake2b`"),
        // It is not the checksum's turn because the better one cannot be checked.
        (json!({ "os_hash_algo": "sha3_512", "os_hash_value": a(128) }), "unknown algorithm `sha3_512`"),
        (json!({ "os_hash_value": null }), "no hash"),
        (json!({ "os_hash_algo": null }), "no hash"),
        (json!({ "os_hash_algo": null, "os_hash_value": null, "checksum": null }), "no hash"),
        (json!({ "os_hash_value": a(127) }), "broken hash"),
        (json!({ "os_hash_algo": null, "os_hash_value": null, "checksum": "" }), "broken hash"),
    ] {
        let error = promise(change.clone()).expect_err("refused");
        assert!(error.contains(why), "{change}: {error}");
    }
}

#[test]
fn a_record_is_found_by_its_own_hashes() {
    let found = record(&json!({}));
    let hash = |text: String| text.parse::<ImageHash>().expect("a hash");
    assert!(found.has(&hash(format!("sha512:{}", "a".repeat(128)))));
    assert!(found.has(&hash(format!("md5:{}", "c".repeat(32)))));
    assert!(!found.has(&hash(format!("sha512:{}", "b".repeat(128)))));
    assert!(!found.has(&hash(format!("sha256:{}", "a".repeat(64)))));
}

#[test]
fn what_a_record_tells_is_told_in_our_words() {
    let told = record(&json!({
        "architecture": "aarch64", "os_type": "Linux", "os_distro": "ubuntu", "os_version": "24.04",
        "virtual_size": 117_440_512, "hw_machine_type": "virt", "os_hidden": true, "locations": []
    }))
    .metadata("corp");
    assert_eq!((told.name.as_str(), told.aliases), ("cirros", vec![ID.to_owned()]));
    assert_eq!(told.platform, Platform::linux("arm64"));
    assert_eq!((told.artifact_size, told.virtual_size), (Some(3), Some(117_440_512)));
    assert_eq!((told.min_disk, told.min_ram), (Some(2 << 30), Some(64 << 20)));
    assert_eq!(told.created, Some(1_795_266_000));
    assert_eq!(told.revision, Some(Revision::Serial("2026-11-21T13:00:01Z".into())));
    assert!(told.hidden);
    assert_eq!((told.distro.as_deref(), told.provider.as_str()), (Some("ubuntu"), "corp"));
    let extra = |key: &str| told.extra.get(key).map(String::as_str);
    assert_eq!(extra("hw_machine_type"), Some("virt"));
    assert_eq!((extra("tags"), extra("owner"), extra("protected")), (Some("a,b"), Some("o"), Some("false")));
    assert_eq!((extra("locations"), extra("os_version")), (None, Some("24.04")));
}

#[test]
fn a_record_fits_a_platform_that_it_does_not_deny() {
    for (change, wanted, fits) in [
        (json!({}), "amd64", true),
        (json!({ "architecture": "x86_64" }), "amd64", true),
        (json!({ "architecture": "aarch64" }), "amd64", false),
        (json!({ "architecture": "aarch64" }), "arm64", true),
        (json!({ "architecture": "x86_64", "os_type": "windows" }), "amd64", false),
        (json!({ "os_type": "windows" }), "amd64", false),
        (json!({ "os_type": "linux" }), "amd64", true),
    ] {
        assert_eq!(record(&change).fits(&Platform::linux(wanted)), fits, "{change}");
    }
}

#[test]
fn ids_that_do_not_belong_into_a_url_are_refused() {
    for id in ["", "..", "71c675ab-d94f-49cd-a114-e12490b328d9/..", "71c675abd94f49cda114e12490b328d9", &"x".repeat(36)]
    {
        assert!(!record::is_id(id), "{id}");
        let text = json!({ "id": id, "status": "active" }).to_string();
        assert!(Record::parse(text.as_bytes()).is_err(), "{id}");
        assert!(Page::parse(format!(r#"{{"images": [{text}]}}"#).as_bytes()).is_err(), "{id}");
    }
    assert!(record::is_id(ID));
}

#[test]
fn the_next_page_is_of_the_same_list() {
    let url = Url::parse("https://host:9292/image/v2/images?limit=2").expect("a URL");
    let next = |next: Value| {
        let page = Page::parse(json!({ "images": [], "next": next }).to_string().as_bytes()).expect("a page");
        page.next(&url).map(|url| url.map(String::from)).map_err(|error| error.to_string())
    };
    let same = "https://host:9292/image/v2/images?marker=x&limit=2";
    assert_eq!(next(Value::Null), Ok(None));
    // Glance does not know of what stands before its path.
    assert_eq!(next(json!("/v2/images?marker=x&limit=2")), Ok(Some(same.into())));
    assert_eq!(next(json!(same)), Ok(Some(same.into())));
    for elsewhere in [
        "https://elsewhere:9292/v2/images?marker=x",
        "//elsewhere/v2/images?marker=x",
        "http://host:9292/v2/images?marker=x",
        "https://host/v2/images?marker=x",
        "/v3/auth/tokens?marker=x",
        "/v2/images",
        "http://[",
    ] {
        assert!(next(json!(elsewhere)).expect_err(elsewhere).contains("not of the same list"), "{elsewhere}");
    }
}

#[test]
fn an_endpoint_may_end_in_its_version() {
    for (endpoint, images) in [
        ("https://host:9292", "https://host:9292/v2/images"),
        ("https://host:9292/", "https://host:9292/v2/images"),
        ("https://host:9292/v2", "https://host:9292/v2/images"),
        ("https://host:9292/v2/", "https://host:9292/v2/images"),
        ("https://host/image", "https://host/image/v2/images"),
        ("https://host/image/v2/?x#y", "https://host/image/v2/images"),
    ] {
        let endpoint = Url::parse(endpoint).expect("a URL");
        assert_eq!(record::images(&endpoint).as_str(), images);
        assert_eq!(data(&endpoint, ID).as_str(), format!("{images}/{ID}/file"));
    }
    for (auth_url, tokens) in [
        ("https://ks:5000", "https://ks:5000/v3/auth/tokens"),
        ("https://ks:5000/v3/", "https://ks:5000/v3/auth/tokens"),
        ("https://host/identity/v3", "https://host/identity/v3/auth/tokens"),
    ] {
        assert_eq!(keystone::tokens(&Url::parse(auth_url).expect("a URL")).as_str(), tokens);
    }
}

#[test]
fn a_name_is_never_an_operator() {
    let exactly = |name: &str| record::exactly(name);
    assert_eq!(exactly("cirros \"x\"").as_deref(), Some("cirros \"x\""));
    assert_eq!(exactly("in:cirros,other").as_deref(), Some("in:\"in:cirros,other\""));
    assert_eq!(exactly("gt:1").as_deref(), Some("in:\"gt:1\""));
    // All images are asked for then.
    assert_eq!(exactly("in:\"cirros\""), None);
}

#[test]
fn a_rules_url_names_an_image() {
    for (path, name) in [
        ("/cirros", "cirros"),
        ("/team/cirros%200.6", "team/cirros 0.6"),
        (&format!("/v2/images/{ID}"), ID),
        (&format!("/v2/images/{ID}/file"), ID),
        (&format!("/image/v2/images/{ID}/file"), ID),
        ("/some/file", "some/file"),
    ] {
        assert_eq!(named(path), name);
    }
}

#[test]
fn what_keystone_is_asked_is_what_its_api_wants() {
    let body = |who: &Who, secret: &str| keystone::ask(who, secret).map(|body| String::from_utf8(body).expect("text"));
    let user = Who::User {
        name: "u".into(),
        domain: Domain::Id("default".into()),
        project: "p".into(),
        project_domain: Domain::Name("Corp".into()),
    };
    let text = body(&user, "s\"3").expect("a body");
    assert_eq!(
        serde_json::from_str::<Value>(&text).expect("JSON"),
        json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": {
                "name": "u", "domain": { "id": "default" }, "password": "s\"3" } } },
            "scope": { "project": { "name": "p", "domain": { "name": "Corp" } } }
        } })
    );
    let text = body(&Who::Application, r#"{"id": "i", "secret": "s"}"#).expect("a body");
    assert_eq!(
        serde_json::from_str::<Value>(&text).expect("JSON"),
        json!({ "auth": { "identity": {
            "methods": ["application_credential"], "application_credential": { "id": "i", "secret": "s" }
        } } })
    );
    for secret in
        ["hunter2", r#"{"id": "hunter2"}"#, r#"{"id": 1, "secret": "hunter2"}"#, r#"["hunter2"]"#, r#"{"hunter2": 1}"#]
    {
        let error = keystone::ask(&Who::Application, secret).expect_err("refused");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("credential file") && !shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn the_catalog_says_where_glance_is() {
    let endpoint = |interface: &str, region: &str, url: &str| json!({ "interface": interface, "region": region, "region_id": region, "url": url });
    let body = json!({ "token": { "expires_at": "2026-11-21T14:00:00.000000Z", "catalog": [
        { "type": "identity", "endpoints": [endpoint("public", "R1", "https://ks/v3")] },
        { "type": "image", "name": "glance", "endpoints": [
            endpoint("internal", "R1", "https://internal/"),
            endpoint("public", "R1", "https://one:9292"),
            endpoint("public", "R2", "https://two/image/v2"),
            endpoint("admin", "R3", "http://plain/"),
            endpoint("public", "R4", "file:///etc"),
            { "interface": "public", "region": "Old", "url": "https://old/" },
        ] },
    ] } });
    let grant = Grant::parse(body.to_string().as_bytes()).expect("a grant");
    assert_eq!(grant.expires, Some(1_795_269_600));
    let auth = Url::parse("https://ks/v3").expect("a URL");
    let at =
        |interface, region| grant.images(interface, region, &auth).map(String::from).map_err(|error| error.to_string());
    assert_eq!(at("public", None).as_deref(), Ok("https://one:9292/"));
    assert_eq!(at("public", Some("R2")).as_deref(), Ok("https://two/image/v2"));
    assert_eq!(at("internal", Some("R1")).as_deref(), Ok("https://internal/"));
    assert_eq!(at("public", Some("Old")).as_deref(), Ok("https://old/"));
    assert!(at("admin", None).expect_err("refused").contains("plain http"));
    assert!(at("public", Some("R4")).expect_err("refused").contains("no http or https"));
    let nowhere = at("internal", Some("R9")).expect_err("refused");
    assert!(nowhere.contains("`internal` in region `R9`; it has `internal` in region `R1`, `public`"), "{nowhere}");
    let empty = Grant::parse(br#"{"token": {}}"#).expect("a grant");
    assert!(empty.images("public", None, &auth).expect_err("refused").to_string().ends_with("it has none"));
    assert_eq!(empty.expires, None);
    for junk in ["", "{}", r#"{"token": null}"#, r#"{"token": {"catalog": {}}}"#] {
        assert!(Grant::parse(junk.as_bytes()).is_err(), "{junk}");
    }
}

#[test]
fn settings_say_one_way_to_log_in() {
    let login = |settings: Value| {
        let config: GlanceConfig = serde_json::from_value(settings).expect("settings");
        Login::of(&config).map(|login| format!("{login:?}"))
    };
    let ks = "https://ks:5000/v3";
    assert!(login(json!({ "endpoint": "https://g" })).expect("open").starts_with("Open"));
    assert!(login(json!({ "endpoint": "https://g", "token_file": "/t" })).expect("a token").starts_with("Token"));
    let application = json!({ "auth_url": ks, "application_credential_file": "/ac" });
    assert!(login(application).expect("an application").contains("Application"));
    let user =
        json!({ "auth_url": ks, "username": "u", "password_file": "/p", "project": "p", "user_domain_name": "D" });
    let shown = login(user).expect("a user");
    assert!(shown.contains("Name(\"D\")") && shown.contains("Id(\"default\")"), "{shown}");
    for settings in [
        json!({}),
        json!({ "token_file": "/t" }),
        json!({ "auth_url": ks }),
        json!({ "auth_url": ks, "token_file": "/t" }),
        json!({ "auth_url": ks, "username": "u", "project": "p" }),
        json!({ "auth_url": ks, "username": "u", "password_file": "/p" }),
        json!({ "auth_url": ks, "username": "u", "password_file": "/p", "application_credential_file": "/ac" }),
        json!({ "auth_url": "ftp://ks", "application_credential_file": "/ac" }),
        json!({ "endpoint": "file:///etc" }),
        json!({ "endpoint": "https://g", "username": "u" }),
        json!({ "auth_url": ks, "username": "u", "password_file": "/p", "project": "p", "user_domain_name": "D", "user_domain_id": "d" }),
    ] {
        assert!(login(settings.clone()).is_err(), "{settings}");
    }
    assert!(serde_json::from_value::<GlanceConfig>(json!({ "endpoint": "https://g", "password": "inline" })).is_err());
}

proptest! {
    #[test]
    fn whatever_comes_is_an_answer(text in r#"[{}\[\]",:a-z0-9. ]{0,80}"#) {
        let _ = (Record::parse(text.as_bytes()), Page::parse(text.as_bytes()), Grant::parse(text.as_bytes()));
    }

    #[test]
    fn a_filter_of_a_name_is_one_pair_of_the_query(name in "\\PC{0,20}") {
        let mut url = Url::parse("http://host/v2/images").expect("a URL");
        url.query_pairs_mut().append_pair("name", &record::exactly(&name).unwrap_or_else(|| name.clone()));
        let pairs: Vec<_> = url.query_pairs().collect();
        prop_assert_eq!(pairs.len(), 1);
        prop_assert!(pairs[0].1.contains(&name));
    }

    #[test]
    fn the_newest_counts_in_any_order(mut ages in prop::collection::vec(0_u32..60, 1..6), turn in 0_usize..6) {
        let made = |second: &u32| record(&json!({ "created_at": format!("2026-11-21T13:00:{second:02}Z") }));
        let newest = ages.iter().max().copied();
        let turn = turn % ages.len();
        ages.rotate_left(turn);
        let records: Vec<_> = ages.iter().map(made).collect();
        let found = records.iter().max_by_key(|record| record.age()).and_then(|record| record.age().0);
        prop_assert_eq!(found, newest.map(|second| 1_795_266_000 + u64::from(second)));
    }
}
