//! A macvtap on the link: what the guest sends leaves the link itself, what comes in is redirected into the macvtap.

use std::os::fd::OwnedFd;

use proto::tap::Nic;

use super::{Join, Path, is_named};
use crate::net::step::Step;
use crate::net::tap_name;
use crate::sys::link::Link;
use crate::sys::macvtap;
use crate::sys::tap::{self, TapError};
use crate::sys::tc::{Hook, Redirect};

pub(super) struct Macvtap;

impl Path for Macvtap {
    fn refusal(&self, link: &Link) -> Option<&'static str> {
        if link.controller.is_some() {
            return Some("it is a member of another link, such as a VRF, which takes its frames");
        }
        // The kernel would lay the macvtap on the node's own link below it, which other pods share.
        let lies_on_another = matches!(link.kind.as_deref(), Some("macvlan" | "macvtap"));
        lies_on_another.then_some("it is itself a macvlan, and one cannot lie on another")
    }

    fn steps(&self, join: &Join<'_>) -> Vec<Step> {
        let mut steps = vec![Step::CreateMacvtap { tap: join.tap(), link: join.link() }];
        steps.extend(join.guard_from_guest(Hook::Egress));
        steps.extend(join.guard_to_guest());
        steps.push(join.redirect_to_tap(Redirect::Ingress));
        steps.extend(join.set_up());
        steps
    }

    fn explanation(&self) -> &'static str {
        "a macvtap on the link"
    }

    fn made(&self, link: &Link) -> bool {
        is_named(link, "macvtap", tap_name)
    }

    fn outlives_del(&self) -> bool {
        true
    }

    fn hears_guest(&self) -> bool {
        false
    }

    fn counts_at_redirect(&self) -> bool {
        true
    }

    fn opens_by_name(&self, _nic: &Nic) -> bool {
        false
    }

    fn open(&self, nic: &Nic, end: &Link) -> Result<Vec<OwnedFd>, TapError> {
        let queues = macvtap::open(end.index, super::queues(nic));
        let queues = queues.map_err(|cause| TapError::Macvtap { name: end.name.clone(), cause })?;
        tap::shape_macvtap(&queues, &end.name)?;
        Ok(queues)
    }
}
