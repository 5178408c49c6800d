//! The server as bytes: what it says to whom, as an independent decoder reads it. With any bytes at all: [`hostile`]. With
//! real clients: those of [`crate::ra`], which need both.

mod hostile;

use std::fmt::Write as _;

use dhcproto::v6::{
    DhcpOption, DhcpOptions, IAAddr, IANA, IAPD, IATA, Message, MessageType, ORO, OptionCode, Status, UnknownOption,
};
use dhcproto::{Decodable as _, Encodable as _};
use proto::tap::MacAddr;

use super::*;
use crate::ipv6::ICMPV6;
use crate::served_nic::{self, VM};

const STRANGER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 1, 0, 2];
const CLIENT: &str = "fe80::ff:fe00:1";
const CLIENT_DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const OURS: &str = "fd00:77::2";
const SECOND: &str = "2001:db8::2";
const FOREIGN: &str = "fd00:77::3";

fn nic(addresses: &[&str]) -> Nic {
    served_nic::nic(addresses, &[])
}

fn dns() -> Dns {
    Dns {
        servers: ["10.96.0.10", "fd00:96::a", "fd00:96::b"].map(|server| server.parse().unwrap()).to_vec(),
        searches: ["default.svc.cluster.local", "cluster.local."].map(str::to_owned).to_vec(),
        options: Vec::new(),
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn server() -> Server {
    let nic = nic(&["10.77.0.2/24", "fd00:77::2/64", "2001:db8::2/128", "fe80::9/64"]);
    Server::new(&nic, &dns(), "web-0", HOUR).unwrap()
}

fn server_duid() -> Vec<u8> {
    server().lease.duid
}

/// A client's message and the frame around it.
#[derive(Debug, Clone)]
struct Say {
    message: Message,
    from_mac: [u8; 6],
    from: Ipv6Addr,
    to: Ipv6Addr,
    port: u16,
    protocol: u8,
}

impl Say {
    fn new(kind: MessageType) -> Self {
        let mut message = Message::new_with_id(kind, [1, 2, 3]);
        message.opts_mut().insert(DhcpOption::ClientId(CLIENT_DUID.to_vec()));
        Self { message, from_mac: VM, from: ip(CLIENT), to: ALL_SERVERS, port: SERVER_PORT, protocol: UDP }
    }

    fn opt(mut self, option: DhcpOption) -> Self {
        self.message.opts_mut().insert(option);
        self
    }

    fn without(mut self, code: OptionCode) -> Self {
        self.message.opts_mut().remove(code);
        self
    }

    /// Has chosen this server.
    fn chosen(self) -> Self {
        self.opt(DhcpOption::ServerId(server_duid()))
    }

    fn ia(self, id: u32, addresses: &[&str]) -> Self {
        let opts = addresses.iter().map(|address| ia_addr(address)).collect();
        self.opt(DhcpOption::IANA(IANA { id, t1: 0, t2: 0, opts }))
    }

    fn asking_for(self, codes: &[u16]) -> Self {
        self.opt(DhcpOption::ORO(ORO { opts: codes.iter().map(|code| OptionCode::from(*code)).collect() }))
    }

    fn frame(&self) -> Vec<u8> {
        frame_of(self, &self.message.to_vec().unwrap())
    }
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn ia_addr(address: &str) -> DhcpOption {
    let opts = DhcpOptions::new();
    DhcpOption::IAAddr(IAAddr { addr: ip(address), preferred_life: 0, valid_life: 0, opts })
}

fn fqdn(flags: u8) -> DhcpOption {
    unknown(39, [&[flags], &b"\x05guest"[..]].concat())
}

fn unknown(code: u16, data: Vec<u8>) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(code.into(), data))
}

/// With the checksum of a guest that leaves it to its device: none.
fn frame_of(say: &Say, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len() + 8).unwrap().to_be_bytes();
    let ip = [&[0x60, 0, 0, 0], &len[..], &[say.protocol, 1], &say.from.octets(), &say.to.octets()].concat();
    let udp = [&546_u16.to_be_bytes()[..], &say.port.to_be_bytes(), &len, &[0, 0], payload].concat();
    [&GROUP[..], &say.from_mac, &[0x86, 0xdd], &ip, &udp].concat()
}

/// An answer taken apart by others than those who made it.
fn hear(frame: &[u8]) -> Message {
    let packet = parse(frame).unwrap();
    assert_eq!((packet.to_mac, packet.from, packet.next_header), (VM, SERVER, UDP));
    assert!(frame.len() <= 14 + 1280, "{}", frame.len());
    let (header, payload) = packet.payload.split_at(8);
    assert_eq!(header[..4], [2, 35, 2, 34]);
    assert_eq!(usize::from(u16::from_be_bytes([header[4], header[5]])), packet.payload.len());
    let pseudo = [&packet.from.octets()[..], &packet.to.octets(), &[0, 0, header[4], header[5], 0, 0, 0, 17]].concat();
    assert_eq!(crate::checksum::checksum(&[&pseudo, packet.payload]), 0);
    let message = Message::from_bytes(payload).unwrap();
    // The decoder stops without a word at what it does not like.
    assert_eq!(decoded(message.opts()), raw(&payload[4..]), "{message:?}");
    message
}

/// How many options there are, those of options included.
fn decoded(opts: &DhcpOptions) -> usize {
    let inner = |option: &DhcpOption| match option {
        DhcpOption::IANA(ia) => decoded(&ia.opts),
        DhcpOption::IATA(ia) => decoded(&ia.opts),
        DhcpOption::IAPD(ia) => decoded(&ia.opts),
        _ => 0,
    };
    opts.iter().map(|option| 1 + inner(option)).sum()
}

fn raw(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let (code, len) = (bytes[1], usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
        let header = match code {
            3 | 25 => Some(12),
            4 => Some(4),
            _ => None,
        };
        count += 1 + header.map_or(0, |header| raw(&bytes[4 + header..4 + len]));
        bytes = &bytes[4 + len..];
    }
    count
}

fn ask(say: &Say) -> Option<Message> {
    server().handle_frame(&say.frame()).map(|frame| hear(&frame))
}

/// What was answered, in a line.
fn answer(say: &Say) -> String {
    let Some(message) = ask(say) else { return "nothing".to_owned() };
    assert_eq!(message.xid(), say.message.xid());
    assert_eq!(message.opts().get(OptionCode::ServerId), Some(&DhcpOption::ServerId(server_duid())));
    assert_eq!(message.opts().get(OptionCode::ClientId), say.message.opts().get(OptionCode::ClientId));
    format!("{:?}{}", message.msg_type(), options(message.opts()))
}

fn options(opts: &DhcpOptions) -> String {
    let mut parts: Vec<String> = opts.iter().map(option).collect();
    // The decoder leaves associations in any order.
    if parts.iter().any(|part| part.starts_with("; na")) {
        parts.sort_by_key(|part| !part.starts_with("; na"));
        let associations = parts.partition_point(|part| part.starts_with("; na"));
        parts[..associations].sort_unstable();
    }
    parts.concat()
}

fn option(option: &DhcpOption) -> String {
    let mut text = String::new();
    match option {
        DhcpOption::ClientId(_) | DhcpOption::ServerId(_) => Ok(()),
        DhcpOption::IANA(ia) => write!(text, "; na {} {}/{}{}", ia.id, ia.t1, ia.t2, options(&ia.opts)),
        DhcpOption::IATA(ia) => write!(text, "; ta {}{}", ia.id, options(&ia.opts)),
        DhcpOption::IAPD(ia) => write!(text, "; pd {} {}/{}{}", ia.id, ia.t1, ia.t2, options(&ia.opts)),
        DhcpOption::IAAddr(ia) => write!(text, " {}={}/{}", ia.addr, ia.preferred_life, ia.valid_life),
        DhcpOption::StatusCode(status) => write!(text, " {:?}", status.status),
        DhcpOption::DomainNameServers(servers) => write!(text, "; dns {servers:?}"),
        DhcpOption::DomainSearchList(names) => {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            write!(text, "; search {names:?}")
        }
        DhcpOption::Unknown(option) => {
            let (code, data) = (u16::from(option.code()), option.data());
            match <[u8; 4]>::try_from(data) {
                Ok(number) => write!(text, "; {code} {}", u32::from_be_bytes(number)),
                Err(_) => write!(text, "; {code} {:?}", String::from_utf8_lossy(data)),
            }
        }
        option => write!(text, "; {option:?}"),
    }
    .unwrap();
    text
}

#[test]
fn a_nic_without_global_addresses_needs_no_server() {
    for addresses in [&[][..], &["10.77.0.2/24"], &["fe80::2/64"]] {
        assert!(Server::new(&nic(addresses), &dns(), "web-0", HOUR).is_none(), "{addresses:?}");
    }
}

#[test]
fn each_message_gets_the_answer_that_the_rfc_wants() {
    use MessageType as Kind;
    let both = "1800/2880 fd00:77::2=3600/3600 2001:db8::2=3600/3600";
    let say = |kind| Say::new(kind).asking_for(&[]);
    let known = |kind| say(kind).chosen();
    let cases = [
        ("solicit", say(Kind::Solicit).ia(7, &[]), format!("Advertise; na 7 {both}; Preference(255)")),
        (
            "a wish that is not ours",
            say(Kind::Solicit).ia(7, &[FOREIGN]),
            format!("Advertise; na 7 {both}; Preference(255)"),
        ),
        (
            "rapid",
            say(Kind::Solicit).ia(7, &[]).opt(DhcpOption::RapidCommit),
            format!("Reply; na 7 {both}; RapidCommit"),
        ),
        ("request", known(Kind::Request).ia(7, &[OURS, SECOND]), format!("Reply; na 7 {both}")),
        ("request of nothing named", known(Kind::Request).ia(7, &[]), format!("Reply; na 7 {both}")),
        ("request of another's", known(Kind::Request).ia(7, &[OURS, FOREIGN]), "Reply; na 7 0/0 NotOnLink".to_owned()),
        ("renew", known(Kind::Renew).ia(7, &[OURS, SECOND]), format!("Reply; na 7 {both}")),
        ("renew of one", known(Kind::Renew).ia(7, &[OURS]), format!("Reply; na 7 {both}")),
        ("renew of another's", known(Kind::Renew).ia(7, &[FOREIGN]), format!("Reply; na 7 {both} fd00:77::3=0/0")),
        ("rebind", say(Kind::Rebind).ia(7, &[OURS]), format!("Reply; na 7 {both}")),
        ("rebind of another's", say(Kind::Rebind).ia(7, &[FOREIGN]), format!("Reply; na 7 {both} fd00:77::3=0/0")),
        ("confirm", say(Kind::Confirm).ia(7, &[OURS]), "Reply Success".to_owned()),
        ("confirm of another's", say(Kind::Confirm).ia(7, &[OURS, FOREIGN]), "Reply NotOnLink".to_owned()),
        ("confirm of nothing", say(Kind::Confirm).ia(7, &[]), "nothing".to_owned()),
        ("release", known(Kind::Release).ia(7, &[OURS]), "Reply Success".to_owned()),
        (
            "release of another's",
            known(Kind::Release).ia(7, &[FOREIGN]),
            "Reply; na 7 0/0 NoBinding Success".to_owned(),
        ),
        ("decline", known(Kind::Decline).ia(7, &[SECOND]), "Reply Success".to_owned()),
        ("information", say(Kind::InformationRequest), "Reply".to_owned()),
        ("information from nobody", say(Kind::InformationRequest).without(OptionCode::ClientId), "Reply".to_owned()),
        ("information of the chosen", known(Kind::InformationRequest), "Reply".to_owned()),
    ];
    for (what, say, expected) in cases {
        assert_eq!(answer(&say), expected, "{what}");
    }
}

#[test]
fn what_is_not_for_this_server_gets_no_answer() {
    use MessageType as Kind;
    let solicit = Say::new(Kind::Solicit).ia(7, &[]);
    let request = Say::new(Kind::Request).ia(7, &[OURS]);
    let other = || DhcpOption::ServerId(vec![0, 3, 0, 1, 9, 9]);
    let cases = [
        ("another machine's", Say { from_mac: STRANGER, ..solicit.clone() }),
        ("from nobody", Say { from: Ipv6Addr::UNSPECIFIED, ..solicit.clone() }),
        ("from a group", Say { from: ALL_SERVERS, ..solicit.clone() }),
        ("to one station", Say { to: SERVER, ..solicit.clone() }),
        ("to all nodes", Say { to: ip("ff02::1"), ..solicit.clone() }),
        ("another port", Say { port: 546, ..solicit.clone() }),
        ("another protocol", Say { protocol: ICMPV6, ..solicit.clone() }),
        ("solicit of no client", solicit.clone().without(OptionCode::ClientId)),
        ("client of no name", solicit.clone().without(OptionCode::ClientId).opt(DhcpOption::ClientId(vec![]))),
        (
            "client of a long name",
            solicit.clone().without(OptionCode::ClientId).opt(DhcpOption::ClientId(vec![1; 131])),
        ),
        ("solicit to one server", solicit.chosen()),
        ("request to no server", request.clone()),
        ("request to another server", request.opt(other())),
        ("renew to no server", Say::new(Kind::Renew).ia(7, &[OURS])),
        ("release to another server", Say::new(Kind::Release).ia(7, &[OURS]).opt(other())),
        ("decline to no server", Say::new(Kind::Decline).ia(7, &[OURS])),
        ("rebind to one server", Say::new(Kind::Rebind).ia(7, &[OURS]).chosen()),
        ("confirm to one server", Say::new(Kind::Confirm).ia(7, &[OURS]).chosen()),
        ("information of another server", Say::new(Kind::InformationRequest).opt(other())),
        ("information with addresses", Say::new(Kind::InformationRequest).ia(7, &[])),
        ("advertise", Say::new(Kind::Advertise).ia(7, &[])),
        ("reply", Say::new(Kind::Reply).chosen()),
        ("reconfigure", Say::new(Kind::Reconfigure).chosen()),
    ];
    for (what, say) in cases {
        assert_eq!(answer(&say), "nothing", "{what}");
    }
    // A message that is right but for being relayed.
    let relayed = [&[12, 0][..], &[0; 32], &[0, 9, 0, 4, 1, 1, 2, 3]].concat();
    let frame = frame_of(&Say::new(Kind::Solicit), &relayed);
    assert_eq!(server().handle_frame(&frame), None);
}

#[test]
fn several_associations_share_the_addresses() {
    let solicit = Say::new(MessageType::Solicit).asking_for(&[]);
    // The encoder of the test puts what comes later first.
    let second = "na 1 1800/2880 2001:db8::2=3600/3600; na 2 1800/2880 fd00:77::2=3600/3600";
    let cases = [
        (
            solicit.clone().ia(2, &[]).ia(1, &[]),
            "Advertise; na 1 1800/2880 fd00:77::2=3600/3600 2001:db8::2=3600/3600; na 2 0/0 NoAddrsAvail; Preference(255)"
                .to_owned(),
        ),
        (solicit.ia(2, &[OURS]).ia(1, &[]), format!("Advertise; {second}; Preference(255)")),
        (
            Say::new(MessageType::Renew).chosen().asking_for(&[]).ia(1, &[SECOND]).ia(2, &[OURS]),
            format!("Reply; {second}"),
        ),
    ];
    for (say, expected) in cases {
        assert_eq!(answer(&say), expected);
    }
}

#[test]
fn temporary_addresses_and_prefixes_are_refused_in_their_own_words() {
    let others = |say: Say| {
        let say = say.opt(DhcpOption::IATA(IATA { id: 8, opts: DhcpOptions::new() })).asking_for(&[]);
        say.opt(DhcpOption::IAPD(IAPD { id: 9, t1: 5, t2: 6, opts: DhcpOptions::new() }))
    };
    use MessageType as Kind;
    let cases = [
        (Say::new(Kind::Solicit), "Advertise; ta 8 NoAddrsAvail; Preference(255); pd 9 0/0 NoPrefixAvail"),
        (Say::new(Kind::Request).chosen(), "Reply; ta 8 NoAddrsAvail; pd 9 0/0 NoPrefixAvail"),
        (Say::new(Kind::Renew).chosen(), "Reply; ta 8 NoBinding; pd 9 0/0 NoBinding"),
        (Say::new(Kind::Rebind), "Reply; ta 8 NoBinding; pd 9 0/0 NoBinding"),
        (Say::new(Kind::Release).chosen(), "Reply; ta 8 NoBinding Success; pd 9 0/0 NoBinding"),
    ];
    for (say, expected) in cases {
        assert_eq!(answer(&others(say)), expected);
    }
}

#[test]
fn a_client_is_told_what_it_asks_for_and_nothing_else() {
    let information = || Say::new(MessageType::InformationRequest);
    let resolvers = "; dns [fd00:96::a, fd00:96::b]";
    let search = r#"; search ["default.svc.cluster.local.", "cluster.local."]"#;
    let name = |flags: &str| format!("; 39 \"{flags}\\u{{5}}web-0\"");
    let cases = [
        (information(), format!("Reply{resolvers}{search}; 32 3600")),
        (information().asking_for(&[23]), format!("Reply{resolvers}")),
        (information().asking_for(&[24, 21, 99]), format!("Reply{search}")),
        (information().asking_for(&[32]), "Reply; 32 3600".to_owned()),
        (information().asking_for(&[39]), "Reply".to_owned()),
        (information().asking_for(&[23]).opt(fqdn(0)), format!("Reply{resolvers}")),
        (information().asking_for(&[39]).opt(fqdn(0)), format!("Reply{}", name("\\u{4}"))),
        (information().asking_for(&[39]).opt(fqdn(1)), format!("Reply{}", name("\\u{6}"))),
    ];
    for (say, expected) in cases {
        assert_eq!(answer(&say), expected, "{say:?}");
    }
    // Nothing is made up.
    let mut bare = Server::new(&nic(&["fd00:77::2/64"]), &Dns::default(), "", HOUR).unwrap();
    let heard = hear(&bare.handle_frame(&information().opt(fqdn(0)).frame()).unwrap());
    assert_eq!(options(heard.opts()), "; 32 3600");
}

#[test]
fn lifetimes_are_in_order_and_never_for_ever() {
    let cases = [
        (Duration::ZERO, "0/1 fd00:77::2=1/1"),
        (Duration::from_secs(4), "2/4 fd00:77::2=4/4"),
        (Duration::MAX, "2147483647/3435973836 fd00:77::2=4294967294/4294967294"),
    ];
    for (lease, expected) in cases {
        let mut server = Server::new(&nic(&["fd00:77::2/64"]), &Dns::default(), "", lease).unwrap();
        let say = Say::new(MessageType::Request).chosen().ia(7, &[]);
        let heard = hear(&server.handle_frame(&say.frame()).unwrap());
        assert_eq!(options(heard.opts()), format!("; na 7 {expected}"));
    }
}

#[test]
fn the_server_is_the_same_after_a_restart_and_another_for_another_nic() {
    let of = |mac| Server::new(&Nic { mac, ..nic(&["fd00:77::2/64"]) }, &dns(), "", HOUR).unwrap().lease.duid;
    assert_eq!(of(MacAddr::new(VM).unwrap()), server_duid());
    assert_ne!(of(MacAddr::new(STRANGER).unwrap()), server_duid());
    // A DUID-UUID of the version and variant that it says (RFC 6355, RFC 9562).
    let duid = server_duid();
    assert_eq!((duid.len(), &duid[..2], duid[8] >> 4, duid[10] >> 6), (18, &[0, 4][..], 8, 2));
}

#[test]
fn a_long_answer_stays_short_enough_and_keeps_the_addresses() {
    let many: Vec<String> = (1..=60).map(|host| format!("fd00:77::{host:x}/64")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = Dns { servers: vec![ip("fd00:96::a").into(); 40], searches: vec!["a".repeat(60); 40], options: vec![] };
    let mut server = Server::new(&nic(&many), &long, "web-0", HOUR).unwrap();
    let say =
        Say::new(MessageType::Solicit).without(OptionCode::ClientId).opt(DhcpOption::ClientId(vec![7; 130])).ia(7, &[]);
    let heard = hear(&server.handle_frame(&say.frame()).unwrap());
    let Some(DhcpOption::IANA(ia)) = heard.opts().get(OptionCode::IANA) else { panic!("{heard:?}") };
    assert_eq!(ia.opts.iter().count(), 32);
    // What is left out is the end of the list.
    let Some(DhcpOption::DomainNameServers(servers)) = heard.opts().get(OptionCode::DomainNameServers) else {
        panic!("{heard:?}")
    };
    assert!(!servers.is_empty());

    // Of one address there is room for all the rest.
    let mut server = Server::new(&nic(&["fd00:77::2/64"]), &long, "web-0", HOUR).unwrap();
    let heard = hear(&server.handle_frame(&say.frame()).unwrap());
    assert!(heard.opts().get(OptionCode::DomainNameServers).is_some(), "{heard:?}");
    assert!(heard.opts().get(OptionCode::DomainSearchList).is_some(), "{heard:?}");
}
