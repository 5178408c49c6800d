//! ADD: gives a container a VF.
//!
//! Called by [`super`]. Steps, of which each may be the last if the plugin is killed:
//!
//! 1. choose a VF ([`super::select`]), which locks it and its PF;
//! 2. note it with all that putting it back needs;
//! 3. give its netdev address and MTU, and have the PF lay down its settings;
//! 4. move its netdev into the container under its name, and bring it up; let the PF go;
//! 5. note that it is made;
//! 6. ask the IPAM plugin for addresses, and set them.
//!
//! When one fails, those before it are undone in reverse. When that fails too, the allocation stays for DEL.

use std::fs::File;
use std::io::Read as _;

use rscni_plugin::types::{CNIResult, Interface, NetConf};
use sriov::Mac;
use sriov::claim::{Netdev, Place, Saved};
use sriov::settings::{self, SettingsError};

use super::Context;
use super::config::{Wish, asked_mac};
use super::failure::{Code, Failure};
use super::give_back::{give_back, is_void};
use super::ipam::Ipam;
use super::lock::Lock;
use super::record::{Allocation, Made, Owner, Version};
use super::select::{self, Chosen};
use super::shape::shape;
use super::wiring::{Addressing, Node};

const RANDOM: &str = "/dev/urandom";

/// Gives a container a VF.
///
/// # Errors
/// Why it has none; see above for what is left behind.
pub(super) fn add<N: Node>(
    context: &Context,
    conf: &NetConf,
    wish: &Wish,
    owner: Owner,
    ipam: Option<&Ipam>,
    node: &mut N,
) -> Result<CNIResult, Failure> {
    let alive = node
        .netns_exists(&owner.netns)
        .map_err(Failure::kernel(format!("failed to look for the namespace `{}`", owner.netns)))?;
    if !alive {
        return Err(Failure::new(Code::Netns, format!("there is no network namespace `{}`", owner.netns)));
    }
    expect_none(context, &owner)?;
    let source = wish.source.as_ref().ok_or_else(|| Failure::new(Code::Config, "it says not which VF"))?;
    let chosen = select::choose(context, source, node)?;
    expect_own_mac(context, &chosen, wish)?;
    let (mut allocation, pf_lock, _vf_lock) = reserve(context, chosen, wish, owner, node)?;
    match set_up(&allocation, wish, node) {
        Ok(made) => allocation.made = Some(made),
        Err(failure) => return Err(undo(context, &allocation, Some(pf_lock), node, failure)),
    }
    // From here on it is the VF alone that is worked on.
    drop(pf_lock);
    if let Err(failure) = context.store.replace(&allocation) {
        return Err(undo(context, &allocation, None, node, failure));
    }
    let Some(ipam) = ipam else { return Ok(result(&allocation, CNIResult::default())) };
    let addressed = ipam.add(conf).and_then(|given| {
        address(&allocation, &Addressing::of(&given), node)?;
        Ok(given)
    });
    match addressed {
        Ok(given) => Ok(result(&allocation, given)),
        Err(mut failure) => {
            // Also if ADD failed: the specification has DEL take back what it may have left.
            if let Err(then) = ipam.del(conf) {
                failure = failure.and(&then);
            }
            Err(undo(context, &allocation, None, node, failure))
        }
    }
}

/// The runtime has to call DEL before another ADD of the same name.
fn expect_none(context: &Context, owner: &Owner) -> Result<(), Failure> {
    for (vf, allocation) in context.store.all()? {
        let Ok(allocation) = allocation else { continue };
        if allocation.owner.is(&owner.container, &owner.ifname) && !is_void(context, &allocation) {
            return Err(Failure::new(
                Code::InUse,
                format!("{} has `{vf}` already; call DEL first", allocation.owner.told()),
            ));
        }
    }
    Ok(())
}

/// Two VFs of one PF with one address hear each other's frames, or none.
fn expect_own_mac(context: &Context, chosen: &Chosen, wish: &Wish) -> Result<(), Failure> {
    let Some(mac) = asked_mac(&wish.wanted) else { return Ok(()) };
    for (vf, allocation) in context.store.all()? {
        let Ok(other) = allocation else { continue };
        let has = other.wanted.asked.mac.or_else(|| other.made.as_ref().and_then(|made| made.mac));
        if other.pf == chosen.pf && vf != chosen.vf && has == Some(mac) && !is_void(context, &other) {
            let text = format!(
                "address `{mac}` is that of VF {} of the same PF `{}`, which {} has; ask for another one",
                other.number,
                other.pf,
                other.owner.told()
            );
            return Err(Failure::new(Code::InUse, text));
        }
    }
    Ok(())
}

/// Notes the VF with everything that ADD will change.
fn reserve<N: Node>(
    context: &Context,
    chosen: Chosen,
    wish: &Wish,
    owner: Owner,
    node: &mut N,
) -> Result<(Allocation, Lock, Lock), Failure> {
    let Chosen { vf, pf, number, incarnation, driver, netdev, pf_lock, vf_lock } = chosen;
    let settings = node.read(pf, number).map_err(|cause| {
        let cause = SettingsError::Read { pf, number, cause };
        Failure::because(Code::Settings, format!("failed to learn what PF `{pf}` has for VF {number}"))(cause)
    })?;
    let mut wanted = wish.wanted.clone();
    if netdev.is_none() {
        let own = settings.mac.filter(|mac| mac.of_one().is_ok());
        let mac = asked_mac(&wanted).or(own).map_or_else(chosen_mac, Ok)?;
        // Laid down by the PF even if it had it: a guest keeps to no other one.
        wanted.asked.mac = Some(mac);
    }
    let allocation = Allocation {
        version: Version,
        boot: context.boot.clone(),
        owner,
        vf,
        pf,
        number,
        incarnation,
        driver,
        saved: Saved { settings, netdev },
        wanted,
        made: None,
    };
    context.store.create(&allocation)?;
    Ok((allocation, pf_lock, vf_lock))
}

/// An address for a VF that has none: of those that are nobody's by assignment.
fn chosen_mac() -> Result<Mac, Failure> {
    let mut bytes = [0; 6];
    File::open(RANDOM)
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(Failure::because(Code::Kernel, format!("failed to read `{RANDOM}` for an address")))?;
    bytes[0] = bytes[0] & 0xfc | 0x02;
    Ok(Mac(bytes))
}

fn set_up<N: Node>(allocation: &Allocation, wish: &Wish, node: &mut N) -> Result<Made, Failure> {
    let Allocation { vf, pf, number, .. } = allocation;
    let asked = asked_mac(&allocation.wanted);
    if let Some(netdev) = &allocation.saved.netdev {
        let as_asked = (asked.unwrap_or(netdev.mac), wish.mtu.unwrap_or(netdev.mtu));
        shape(allocation, Place::Host, netdev, as_asked, node)?;
    }
    let unsupported = settings::apply(node, *pf, *number, &allocation.wanted)
        .map_err(Failure::because(Code::Settings, format!("failed to set up VF {number} of PF `{pf}`")))?;
    let Some(netdev) = &allocation.saved.netdev else {
        return Ok(Made { mac: asked, mtu: wish.mtu, unsupported });
    };
    let Owner { netns, ifname, .. } = &allocation.owner;
    let failed = |doing: &str| Failure::kernel(format!("failed to {doing} `{}`, the netdev of `{vf}`", netdev.name));
    node.move_into(netdev.index, netns, ifname).map_err(failed("move into the container"))?;
    let moved = inside(allocation, node)?;
    let (mac, mtu) = (asked.unwrap_or(moved.mac), wish.mtu.unwrap_or(moved.mtu));
    // A driver may begin anew with settings of its PF.
    shape(allocation, Place::Netns(netns), &moved, (mac, mtu), node)?;
    node.bring_up(netns, moved.index).map_err(failed("bring up"))?;
    Ok(Made { mac: Some(mac), mtu: Some(mtu), unsupported })
}

fn address<N: Node>(allocation: &Allocation, addressing: &Addressing, node: &mut N) -> Result<(), Failure> {
    if allocation.saved.netdev.is_none() {
        // Its guest sets them.
        return Ok(());
    }
    let found = inside(allocation, node)?;
    let failed = format!("failed to set addresses and routes of `{}`", allocation.owner.ifname);
    node.address(&allocation.owner.netns, found.index, addressing).map_err(Failure::kernel(failed))
}

/// The VF's netdev in its container.
fn inside<N: Node>(allocation: &Allocation, node: &mut N) -> Result<Netdev, Failure> {
    let Allocation { vf, owner, .. } = allocation;
    let found = node
        .find(*vf, Place::Netns(&owner.netns))
        .map_err(Failure::kernel(format!("failed to find the netdev of `{vf}`")))?;
    found.ok_or_else(|| {
        Failure::new(
            Code::Kernel,
            format!("the netdev of `{vf}` is not in `{}` any more; look what else moves it", owner.netns),
        )
    })
}

/// Puts the VF back, and says why that was so.
fn undo<N: Node>(
    context: &Context,
    allocation: &Allocation,
    pf_lock: Option<Lock>,
    node: &mut N,
    why: Failure,
) -> Failure {
    let locked = pf_lock.map_or_else(|| context.store.lock(allocation.pf), Ok);
    let undone = locked.and_then(|_lock| {
        give_back(context, allocation, node)?;
        context.store.remove(allocation.vf)
    });
    match undone {
        Ok(()) => why,
        Err(then) => why.and(&then),
    }
}

fn result(allocation: &Allocation, given: CNIResult) -> CNIResult {
    let Allocation { vf, owner, made, .. } = allocation;
    let made = made.as_ref();
    let interface = Interface {
        name: owner.ifname.clone(),
        mac: made.and_then(|made| made.mac).map(|mac| mac.to_string()).unwrap_or_default(),
        mtu: made.and_then(|made| made.mtu),
        sandbox: Some(owner.netns.clone()),
        socket_path: None,
        pci_id: Some(vf.to_string()),
    };
    let mut result = CNIResult { interfaces: vec![interface], ..given };
    for ip in &mut result.ips {
        ip.interface = Some(0);
    }
    result
}
