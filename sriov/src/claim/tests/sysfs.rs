//! Claims on a sysfs tree, whose devices [`Node`] moves itself; netdevs and settings are in memory.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::{LIMIT, netdev_request, vfio_request};
use crate::claim::{
    Cause, Claim, Ending, Guest, Links, Netdev, Node, Notes, Outcome, Place, Step, advance, begin, release,
};
use crate::claim::{ClaimError, End};
use crate::fixture::{Fixture, Kernel, PF, VF, addr};
use crate::settings::{Attribute, ControlError, PfControl, VfSettings};
use crate::{Mac, PciAddr, Sysfs};

#[test]
fn a_vf_is_taken_by_override_and_given_back_with_the_override_that_it_had() {
    for (set, autoprobe) in [("(null)", "1"), ("(null)", "0"), ("igbvf", "0")] {
        let fixture = Fixture::usual();
        fixture.set(VF, "driver_override", set);
        fixture.set(PF, "sriov_drivers_autoprobe", autoprobe);
        let before = tree(&fixture);
        let (mut node, mut notes) = node(&fixture, true);
        let mut claim = begin(netdev_request(), &mut node, &mut notes).expect("admitted");
        assert_eq!(fixture.writes(), [], "looking writes nothing");
        while advance(&mut claim, &mut node, &mut notes).expect("taken") != Step::InUse {}
        assert_eq!(node.sysfs.driver(addr(VF)).unwrap().as_deref(), Some("vfio-pci"));
        let outcome = give_back(&mut claim, &mut node, &mut notes, Guest::Died).expect("released");
        assert_eq!(outcome, Outcome { end: End::AsBefore, unreset: false });
        assert_eq!(tree(&fixture), before, "{set} {autoprobe}");
        let written = fixture.writes().iter().fold(String::new(), |mut all, (path, _)| {
            let _ = write!(all, "{} ", path.rsplit('/').next().unwrap_or_default());
            all
        });
        let last = if set == "(null)" { "driver_override " } else { "" };
        let first = "driver_override unbind drivers_probe reset unbind driver_override drivers_probe ";
        assert_eq!(written, format!("{first}{last}"));
    }
}

#[test]
fn a_vf_of_vfio_pci_is_not_written_to() {
    let fixture = Fixture::usual();
    fixture.unset(VF, "driver");
    fixture.bind(VF, "vfio-pci");
    fixture.set(VF, "driver_override", "vfio-pci");
    let (mut node, mut notes) = node(&fixture, false);
    let mut claim = begin(vfio_request(), &mut node, &mut notes).expect("admitted");
    while advance(&mut claim, &mut node, &mut notes).expect("taken") != Step::InUse {}
    give_back(&mut claim, &mut node, &mut notes, Guest::Ended).expect("released");
    assert_eq!(fixture.writes(), []);
}

#[test]
fn a_node_without_vfio_pci_says_how_to_load_it() {
    let fixture = Fixture::usual();
    fs::remove_dir(fixture.root().join("bus/pci/drivers/vfio-pci")).unwrap();
    let (mut node, mut notes) = node(&fixture, true);
    let error = begin(netdev_request(), &mut node, &mut notes).expect_err("no driver");
    assert!(chain(&error).ends_with("load it: `modprobe vfio-pci`"), "{}", chain(&error));
    assert!(notes.0.is_none(), "nothing to undo, nothing noted");
}

#[test]
fn a_physical_function_is_refused_by_its_address() {
    let fixture = Fixture::usual();
    let (mut node, mut notes) = node(&fixture, true);
    let request = crate::claim::Request { vf: addr(PF), ..vfio_request() };
    let error = begin(request, &mut node, &mut notes).expect_err("a PF");
    assert!(chain(&error).starts_with(&format!("`{PF}` is not handed out: it is a physical function")), "{error}");
}

#[test]
fn a_vf_that_cannot_be_reset_stays_on_vfio_pci_until_it_can() {
    let fixture = Fixture::usual();
    let before = tree(&fixture);
    let (mut node, mut notes) = node(&fixture, true);
    let mut claim = begin(netdev_request(), &mut node, &mut notes).expect("admitted");
    while advance(&mut claim, &mut node, &mut notes).expect("taken") != Step::InUse {}
    fixture.kernel.errors.lock().unwrap().push(("reset", 25));
    let error = give_back(&mut claim, &mut node, &mut notes, Guest::Died).expect_err("not reset");
    assert!(chain(&error).contains("(ways: flr bus)"), "{}", chain(&error));
    assert_eq!(node.sysfs.driver(addr(VF)).unwrap().as_deref(), Some("vfio-pci"));
    fixture.kernel.errors.lock().unwrap().clear();
    give_back(&mut claim, &mut node, &mut notes, Guest::Ended).expect("released");
    assert_eq!(tree(&fixture), before);
    assert!(fixture.writes().iter().filter(|(path, _)| path.ends_with("/reset")).count() == 2, "reset as noted");
}

#[test]
fn a_driver_that_brings_no_netdev_is_an_error_with_the_time_that_it_had() {
    let fixture = Fixture::usual();
    let (mut node, mut notes) = node(&fixture, true);
    let mut claim = begin(netdev_request(), &mut node, &mut notes).expect("admitted");
    while advance(&mut claim, &mut node, &mut notes).expect("taken") != Step::InUse {}
    node.net.slow = true;
    let error = give_back(&mut claim, &mut node, &mut notes, Guest::Ended).expect_err("no netdev");
    let text = format!("driver `igbvf` has `{VF}`, which has no netdev after 5 s; ");
    assert!(error.to_string().starts_with(&text), "{error}");
    node.net.slow = false;
    give_back(&mut claim, &mut node, &mut notes, Guest::Ended).expect("released");
}

/// Netdev and settings of the VF, and whether its driver is slow.
struct Net {
    sysfs: Sysfs,
    kernel: Arc<Kernel>,
    /// How often the VF had been unbound when its netdev was made.
    made: usize,
    netdev: Option<(Netdev, bool)>,
    settings: VfSettings,
    slow: bool,
}

struct Memory(Option<Claim>);

fn node(fixture: &Fixture, netdev: bool) -> (Node<Net>, Memory) {
    let mac = Mac([2, 0, 0, 0, 0, 7]);
    let netdev =
        netdev.then(|| (Netdev { name: "net1".into(), index: 5, mac, mtu: 1500, up: true, extra: None }, true));
    let settings =
        VfSettings { mac: Some(Mac([0; 6])), spoofchk: Some(true), trust: Some(false), ..VfSettings::default() };
    let kernel = Arc::clone(&fixture.kernel);
    let net = Net { sysfs: fixture.sysfs(), kernel, made: 0, netdev, settings, slow: false };
    (Node { sysfs: fixture.sysfs(), net }, Memory(None))
}

fn give_back(claim: &mut Claim, node: &mut Node<Net>, notes: &mut Memory, guest: Guest) -> Result<Outcome, ClaimError> {
    release(claim, node, notes, Ending { boot: super::BOOT, guest, netdev_within: LIMIT })
}

/// What there is of the VF.
fn tree(fixture: &Fixture) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(fixture.device(VF)).unwrap() {
        let entry = entry.unwrap();
        let leads = fs::read_link(entry.path()).map(|target| target.display().to_string());
        let holds = fs::read_to_string(entry.path());
        all.push(format!("{:?} {leads:?} {:?}", entry.file_name(), holds.unwrap_or_default()));
    }
    all.sort();
    all
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Net {
    fn bound(&self) -> bool {
        self.sysfs.driver(addr(VF)).unwrap().as_deref() == Some("igbvf")
    }

    fn unbound(&self) -> usize {
        self.kernel.writes.lock().unwrap().iter().filter(|(path, _)| path.ends_with("/unbind")).count()
    }

    fn mut_at(&mut self, index: u32) -> &mut (Netdev, bool) {
        self.netdev.as_mut().filter(|(netdev, _)| netdev.index == index).expect("a netdev")
    }
}

impl Links for Net {
    fn netns_exists(&mut self, _: &str) -> Result<bool, Cause> {
        Ok(true)
    }

    fn find(&mut self, _: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        if self.unbound() > self.made {
            self.netdev = None;
        }
        let wanted = place != Place::Host;
        Ok(self.netdev.clone().filter(|(_, in_pod)| *in_pod == wanted).map(|(netdev, _)| netdev))
    }

    fn await_netdev(&mut self, vf: PciAddr, _: Duration) -> Result<Option<Netdev>, Cause> {
        if self.bound() && !self.slow {
            let netdev = Netdev { name: "eth0".into(), index: 9, mac: Mac([6; 6]), mtu: 1500, up: false, extra: None };
            self.netdev = Some((netdev, false));
            self.made = self.unbound();
        }
        self.find(vf, Place::Host)
    }

    fn shape(&mut self, _: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause> {
        let (netdev, _) = self.mut_at(index);
        (netdev.mac, netdev.mtu) = (mac, mtu);
        Ok(())
    }

    fn move_into(&mut self, index: u32, _: &str, name: &str) -> Result<(), Cause> {
        let (netdev, in_pod) = self.mut_at(index);
        (netdev.name, *in_pod) = (name.to_owned(), true);
        Ok(())
    }

    fn dress(&mut self, _: &str, index: u32, saved: &Netdev) -> Result<(), Cause> {
        self.mut_at(index).0.up = saved.up;
        Ok(())
    }
}

impl PfControl for Net {
    fn read(&mut self, _: PciAddr, _: u32) -> Result<VfSettings, ControlError> {
        Ok(self.settings.clone())
    }

    fn write(&mut self, _: PciAddr, _: u32, attribute: Attribute) -> Result<(), ControlError> {
        self.settings.set(attribute);
        Ok(())
    }
}

impl Notes for Memory {
    fn noted(&mut self, _: PciAddr) -> Result<Option<Claim>, Cause> {
        Ok(self.0.clone())
    }

    fn flush(&mut self, claim: &Claim) -> Result<(), Cause> {
        self.0 = Some(claim.clone());
        Ok(())
    }
}
