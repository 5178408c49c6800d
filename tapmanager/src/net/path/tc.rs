//! A tap beside the link, and redirects between them by traffic control. Takes every link that carries a machine at all.

use super::{Join, Path};
use crate::net::step::Step;
use crate::sys::link::Link;
use crate::sys::tc::{Hook, Redirect};

pub(super) struct Tc;

impl Path for Tc {
    fn refusal(&self, _link: &Link) -> Option<&'static str> {
        None
    }

    fn steps(&self, join: &Join<'_>) -> Vec<Step> {
        // A redirect does not look at the tap's MTU.
        let mut steps = join.create_tap(join.nic.mtu);
        steps.extend(join.guard_from_guest(Hook::Ingress));
        steps.push(join.redirect_to_link());
        steps.extend(join.guard_to_guest());
        steps.push(join.redirect_to_tap(Redirect::Egress));
        steps.extend(join.set_up());
        steps.push(join.listen());
        steps
    }

    fn explanation(&self) -> &'static str {
        "clsact redirects between link and tap, classic BPF filters"
    }
}
