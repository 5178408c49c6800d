//! The server as bytes: what it says to whom. With any bytes at all: [`hostile`]; with real clients: [`crate::addressing`].

mod hostile;

use std::fmt::Write as _;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, DhcpOptions, Flags, HType, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable as _, Encodable as _};
use ipnetwork::Ipv4Network;

use super::*;

const VM: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const STRANGER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
const GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const ALL: Ipv4Addr = Ipv4Addr::BROADCAST;
const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

fn network(text: &str) -> Ipv4Network {
    text.parse().unwrap()
}

fn lease() -> Lease {
    Lease {
        mac: MacAddr::new(VM).unwrap(),
        address: network("10.77.0.2/24"),
        server_id: GATEWAY,
        routers: vec![GATEWAY],
        routes: vec![],
        mtu: 1450,
        dns: vec![Ipv4Addr::new(10, 96, 0, 10)],
        searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(str::to_owned).to_vec(),
        hostname: "web-0".to_owned(),
        lease: Duration::from_secs(86_400),
        said: Vec::new(),
    }
}

/// As ptp makes them.
fn lonely_lease() -> Lease {
    Lease {
        address: network("10.77.0.2/32"),
        routes: vec![
            (network("10.77.0.1/32"), NONE),
            (network("0.0.0.0/0"), GATEWAY),
            (network("10.77.0.0/24"), GATEWAY),
            (network("172.16.0.0/12"), GATEWAY),
        ],
        ..lease()
    }
}

/// A client's message and the frame around it.
#[derive(Debug, Clone)]
struct Say {
    message: Message,
    from_mac: [u8; 6],
    to_mac: [u8; 6],
    to: Ipv4Addr,
}

impl Say {
    fn new(kind: MessageType) -> Self {
        let mut message = Message::new_with_id(0x1234_5678, NONE, NONE, NONE, NONE, &VM);
        message.opts_mut().insert(DhcpOption::MessageType(kind));
        Self { message, from_mac: VM, to_mac: BROADCAST_MAC, to: ALL }
    }

    fn opt(mut self, option: DhcpOption) -> Self {
        self.message.opts_mut().insert(option);
        self
    }

    fn edit(mut self, edit: impl FnOnce(&mut Message) -> &mut Message) -> Self {
        edit(&mut self.message);
        self
    }

    /// Has this address already.
    fn has(self, address: Ipv4Addr) -> Self {
        self.edit(|message| message.set_ciaddr(address))
    }

    /// Cannot take what is sent to its address yet.
    fn deaf(self) -> Self {
        self.edit(|message| message.set_flags(Flags::default().set_broadcast()))
    }

    fn via_gateway(mut self) -> Self {
        self.to_mac = GATEWAY_MAC;
        self.to = GATEWAY;
        self
    }

    fn frame(&self) -> Vec<u8> {
        frame_of(self.from_mac, self.to_mac, self.to, &self.message.to_vec().unwrap())
    }
}

/// With the checksums of a guest that leaves them to its device: none.
fn frame_of(from_mac: [u8; 6], to_mac: [u8; 6], to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(payload.len() + 8).unwrap().to_be_bytes();
    let ip_len = u16::try_from(payload.len() + 28).unwrap().to_be_bytes();
    let ip = [&[0x45, 0][..], &ip_len, &[0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0], &to.octets()].concat();
    [&to_mac[..], &from_mac, &[8, 0], &ip, &[0, 68, 0, 67], &udp_len, &[0, 0], payload].concat()
}

/// An answer taken apart.
#[derive(Debug)]
struct Heard {
    from_mac: [u8; 6],
    to_mac: [u8; 6],
    from: Ipv4Addr,
    to: Ipv4Addr,
    packet_len: usize,
    payload: Vec<u8>,
    message: Message,
}

fn hear(frame: &[u8]) -> Heard {
    let payload = frame.get(42..).unwrap().to_vec();
    let message = Message::from_bytes(&payload).unwrap();
    // dhcproto stops silently at what it cannot read, so that it read all is looked at.
    let mut rest = payload.get(240..).unwrap();
    let mut codes = Vec::new();
    while let Some((&code, tail)) = rest.split_first().filter(|(code, _)| **code != 255) {
        let (&len, tail) = tail.split_first().unwrap();
        rest = tail.get(usize::from(len)..).unwrap();
        codes.push(code);
    }
    assert!(rest.iter().skip(1).all(|byte| *byte == 0), "padding behind the end");
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes, message.opts().iter().map(|(code, _)| u8::from(*code)).collect::<Vec<_>>());
    Heard {
        from_mac: frame.get(6..12).unwrap().try_into().unwrap(),
        to_mac: frame.get(..6).unwrap().try_into().unwrap(),
        from: Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(26..30).unwrap()).unwrap()),
        to: Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(30..34).unwrap()).unwrap()),
        packet_len: frame.len() - 14,
        payload,
        message,
    }
}

fn ask(lease: Lease, say: &Say) -> Option<Heard> {
    Server::new(lease).handle_frame(&say.frame()).map(|frame| hear(&frame))
}

/// What a client can rely on, in short: kind, address, and how it was sent.
fn outcome(say: &Say) -> String {
    let Some(heard) = ask(lease(), say) else { return "silence".to_owned() };
    let kind = heard.message.opts().msg_type().unwrap();
    let by = if heard.to_mac == BROADCAST_MAC { "broadcast" } else { "unicast" };
    assert_eq!(heard.message.opcode(), Opcode::BootReply);
    assert_eq!((heard.message.xid(), heard.message.chaddr()), (0x1234_5678, &VM[..]));
    assert!(heard.to_mac == BROADCAST_MAC || heard.to_mac == VM);
    assert_eq!(heard.from, GATEWAY);
    format!("{kind:?} {} {by} to {}", heard.message.yiaddr(), heard.to)
}

fn server_id(server: Ipv4Addr) -> DhcpOption {
    DhcpOption::ServerIdentifier(server)
}

fn wanted(address: Ipv4Addr) -> DhcpOption {
    DhcpOption::RequestedIpAddress(address)
}

fn asking_for(codes: &[OptionCode]) -> DhcpOption {
    DhcpOption::ParameterRequestList(codes.to_vec())
}

#[test]
fn each_message_gets_what_rfc_2131_says() {
    use MessageType::{Decline, Discover, Inform, LeaseQuery, Offer, Release, Request};
    let ack = "Ack 10.77.0.2 unicast to 10.77.0.2";
    let nak = "Nak 0.0.0.0 broadcast to 255.255.255.255";
    for (what, say, expected) in [
        ("discover", Say::new(Discover), "Offer 10.77.0.2 unicast to 10.77.0.2"),
        ("discover, deaf", Say::new(Discover).deaf(), "Offer 10.77.0.2 broadcast to 255.255.255.255"),
        ("discover with a wish", Say::new(Discover).opt(wanted(OTHER)), "Offer 10.77.0.2 unicast to 10.77.0.2"),
        ("selecting", Say::new(Request).opt(server_id(GATEWAY)).opt(wanted(OURS)), ack),
        (
            "selecting, deaf",
            Say::new(Request).opt(server_id(GATEWAY)).opt(wanted(OURS)).deaf(),
            "Ack 10.77.0.2 broadcast to 255.255.255.255",
        ),
        ("selecting another server", Say::new(Request).opt(server_id(OTHER)).opt(wanted(OURS)), "silence"),
        ("selecting another address", Say::new(Request).opt(server_id(GATEWAY)).opt(wanted(OTHER)), nak),
        ("init-reboot", Say::new(Request).opt(wanted(OURS)), ack),
        ("init-reboot elsewhere", Say::new(Request).opt(wanted(OTHER)), nak),
        ("renewing", Say::new(Request).has(OURS).via_gateway(), ack),
        ("renewing another address", Say::new(Request).has(OTHER).via_gateway(), nak),
        ("renewing with a server", Say::new(Request).has(OURS).opt(server_id(OTHER)).via_gateway(), "silence"),
        ("rebinding", Say::new(Request).has(OURS), ack),
        ("rebinding another address", Say::new(Request).has(OTHER), nak),
        ("request for nothing", Say::new(Request), "silence"),
        ("inform", Say::new(Inform).has(OTHER), "Ack 0.0.0.0 unicast to 10.77.0.3"),
        ("inform without an address", Say::new(Inform), "Ack 0.0.0.0 broadcast to 255.255.255.255"),
        ("release", Say::new(Release).has(OURS).via_gateway(), "silence"),
        ("decline", Say::new(Decline).opt(wanted(OURS)), "silence"),
        ("a server's message", Say::new(Offer), "silence"),
        ("a query", Say::new(LeaseQuery), "silence"),
        ("an unknown message", Say::new(MessageType::Unknown(99)), "silence"),
    ] {
        assert_eq!(outcome(&say), expected, "{what}");
    }
}

#[test]
fn only_the_machine_of_the_lease_is_served() {
    let discover = || Say::new(MessageType::Discover);
    for (what, say) in [
        ("another station", Say { from_mac: STRANGER, ..discover() }),
        ("another client", discover().edit(|message| message.set_chaddr(&STRANGER))),
        ("another server", Say { to: OTHER, ..discover() }),
        ("a relay", discover().edit(|message| message.set_giaddr(GATEWAY))),
        ("a reply", discover().edit(|message| message.set_opcode(Opcode::BootReply))),
        ("a long address", discover().edit(|message| message.set_chaddr(&[2, 0, 0, 0, 0, 1, 0]))),
        ("a short address", discover().edit(|message| message.set_chaddr(&[2, 0, 0, 0, 0]))),
        ("token ring", discover().edit(|message| message.set_htype(HType::IEEE802))),
        ("BOOTP", discover().edit(|message| message.set_opts(DhcpOptions::new()))),
    ] {
        assert!(ask(lease(), &say).is_none(), "{what} was served");
    }
    // An `hlen` beyond the field must not be believed.
    let mut payload = discover().message.to_vec().unwrap();
    payload[2] = 255;
    assert_eq!(Server::new(lease()).handle_frame(&frame_of(VM, BROADCAST_MAC, ALL, &payload)), None);
    payload[2] = 6;
    payload[236] = 0; // no magic cookie
    assert_eq!(Server::new(lease()).handle_frame(&frame_of(VM, BROADCAST_MAC, ALL, &payload)), None);
}

#[test]
fn one_odd_option_does_not_hide_the_others() {
    let say = Say::new(MessageType::Request);
    let mut payload = say.message.to_vec().unwrap();
    payload.pop(); // the end
    payload.extend([12, 2, 0xff, 0xfe]); // a host name that is no text
    payload.extend([80, 3, 1, 2, 3, 81, 1, 0]); // rapid commit and FQDN of impossible lengths
    payload.extend([50, 4, 10, 77, 0, 2, 255]);
    let reply = Server::new(lease()).handle_frame(&frame_of(VM, BROADCAST_MAC, ALL, &payload)).unwrap();
    assert_eq!(hear(&reply).message.opts().msg_type(), Some(MessageType::Ack));
}

#[test]
fn options_may_continue_in_the_fields_for_names() {
    let mut payload = Say::new(MessageType::Request).message.to_vec().unwrap();
    payload.pop();
    payload.extend([52, 1, 3, 255]);
    payload.splice(108..115, [50, 4, 10, 77, 0, 2, 255]); // file
    payload.splice(44..51, [54, 4, 10, 77, 0, 1, 255]); // sname
    let reply = Server::new(lease()).handle_frame(&frame_of(VM, BROADCAST_MAC, ALL, &payload)).unwrap();
    assert_eq!(hear(&reply).message.opts().msg_type(), Some(MessageType::Ack));
}

#[test]
fn the_answer_comes_from_the_station_that_was_asked() {
    let renew = Say::new(MessageType::Request).has(OURS).via_gateway();
    assert_eq!(ask(lease(), &renew).unwrap().from_mac, GATEWAY_MAC);
    for to_mac in [BROADCAST_MAC, [1, 0, 0x5e, 0, 0, 1], [0; 6], VM] {
        let heard = ask(lease(), &Say { to_mac, ..renew.clone() }).unwrap();
        assert_eq!(heard.from_mac, SERVER_MAC, "asked {to_mac:x?}");
    }
    assert!(MacAddr::new(SERVER_MAC).is_ok());
}

/// Options as they came, each piece by itself.
fn pieces(heard: &Heard) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    let mut rest = heard.payload.get(240..).unwrap();
    while let [code, len, tail @ ..] = rest {
        if *code == 255 {
            break;
        }
        let (data, tail) = tail.split_at_checked(usize::from(*len)).unwrap();
        found.push((*code, data));
        rest = tail;
    }
    found
}

/// Options in the order on the wire, decoded.
fn told(heard: &Heard) -> String {
    let mut text = String::new();
    for (code, _) in pieces(heard) {
        writeln!(text, "{:?}", heard.message.opts().get(OptionCode::from(code)).unwrap()).unwrap();
    }
    text
}

#[test]
fn an_offer_tells_all_of_a_lease() {
    let heard = ask(lease(), &Say::new(MessageType::Discover)).unwrap();
    insta::assert_snapshot!(told(&heard), @r#"
    MessageType(Offer)
    ServerIdentifier(10.77.0.1)
    AddressLeaseTime(86400)
    Renewal(43200)
    Rebinding(75600)
    SubnetMask(255.255.255.0)
    Router([10.77.0.1])
    InterfaceMtu(1450)
    DomainNameServer([10.96.0.10])
    Hostname("web-0")
    DomainName("default.svc.cluster.local")
    BroadcastAddr(10.77.0.255)
    DomainSearch([Name("default.svc.cluster.local."), Name("svc.cluster.local."), Name("cluster.local.")])
    "#);
}

#[test]
fn an_offer_of_an_address_alone_on_its_link_has_the_way_to_the_gateway_first() {
    let asked =
        Say::new(MessageType::Discover).opt(asking_for(&[OptionCode::ClasslessStaticRoute, OptionCode::Router]));
    let heard = ask(lonely_lease(), &asked).unwrap();
    insta::assert_snapshot!(told(&heard), @r#"
    MessageType(Offer)
    ServerIdentifier(10.77.0.1)
    ClasslessStaticRoute([(10.77.0.1/32, 0.0.0.0), (0.0.0.0/0, 10.77.0.1), (10.77.0.0/24, 10.77.0.1), (172.16.0.0/12, 10.77.0.1)])
    AddressLeaseTime(86400)
    Renewal(43200)
    Rebinding(75600)
    SubnetMask(255.255.255.255)
    InterfaceMtu(1450)
    DomainNameServer([10.96.0.10])
    Hostname("web-0")
    DomainName("default.svc.cluster.local")
    DomainSearch([Name("default.svc.cluster.local."), Name("svc.cluster.local."), Name("cluster.local.")])
    "#);
    // RFC 3442, byte by byte: of a destination only what its prefix touches.
    let wire = [
        &[121, 29][..],
        &[32, 10, 77, 0, 1, 0, 0, 0, 0],
        &[0, 10, 77, 0, 1],
        &[24, 10, 77, 0, 10, 77, 0, 1],
        &[12, 172, 16, 10, 77, 0, 1],
    ]
    .concat();
    assert!(heard.payload.windows(wire.len()).any(|window| window == wire), "{:?}", heard.payload);
}

#[test]
fn who_cannot_be_told_routes_is_told_the_router() {
    let offer = |lease, parameters: &[OptionCode]| {
        let heard = ask(lease, &Say::new(MessageType::Discover).opt(asking_for(parameters))).unwrap();
        heard.message.opts().contains(OptionCode::Router)
    };
    assert!(offer(lonely_lease(), &[OptionCode::Router]));
    assert!(!offer(lonely_lease(), &[OptionCode::Router, OptionCode::ClasslessStaticRoute]));
    assert!(offer(lease(), &[OptionCode::Router, OptionCode::ClasslessStaticRoute]));
}

#[test]
fn routes_have_their_old_number_for_clients_that_know_only_that() {
    let old = OptionCode::Unknown(249);
    let offer = |parameters: &[OptionCode]| {
        let heard = ask(lonely_lease(), &Say::new(MessageType::Discover).opt(asking_for(parameters))).unwrap();
        let has = |code| heard.message.opts().contains(code);
        (has(old), has(OptionCode::ClasslessStaticRoute), has(OptionCode::Router))
    };
    assert_eq!(offer(&[OptionCode::Router, old]), (true, false, false));
    assert_eq!(offer(&[old, OptionCode::ClasslessStaticRoute]), (false, true, false));
    let heard = ask(lonely_lease(), &Say::new(MessageType::Discover).opt(asking_for(&[old]))).unwrap();
    let wire = [249, 29, 32, 10, 77, 0, 1, 0, 0, 0, 0, 0, 10, 77, 0, 1];
    assert!(heard.payload.windows(wire.len()).any(|window| window == wire), "{:?}", heard.payload);
}

#[test]
fn options_stand_in_the_clients_order() {
    use OptionCode::{DomainNameServer, Hostname, InterfaceMtu, Router, SubnetMask};
    let wish = [InterfaceMtu, Hostname, DomainNameServer, Router, SubnetMask];
    let heard = ask(lease(), &Say::new(MessageType::Discover).opt(asking_for(&wish))).unwrap();
    let order: Vec<_> = told(&heard).lines().filter_map(|line| line.split('(').next().map(str::to_owned)).collect();
    let start =
        ["MessageType", "ServerIdentifier", "InterfaceMtu", "Hostname", "DomainNameServer", "Router", "SubnetMask"];
    assert_eq!(order.get(..7).unwrap(), start);
}

#[test]
fn an_inform_tells_no_times_and_a_nak_nothing_but_no() {
    use OptionCode::{AddressLeaseTime, Rebinding, Renewal};
    let inform = ask(lease(), &Say::new(MessageType::Inform)).unwrap();
    assert!([AddressLeaseTime, Renewal, Rebinding].iter().all(|code| !inform.message.opts().contains(*code)));
    assert!(inform.message.opts().contains(OptionCode::DomainNameServer));
    let nak = ask(lease(), &Say::new(MessageType::Request).opt(wanted(OTHER))).unwrap();
    insta::assert_snapshot!(told(&nak), @r#"
    MessageType(Nak)
    ServerIdentifier(10.77.0.1)
    Message("the address asked for is not this machine's")
    "#);
}

#[test]
fn search_domains_end_in_a_zero_each() {
    let heard =
        ask(Lease { searches: vec!["a.bc".to_owned(), "d".to_owned()], ..lease() }, &Say::new(MessageType::Discover));
    let wire = [119, 9, 1, b'a', 2, b'b', b'c', 0, 1, b'd', 0];
    assert!(heard.unwrap().payload.windows(wire.len()).any(|window| window == wire));
}

#[test]
fn what_identifies_the_client_is_sent_back() {
    let say = Say::new(MessageType::Discover)
        .opt(DhcpOption::ClientIdentifier(vec![255, 1, 2, 3]))
        .opt(DhcpOption::ClientMachineIdentifier(vec![0; 17]));
    let heard = ask(lease(), &say).unwrap();
    assert_eq!(
        heard.message.opts().get(OptionCode::ClientIdentifier),
        Some(&DhcpOption::ClientIdentifier(vec![255, 1, 2, 3]))
    );
    assert!(heard.message.opts().contains(OptionCode::ClientMachineIdentifier));
}

#[test]
fn a_long_answer_loses_search_domains_first_and_stays_within_what_the_client_takes() {
    let domain = |at: usize| format!("{}{at:02}.example", "x".repeat(50));
    let route = |at: u8| (Ipv4Network::new(Ipv4Addr::new(10, at, 0, 0), 16).unwrap(), GATEWAY);
    let crowded = |routes: u8| Lease {
        searches: (0..12).map(domain).collect(),
        routes: [(network("0.0.0.0/0"), GATEWAY)].into_iter().chain((0..routes).map(route)).collect(),
        ..lease()
    };
    let counts = |heard: &Heard| {
        let routes = match heard.message.opts().get(OptionCode::ClasslessStaticRoute) {
            Some(DhcpOption::ClasslessStaticRoute(routes)) => routes.clone(),
            _ => vec![],
        };
        let searches = match heard.message.opts().get(OptionCode::DomainSearch) {
            Some(DhcpOption::DomainSearch(names)) => names.len(),
            _ => 0,
        };
        (routes.first().map(|(dst, _)| dst.prefix_len()), routes.len(), searches, heard.packet_len <= 576)
    };
    let discover = |max: Option<u16>| match max {
        None => Say::new(MessageType::Discover),
        Some(max) => Say::new(MessageType::Discover).opt(DhcpOption::MaxMessageSize(max)),
    };
    for (routes, max, expected) in [
        (2, None, (Some(0), 3, 2, true)),
        (2, Some(0), (Some(0), 3, 2, true)),
        (2, Some(576), (Some(0), 3, 2, true)),
        (2, Some(700), (Some(0), 3, 4, false)),
        (2, Some(1500), (Some(0), 3, 12, false)),
        (60, None, (Some(0), 27, 0, true)),
        (60, Some(u16::MAX), (Some(0), 61, 10, false)),
    ] {
        let heard = ask(crowded(routes), &discover(max)).unwrap();
        assert_eq!(counts(&heard), expected, "{routes} routes, {max:?}");
        assert!(heard.packet_len <= 1450, "longer than the link takes");
    }
}

/// Routes of one piece of option 121 or 249, by a reader that does not know the other pieces (RFC 3442).
fn routes_of(mut piece: &[u8]) -> Vec<(Ipv4Network, Ipv4Addr)> {
    let mut routes = Vec::new();
    while let Some((&prefix, rest)) = piece.split_first() {
        let (significant, rest) = rest.split_at_checked(usize::from(prefix.div_ceil(8))).expect("a whole destination");
        let (hop, rest) = rest.split_first_chunk::<4>().expect("a whole next hop");
        let mut dst = [0; 4];
        dst[..significant.len()].copy_from_slice(significant);
        routes.push((Ipv4Network::new(dst.into(), prefix).expect("a prefix"), Ipv4Addr::from(*hop)));
        piece = rest;
    }
    routes
}

#[test]
fn each_piece_of_a_long_option_ends_with_a_whole_route() {
    let route = |at: u8| (network(&format!("10.{at}.1.0/24")), GATEWAY);
    let lease = Lease { routes: (0..40).map(route).collect(), ..lease() };
    for code in [OptionCode::ClasslessStaticRoute, OptionCode::Unknown(249)] {
        let asked = Say::new(MessageType::Discover).opt(asking_for(&[code])).opt(DhcpOption::MaxMessageSize(1450));
        let heard = ask(lease.clone(), &asked).unwrap();
        let pieces: Vec<_> = pieces(&heard).into_iter().filter(|(found, _)| *found == u8::from(code)).collect();
        assert_eq!(pieces.iter().map(|(_, data)| data.len()).collect::<Vec<_>>(), [248, 72], "{code:?}");
        let routes: Vec<_> = pieces.iter().flat_map(|(_, data)| routes_of(data)).collect();
        assert_eq!(routes, lease.routes, "{code:?}");
    }
}

#[test]
fn each_piece_of_a_long_search_list_ends_with_a_whole_domain() {
    let domain = |at: usize| format!("{}{at:02}.example", "x".repeat(50));
    let lease = Lease { searches: (0..12).map(domain).collect(), ..lease() };
    let asked = Say::new(MessageType::Discover).opt(DhcpOption::MaxMessageSize(1450));
    let heard = ask(lease, &asked).unwrap();
    let pieces: Vec<_> = pieces(&heard).into_iter().filter(|(code, _)| *code == 119).map(|(_, data)| data).collect();
    // Of 62 bytes each.
    assert_eq!(pieces.iter().map(|data| data.len()).collect::<Vec<_>>(), [248, 248, 248]);
    assert!(pieces.iter().all(|data| data.ends_with(b"\x07example\0")), "{pieces:?}");
}

#[test]
fn an_option_that_clients_do_not_put_together_ends_with_its_first_piece() {
    let lease = Lease { dns: (0..100).map(|at| Ipv4Addr::new(10, 96, 0, at)).collect(), ..lease() };
    let asked = Say::new(MessageType::Discover).opt(DhcpOption::MaxMessageSize(1450));
    let heard = ask(lease, &asked).unwrap();
    let lengths: Vec<_> =
        pieces(&heard).into_iter().filter(|(code, _)| *code == 6).map(|(_, data)| data.len()).collect();
    assert_eq!(lengths, [252]);
}

#[test]
fn what_a_pod_says_is_told_beside_what_its_network_has() {
    let said = proto::tap::DhcpOptions {
        boot_file: "pxelinux.0".into(),
        tftp_server: "boot.example.com".into(),
        ntp_servers: vec![OURS, OTHER],
        private: [(224, "a site's own".into()), (254, String::new())].into(),
    };
    let lease = lease().telling(&said);
    let shown: Vec<_> = lease.said.iter().map(|(number, data)| (*number, data.len())).collect();
    assert_eq!(shown, [(66, 16), (67, 10), (42, 8), (224, 12)], "what is empty is not said");
    let payload = ask(lease, &Say::new(MessageType::Discover)).expect("an offer").payload;
    let has = |option: &[u8]| payload.windows(option.len()).any(|part| part == option);
    assert!(
        has(b"\x43\x0apxelinux.0") && has(b"\x42\x10boot.example.com") && has(b"\xe0\x0ca site's own"),
        "{payload:?}"
    );
    assert!(has(&[42, 8, 10, 77, 0, 2, 10, 77, 0, 3]), "{payload:?}");
}
