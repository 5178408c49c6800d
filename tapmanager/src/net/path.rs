//! Data paths: how a link of a CNI plugin and the guest's NIC are joined. Each is a file here that says which links it
//! takes, by which steps it joins, how its descriptors are opened, what of it is to be taken away, and what it is
//! called.
//!
//! Called by [`super::plan`] and [`super::compare`] for the steps, by [`crate::net`] for all else. In each path both
//! ends get their guards before either is up for the guest, so no frame crosses unjudged. A NIC that is passed through
//! ([`passthrough`]) has no data path here: its card carries the frames, and its PF judges them.
//!
//! | data path | from the guest | to the guest | what keeps the namespace's stack deaf |
//! |---|---|---|---|
//! | [`tc`] | tap ingress: guard, redirect out of the link | link ingress: guard, redirect out of the tap | the redirects |
//! | [`bridge`] | tap ingress: guard, then the bridge | link ingress: guard, then the bridge | the bridge takes all; its own ingress drops all |
//! | [`macvtap`] | macvtap egress: guard, then the link | link ingress: guard, redirect into the macvtap | the redirect |

mod bridge;
mod macvtap;
mod passthrough;
mod removed;
mod tc;

use std::os::fd::OwnedFd;

use proto::tap::{DataPath, IfName, Nic, NicKind, Tap};

use super::filter::{Guard, Guards};
use super::step::Step;
use super::{MAX_NICS, tap_name};
use crate::sys::link::Link;
use crate::sys::tap::{self, TapError};
use crate::sys::tc::{Hook, Redirect};

/// The most that a tap takes (`MAX_MTU` less the Ethernet header in the kernel's `tun.c`).
const TAP_MAX_MTU: u32 = 65_521;

/// One way of joining. What is said here is so of a tap beside the link.
pub(crate) trait Path: Sync {
    /// Why `link` cannot be joined by it.
    fn refusal(&self, link: &Link) -> Option<&'static str>;

    /// The steps that join, in their order.
    fn steps(&self, join: &Join<'_>) -> Vec<Step>;

    /// What it is, for people.
    fn explanation(&self) -> &'static str;

    /// The link that it makes for the NIC at `place` beside the guest's end.
    fn helper(&self, _place: usize) -> Option<IfName> {
        None
    }

    /// Whether `link` is one that it makes in the namespace and that is to be taken away before DEL: it stands on a link of a
    /// plugin, or in its way, when DEL gives that back to the node. Filters do not: they go with a link that goes, and the
    /// kernel takes them off a link that moves to another namespace.
    fn made(&self, _link: &Link) -> bool {
        false
    }

    /// Whether it makes anything of which [`Self::made`] is true.
    fn outlives_del(&self) -> bool {
        false
    }

    /// Whether a packet socket can speak with the guest; if not, it is addressed by cloud-init.
    fn hears_guest(&self) -> bool {
        true
    }

    /// Whether the redirect counts what goes to the guest, because the guest's end does not.
    fn counts_at_redirect(&self) -> bool {
        false
    }

    /// Whether the guest's end is opened by its name alone. The kernel itself keeps a tap of one queue for one machine.
    fn opens_by_name(&self, nic: &Nic) -> bool {
        queues(nic) == 1
    }

    /// Opens the queues of `nic` on the guest's end `end`, in this thread's namespace.
    fn open(&self, nic: &Nic, end: &Link) -> Result<Vec<OwnedFd>, TapError> {
        // The kernel itself refuses a second holder of a tap of one queue only.
        if end.carrier {
            return Err(TapError::Busy { name: end.name.clone() });
        }
        tap::open(&end.name, queues(nic))
    }
}

/// A NIC to be joined with its link.
#[derive(Debug)]
pub(crate) struct Join<'a> {
    nic: &'a Nic,
    /// Among the pod's NICs, from 0.
    place: usize,
    link_up: bool,
    guards: &'a Guards,
}

/// The data path of a NIC of this kind.
pub(crate) fn of(kind: NicKind) -> &'static dyn Path {
    match kind {
        NicKind::Tap(Tap { data_path, .. }) => named(data_path),
        NicKind::Vfio(_) => &passthrough::Passthrough,
    }
}

/// Queues of a NIC; none if it is no tap.
fn queues(nic: &Nic) -> u16 {
    nic.tap().map_or(0, |tap| tap.queues)
}

/// The data path of this name.
pub(crate) fn named(path: DataPath) -> &'static dyn Path {
    match path {
        DataPath::Tc => &tc::Tc,
        DataPath::Ebpf => &removed::Removed,
        DataPath::Bridge => &bridge::Bridge,
        DataPath::Macvtap => &macvtap::Macvtap,
    }
}

/// How the NIC at `place` is joined with its link, which may have to be brought up.
pub(crate) fn steps(nic: &Nic, place: usize, link_up: bool, guards: &Guards) -> Vec<Step> {
    of(nic.kind).steps(&Join { nic, place, link_up, guards })
}

/// The names of links that ours may have for the NIC at `place`, whichever its data path.
pub(crate) fn names(place: usize) -> Vec<IfName> {
    let helpers = DataPath::ALL.into_iter().filter_map(|path| named(path).helper(place));
    std::iter::once(tap_name(place)).chain(helpers).collect()
}

/// Whether a data path made `link`, and it is to be taken away before DEL.
pub(crate) fn made(link: &Link) -> bool {
    DataPath::ALL.into_iter().any(|path| named(path).made(link))
}

/// Whether a link of this kind has one of the names that `name` gives.
fn is_named(link: &Link, kind: &str, name: impl Fn(usize) -> IfName) -> bool {
    link.kind.as_deref() == Some(kind) && (0..MAX_NICS).any(|place| name(place) == link.name)
}

impl Join<'_> {
    /// The plugin's link.
    fn link(&self) -> IfName {
        self.nic.name.clone()
    }

    /// The guest's end.
    fn tap(&self) -> IfName {
        tap_name(self.place)
    }

    fn create_tap(&self, mtu: u32) -> Vec<Step> {
        let queues = queues(self.nic);
        let mut steps = vec![Step::CreateTap { tap: self.tap(), queues }];
        if queues > 1 {
            steps.push(Step::SetNoqueue { tap: self.tap() });
        }
        steps.push(Step::ShapeTap { tap: self.tap(), mtu: mtu.min(TAP_MAX_MTU) });
        steps
    }

    /// Judges what the guest sends, on this side of its end.
    fn guard_from_guest(&self, hook: Hook) -> [Step; 2] {
        guarded(self.tap(), hook, &self.guards.from_guest)
    }

    /// Judges what comes in on the link.
    fn guard_to_guest(&self) -> [Step; 2] {
        guarded(self.link(), Hook::Ingress, &self.guards.to_guest)
    }

    fn redirect_to_link(&self) -> Step {
        Step::AddRedirect { from: self.tap(), to: self.link(), redirect: Redirect::Egress }
    }

    fn redirect_to_tap(&self, redirect: Redirect) -> Step {
        Step::AddRedirect { from: self.link(), to: self.tap(), redirect }
    }

    /// Brings both ends up.
    fn set_up(&self) -> impl Iterator<Item = Step> {
        let link = (!self.link_up).then(|| Step::SetUp { link: self.link() });
        link.into_iter().chain([Step::SetUp { link: self.tap() }])
    }

    fn listen(&self) -> Step {
        Step::Listen { tap: self.tap(), link: self.link() }
    }
}

fn guarded(link: IfName, hook: Hook, guard: &Guard) -> [Step; 2] {
    [Step::AddClsact { link: link.clone() }, Step::AddGuard { link, hook, guard: guard.clone() }]
}
