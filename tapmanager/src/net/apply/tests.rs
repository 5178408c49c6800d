use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error as _;
use std::rc::Rc;

use super::*;
use crate::net::filter::Served;

#[test]
fn all_steps_are_done_in_order() {
    let mut kernel = Fake::default();
    let listeners = apply(&mut kernel, &plan(), &Faults::none()).expect("nothing fails");
    assert_eq!(listeners.len(), 2);
    assert_eq!(
        kernel.calls,
        [
            "create tap0 2",
            "set_noqueue tap0",
            "shape tap0 1400",
            "clsact tap0",
            "guard tap0 Ingress",
            "redirect tap0 eth0 Egress",
            "clsact eth0",
            "guard eth0 Ingress",
            "redirect eth0 tap0 Egress",
            "set_up eth0",
            "set_up tap0",
            "listen tap0",
            "create tap1 1",
            "bridge vmbr1 02:00:00:00:00:01",
            "clsact vmbr1",
            "drop_ingress vmbr1",
            "set_master net1 vmbr1",
            "set_master tap1 vmbr1",
            "fdb tap1 02:00:00:00:00:01",
            "set_up tap1",
            "listen tap1",
            "macvtap tap2 net2",
            "clsact tap2",
            "guard tap2 Egress",
            "set_up tap2",
        ]
    );
}

#[test]
fn whichever_step_fails_nothing_is_left() {
    for at in 1..=plan().len() {
        let mut kernel = Fake { fails_at: Some(at), ..Fake::default() };
        let error = apply(&mut kernel, &plan(), &Faults::none()).expect_err("a step fails");
        assert_eq!((error.at, error.total), (at, plan().len()));
        assert_eq!(kernel.state.borrow().iter().collect::<Vec<_>>(), Vec::<&String>::new(), "left after step {at}");
        assert!(error.left_behind.0.is_empty());
    }
}

#[test]
fn a_failure_injected_after_any_step_undoes_that_step_too() {
    for at in 1..=plan().len() {
        let mut kernel = Fake::default();
        let error = apply(&mut kernel, &plan(), &Faults::after_step(at)).expect_err("injected");
        assert!(matches!(error.cause, StepError::Fault(_)));
        assert!(kernel.state.borrow().is_empty(), "left after step {at}: {:?}", kernel.state);
    }
}

#[test]
fn what_cannot_be_undone_is_said_and_the_rest_is_undone() {
    let mut kernel = Fake { fails_at: Some(10), keeps: Some("clsact eth0"), ..Fake::default() };
    let error = apply(&mut kernel, &plan(), &Faults::none()).expect_err("a step fails");
    assert_eq!(
        error.to_string(),
        "network setup stopped at step 10 of 25, to bring up `eth0`; could not undo: add the clsact qdisc to `eth0` \
         (link `eth0` is gone)"
    );
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("tap `tap9` is in use; another QEMU holds it"));
    assert_eq!(kernel.state.borrow().iter().collect::<Vec<_>>(), ["clsact eth0"]);
}

#[test]
fn listeners_are_closed_before_their_taps_go() {
    let mut kernel = Fake { fails_at: Some(13), ..Fake::default() };
    apply(&mut kernel, &plan(), &Faults::none()).expect_err("a step fails");
    let log = kernel.log.borrow();
    let place = |what: &str| log.iter().position(|entry| entry == what).expect("in the log");
    assert!(place("closed tap0") < place("removed tap0"));
}

/// Records calls and keeps what exists; fails at one call if told so.
#[derive(Default)]
struct Fake {
    calls: Vec<String>,
    fails_at: Option<usize>,
    keeps: Option<&'static str>,
    state: Rc<RefCell<BTreeSet<String>>>,
    log: Rc<RefCell<Vec<String>>>,
}

#[derive(Debug)]
struct FakeListener {
    tap: IfName,
    state: Rc<RefCell<BTreeSet<String>>>,
    log: Rc<RefCell<Vec<String>>>,
}

impl Drop for FakeListener {
    fn drop(&mut self) {
        self.state.borrow_mut().remove(&format!("listener {}", self.tap));
        self.log.borrow_mut().push(format!("closed {}", self.tap));
    }
}

impl Fake {
    fn step(&mut self, call: String, makes: Option<String>) -> Result<(), StepError> {
        self.calls.push(call);
        if self.fails_at == Some(self.calls.len()) {
            return Err(TapError::Busy { name: name("tap9") }.into());
        }
        if let Some(thing) = makes {
            assert!(self.state.borrow_mut().insert(thing), "made twice");
        }
        Ok(())
    }

    fn remove(&mut self, thing: String, link: &IfName) -> Result<(), StepError> {
        if self.keeps == Some(&thing) {
            return Err(StepError::LinkGone { link: link.clone() });
        }
        self.state.borrow_mut().remove(&thing);
        self.log.borrow_mut().push(format!("removed {link}"));
        Ok(())
    }
}

impl Makes for Fake {
    fn create_tap(&mut self, tap: &IfName, queues: u16) -> Result<(), StepError> {
        self.step(format!("create {tap} {queues}"), Some(format!("tap {tap}")))
    }

    fn delete_tap(&mut self, tap: &IfName, _: u16) -> Result<(), StepError> {
        self.remove(format!("tap {tap}"), tap)
    }

    fn create_bridge(&mut self, bridge: &IfName, mac: MacAddr) -> Result<(), StepError> {
        self.step(format!("bridge {bridge} {mac}"), Some(format!("link {bridge}")))
    }

    fn create_macvtap(&mut self, tap: &IfName, link: &IfName) -> Result<(), StepError> {
        self.step(format!("macvtap {tap} {link}"), Some(format!("link {tap}")))
    }

    fn delete_link(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("link {link}"), link)
    }
}

impl Links for Fake {
    fn set_noqueue(&mut self, tap: &IfName) -> Result<(), StepError> {
        self.step(format!("set_noqueue {tap}"), None)
    }

    fn shape_tap(&mut self, tap: &IfName, mtu: u32) -> Result<(), StepError> {
        self.step(format!("shape {tap} {mtu}"), None)
    }

    fn add_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        self.step(format!("clsact {link}"), Some(format!("clsact {link}")))
    }

    fn delete_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("clsact {link}"), link)
    }

    fn replace_guard(&mut self, link: &IfName, hook: Hook, _: &Guard) -> Result<(), StepError> {
        self.step(format!("guard {link} {hook:?}"), None)
    }

    fn drop_ingress(&mut self, link: &IfName) -> Result<(), StepError> {
        self.step(format!("drop_ingress {link}"), None)
    }

    fn replace_redirect(&mut self, from: &IfName, to: &IfName, redirect: Redirect) -> Result<(), StepError> {
        self.step(format!("redirect {from} {to} {redirect:?}"), None)
    }

    fn set_master(&mut self, link: &IfName, bridge: &IfName) -> Result<(), StepError> {
        self.step(format!("set_master {link} {bridge}"), Some(format!("port {link}")))
    }

    fn unset_master(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("port {link}"), link)
    }

    fn replace_fdb_entry(&mut self, port: &IfName, mac: MacAddr) -> Result<(), StepError> {
        self.step(format!("fdb {port} {mac}"), None)
    }

    fn set_up(&mut self, link: &IfName) -> Result<(), StepError> {
        self.step(format!("set_up {link}"), Some(format!("up {link}")))
    }

    fn set_down(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("up {link}"), link)
    }
}

impl Listeners for Fake {
    type Listener = FakeListener;

    fn listen(&mut self, tap: &IfName, _: &IfName) -> Result<FakeListener, StepError> {
        self.step(format!("listen {tap}"), Some(format!("listener {tap}")))?;
        Ok(FakeListener { tap: tap.clone(), state: Rc::clone(&self.state), log: Rc::clone(&self.log) })
    }
}

/// A NIC of each sort of step.
fn plan() -> Vec<Step> {
    let (tap0, eth0) = (name("tap0"), name("eth0"));
    let (tap1, net1, vmbr1) = (name("tap1"), name("net1"), name("vmbr1"));
    let (tap2, net2) = (name("tap2"), name("net2"));
    let mac: MacAddr = "02:00:00:00:00:01".parse().expect("an address");
    let guard = Guard::FromGuest(Served::ALL);
    vec![
        Step::CreateTap { tap: tap0.clone(), queues: 2 },
        Step::SetNoqueue { tap: tap0.clone() },
        Step::ShapeTap { tap: tap0.clone(), mtu: 1400 },
        Step::AddClsact { link: tap0.clone() },
        Step::AddGuard { link: tap0.clone(), hook: Hook::Ingress, guard: guard.clone() },
        Step::AddRedirect { from: tap0.clone(), to: eth0.clone(), redirect: Redirect::Egress },
        Step::AddClsact { link: eth0.clone() },
        Step::AddGuard { link: eth0.clone(), hook: Hook::Ingress, guard: guard.clone() },
        Step::AddRedirect { from: eth0.clone(), to: tap0.clone(), redirect: Redirect::Egress },
        Step::SetUp { link: eth0 },
        Step::SetUp { link: tap0.clone() },
        Step::Listen { tap: tap0, link: name("eth0") },
        Step::CreateTap { tap: tap1.clone(), queues: 1 },
        Step::CreateBridge { bridge: vmbr1.clone(), mac },
        Step::AddClsact { link: vmbr1.clone() },
        Step::DropIngress { link: vmbr1.clone() },
        Step::SetMaster { link: net1, bridge: vmbr1.clone() },
        Step::SetMaster { link: tap1.clone(), bridge: vmbr1 },
        Step::ReplaceFdbEntry { port: tap1.clone(), mac },
        Step::SetUp { link: tap1.clone() },
        Step::Listen { tap: tap1, link: name("eth0") },
        Step::CreateMacvtap { tap: tap2.clone(), link: net2 },
        Step::AddClsact { link: tap2.clone() },
        Step::AddGuard { link: tap2.clone(), hook: Hook::Egress, guard },
        Step::SetUp { link: tap2 },
    ]
}

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}
