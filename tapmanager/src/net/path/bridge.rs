//! A tap beside the link, and a bridge in the pod's namespace that has both as its ports.

use proto::tap::{IfName, MacAddr};

use super::{Join, Path, TAP_MAX_MTU, is_named};
use crate::net::numbered;
use crate::net::step::Step;
use crate::sys::link::Link;
use crate::sys::tc::Hook;

pub(super) struct Bridge;

impl Path for Bridge {
    fn refusal(&self, link: &Link) -> Option<&'static str> {
        link.controller.map(|_| "it is a member of another link, such as a VRF, and can be of one only")
    }

    fn steps(&self, join: &Join<'_>) -> Vec<Step> {
        let (link, tap, bridge) = (join.link(), join.tap(), name(join.place));
        // Some links, as a macvlan, receive frames that are longer than they may send: their neighbours' MTU counts. A
        // bridge drops what is longer than its port's (`is_skb_forwardable` in the kernel's `net/core/dev.c`), so its port
        // must not be the narrow place.
        let mut steps = join.create_tap(TAP_MAX_MTU);
        steps.extend(join.guard_from_guest(Hook::Ingress));
        steps.extend(join.guard_to_guest());
        steps.push(Step::CreateBridge { bridge: bridge.clone(), mac: own_mac(join.nic.mac) });
        steps.push(Step::AddClsact { link: bridge.clone() });
        steps.push(Step::DropIngress { link: bridge.clone() });
        steps.push(Step::SetUp { link: bridge.clone() });
        steps.push(Step::SetMaster { link: tap.clone(), bridge: bridge.clone() });
        steps.push(Step::SetMaster { link, bridge });
        steps.push(Step::ReplaceFdbEntry { port: tap, mac: join.nic.mac });
        steps.extend(join.set_up());
        steps.push(join.listen());
        steps
    }

    fn explanation(&self) -> &'static str {
        "a bridge in the pod's namespace"
    }

    fn helper(&self, place: usize) -> Option<IfName> {
        Some(name(place))
    }

    fn made(&self, link: &Link) -> bool {
        is_named(link, "bridge", name)
    }

    fn outlives_del(&self) -> bool {
        true
    }
}

/// The name of the bridge of the guest's NIC at `place`, from 0.
fn name(place: usize) -> IfName {
    numbered("vmbr", place)
}

/// An address for the bridge itself, which nobody speaks to: the guest's with a bit turned, and locally administered.
fn own_mac(guest: MacAddr) -> MacAddr {
    let mut octets = guest.octets();
    octets[0] = (octets[0] | 0x02) ^ 0x40;
    MacAddr::new(octets).expect("a station's address, as the guest's is: only other bits are turned")
}
