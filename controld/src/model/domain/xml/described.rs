//! What a pod describes of its machine beyond what handlers give: chassis, clock and platform.

use proto::vm::{Chassis, Features, HyperV, State};
use vmspec::plan::{Described, Shows, Timer, TimerName};

use super::{Doc, DomainError, DomainSpec};

pub(super) fn chassis(doc: &mut Doc, chassis: &Chassis) -> Result<(), DomainError> {
    let Chassis { manufacturer, version, serial, asset, sku } = chassis;
    let entries =
        [("manufacturer", manufacturer), ("version", version), ("serial", serial), ("asset", asset), ("sku", sku)];
    let mut said = entries.into_iter().filter(|(_, text)| !text.is_empty()).peekable();
    if said.peek().is_none() {
        return Ok(());
    }
    doc.nest("chassis", &[], |doc| said.try_for_each(|(name, text)| doc.text("entry", &[("name", name)], text)))
}

/// The clock, and those timers that every machine has unless it is said otherwise.
pub(super) fn clock(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let hardware = &spec.plan.hardware;
    let described = hardware.described.clock.clone().unwrap_or_default();
    let has = |name: TimerName| described.timers.iter().any(|timer| timer.name == name);
    let inside = |doc: &mut Doc| {
        if !has(TimerName::Rtc) {
            doc.leaf("timer", &[("name", "rtc"), ("tickpolicy", "catchup")])?;
        }
        if !has(TimerName::Hpet) {
            doc.leaf("timer", &[("name", "hpet"), ("present", "no")])?;
        }
        if hardware.extras.hyperv && !has(TimerName::Hyperv) {
            doc.leaf("timer", &[("name", "hypervclock"), ("present", "yes")])?;
        }
        described.timers.iter().try_for_each(|timer| self::timer(doc, timer))
    };
    match &described.shows {
        None => doc.nest("clock", &[("offset", hardware.extras.clock.word())], inside),
        Some(Shows::Utc(0)) => doc.nest("clock", &[("offset", "utc")], inside),
        Some(Shows::Utc(ahead)) => {
            let ahead = ahead.to_string();
            doc.nest("clock", &[("offset", "variable"), ("adjustment", &ahead), ("basis", "utc")], inside)
        }
        Some(Shows::Zone(zone)) => doc.nest("clock", &[("offset", "timezone"), ("timezone", zone)], inside),
    }
}

fn timer(doc: &mut Doc, timer: &Timer) -> Result<(), DomainError> {
    let mut attributes = vec![("name", timer.name.word())];
    attributes.extend(timer.present.map(|is| ("present", if is { "yes" } else { "no" })));
    attributes.extend(timer.tick_policy.map(|policy| ("tickpolicy", policy.word())));
    attributes.extend(timer.track.map(|track| ("track", track.word())));
    doc.leaf("timer", &attributes)
}

/// Features of the platform; `secure_boot` keeps the guest's own kernel from the firmware's variables.
pub(super) fn features(doc: &mut Doc, spec: &DomainSpec, secure_boot: bool) -> Result<(), DomainError> {
    let Described { features, .. } = &spec.plan.hardware.described;
    let Features { acpi, apic, smm, pvspinlock, kvm, hyperv } = features;
    if acpi.is_none_or(is_on) {
        doc.leaf("acpi", &[])?;
    }
    match apic {
        Some(apic) if apic.enabled == Some(false) => {}
        Some(apic) if apic.end_of_interrupt => doc.leaf("apic", &[("eoi", "on")])?,
        _ => doc.leaf("apic", &[])?,
    }
    match hyperv {
        Some(hyperv) => self::hyperv(doc, hyperv)?,
        None if spec.plan.hardware.extras.hyperv => super::extras::hyperv(doc)?,
        None => {}
    }
    if kvm.is_some_and(|kvm| kvm.hidden) {
        doc.nest("kvm", &[], |doc| doc.leaf("hidden", &[("state", "on")]))?;
    }
    if let Some(state) = pvspinlock {
        doc.leaf("pvspinlock", &[("state", word(*state))])?;
    }
    match smm {
        _ if secure_boot => doc.leaf("smm", &[("state", "on")]),
        Some(state) => doc.leaf("smm", &[("state", word(*state))]),
        None => Ok(()),
    }
}

fn hyperv(doc: &mut Doc, said: &HyperV) -> Result<(), DomainError> {
    let plain = [
        ("relaxed", said.relaxed),
        ("vapic", said.vapic),
        ("vpindex", said.vpindex),
        ("runtime", said.runtime),
        ("synic", said.synic),
        ("reset", said.reset),
        ("frequencies", said.frequencies),
        ("reenlightenment", said.reenlightenment),
        ("ipi", said.ipi),
        ("evmcs", said.evmcs),
    ];
    let on = |enabled: Option<bool>| word(State { enabled });
    doc.nest("hyperv", &[("mode", "custom")], |doc| {
        for (name, state) in plain {
            if let Some(state) = state {
                doc.leaf(name, &[("state", word(state))])?;
            }
        }
        if let Some(spinlocks) = said.spinlocks {
            let retries = spinlocks.spinlocks.map(|retries| retries.to_string());
            let mut attributes = vec![("state", on(spinlocks.enabled))];
            attributes.extend(retries.as_deref().map(|retries| ("retries", retries)));
            doc.leaf("spinlocks", &attributes)?;
        }
        if let Some(timer) = said.synictimer {
            parts(doc, "stimer", on(timer.enabled), &[("direct", timer.direct)])?;
        }
        if let Some(flush) = said.tlbflush {
            parts(doc, "tlbflush", on(flush.enabled), &[("direct", flush.direct), ("extended", flush.extended)])?;
        }
        let Some(vendor) = &said.vendorid else { return Ok(()) };
        let mut attributes = vec![("state", on(vendor.enabled))];
        attributes.extend(vendor.vendorid.as_deref().map(|name| ("value", name)));
        doc.leaf("vendor_id", &attributes)
    })
}

/// A feature that has parts.
fn parts(
    doc: &mut Doc,
    name: &'static str,
    state: &str,
    parts: &[(&'static str, Option<State>)],
) -> Result<(), DomainError> {
    doc.nest(name, &[("state", state)], |doc| {
        parts.iter().try_for_each(|(part, state)| match state {
            Some(state) => doc.leaf(part, &[("state", word(*state))]),
            None => Ok(()),
        })
    })
}

fn is_on(state: State) -> bool {
    state.enabled != Some(false)
}

fn word(state: State) -> &'static str {
    if is_on(state) { "on" } else { "off" }
}
