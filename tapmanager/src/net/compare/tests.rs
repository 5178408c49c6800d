//! On a model of a namespace that does what steps say. The real kernel's turn is in [`crate::net::tests`].

use ipnetwork::IpNetwork;

use std::collections::BTreeMap;

use proto::tap::{DataPath, NicKind, Tap};

use super::*;
use crate::net::observe::Observed;
use crate::sys::bpf::Program;
use crate::sys::link::{Address, KernelRoute, MAIN_TABLE, NextHop};
use crate::sys::tc::{self, Fingerprint, Hook, OurFilters};

const PATHS: [DataPath; 3] = DataPath::ALL;

pub(in crate::net) fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}

fn net(text: &str) -> IpNetwork {
    text.parse().expect("a network")
}

pub(in crate::net) fn guarded(data_path: DataPath) -> Guarded {
    let nic = Nic {
        name: name("eth0"),
        network: "pods".to_owned(),
        kind: NicKind::Tap(Tap { data_path, queues: 2 }),
        mac: "02:00:00:00:00:01".parse().expect("an address"),
        mtu: 1450,
        addresses: vec![net("10.77.0.2/24")],
        routes: vec![proto::tap::Route { dst: net("0.0.0.0/0"), gateway: Some("10.77.0.1".parse().expect("address")) }],
    };
    let guards = Guards::of(&nic, true).expect("guards");
    Guarded { nic, guards }
}

/// The namespace as the plugins leave it.
pub(in crate::net) fn bare() -> State {
    let route = |dst, next_hop| KernelRoute {
        link: 2,
        table: MAIN_TABLE,
        dst: net(dst),
        next_hop,
        metric: 0,
        mtu: None,
        advmss: None,
        hops: 1,
    };
    let gateway = NextHop::Gateway("10.77.0.1".parse().expect("an address"));
    State {
        observed: Observed {
            links: vec![made(2, "eth0", "veth")],
            addresses: vec![Address { link: 2, net: net("10.77.0.2/24"), lasting: true }],
            routes: vec![route("10.77.0.0/24", NextHop::OnLink), route("0.0.0.0/0", gateway)],
            ..Observed::default()
        },
        ours: vec![],
        qdiscs: BTreeMap::new(),
    }
}

pub(in crate::net) fn made(index: u32, text: &str, kind: &str) -> Link {
    Link {
        index,
        name: name(text),
        kind: Some(kind.to_owned()),
        ethernet: true,
        loopback: false,
        up: index == 2,
        carrier: true,
        controller: None,
        lower: None,
        vrf_table: None,
        mac: "02:00:00:00:00:01".parse().ok(),
        mtu: 1450,
        pci: None,
    }
}

impl State {
    pub(in crate::net) fn act(&mut self, step: &Step) {
        let next = 1 + self.observed.links.iter().map(|link| link.index).max().unwrap_or_default();
        let mut make = |link: Link| {
            assert!(self.observed.links.iter().all(|other| other.name != link.name), "made twice");
            self.observed.links.push(link);
        };
        match step {
            Step::CreateTap { tap, .. } => make(made(next, tap.as_str(), "tun")),
            Step::CreateBridge { bridge, .. } => make(made(next, bridge.as_str(), "bridge")),
            Step::CreateMacvtap { tap, .. } => make(Link { lower: Some(2), ..made(next, tap.as_str(), "macvtap") }),
            Step::AddClsact { link } => {
                let index = self.index(link).expect("a link");
                assert_eq!(self.qdiscs.insert(index, tc::CLSACT.to_owned()), None, "added twice");
            }
            Step::AddGuard { link, hook, guard } => {
                self.filter(link, *hook).guard = Some(Fingerprint::of(&guard.program()))
            }
            Step::DropIngress { link } => {
                self.filter(link, Hook::Ingress).guard = Some(Fingerprint::of(&Program::always(tc::DROP)));
            }
            Step::AddRedirect { from, to, .. } => self.filter(from, Hook::Ingress).redirect_to = self.index(to),
            Step::SetMaster { link, bridge } => self.change(link).controller = self.index(bridge),
            Step::SetUp { link } => self.change(link).up = true,
            Step::SetNoqueue { .. } | Step::ShapeTap { .. } | Step::ReplaceFdbEntry { .. } | Step::Listen { .. } => {}
        }
    }

    pub(in crate::net) fn change(&mut self, name: &IfName) -> &mut Link {
        self.observed.links.iter_mut().find(|link| link.name == *name).expect("a link")
    }

    fn filter(&mut self, link: &IfName, hook: Hook) -> &mut OurFilters {
        let index = self.index(link).expect("a link");
        let at = self.ours.iter().position(|(at, side, _)| (*at, *side) == (index, hook)).unwrap_or_else(|| {
            self.ours.push((index, hook, OurFilters::default()));
            self.ours.len() - 1
        });
        &mut self.ours[at].2
    }

    /// As the kernel does it: filters go with their link, and lead nowhere when their target is gone.
    pub(in crate::net) fn remove(&mut self, link: &IfName) {
        let index = self.index(link).expect("a link");
        self.observed.links.retain(|other| other.index != index);
        self.ours.retain(|(at, ..)| *at != index);
        self.qdiscs.remove(&index);
        for (.., ours) in &mut self.ours {
            if ours.redirect_to == Some(index) {
                ours.redirect_to = Some(0);
            }
        }
        for other in &mut self.observed.links {
            if other.controller == Some(index) {
                other.controller = None;
            }
        }
    }

    fn repaired(mut self, nics: &[Guarded]) -> Self {
        for step in repairs(&self, nics).expect("ours to repair") {
            self.act(&step);
        }
        self
    }
}

fn joined(nic: &Guarded) -> State {
    let mut state = bare();
    for step in path::steps(&nic.nic, 0, true, &nic.guards) {
        state.act(&step);
    }
    state
}

#[test]
fn what_was_just_joined_lacks_nothing() {
    for path in PATHS {
        let nic = guarded(path);
        let state = joined(&nic);
        assert_eq!(drift(&state, std::slice::from_ref(&nic)), [], "{path:?}");
        assert_eq!(repairs(&state, &[nic]), Ok(vec![]), "{path:?}");
    }
}

#[test]
fn whatever_of_ours_is_lost_is_found_breaks_the_join_and_is_made_again() {
    type Lose = fn(&mut State);
    let losses: [(&str, &[DataPath], Lose); 7] = [
        ("tap", &PATHS, |state| state.remove(&name("tap0"))),
        ("tap down", &PATHS, |state| state.change(&name("tap0")).up = false),
        ("link down", &PATHS, |state| state.change(&name("eth0")).up = false),
        ("filters", &PATHS, |state| {
            state.ours.clear();
            state.qdiscs.clear();
        }),
        ("filters alone", &PATHS, |state| state.ours.clear()),
        ("bridge", &[DataPath::Bridge], |state| state.remove(&name("vmbr0"))),
        ("port", &[DataPath::Bridge], |state| state.change(&name("eth0")).controller = None),
    ];
    for (what, paths, lose) in losses {
        for path in paths {
            let nics = [guarded(*path)];
            let mut state = joined(&nics[0]);
            lose(&mut state);
            assert!(drift(&state, &nics).iter().any(Drift::is_break), "{what} {path:?}");
            assert_eq!(drift(&state.repaired(&nics), &nics), [], "{what} {path:?}");
        }
    }
}

#[test]
fn a_guard_of_another_release_is_no_break_and_is_made_anew() {
    for path in PATHS {
        let nics = [guarded(path)];
        let loose = Guarded { guards: Guards::of(&nics[0].nic, false).expect("guards"), ..nics[0].clone() };
        let state = joined(&loose);
        let other = |link| Drift::OtherGuard { link: name(link) };
        assert_eq!(drift(&state, &nics), [other("tap0"), other("eth0")], "{path:?}");
        assert!(!drift(&state, &nics).iter().any(Drift::is_break));
        let done: Vec<_> = repairs(&state, &nics).expect("ours").iter().map(Step::done).collect();
        assert_eq!(done, ["guard added", "guard added"], "one step for each: {path:?}");
        assert_eq!(drift(&state.repaired(&nics), &nics), [], "{path:?}");
    }
}

#[test]
fn what_is_not_ours_and_in_the_way_is_named_and_left_alone() {
    for path in PATHS {
        let nics = [guarded(path)];
        let mut state = joined(&nics[0]);
        state.filter(&name("eth0"), Hook::Egress).foreign = Some(1);
        assert_eq!(drift(&state, &nics), [], "it stands on the other side: {path:?}");
        *state.filter(&name("eth0"), Hook::Ingress) = OurFilters::default();
        assert!(repairs(&state, &nics).is_ok(), "it stands on the other side: {path:?}");
        state.filter(&name("eth0"), Hook::Ingress).foreign = Some(1);
        let way = |what: &str| Drift::InTheWay { link: name("eth0"), what: what.to_owned(), breaks: true };
        assert_eq!(drift(&state, &nics), [way("a filter of priority 1")], "{path:?}");
        assert_eq!(repairs(&state, &nics), Err(vec![way("a filter of priority 1")]), "{path:?}");
        state.qdiscs.insert(2, "ingress".to_owned());
        assert_eq!(repairs(&state, &nics), Err(vec![way("a qdisc `ingress`")]), "{path:?}");
        let loose = Guarded { guards: Guards::of(&nics[0].nic, false).expect("guards"), ..nics[0].clone() };
        let mut state = joined(&loose);
        let hook = if path == DataPath::Macvtap { Hook::Egress } else { Hook::Ingress };
        state.filter(&name("tap0"), hook).foreign = Some(1);
        let way = drift(&state, &nics)[0].found();
        assert!(way.line.contains("in the way") && !way.breaks, "guarded by an earlier release: {path:?}: {way:?}");
    }
}

#[test]
fn a_link_that_took_the_name_of_ours_is_told_as_such() {
    for path in PATHS {
        let nics = [guarded(path)];
        let mut state = joined(&nics[0]);
        state.remove(&name("tap0"));
        state.observed.links.push(made(9, "tap0", "veth"));
        let taken = Drift::NameTaken { link: name("tap0"), kind: Some("veth".to_owned()) };
        let findings = drift(&state, &nics);
        assert_eq!(findings[0], taken, "{path:?}");
        assert!(!findings.contains(&Drift::OursGone { link: name("tap0") }), "{path:?}");
        assert!(!findings.contains(&Drift::Unguarded { link: name("tap0") }), "{path:?}");
        assert_eq!(repairs(&state, &nics), Err(vec![taken]), "{path:?}");
    }
}

#[test]
fn what_the_plugins_made_is_told_and_not_made_again() {
    let nics = [guarded(DataPath::Tc)];
    let found = |change: fn(&mut State)| {
        let mut state = joined(&nics[0]);
        change(&mut state);
        (drift(&state, &nics), repairs(&state, &nics).is_err())
    };
    let eth0 = || name("eth0");
    assert_eq!(found(|state| state.remove(&name("eth0"))), (vec![Drift::LinkGone { link: eth0() }], true));
    let other = "02:00:00:00:00:02".parse().ok();
    let mut state = joined(&nics[0]);
    state.change(&eth0()).mac = other;
    assert_eq!(drift(&state, &nics), [Drift::MacChanged { link: eth0(), mac: nics[0].nic.mac }]);
    assert!(repairs(&state, &nics).is_err());
    let lost = "10.77.0.2".parse().expect("an address");
    let gone = vec![Drift::AddressGone { link: eth0(), address: lost }];
    assert_eq!(found(|state| state.observed.addresses.clear()), (gone, false));
    let more = |state: &mut State| {
        state.observed.addresses.push(Address { link: 2, net: net("10.77.0.9/24"), lasting: true });
    };
    let new = "10.77.0.9".parse().expect("an address");
    assert_eq!(found(more), (vec![Drift::AddressNew { link: eth0(), address: new }], false));
    let routes = |state: &mut State| state.observed.routes.truncate(1);
    assert_eq!(found(routes), (vec![Drift::RoutesChanged { link: eth0() }], false));
    let mtu = |state: &mut State| state.change(&name("eth0")).mtu = 1400;
    assert_eq!(found(mtu), (vec![Drift::MtuChanged { link: eth0(), was: 1450, is: 1400 }], false));
}

#[test]
fn a_join_by_ebpf_of_an_earlier_release_is_left_as_it_is() {
    let nics = [guarded(DataPath::Ebpf)];
    let state = bare();
    assert_eq!(drift(&state, &nics), []);
    assert_eq!(repairs(&state, &nics), Ok(vec![]));
}
