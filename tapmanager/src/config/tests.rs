use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("t.toml"))
}

fn refusal(text: &str) -> String {
    parse(text).expect_err("refused").to_string()
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(parse("").expect("defaults"), Config::default());
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    let mut config = Config::default();
    (config.qemu_uid, config.qemu_gid) = (Some(64055), Some(993));
    for config in [Config::default(), config] {
        let text = toml::to_string(&config).expect("prints");
        assert_eq!(parse(&text).expect("reads back"), config);
    }
    insta::assert_snapshot!(toml::to_string(&Config::default()).expect("prints"));
}

#[test]
fn every_key_takes_effect() {
    let config = parse(
        r#"
        state_dir = "/s"
        run_dir = "/r"
        netns_dir = "/n"
        cni_conf_dir = "/c"
        cni_plugin_dirs = ["/p", "/q"]
        cni_deadline_s = 1
        plugins_at_once = 1024
        arm_ttl_s = 3600
        vmwrapper = "/w"
        dhcp_lease_s = 4294967294
        data_path = "bridge"
        anti_spoof = false
        max_queues = 7
        netns_pool = 64
        vhost = "off"
        multus_dir = "/m"
        cni_cache_dir = "/k"
        cni_gc = true
        collect_every_s = 0
        detach_retry_s = 1
        detach_give_up_s = 86400
        qemu_uid = 1
        qemu_gid = 2
        seccomp = false
        log_format = "json"
        log_level = "trace"
        "#,
    )
    .expect("valid");
    assert_eq!(
        config,
        Config {
            state_dir: "/s".into(),
            run_dir: "/r".into(),
            netns_dir: "/n".into(),
            cni_conf_dir: "/c".into(),
            cni_plugin_dirs: vec!["/p".into(), "/q".into()],
            cni_deadline: Duration::from_secs(1),
            plugins_at_once: Some(1024),
            arm_ttl: Duration::from_secs(3600),
            vmwrapper: "/w".into(),
            dhcp_lease: Duration::from_secs(4_294_967_294),
            data_path: DataPath::Bridge,
            anti_spoof: false,
            max_queues: 7,
            netns_pool: 64,
            vhost: Vhost::Off,
            multus_dir: "/m".into(),
            cni_cache_dir: "/k".into(),
            cni_gc: true,
            collect_every: Duration::ZERO,
            detach_retry: Duration::from_secs(1),
            detach_give_up: Duration::from_secs(86400),
            qemu_uid: Some(1),
            qemu_gid: Some(2),
            seccomp: false,
            log_format: LogFormat::Json,
            log_level: LogLevel::Trace,
        }
    );
    assert_eq!(config.qemu_user(), Some(QemuUser { uid: 1, gid: 2 }));
    assert_eq!(config.control_socket(), Path::new("/r/control.sock"));
}

#[test]
fn refusals_name_the_key_and_the_line() {
    let long = format!("run_dir = \"/{}\"", "x".repeat(100));
    let bad = [
        "state_dir = \"/s\"\nstate_dri = \"/s\"",
        "state_dir = \"s\"",
        "vmwrapper = \"\"",
        "cni_plugin_dirs = [\"/a\", \"b\"]",
        "cni_plugin_dirs = []",
        "cni_plugin_dirs = \"/a\"",
        "\ncni_deadline_s = -1",
        "cni_deadline_s = 0",
        "cni_deadline_s = 3601",
        "cni_deadline_s = \"1m\"",
        "plugins_at_once = 0",
        "plugins_at_once = 1025",
        "arm_ttl_s = 1.5",
        "dhcp_lease_s = 4294967295",
        "data_path = \"ovs\"",
        "data_path = \"ebpf\"",
        "max_queues = 0",
        "max_queues = 9",
        "netns_pool = 65",
        "vhost = true",
        "multus_dir = \"m\"",
        "collect_every_s = 86401",
        "detach_retry_s = 0",
        "detach_give_up_s = 0",
        "qemu_uid = 1",
        "qemu_gid = 1",
        "qemu_uid = 4294967296",
        "log_format = \"xml\"",
        "log_level = \"loud\"",
        "[section]",
        "log_level",
        &long,
    ];
    let refusals: Vec<String> = bad.iter().map(|text| refusal(text)).collect();
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn only_a_named_file_has_to_exist() {
    let dir = tempfile::tempdir().expect("tempdir");
    let missing = dir.path().join("none.toml");
    let error = Config::load(Some(&missing)).expect_err("missing");
    assert!(matches!(&error, ConfigError::Read { path, .. } if *path == missing));
    std::fs::write(&missing, "log_level = \"warn\"").expect("write");
    assert_eq!(Config::load(Some(&missing)).expect("loads").log_level, LogLevel::Warn);
}

#[test]
fn the_document_has_every_key_with_its_default() {
    let document = include_str!("../../../docs/configuration.md");
    let (_, document) = document.split_once("\n## tapmanager").expect("a chapter");
    let rows: Vec<(&str, &str)> = document.lines().filter_map(documented).collect();
    let defaults = toml::Table::try_from(Config::default()).expect("a table");
    for (key, default) in &defaults {
        let (_, said) =
            rows.iter().find(|(keys, _)| names(keys, key)).unwrap_or_else(|| panic!("`{key}` is not in it"));
        let said = said.trim_matches('`');
        assert!(said == default.to_string() || default.as_str() == Some(said), "`{key}` is {default}, not {said}");
    }
    for key in rows.iter().flat_map(|(keys, _)| keys.split(", ")) {
        let bare = key.trim_matches('`');
        // These have no default.
        assert!(
            defaults.contains_key(bare) || ["qemu_uid", "qemu_gid", "plugins_at_once"].contains(&bare),
            "there is no key {key}"
        );
    }
}

fn names(keys: &str, key: &str) -> bool {
    keys.split(", ").any(|one| one.trim_matches('`') == key)
}

/// Keys and default of a table's row.
fn documented(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix("| `").map(|_| line.split('|').skip(1).map(str::trim))?;
    Some((cells.next()?, cells.next()?))
}
