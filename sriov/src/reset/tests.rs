use super::*;
use crate::fixture::{Fixture, VF, addr};

#[test]
fn a_reset_is_one_write() {
    let fixture = Fixture::usual();
    assert_eq!(fixture.sysfs().reset(addr(VF)).expect("reset"), Reset::Done);
    assert_eq!(fixture.writes(), [(format!("devices/{VF}/reset"), "1".to_owned())]);
}

#[test]
fn a_reset_that_fails_names_the_ways() {
    let fixture = Fixture::usual();
    fixture.kernel.errors.lock().unwrap().push(("reset", 25));
    let error = fixture.sysfs().reset(addr(VF)).expect_err("failed");
    assert!(error.to_string().starts_with(&format!("failed to reset `{VF}` (ways: flr bus); ")), "{error}");
    fixture.unset(VF, "reset_method");
    let error = fixture.sysfs().reset(addr(VF)).expect_err("failed");
    assert!(error.to_string().contains("(ways: not told)"), "{error}");
}

#[test]
fn a_device_without_a_way_is_told_from_one_that_is_gone() {
    let fixture = Fixture::usual();
    fixture.unset(VF, "reset");
    assert_eq!(fixture.sysfs().reset(addr(VF)).expect("none"), Reset::NoMethod);
    fixture.sysfs().reset(addr("0000:00:02.0")).expect_err("gone");
}
