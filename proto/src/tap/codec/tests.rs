use std::net::IpAddr;

use super::super::{
    Arm, Attach, Bandwidth, CheckReport, CollectReport, DataPath, DhcpOptions, Dns, Forget, Handoff, HandoffNic,
    HandoffReply, HandoffRequest, HandoffTap, HandoffVfio, Hello, HostPort, List, MAX_STATS_PAGE, MAX_TROUBLE, MacAddr,
    NetworkAsk, Nic, NicKind, NicStats, OwnerId, PciAddress, PfSummary, PodDetail, PodId, PodNet, PodPage, PodPhase,
    PodStats, PodSummary, PortProtocol, ProcessId, QemuUser, Reply, Request, Route, ServerStatus, StatsPage, Tap,
    Token, VfClaim, VfDetail, VfHolder, VfPage, VfRequest, VfStep, VfSummary, Vfio,
};
use super::*;

fn text(bytes: Result<Vec<u8>, CodecError>) -> String {
    String::from_utf8(bytes.expect("encodes")).expect("is JSON")
}

fn pod() -> PodId {
    "0f1e2d3c".parse().expect("pod id")
}

fn mac() -> MacAddr {
    "02:00:00:00:00:01".parse().expect("mac")
}

fn dns() -> Dns {
    Dns {
        servers: vec![IpAddr::from([10, 96, 0, 10])],
        searches: vec!["default.svc.cluster.local".into()],
        options: vec!["ndots:5".into()],
    }
}

fn requests() -> Vec<Request> {
    vec![
        Request::Hello(Hello { client: "controld 0.1.0".into(), qemu: Some(QemuUser { uid: 64055, gid: 993 }) }),
        Request::Attach(Attach {
            pod: pod(),
            owner: Some(owner()),
            namespace: "default".into(),
            name: "vm".into(),
            uid: "6f0b".into(),
            hostname: "vm".into(),
            dns: Some(dns()),
            networks: vec![NetworkAsk {
                network: Some("storage".into()),
                interface: Some("net1".parse().expect("name")),
                mac: Some("02:00:00:00:00:02".parse().expect("mac")),
                mac_is_wish: false,
                ips: vec!["10.78.0.9/24".parse().expect("net")],
                device_id: Some("0000:01:10.0".into()),
                aliases: vec!["db".into()],
            }],
            data_path: Some(DataPath::Bridge),
            queues: Some(4),
            anti_spoof: Some(false),
            host_ports: vec![HostPort {
                host_ip: Some(IpAddr::from([192, 0, 2, 1])),
                host_port: 8080,
                container_port: 80,
                protocol: PortProtocol::Tcp,
            }],
            bandwidth: Some(Bandwidth { ingress_rate: Some(1_000_000), ..Bandwidth::default() }),
            sysctls: [("net.ipv4.ip_forward".into(), "1".into())].into(),
            cgroup: "/kubepods/pod6f0b".into(),
            dhcp: [(
                "eth0".parse().expect("name"),
                DhcpOptions { boot_file: "pxe".into(), private: [(240, "x".into())].into(), ..DhcpOptions::default() },
            )]
            .into(),
        }),
        Request::Arm(Arm { pod: pod(), qemu: Some(QemuUser { uid: 64055, gid: 64055 }), iommufd: None }),
        Request::Detach { pod: pod() },
        Request::Recover { pod: pod() },
        Request::Check { pod: pod() },
        Request::Inspect { pod: pod() },
        Request::List(List { after: Some(pod()), owner: Some(owner()), pod: None }),
        Request::Stats(List { after: None, owner: None, pod: Some(pod()) }),
        Request::Collect,
        Request::Forget(Forget::Pod(pod())),
        Request::Forget(Forget::Namespace("virtlet-0f1e2d3c".parse().expect("name"))),
        Request::Status,
    ]
}

fn owner() -> OwnerId {
    "3f0c2b1a".parse().expect("owner")
}

fn net() -> PodNet {
    PodNet {
        netns: "/run/netns/virtlet-0f1e2d3c".into(),
        nics: vec![Nic {
            name: "eth0".parse().expect("name"),
            network: "pods".into(),
            kind: NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 }),
            mac: "02:00:00:00:00:01".parse().expect("mac"),
            mtu: 1450,
            addresses: vec!["10.77.0.2/32".parse().expect("net"), "fd00::2/64".parse().expect("net")],
            routes: vec![
                Route { dst: "10.77.0.1/32".parse().expect("net"), gateway: None },
                Route { dst: "0.0.0.0/0".parse().expect("net"), gateway: Some(IpAddr::from([10, 77, 0, 1])) },
            ],
        }],
        dns: dns(),
    }
}

fn summary() -> PodSummary {
    PodSummary {
        pod: pod(),
        namespace: "default".into(),
        name: "vm".into(),
        owner: Some(owner()),
        phase: PodPhase::Attached,
        recovering: true,
        ip: Some(IpAddr::from([10, 77, 0, 2])),
        trouble: Some("tap `tap0` is gone".into()),
    }
}

fn counters() -> NicStats {
    NicStats {
        name: "eth0".parse().expect("name"),
        rx_bytes: 1,
        rx_packets: 2,
        rx_errors: 3,
        rx_dropped: 4,
        tx_bytes: 5,
        tx_packets: 6,
        tx_errors: 7,
        tx_dropped: 8,
    }
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Status(ServerStatus {
            server: "tapmanager 0.1.0".into(),
            ready: false,
            reason: "no network configuration in `/etc/cni/net.d`".into(),
            pods: 3,
            recovering: 1,
            tokens_refused: 1,
            plugin_micros: 12_345,
        }),
        Reply::Attached(net()),
        Reply::Armed { token: Token::from_random([7; 16]), hostdevs: Vec::new() },
        Reply::Detached,
        Reply::Pods(PodPage { pods: vec![summary()], more: true }),
        Reply::Checked(CheckReport { findings: vec!["tap `tap0` is gone".into()], checked: vec!["links".into()] }),
        Reply::Pod(Box::new(PodDetail {
            summary: summary(),
            request: Attach::new(pod()),
            net: Some(net()),
            explanation: vec!["eth0: a veth of network `pods`, joined with tap0 by tc".into()],
        })),
        Reply::Stats(StatsPage { pods: vec![PodStats { pod: pod(), nics: vec![counters()] }], more: false }),
        Reply::Collected(CollectReport { removed: vec!["namespace `virtlet-1`".into()], kept: Vec::new() }),
    ]
}

/// Pins the wire: a change here is a change of [`VERSION`].
#[test]
fn the_wire_is_pinned() {
    let mut lines: Vec<String> = requests().iter().map(|request| text(encode_request(request))).collect();
    lines.push(text(encode_request(&HandoffRequest::Get { token: Token::from_random([7; 16]) })));
    lines.extend(replies().iter().map(|reply| text(encode_reply(Ok(reply), 0))));
    let handoff = HandoffReply::Nics(Handoff {
        nics: vec![HandoffNic::Tap(HandoffTap { mac: mac(), mtu: 1450, queues: 1, vhost: 0 })],
        iommufd: false,
    });
    lines.push(text(encode_reply(Ok(&handoff), 1)));
    let refused = ErrorBody { code: ErrorCode::NotFound, message: "no pod `0f1e2d3c`".into() };
    lines.push(text(encode_reply::<Reply>(Err(refused), 0)));
    insta::assert_snapshot!(lines.join("\n"));
}

/// What only the version after the oldest can say.
#[test]
fn the_wire_of_what_is_passed_through_is_pinned() {
    let device = "0000:01:10.0".parse().expect("address");
    let mut net = net();
    net.nics[0].kind = NicKind::Vfio(Vfio { device });
    let handoff = |vfio, iommufd| HandoffReply::Nics(Handoff { nics: vec![HandoffNic::Vfio { vfio }], iommufd });
    let armed = Reply::Armed { token: Token::from_random([7; 16]), hostdevs: vec![device] };
    let lines = [
        text(encode_request(&Request::Arm(Arm { pod: pod(), qemu: None, iommufd: Some(true) }))),
        text(encode_reply(Ok(&Reply::Attached(net.clone())), 0)),
        text(encode_reply(Ok(&armed), 0)),
        text(encode_reply(Ok(&handoff(HandoffVfio::Descriptor, true)), 2)),
        text(encode_reply(Ok(&handoff(HandoffVfio::Hostdev, false)), 0)),
    ];
    assert!(lines.iter().all(|line| line.starts_with(r#"{"v":4,"#)), "{lines:?}");
    insta::assert_snapshot!(lines.join("\n"));
    for reply in [Reply::Attached(net), armed] {
        let bytes = encode_reply(Ok(&reply), 0).expect("encodes");
        assert_eq!(decode_reply::<Reply>(&bytes, 0).expect("decodes"), Ok(reply));
    }
    for (vfio, iommufd) in [(HandoffVfio::Descriptor, true), (HandoffVfio::Hostdev, false)] {
        let reply = handoff(vfio, iommufd);
        let bytes = encode_reply(Ok(&reply), 0).expect("encodes");
        assert_eq!(decode_reply::<HandoffReply>(&bytes, 0).expect("decodes"), Ok(reply));
    }
}

fn vf() -> PciAddress {
    "0000:3b:02.1".parse().expect("address")
}

fn vf_summary() -> VfSummary {
    VfSummary {
        vf: vf(),
        pf: "0000:3b:00.0".parse().expect("address"),
        number: 1,
        driver: Some("vfio-pci".into()),
        netdevs: Vec::new(),
        group: Some(7),
        vfio: true,
        claim: Some(VfHolder {
            owner: "0f1e2d3c".into(),
            pod: Some(("default".into(), "vm".into())),
            step: VfStep::InUse,
        }),
    }
}

fn pf_summary() -> PfSummary {
    PfSummary {
        pf: "0000:3b:00.0".parse().expect("address"),
        netdevs: vec!["ens1f0".into()],
        driver: Some("ice".into()),
        total: 256,
        enabled: 8,
        used: 1,
        failed: 2,
        autoprobe: Some(true),
    }
}

/// What is asked and said of virtual functions, which only the version after the oldest can say.
#[test]
fn the_wire_of_virtual_functions_is_pinned() {
    let claim = VfClaim {
        vf: vf(),
        by: "me".into(),
        mac: Some(mac()),
        vlan: Some(100),
        vlan_qos: Some(3),
        spoofchk: Some("on".into()),
        trust: Some("off".into()),
        link_state: Some("auto".into()),
        max_tx_rate: Some(1000),
    };
    let requests = [
        VfRequest::List { after: None },
        VfRequest::List { after: Some(vf()) },
        VfRequest::Explain { vf: vf() },
        VfRequest::Claim(claim),
        VfRequest::Release { vf: vf(), force: true },
        VfRequest::Repair,
    ]
    .map(Request::Vf);
    let by_hand = VfHolder { owner: "by-hand:me".into(), pod: None, step: VfStep::Bound };
    let replies = [
        Reply::Vfs(VfPage {
            pfs: vec![pf_summary()],
            vfs: vec![vf_summary(), VfSummary { claim: Some(by_hand), ..vf_summary() }],
            trouble: vec!["no".into()],
            more: true,
        }),
        Reply::Vf(Box::new(VfDetail { summary: vf_summary(), explanation: vec!["IOMMU group 7".into()] })),
    ];
    let mut lines: Vec<String> = requests.iter().map(|request| text(encode_request(request))).collect();
    lines.extend(replies.iter().map(|reply| text(encode_reply(Ok(reply), 0))));
    assert!(lines.iter().all(|line| line.starts_with(r#"{"v":4,"#)), "{lines:?}");
    insta::assert_snapshot!(lines.join("\n"));
    for request in requests {
        let bytes = encode_request(&request).expect("encodes");
        assert_eq!(decode_request::<Request>(&bytes, 0).expect("decodes"), request);
    }
    for reply in replies {
        let bytes = encode_reply(Ok(&reply), 0).expect("encodes");
        assert_eq!(decode_reply::<Reply>(&bytes, 0).expect("decodes"), Ok(reply));
    }
}

/// Whom descriptors were handed to, which only the newest version can say.
#[test]
fn the_wire_of_who_took_descriptors_is_pinned() {
    let request = Request::Machine { pod: pod() };
    let bytes = encode_request(&request).expect("encodes");
    assert_eq!(decode_request::<Request>(&bytes, 0).expect("decodes"), request);
    assert_eq!(text(Ok(bytes)), r#"{"v":5,"body":{"machine":{"pod":"0f1e2d3c"}}}"#);
    let taken = Some(ProcessId { pid: 4711, started: 123_456 });
    for (process, says) in [(taken, r#"{"pid":4711,"started":123456}"#), (None, "null")] {
        let reply = Reply::Machine(process);
        let bytes = encode_reply(Ok(&reply), 0).expect("encodes");
        assert_eq!(decode_reply::<Reply>(&bytes, 0).expect("decodes"), Ok(reply));
        assert_eq!(text(Ok(bytes)), format!(r#"{{"v":5,"fds":0,"body":{{"ok":{{"machine":{says}}}}}}}"#));
    }
}

#[test]
fn a_full_page_of_virtual_functions_fits_into_a_packet() {
    let longest = "ffffffff:ff:1f.7".parse().expect("address");
    let vf = VfSummary {
        vf: longest,
        pf: longest,
        number: u32::MAX,
        driver: Some("d".repeat(64)),
        netdevs: vec!["n".repeat(15); 2],
        group: Some(u32::MAX),
        vfio: false,
        claim: Some(VfHolder {
            owner: "o".repeat(72),
            pod: Some(("n".repeat(63), "p".repeat(253))),
            step: VfStep::Rebinding,
        }),
    };
    let pf = PfSummary {
        pf: longest,
        netdevs: vec!["n".repeat(15); 4],
        driver: Some("d".repeat(64)),
        total: u32::MAX,
        enabled: u32::MAX,
        used: u32::MAX,
        failed: u64::MAX,
        autoprobe: Some(false),
    };
    // As bounded as any report.
    let trouble = vec!["t".repeat(400); 129];
    let (pfs, vfs) = (vec![pf; super::super::MAX_PFS], vec![vf; super::super::MAX_VF_PAGE]);
    let bytes = encode_reply(Ok(&Reply::Vfs(VfPage { pfs, vfs, trouble, more: true })), 0).expect("fits");
    assert!(bytes.len() <= MAX_MESSAGE);
}

#[test]
fn a_nic_is_a_tap_or_passed_through() {
    let nic = |keys: &str| {
        let text =
            format!(r#"{{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1500,{keys}"addresses":[],"routes":[]}}"#);
        serde_json::from_str::<Nic>(&text).map_err(|error| error.to_string())
    };
    let vfio = r#""vfio":{"device":"0000:01:10.0"},"#;
    let tap = nic(r#""queues":2,"#).expect("as the first release wrote it");
    assert_eq!(tap.tap(), Some(Tap { data_path: DataPath::Tc, queues: 2 }));
    assert_eq!(nic(vfio).expect("passed through").tap(), None);
    for keys in [
        "".to_owned(),
        r#""data_path":"tc","#.to_owned(),
        format!(r#"{vfio}"queues":1,"#),
        format!(r#"{vfio}"data_path":"tc","#),
    ] {
        let error = nic(&keys).expect_err("neither or both");
        assert!(error.starts_with("NIC `eth0` has "), "{error}");
    }
}

#[test]
fn every_message_comes_back_as_it_went() {
    for request in requests() {
        let bytes = encode_request(&request).expect("encodes");
        assert_eq!(decode_request::<Request>(&bytes, 0).expect("decodes"), request);
    }
    for reply in replies() {
        let bytes = encode_reply(Ok(&reply), 0).expect("encodes");
        assert_eq!(decode_reply::<Reply>(&bytes, 0).expect("decodes"), Ok(reply));
    }
}

#[test]
fn malformed_messages_are_refused_with_a_reason() {
    let over_long = vec![b' '; MAX_MESSAGE + 1];
    let nested = format!(r#"{{"v":3,"body":{}"#, "[".repeat(100_000));
    for (bytes, code) in [
        (&b""[..], ErrorCode::BadRequest),
        (b"\xff\xfe", ErrorCode::BadRequest),
        (b"{}", ErrorCode::BadRequest),
        (br#"{"v":2,"anything":{}}"#, ErrorCode::Version),
        (br#"{"v":6,"anything":{}}"#, ErrorCode::Version),
        (br#"{"v":3,"body":{"fly":{}}}"#, ErrorCode::BadRequest),
        (br#"{"v":3,"body":{"arm":{"pod":"../x"}}}"#, ErrorCode::BadRequest),
        (br#"{"v":3,"body":{"arm":{"pod":"x","extra":1}}}"#, ErrorCode::BadRequest),
        (br#"{"v":3,"body":{"detach":{"pod":"x","extra":1}}}"#, ErrorCode::BadRequest),
        (br#"{"v":3,"extra":1,"body":"status"}"#, ErrorCode::BadRequest),
        (br#"{"v":3,"body":"status"} trailing"#, ErrorCode::BadRequest),
        (&over_long, ErrorCode::BadRequest),
        (nested.as_bytes(), ErrorCode::BadRequest),
    ] {
        let error = decode_request::<Request>(bytes, 0).expect_err("malformed");
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn a_request_with_descriptors_is_refused() {
    let bytes = encode_request(&Request::Status).expect("encodes");
    assert!(matches!(decode_request::<Request>(&bytes, 1), Err(CodecError::FdCount { announced: 0, received: 1 })));
    let bytes = encode_reply(Ok(&Reply::Detached), 2).expect("encodes");
    assert!(matches!(decode_reply::<Reply>(&bytes, 1), Err(CodecError::FdCount { announced: 2, received: 1 })));
}

#[test]
fn a_full_page_of_the_longest_summaries_fits_into_a_packet() {
    let summary = PodSummary {
        pod: "a".repeat(64).parse().expect("pod id"),
        namespace: "n".repeat(63),
        name: "p".repeat(253),
        owner: Some("o".repeat(64).parse().expect("owner")),
        phase: PodPhase::Detaching,
        recovering: true,
        ip: Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().expect("ip")),
        trouble: Some("t".repeat(MAX_TROUBLE)),
    };
    let pods = vec![summary; usize::from(super::super::MAX_PAGE)];
    let bytes = encode_reply(Ok(&Reply::Pods(PodPage { pods, more: true })), 0).expect("fits");
    assert!(bytes.len() <= MAX_MESSAGE);
}

#[test]
fn a_full_page_of_the_longest_counters_fits_into_a_packet() {
    let most = u64::MAX;
    let nic = NicStats {
        name: "n".repeat(15).parse().expect("name"),
        rx_bytes: most,
        rx_packets: most,
        rx_errors: most,
        rx_dropped: most,
        tx_bytes: most,
        tx_packets: most,
        tx_errors: most,
        tx_dropped: most,
    };
    let stats = PodStats { pod: "a".repeat(64).parse().expect("pod id"), nics: vec![nic; 15] };
    let pods = vec![stats; usize::from(MAX_STATS_PAGE)];
    let bytes = encode_reply(Ok(&Reply::Stats(StatsPage { pods, more: true })), 0).expect("fits");
    assert!(bytes.len() <= MAX_MESSAGE);
}
