use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error as _;
use std::rc::Rc;

use super::*;

#[test]
fn all_steps_are_done_in_order() {
    let mut kernel = Fake::default();
    let listeners = apply(&mut kernel, &plan(), &Faults::none()).expect("nothing fails");
    assert_eq!(listeners.len(), 2);
    assert_eq!(
        kernel.calls,
        [
            "create tap0",
            "shape tap0 1400",
            "clsact tap0",
            "guard tap0",
            "redirect tap0 eth0",
            "clsact eth0",
            "guard eth0",
            "redirect eth0 tap0",
            "raise eth0",
            "raise tap0",
            "listen tap0",
            "create tap1",
            "clsact tap1",
            "raise tap1",
            "listen tap1",
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
    let mut kernel = Fake { fails_at: Some(9), keeps: Some("clsact eth0"), ..Fake::default() };
    let error = apply(&mut kernel, &plan(), &Faults::none()).expect_err("a step fails");
    assert_eq!(
        error.to_string(),
        "network setup stopped at step 9 of 15, to bring up `eth0`; could not undo: add the clsact qdisc to `eth0` \
         (link `eth0` is gone)"
    );
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("tap `tap9` is in use; another QEMU holds it"));
    assert_eq!(kernel.state.borrow().iter().collect::<Vec<_>>(), ["clsact eth0"]);
}

#[test]
fn listeners_are_closed_before_their_taps_go() {
    let mut kernel = Fake { fails_at: Some(12), ..Fake::default() };
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

impl Taps for Fake {
    fn create_tap(&mut self, tap: &IfName) -> Result<(), StepError> {
        self.step(format!("create {tap}"), Some(format!("tap {tap}")))
    }

    fn remove_tap(&mut self, tap: &IfName) -> Result<(), StepError> {
        self.remove(format!("tap {tap}"), tap)
    }
}

impl Links for Fake {
    fn shape_tap(&mut self, tap: &IfName, mtu: u32) -> Result<(), StepError> {
        self.step(format!("shape {tap} {mtu}"), None)
    }

    fn add_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        self.step(format!("clsact {link}"), Some(format!("clsact {link}")))
    }

    fn remove_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("clsact {link}"), link)
    }

    fn add_guard(&mut self, link: &IfName, _: &Guard) -> Result<(), StepError> {
        self.step(format!("guard {link}"), None)
    }

    fn add_redirect(&mut self, from: &IfName, to: &IfName) -> Result<(), StepError> {
        self.step(format!("redirect {from} {to}"), None)
    }

    fn raise(&mut self, link: &IfName) -> Result<(), StepError> {
        self.step(format!("raise {link}"), Some(format!("up {link}")))
    }

    fn lower(&mut self, link: &IfName) -> Result<(), StepError> {
        self.remove(format!("up {link}"), link)
    }
}

impl Listeners for Fake {
    type Listener = FakeListener;

    fn listen(&mut self, tap: &IfName) -> Result<FakeListener, StepError> {
        self.step(format!("listen {tap}"), Some(format!("listener {tap}")))?;
        Ok(FakeListener { tap: tap.clone(), state: Rc::clone(&self.state), log: Rc::clone(&self.log) })
    }
}

/// The steps of one whole NIC, and the states of another.
fn plan() -> Vec<Step> {
    let (tap0, eth0, tap1) = (name("tap0"), name("eth0"), name("tap1"));
    vec![
        Step::CreateTap { tap: tap0.clone() },
        Step::ShapeTap { tap: tap0.clone(), mtu: 1400 },
        Step::AddClsact { link: tap0.clone() },
        Step::AddGuard { link: tap0.clone(), guard: Guard::FromGuest(None) },
        Step::AddRedirect { from: tap0.clone(), to: eth0.clone() },
        Step::AddClsact { link: eth0.clone() },
        Step::AddGuard { link: eth0.clone(), guard: Guard::FromGuest(None) },
        Step::AddRedirect { from: eth0.clone(), to: tap0.clone() },
        Step::Raise { link: eth0 },
        Step::Raise { link: tap0.clone() },
        Step::Listen { tap: tap0 },
        Step::CreateTap { tap: tap1.clone() },
        Step::AddClsact { link: tap1.clone() },
        Step::Raise { link: tap1.clone() },
        Step::Listen { tap: tap1 },
    ]
}

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}
