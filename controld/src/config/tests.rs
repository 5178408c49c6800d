use super::*;

#[test]
fn an_empty_file_is_all_defaults_and_valid() {
    let config = Config::parse("").expect("parses").checked().expect("valid");
    assert_eq!(config, Config::default());
    assert_eq!(config.cri_socket(), Path::new("/run/virtlet/cri.sock"));
    assert_eq!(config.images_dir(), Path::new("/var/lib/virtlet/images"));
}

#[test]
fn unknown_keys_and_wrong_types_are_named() {
    for (text, wanted) in [
        ("run_dri = '/x'", "run_dri"),
        ("[machine]\nacel = 'kvm'", "acel"),
        ("[machine]\naccel = 'xen'", "xen"),
        ("[machine]\ndefault_vcpus = -1", "default_vcpus"),
        ("[images]\nprotocol = 'ftp'", "ftp"),
        ("[streaming]\naddress = 'localhost'", "address"),
        ("[metrics]\naddress = ':9500'", "address"),
        ("[tracing]\nendpoint = 'https://collector:4317'", "without TLS"),
        ("[proxy]\nruntime_endpoint = '/run/x.sock'", "write unix:// and an absolute path"),
        ("[proxy]\nruntime_endpoint = 'unix://x.sock'", "write unix:// and an absolute path"),
        ("[proxy]\nruntime_endpoint = 'tcp://127.0.0.1:1'", "write unix:// and an absolute path"),
        ("run_dir = 1", "run_dir"),
    ] {
        let error = Config::parse(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn values_out_of_range_are_named() {
    for (text, key) in [
        ("run_dir = 'run'", "run_dir"),
        ("tap_deadline_s = 0", "tap_deadline_s"),
        ("shutdown_deadline_s = 0", "shutdown_deadline_s"),
        ("libvirt_uri = 'qemu+tcp://user:PW@host/system'", "libvirt_uri"),
        ("[machine]\ndefault_vcpus = 256", "machine.default_vcpus"),
        ("[machine]\ndefault_memory_mib = 32", "machine.default_memory_mib"),
        ("[machine]\nmax_disk_gib = 0", "machine.max_disk_gib"),
        ("[machine]\nstart_deadline_s = 3601", "machine.start_deadline_s"),
        ("[streaming]\ncertificate = '/a'", "streaming.key"),
        ("[streaming]\nkey = '/a'", "streaming.certificate"),
        ("[streaming]\nkey = '/a'\ncertificate = 'b'", "streaming.certificate"),
        ("[images]\npinned = ['No Name']", "images.pinned"),
        ("[images]\nlocal_roots = ['x']", "images.local_roots"),
        ("[images]\nvirt_builder_repos = ['repos.d']", "images.virt_builder_repos"),
        ("[images]\nstrip_prefixes = ['/']", "images.strip_prefixes"),
        ("[tracing]\nsampling_rate_per_million = 1000001", "tracing.sampling_rate_per_million"),
        ("[proxy]\nruntime_endpoint = 'unix:///run/virtlet/cri.sock'", "proxy.runtime_endpoint"),
        ("[proxy]\ntarget_runtimes = ['']", "proxy.target_runtimes"),
        ("[proxy]\nimage_prefixes = ['/']", "proxy.image_prefixes"),
        ("[proxy]\nimage_prefixes = ['virtlet.cloud']", "proxy.image_prefixes"),
        ("[proxy]\nlist_deadline_s = 0", "proxy.list_deadline_s"),
    ] {
        let error = Config::parse(text).expect("parses").checked().expect_err(text);
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn calls_are_traced_by_the_file_or_by_the_environment() {
    let traced = |text: &str, set: &[(&str, &str)]| {
        let mut config = Config::parse(text).expect("parses");
        let value = |name: &str| Some(set.iter().find(|(set, _)| *set == name)?.1.to_owned());
        config
            .trace_by(value)
            .map(|()| config.tracing.map(|it| (it.endpoint.to_string(), it.sampling_rate_per_million)))
    };
    let kubelets = "[tracing]\nendpoint = 'localhost:14317'\nsampling_rate_per_million = 100";
    let [for_traces, for_all] = COLLECTORS;
    for (text, set, wanted) in [
        ("", &[][..], None),
        ("", &[(for_all, "")], None),
        ("[tracing]", &[], Some(("http://localhost:4317/", 0))),
        (kubelets, &[], Some(("http://localhost:14317/", 100))),
        ("", &[(for_all, "http://all:4317")], Some(("http://all:4317/", 0))),
        (
            kubelets,
            &[(for_all, "http://all:4317"), (for_traces, "http://traces:4317")],
            Some(("http://traces:4317/", 100)),
        ),
    ] {
        let traced = traced(text, set).expect("usable");
        assert_eq!(traced.as_ref().map(|(endpoint, rate)| (endpoint.as_str(), *rate)), wanted, "{text} {set:?}");
    }
    let error = traced("", &[(for_all, "https://all")]).expect_err("no TLS").to_string();
    assert!(error.contains(for_all), "{error}");
}

/// What is logged at the start.
#[test]
fn secrets_in_addresses_are_never_shown() {
    let text = "
        [[images.providers]]
        id = 'lago'
        type = 'lago'
        uri = 'http://host/repo.metadata?token=PW#PW'
        transport = { proxy = 'http://proxy/?token=PW' }
        [[images.providers]]
        id = 'vb'
        type = 'virt-builder'
        uri = 'http://host/index.asc?token=PW'
        insecure = true
        [[images.providers]]
        id = 'streams'
        type = 'simplestreams'
        uri = 'http://host/?token=PW'
        insecure = true
        [[images.providers]]
        id = 'corp'
        type = 'glance'
        endpoint = 'http://host/?token=PW'
        auth_url = 'http://host/v3?token=PW'
        username = 'u'
        password_file = '/p'
        project = 'p'
    ";
    let mut config = Config::parse(text).expect("parses").checked().expect("valid");
    let proxies = |name: &str| (name == "HTTP_PROXY").then(|| "http://user:PW@proxy:3128".to_owned());
    config.images.proxies = EnvProxies::from_vars(proxies).expect("proxies");
    let shown = format!("{config:?}");
    assert!(shown.contains("http://host/index.asc") && shown.contains("proxy:3128"), "{shown}");
    assert!(!shown.contains("PW"), "{shown}");
    // A login in any of these is refused, with not a word of it.
    let url = "http://user:PW@host/";
    let with_login = text.lines().filter(|line| line.contains("token=PW")).map(|line| {
        let (from, to) = (line.find("'http").expect("a URL") + 1, line.rfind('\'').expect("its end"));
        text.replace(line, &line.replace(&line[from..to], url))
    });
    let broken = [
        format!("x = '{url}"),
        format!("libvirt_uri {url}"),
        format!("images.network = '{url}'"),
        format!("images.protocol = '{url}'"),
        format!("images.providers = ['{url}']"),
        format!("images.providers = [{{ id = 'a', type = 'lago', uri = '{url}' }}]"),
        format!("images.providers = [{{ id = 'a', type = 'lago', uri = 'http://h/', transport = '{url}' }}]"),
        format!("images.providers = [{{ id = 'a', type = 'lago', uri = 'http://h/', more = '{url}'"),
    ];
    let mut refused = 0;
    for text in with_login.chain(broken) {
        let error = Config::parse(&text).expect_err(&text);
        let problem = format!("{error} {error:?}");
        assert!(!problem.contains("PW") && problem.contains("line "), "{text}: {problem}");
        refused += usize::from(problem.contains("has a login in it"));
    }
    assert_eq!(refused, 7);
}

#[test]
fn settings_of_images_that_mean_nothing_say_what_would() {
    for (text, wanted) in [
        ("max_virtual_size_gib = 0", "`images.max_virtual_size_gib` is not within 1 to 1048576 GiB"),
        ("max_virtual_size_gib = 1048577", "`images.max_virtual_size_gib` is not within 1 to 1048576 GiB"),
        ("limits.artifact_gib = 0", "`images.limits.artifact_gib` is not within 1 to 1048576 GiB"),
        ("limits.artifact_gib = 1048577", "`images.limits.artifact_gib` is not within 1 to 1048576 GiB"),
        ("limits.unpacked_gib = 0", "`images.limits.unpacked_gib` is not within 1 to 1048576 GiB"),
        ("limits.ratio = 0", "`images.limits.ratio` is not within 1 to 1000000"),
        ("limits.ratio_from_gib = 1048577", "`images.limits.ratio_from_gib` is not within 0 to 1048576 GiB"),
        ("limits.downloads = 0", "`images.limits.downloads` is not within 1 to 1000"),
        ("limits.downloads = 1001", "`images.limits.downloads` is not within 1 to 1000"),
        ("limits.partial_ttl_s = 31536001", "`images.limits.partial_ttl_s` is not within 0 to 31536000 seconds"),
        ("limits.partial_quota_gib = 1048577", "`images.limits.partial_quota_gib` is not within 0 to 1048576 GiB"),
        ("limits.reserve_gib = 1048577", "`images.limits.reserve_gib` is not within 0 to 1048576 GiB"),
        ("kube_namespace = 'Kube_System'", "`images.kube_namespace` is no name of a namespace: 1 to 63 lower-case"),
        ("kube_namespace = ''", "`images.kube_namespace` is no name of a namespace"),
        ("kube_namespace = 'a-'", "`images.kube_namespace` is no name of a namespace"),
        ("handlers.a.formats = []", "`images.handlers.<name>.formats` is empty for handler `a`"),
        ("handlers.a.translations = ['x/y.yaml']", "`images.handlers.<name>.translations` has `x/y.yaml` for handler"),
        ("handlers.a.translations = ['']", "`images.handlers.<name>.translations` has `` for handler `a`"),
        ("handlers.a.architecture = 'amd46'", "`images.handlers.<name>.architecture` is `amd46` for handler `a`"),
        ("handlers.a.architecture = 'amd46'", "must be one of 386, aarch64, amd64, arm, arm64, armel, "),
        ("handlers.a.architecture = ''", "`images.handlers.<name>.architecture` is `` for handler `a`"),
    ] {
        let config = Config::parse(&format!("[images]\n{text}")).expect("parses");
        let error = config.checked().expect_err(text).to_string();
        assert!(error.starts_with("configuration key ") && error.contains(wanted), "{error}");
    }
    for text in [
        "max_virtual_size_gib = 1048576",
        "kube_namespace = 'a-1'",
        "limits.partial_quota_gib = 0\nlimits.partial_ttl_s = 0\nlimits.reserve_gib = 0\nlimits.ratio_from_gib = 0",
        "handlers.a.architecture = 'AArch64'",
        "handlers.a.formats = ['raw']",
        "handlers.a.translations = ['x.yaml']",
    ] {
        Config::parse(&format!("[images]\n{text}")).expect("parses").checked().expect(text);
    }
}

#[test]
fn settings_of_a_handler_that_mean_nothing_are_all_told_and_say_what_would() {
    let text = "
        [handlers.a]
        machine = 'virt'
        cpu_model = 'host'
        disk_bus = 'ide'
        data_path = 'ebpf'
        firmware = 'efi'
        secure_boot = true
        default_vcpus = 0
        max_vcpus = 256
        default_memory_mib = 8
        max_disk_gib = 0
        [handlers.b]
        max_memory_mib = 512
        max_vcpus = 2
        default_vcpus = 3
        machine = 'pc'
        firmware = 'uefi'
        secure_boot = true
    ";
    let error = Config::parse(text).expect("parses").checked().expect_err("all wrong");
    insta::assert_snapshot!(error.to_string().replace("; configuration", ";\nconfiguration"), @"
    configuration key `handlers.<name>.machine` is `virt` for handler `a`: use `q35`, `pc`, or one version of them, as `pc-q35-10.0`;
    configuration key `handlers.<name>.cpu_model` is `host` for handler `a`: use `host-passthrough`, `host-model`, `max`, or the name of a model, as `Westmere`;
    configuration key `handlers.<name>.disk_bus` is `ide` for handler `a`: use `virtio`, `scsi` or `sata`;
    configuration key `handlers.<name>.firmware` is `efi` for handler `a`: use `bios` or `uefi`;
    configuration key `handlers.<name>.data_path` is `ebpf` for handler `a`: data path `ebpf` is no longer supported; use `tc`;
    configuration key `handlers.<name>.secure_boot` is true for handler `a`, whose `firmware` is not `uefi`;
    configuration key `handlers.<name>.default_vcpus` is 0 for handler `a`, and not within 1 to 255;
    configuration key `handlers.<name>.max_vcpus` is 256 for handler `a`, and not within 1 to 255;
    configuration key `handlers.<name>.max_disk_gib` is 0 for handler `a`, and not 1 or more;
    configuration key `handlers.<name>.default_memory_mib` is 8 for handler `a`, and not within 64 (the least guest) to 16777216;
    configuration key `handlers.<name>.secure_boot` is true for handler `b`, whose `machine` is not `q35`;
    configuration key `handlers.<name>.max_vcpus` is 2 for handler `b`, and below its default_vcpus, 3;
    configuration key `handlers.<name>.max_memory_mib` is 512 for handler `b`, and below its default_memory_mib, 1024
    ");
}

#[test]
fn a_handler_with_settings_of_its_own_may_be_named() {
    let text = "runtime_handlers = ['a']\n[handlers.b]\nmachine = 'pc'\n[images.handlers.c]\n[handlers.virtlet]\ndisk_bus = 'scsi'";
    let config = Config::parse(text).expect("parses").checked().expect("valid");
    assert_eq!(config.handler_names().into_iter().collect::<Vec<_>>(), ["a", "b", "c", "virtlet"]);
    let shown = |name| config.handler(name).defaults.shown();
    assert_eq!(shown("b"), [("machine", "pc".to_owned())].into());
    assert_eq!((shown(""), shown("a")), ([("disk_bus", "scsi".to_owned())].into(), [].into()), "the default one's");
}

#[test]
fn a_named_file_must_exist() {
    let error = Config::load(Some(Path::new("/nonexistent/controld.toml"))).expect_err("absent");
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
}

#[test]
fn the_document_has_every_key_with_its_default() {
    let document = include_str!("../../../docs/configuration.md");
    let (_, chapter) = document.split_once("\n## controld").expect("a chapter");
    // What follows is of kinds of providers, which a test of `images` compares.
    let (chapter, _) = chapter.split_once("\n### ").expect("its sections");
    let mut sections: std::collections::BTreeMap<&str, String> = std::collections::BTreeMap::new();
    let mut keys = Vec::new();
    for line in chapter.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (key, default) = (cells.next().expect("a key"), cells.next().expect("a default"));
        let (section, key) = key.trim_matches('`').rsplit_once('.').unwrap_or(("", key.trim_matches('`')));
        keys.push(key);
        let said = default.trim_matches('`');
        // What is made of other settings has none of its own in the file.
        if said.contains('<') || section.contains('<') || said.starts_with("newest") || said == "none" {
            continue;
        }
        let is_bare = said.parse::<u64>().is_ok() || matches!(said, "true" | "false") || said.starts_with('[');
        let value = if is_bare { said.to_owned() } else { format!("'{said}'") };
        *sections.entry(section).or_default() += &format!("{key} = {value}\n");
    }
    let text: String = sections
        .iter()
        .map(|(section, body)| if section.is_empty() { body.clone() } else { format!("[{section}]\n{body}") })
        .collect();
    // The table alone says that calls are traced.
    let default = Config { tracing: Some(TracingConfig::default()), ..Config::default() };
    assert_eq!(Config::parse(&text).expect("parses").checked().expect("valid"), default);
    for key in known_keys() {
        assert!(keys.contains(&key.as_str()), "`{key}` is not in the document");
    }
}

/// What serde says it expects, section by section.
fn known_keys() -> Vec<String> {
    let unknown = [
        "no_such = 1",
        "[machine]\nno_such = 1",
        "[images]\nno_such = 1",
        "[images.network]\nno_such = 1",
        "[images.limits]\nno_such = 1",
        "[images.handlers.x]\nno_such = 1",
        "[handlers.x]\nno_such = 1",
        "[handlers.x.annotations]\nno_such = 1",
        "[flexvolumes]\nno_such = 1",
        "[streaming]\nno_such = 1",
        "[metrics]\nno_such = 1",
        "[tracing]\nno_such = 1",
        "[proxy]\nno_such = 1",
        "[log]\nno_such = 1",
    ];
    let expected = unknown.map(|text| Config::parse(text).expect_err("unknown").problem);
    let names = expected.iter().flat_map(|said| said.split('`').skip(3).step_by(2));
    let sections = [
        "machine",
        "images",
        "network",
        "limits",
        "handlers",
        "annotations",
        "providers",
        "flexvolumes",
        "streaming",
        "tracing",
        "metrics",
        "proxy",
        "log",
    ];
    names.filter(|name| !sections.contains(name)).map(str::to_owned).collect()
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "run_dir = 'run'\n[machine]\npress_interval_s = 0\n[images]\npinned = ['No Name']\nlimits.ratio = 0";
    let error = Config::parse(text).expect("parses").checked().expect_err(text);
    assert_eq!(
        error.to_string(),
        "configuration key `run_dir` is not an absolute path; \
         configuration key `machine.press_interval_s` is not within 1 to 3600 seconds; \
         configuration key `images.pinned` has a name that is no image name; \
         configuration key `images.limits.ratio` is not within 1 to 1000000"
    );
}

/// The examples of the page, which are the file's tables too, with a RuntimeClass for each.
#[test]
fn the_examples_of_handlers_are_valid() {
    let page = include_str!("../../../docs/handlers.md");
    let file = include_str!("../../../deploy/handlers.toml");
    let examples: Vec<&str> = page.split("\n```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    assert!(examples.len() > 3, "examples are found");
    for example in &examples {
        Config::parse(example).expect("parses").checked().expect(example);
        assert!(file.contains(example), "deploy/handlers.toml lacks: {example}");
    }
    let config = Config::parse(file).expect("parses").checked().expect("valid");
    assert_eq!(config.handlers.len(), examples.len(), "as many as examples");
    let classes = include_str!("../../../deploy/runtimeclasses.yaml");
    let pod = "\n---\nkind: Pod\nspec: {containers: []}\n";
    let classes = vmspec::manifest::read(&format!("{classes}{pod}")).expect("a manifest").classes;
    let handlers: Vec<_> = classes.values().map(|class| class.handler.as_str()).collect();
    assert_eq!(handlers, config.handlers.keys().map(String::as_str).collect::<Vec<_>>());
}
