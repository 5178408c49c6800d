//! CHECK: whether everything is as ADD left it. Called by [`super`]. Changes nothing.

use rscni_plugin::types::NetConf;
use sriov::claim::{Netdev, Place};
use sriov::settings::{Kind, SettingsError, Wanted};

use super::Context;
use super::failure::{Code, Failure};
use super::give_back::is_void;
use super::record::{Allocation, Made};
use super::wiring::{Addressing, Node};

/// Compares the VF with its allocation, and its addresses with the result of ADD. All that differs is told.
///
/// # Errors
/// If something differs, or that cannot be told.
pub(super) fn check<N: Node>(
    context: &Context,
    conf: &NetConf,
    allocation: &Allocation,
    node: &mut N,
) -> Result<(), Failure> {
    let Allocation { vf, pf, number, owner, wanted, .. } = allocation;
    if is_void(context, allocation) {
        return Err(Failure::new(Code::Differs, format!("VF `{vf}` is gone, or another one is at its address")));
    }
    let Some(made) = &allocation.made else {
        return Err(Failure::new(Code::Differs, format!("ADD of {} did not come to its end", owner.told())));
    };
    let mut differences = Vec::new();
    let has = node.read(*pf, *number).map_err(|cause| {
        let cause = SettingsError::Read { pf: *pf, number: *number, cause };
        Failure::because(Code::Settings, format!("failed to learn what PF `{pf}` has for VF {number}"))(cause)
    })?;
    for attribute in due(wanted, &made.unsupported).attributes() {
        let kind = attribute.kind();
        match has.get(kind) {
            Some(found) if found == attribute => {}
            Some(found) => differences.push(format!("the {kind} of VF {number} is {found} and not {attribute}")),
            None => differences.push(format!("the {kind} of VF {number} is not reported any more")),
        }
    }
    let driver =
        context.sysfs.driver(*vf).map_err(Failure::because(Code::Kernel, format!("failed to look at `{vf}`")))?;
    if driver.as_ref() != Some(&allocation.driver) {
        let driver = driver.unwrap_or_else(|| "none".to_owned());
        differences.push(format!("the driver of `{vf}` is `{driver}` and not `{}`", allocation.driver));
    } else if allocation.saved.netdev.is_some() {
        netdev(conf, allocation, made, node, &mut differences)?;
    }
    if differences.is_empty() { Ok(()) } else { Err(Failure::new(Code::Differs, differences.join("; "))) }
}

fn netdev<N: Node>(
    conf: &NetConf,
    allocation: &Allocation,
    made: &Made,
    node: &mut N,
    differences: &mut Vec<String>,
) -> Result<(), Failure> {
    let Allocation { vf, owner, .. } = allocation;
    let found = node
        .find(*vf, Place::Netns(&owner.netns))
        .map_err(Failure::kernel(format!("failed to find the netdev of `{vf}`")))?;
    let Some(Netdev { name, index, mac, mtu, up, .. }) = found else {
        differences.push(format!("the netdev of `{vf}` is not in `{}`", owner.netns));
        return Ok(());
    };
    let mut compare = |what: &str, found: String, wanted: String| {
        if found != wanted {
            differences.push(format!("the {what} of the netdev of `{vf}` is `{found}` and not `{wanted}`"));
        }
    };
    compare("name", name, owner.ifname.clone());
    if let Some(wanted) = made.mac {
        compare("address", mac.to_string(), wanted.to_string());
    }
    if let Some(wanted) = made.mtu {
        compare("MTU", mtu.to_string(), wanted.to_string());
    }
    compare("state", if up { "up" } else { "down" }.to_owned(), "up".to_owned());
    if let Some(result) = &conf.prev_result {
        let lacking = node.lacks(&owner.netns, index, &Addressing::of(result));
        let lacking =
            lacking.map_err(Failure::kernel(format!("failed to list addresses and routes in `{}`", owner.netns)))?;
        differences.extend(lacking.into_iter().map(|what| format!("`{}` has not {what}", owner.ifname)));
    }
    Ok(())
}

fn due(wanted: &Wanted, unsupported: &[Kind]) -> sriov::settings::VfSettings {
    let mut due = sriov::settings::VfSettings::default();
    for attribute in wanted.otherwise.attributes().filter(|attribute| !unsupported.contains(&attribute.kind())) {
        due.set(attribute);
    }
    wanted.asked.attributes().for_each(|attribute| due.set(attribute));
    due
}
