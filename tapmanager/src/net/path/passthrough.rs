//! No data path: the guest drives the virtual function itself. The function's claim is [`crate::vf`]'s affair.

use proto::tap::Nic;

use super::{Join, Path};
use crate::net::step::Step;
use crate::sys::link::Link;

pub(super) struct Passthrough;

impl Path for Passthrough {
    fn refusal(&self, _link: &Link) -> Option<&'static str> {
        None
    }

    fn steps(&self, _join: &Join<'_>) -> Vec<Step> {
        vec![]
    }

    fn explanation(&self) -> &'static str {
        "the virtual function itself, by VFIO: its PF holds the guest to address and VLAN"
    }

    fn hears_guest(&self) -> bool {
        false
    }

    fn opens_by_name(&self, _nic: &Nic) -> bool {
        true
    }
}
