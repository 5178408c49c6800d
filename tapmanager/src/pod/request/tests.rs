use super::*;

fn request() -> Attach {
    Attach {
        namespace: "kube-system".into(),
        name: "vm-0.test".into(),
        dns: Some(Dns {
            servers: vec![],
            searches: vec!["default.svc.cluster.local".into(), ".".into()],
            options: vec!["ndots:5".into()],
        }),
        ..Attach::new("p1".parse().expect("pod id"))
    }
}

#[test]
fn what_kubernetes_sends_is_taken() {
    assert_eq!(check(&request()), Ok(()));
    let mut full = request();
    (full.uid, full.hostname) = ("6f0b-1".into(), "vm".into());
    assert_eq!(check(&full), Ok(()));
}

#[test]
fn texts_that_could_do_harm_are_refused_by_name() {
    let long = "x".repeat(254);
    type Set = fn(&mut Attach, &str);
    let fields: [(&str, Set); 6] = [
        ("namespace", |a, text| a.namespace = text.into()),
        ("name", |a, text| a.name = text.into()),
        ("uid", |a, text| a.uid = text.into()),
        ("hostname", |a, text| a.hostname = text.into()),
        ("dns.searches", |a, text| a.dns.as_mut().expect("dns").searches.push(text.into())),
        ("dns.options", |a, text| a.dns.as_mut().expect("dns").options.push(text.into())),
    ];
    for (field, set) in fields {
        for bad in ["a b", "a\nb", "ü", "a\0", &long] {
            let mut attach = request();
            set(&mut attach, bad);
            let error = check(&attach).expect_err(bad);
            assert_eq!(error.field, field, "{bad:?}");
        }
        if field != "dns.options" {
            for injected in ["a;K8S_POD_NAME=b", "a=b", "../x"] {
                let mut attach = request();
                set(&mut attach, injected);
                assert!(check(&attach).is_err(), "{field} takes {injected}");
            }
        }
    }
}

#[test]
fn names_must_be_there_and_lists_must_end() {
    let mut attach = request();
    attach.namespace.clear();
    assert_eq!(check(&attach).expect_err("empty").field, "namespace");
    let mut attach = request();
    attach.dns.as_mut().expect("dns").servers = vec![[10, 0, 0, 1].into(); 33];
    assert_eq!(check(&attach).expect_err("many").field, "dns.servers");
}

#[test]
fn links_are_named_by_place_and_no_name_is_taken_twice() {
    let ask = |name: Option<&str>| NetworkAsk {
        interface: name.map(|name| name.parse().expect("a name")),
        ..NetworkAsk::default()
    };
    let names =
        |asks: &[NetworkAsk]| interfaces(asks).map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(names(&[]).expect("the default network"), ["eth0"]);
    assert_eq!(names(&[ask(None), ask(Some("data0")), ask(None)]).expect("names"), ["eth0", "data0", "net2"]);
    assert_eq!(names(&[ask(None), ask(Some("eth0"))]).expect_err("twice").field, "networks.interface");
    assert_eq!(names(&[ask(Some("net1")), ask(None)]).expect_err("twice").field, "networks.interface");
    assert!(names(&vec![ask(None); MAX_NETWORKS]).is_ok());
    assert_eq!(names(&vec![ask(None); MAX_NETWORKS + 1]).expect_err("many").field, "networks");
}

#[test]
fn what_a_pod_asks_of_its_networks_is_checked_by_name() {
    let port = |host_ip: Option<&str>, host_port| HostPort {
        host_ip: host_ip.map(|ip| ip.parse().expect("an address")),
        host_port,
        container_port: 80,
        protocol: proto::tap::PortProtocol::Tcp,
    };
    let bandwidth = |rate, burst| Bandwidth { ingress_rate: rate, ingress_burst: burst, ..Bandwidth::default() };
    type Set = Box<dyn Fn(&mut Attach)>;
    let network = |change: fn(&mut NetworkAsk)| -> Set {
        Box::new(move |attach| {
            attach.networks = vec![NetworkAsk::default()];
            change(&mut attach.networks[0]);
        })
    };
    let bad: Vec<(&str, Set)> = vec![
        ("networks.network", network(|ask| ask.network = Some("a/b".into()))),
        ("networks.interface", network(|ask| ask.interface = "tap0".parse().ok())),
        ("networks.interface", network(|ask| ask.interface = "lo".parse().ok())),
        ("networks.device_id", network(|ask| ask.device_id = Some("../x".into()))),
        ("networks.aliases", network(|ask| ask.aliases = vec!["a".into(); MAX_ALIASES + 1])),
        ("networks.ips", network(|ask| ask.ips = vec!["10.0.0.1/24".parse().expect("ip"); MAX_ENTRIES + 1])),
        ("networks.ips", network(|ask| ask.ips = vec!["127.0.0.1/8".parse().expect("ip")])),
        (
            "networks.ips",
            network(|ask| ask.ips = ["10.0.0.1/24", "fe80::1/64"].map(|ip| ip.parse().expect("ip")).to_vec()),
        ),
        ("queues", Box::new(|attach| attach.queues = Some(0))),
        ("host_ports", Box::new(move |attach| attach.host_ports = vec![port(None, 0)])),
        (
            "host_ports",
            Box::new(move |attach| attach.host_ports = vec![port(None, 8080), port(Some("10.0.0.1"), 8080)]),
        ),
        (
            "host_ports",
            Box::new(move |attach| attach.host_ports = vec![port(Some("0.0.0.0"), 1), port(Some("1.1.1.1"), 1)]),
        ),
        ("bandwidth", Box::new(move |attach| attach.bandwidth = Some(bandwidth(Some(0), None)))),
        ("bandwidth", Box::new(move |attach| attach.bandwidth = Some(bandwidth(None, Some(1))))),
        ("sysctls", Box::new(|attach| drop(attach.sysctls.insert("kernel.shmmax".into(), "1".into())))),
        ("sysctls", Box::new(|attach| drop(attach.sysctls.insert("net.core.somaxconn".into(), "1\n2".into())))),
        ("cgroup", Box::new(|attach| attach.cgroup = "kubepods/x".into())),
        ("cgroup", Box::new(|attach| attach.cgroup = "/kubepods/../x".into())),
    ];
    for (place, (field, set)) in bad.iter().enumerate() {
        let mut attach = request();
        set(&mut attach);
        assert_eq!(check(&attach).expect_err(field).field, *field, "{place}");
    }
    let mut good = request();
    good.host_ports = vec![port(Some("10.0.0.1"), 80), port(Some("10.0.0.2"), 80), port(Some("::"), 80)];
    good.bandwidth = Some(bandwidth(Some(1), Some(MAX_BURST)));
    good.sysctls.insert("net.ipv4.ping_group_range".into(), "0\t2147483647".into());
    good.cgroup = "/kubepods.slice/pod1".into();
    assert_eq!(check(&good), Ok(()));
}

#[test]
fn the_data_path_that_is_gone_is_refused_with_advice() {
    for path in DataPath::ALL {
        assert_eq!(check(&Attach { data_path: Some(path), ..request() }), Ok(()));
    }
    let error = check(&Attach { data_path: Some(DataPath::Ebpf), ..request() }).expect_err("refused");
    assert_eq!(error.to_string(), "`data_path` of the request is `ebpf`, which is no longer supported; use `tc`");
}
