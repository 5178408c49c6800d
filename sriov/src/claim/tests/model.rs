//! A node in memory: one VF, its PF's settings, its netdev, namespaces, and notes on a disk.
//!
//! It behaves as the kernel does where a claim depends on it, and panics where a claim does what it must not: change
//! something that no flushed note allows, take the VF from a guest that runs, let a driver have what a dead guest
//! left. Each call has a boundary before and one after it, at which something can happen ([`Event`]).

mod ports;

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

use crate::claim::{Cause, Claim, Netdev, Place, Step};
use crate::group::Member;
use crate::mac::Mac;
use crate::settings::{Kind, LinkState, Rate, VfSettings, Vlan};

pub(super) const NETNS: &str = "/run/netns/pod";
pub(super) const BOOT: &str = "boot-1";
pub(super) const DRIVER: &str = "igbvf";
const VFIO: &str = "vfio-pci";
/// What the CNI plugin gave the VF.
pub(super) const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

/// What happens at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// We are killed: nothing that we do after it has an effect.
    Crash,
    /// The call fails; at the boundary after it, it has had its effect.
    Fail,
    /// `echo 0 > sriov_numvfs`.
    Vanish,
    /// The pod's namespace goes; the kernel moves its netdevs to the host's.
    NetnsGone,
}

/// All that must be as before after a claim, apart from the netdev's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) present: bool,
    pub(super) incarnation: u64,
    pub(super) driver: Option<String>,
    pub(super) driver_override: Option<String>,
    pub(super) settings: VfSettings,
    /// The netdev and whether it is in the pod's namespace.
    pub(super) netdev: Option<(Netdev, bool)>,
    pub(super) netns: bool,
    /// What a guest left in it.
    pub(super) dirty: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) state: State,
    pub(super) disk: Option<Claim>,
    /// Whether a guest has the VF open.
    pub(super) guest: bool,
    /// Group, if others are in it as well.
    pub(super) others: Vec<Member>,
    pub(super) loaded: bool,
    pub(super) resettable: bool,
    /// How often something was changed.
    pub(super) changes: usize,
    /// Whether the VF's own driver changes a setting when it is bound.
    pub(super) meddling: bool,
    /// Whether the PF reports the address that a VF gave itself.
    pub(super) reporting: bool,
    /// Settings before the claim.
    original: VfSettings,
    /// Settings that the driver refuses.
    pub(super) refused: Vec<Kind>,
    /// The driver has the VF, and its netdev is not there yet.
    coming: bool,
    crashed: bool,
    next_index: u32,
    tick: usize,
    events: Vec<(usize, Event)>,
    case: Rc<dyn Debug>,
}

/// The node as several ports.
#[derive(Debug, Clone)]
pub(super) struct Model(pub(super) Rc<RefCell<Node>>);

impl Model {
    /// A VF with a netdev in the pod.
    pub(super) fn with_netdev(events: &[(usize, Event)], case: Rc<dyn Debug>) -> Self {
        let netdev = Netdev {
            name: "net1".to_owned(),
            index: 5,
            mac: MAC,
            mtu: 9000,
            up: true,
            extra: Some("10.0.0.2/24".into()),
        };
        Self::new(DRIVER, None, Some((netdev, true)), events, case)
    }

    /// A VF on vfio-pci.
    pub(super) fn with_vfio(events: &[(usize, Event)], case: Rc<dyn Debug>) -> Self {
        Self::new(VFIO, Some(VFIO), None, events, case)
    }

    fn new(
        driver: &str,
        driver_override: Option<&str>,
        netdev: Option<(Netdev, bool)>,
        events: &[(usize, Event)],
        case: Rc<dyn Debug>,
    ) -> Self {
        let settings = VfSettings {
            vlan: Some(Vlan { id: 100, ..Vlan::default() }),
            mac: Some(Mac([0; 6])),
            rate: Some(Rate::default()),
            spoofchk: Some(false),
            trust: Some(true),
            link_state: Some(LinkState::Auto),
        };
        let state = State {
            present: true,
            incarnation: 41,
            driver: Some(driver.to_owned()),
            driver_override: driver_override.map(str::to_owned),
            settings: settings.clone(),
            netdev,
            netns: true,
            dirty: false,
        };
        Self(Rc::new(RefCell::new(Node {
            state,
            disk: None,
            guest: false,
            others: Vec::new(),
            loaded: true,
            resettable: true,
            changes: 0,
            meddling: false,
            reporting: false,
            original: settings,
            refused: Vec::new(),
            coming: false,
            crashed: false,
            next_index: 6,
            tick: 0,
            events: events.to_vec(),
            case,
        })))
    }

    pub(super) fn state(&self) -> State {
        self.0.borrow().state.clone()
    }

    pub(super) fn crashed(&self) -> bool {
        self.0.borrow().crashed
    }

    pub(super) fn disk(&self) -> Option<Claim> {
        self.0.borrow().disk.clone()
    }

    pub(super) fn ticks(&self) -> usize {
        self.0.borrow().tick
    }

    /// We run again.
    pub(super) fn restart(&self) {
        self.0.borrow_mut().crashed = false;
    }

    /// A boundary of its own.
    pub(super) fn pass_time(&self) {
        // Time passes without an answer that could fail.
        let _ = self.0.borrow_mut().boundary();
    }

    /// The PF's VFs are made anew, as the PF's driver likes them.
    pub(super) fn recreate(&self) -> State {
        let mut node = self.0.borrow_mut();
        node.vanish();
        let netdev = Netdev { name: "eth3".into(), index: 60, mac: Mac([6; 6]), mtu: 1500, up: false, extra: None };
        let (incarnation, driver) = (node.state.incarnation + 1, Some(DRIVER.to_owned()));
        let settings = VfSettings { spoofchk: Some(true), mac: Some(Mac([0; 6])), ..VfSettings::default() };
        let netdev = Some((netdev, false));
        node.state = State { present: true, incarnation, driver, settings, netdev, ..node.state.clone() };
        node.state.clone()
    }

    /// One call: a boundary, its work, a boundary.
    fn call<T>(&self, work: impl FnOnce(&mut Node) -> Result<T, Cause>) -> Result<T, Cause> {
        let mut node = self.0.borrow_mut();
        node.boundary()?;
        let done = work(&mut node)?;
        node.boundary()?;
        Ok(done)
    }

    /// The same for a call that changes the VF, which must be noted.
    fn change(
        &self,
        allowed: &[Step],
        what: &str,
        work: impl FnOnce(&mut Node) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        self.call(|node| {
            let noted = node.disk.as_ref().map(Claim::step);
            let allowed = noted.is_some_and(|step| allowed.contains(&step));
            assert!(allowed, "{what} at {noted:?} in {:?}", node.case);
            node.changes += 1;
            node.there()?;
            work(node)
        })
    }
}

const BINDING: &[Step] = &[Step::Taken, Step::Rebinding];

impl Node {
    fn boundary(&mut self) -> Result<(), Cause> {
        if self.crashed {
            return Err("crashed".into());
        }
        let (tick, mut failed) = (self.tick, Ok(()));
        self.tick += 1;
        let due: Vec<Event> = self.events.iter().filter(|(at, _)| *at == tick).map(|(_, event)| *event).collect();
        for event in due {
            match event {
                Event::Crash => self.crashed = true,
                Event::Fail => {}
                Event::Vanish => {
                    self.vanish();
                    continue;
                }
                Event::NetnsGone => {
                    self.netns_gone();
                    continue;
                }
            }
            failed = Err(format!("{event:?}").into());
        }
        failed
    }

    pub(super) fn vanish(&mut self) {
        let (incarnation, netns) = (self.state.incarnation, self.state.netns);
        self.coming = false;
        self.state = State {
            present: false,
            incarnation,
            driver: None,
            driver_override: None,
            settings: VfSettings::default(),
            netdev: None,
            netns,
            dirty: false,
        };
    }

    pub(super) fn netns_gone(&mut self) {
        self.state.netns = false;
        if let Some((netdev, in_pod)) = &mut self.state.netdev
            && *in_pod
        {
            *in_pod = false;
            netdev.up = false;
            netdev.extra = None;
        }
    }

    fn there(&self) -> Result<(), Cause> {
        if self.state.present { Ok(()) } else { Err("no such device".into()) }
    }

    fn netdev_at(&self, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        let wanted = match place {
            Place::Host => false,
            Place::Netns(netns) => {
                assert_eq!(netns, NETNS);
                if !self.state.netns {
                    return Err("no such namespace".into());
                }
                true
            }
        };
        Ok(self.state.netdev.clone().filter(|(_, in_pod)| *in_pod == wanted).map(|(netdev, _)| netdev))
    }

    fn netdev_mut(&mut self, index: u32) -> Result<&mut (Netdev, bool), Cause> {
        let found = self.state.netdev.as_mut().filter(|(netdev, _)| netdev.index == index);
        found.ok_or_else(|| "no such netdev".into())
    }
}
