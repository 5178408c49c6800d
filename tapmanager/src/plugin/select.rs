//! Chooses a VF that nobody has.
//!
//! Called by [`super::add`]. What was allocated to a container whose namespace is gone is put back first, and then
//! free. The PF is locked from before the choice until the VF is set up, so two plugins never choose the same VF.
//!
//! A VF is free if nothing is noted of it and nobody else seems to have it: its driver is the one that the pool wants,
//! and its netdev is in the host's namespace, or, if that driver is vfio-pci, no process has it open. One that somebody
//! is about to open is not to be told from a free one; such VFs belong into a pool with `driver = "vfio-pci"` that
//! nothing else uses.

use sriov::bind::VFIO_PCI;
use sriov::claim::{Netdev, Place};
use sriov::device::{Function, PhysicalFunction, Seen};
use sriov::{PciAddr, Sysfs};

use super::Context;
use super::config::Source;
use super::failure::{Code, Failure};
use super::give_back::{self, is_open, is_void};
use super::lock::Lock;
use super::pools::{PfChoice, Pool};
use super::wiring::Node;

/// Most VFs whose users an error tells.
const MAX_TOLD: usize = 16;

/// A VF that is nobody's, as long as the locks are held.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) vf: PciAddr,
    pub(super) pf: PciAddr,
    pub(super) number: u32,
    pub(super) incarnation: u64,
    pub(super) driver: String,
    /// `None` if it is on vfio-pci.
    pub(super) netdev: Option<Netdev>,
    pub(super) pf_lock: Lock,
    pub(super) vf_lock: Lock,
}

/// Why a VF is not chosen.
struct Taken {
    why: String,
    /// Whether it will be free soon.
    soon: bool,
}

/// A VF that is free.
struct Free {
    seen: Seen,
    driver: String,
    netdev: Option<Netdev>,
    lock: Lock,
}

/// Chooses.
///
/// # Errors
/// If there is no such PF or VF, or none that is free.
pub(super) fn choose<N: Node>(context: &Context, source: &Source, node: &mut N) -> Result<Chosen, Failure> {
    match source {
        Source::Exact(vf, pool) => exact(context, *vf, pool.as_ref(), node),
        Source::Any(pool) => any(context, pool, node),
    }
}

/// The PFs of a pool.
///
/// # Errors
/// If there are none.
pub(super) fn physical(sysfs: &Sysfs, pool: &Pool) -> Result<Vec<PhysicalFunction>, Failure> {
    let failed = |doing: String| Failure::because(Code::Kernel, doing);
    let all =
        sysfs.physical_addresses().map_err(Failure::because(Code::Kernel, "failed to list the PFs of this node"))?;
    let (meant, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|pf| is_meant(sysfs, *pf, &pool.pf));
    let mut found = Vec::new();
    for pf in meant {
        // The other PFs are not read: the kernel holds whoever reads of one whose VFs are being taken away.
        found.extend(sysfs.physical_function(pf).map_err(failed(format!("failed to read of the PF `{pf}`")))?);
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let told = |pf: &PciAddr| match sysfs.netdevs(*pf).unwrap_or_default().first() {
        Some(name) => format!("`{name}` (`{pf}`)"),
        None => format!("`{pf}`"),
    };
    let others: Vec<String> = others.iter().map(told).collect();
    let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    Err(Failure::new(Code::NoDevice, format!("{pool} is not there; PFs of this node: {others}")))
}

fn is_meant(sysfs: &Sysfs, pf: PciAddr, choice: &PfChoice) -> bool {
    match choice {
        PfChoice::Name(name) => {
            sysfs.netdevs(pf).is_ok_and(|netdevs| netdevs.iter().any(|netdev| netdev == name.as_str()))
        }
        PfChoice::Addr(addr) => pf == *addr,
        PfChoice::Kind { vendor, device } => {
            let ids = sysfs.ids(pf).ok().flatten();
            let of_vfs = || sysfs.vf_device(pf).ok().flatten();
            ids.is_some_and(|(maker, own)| maker == *vendor && (own == *device || of_vfs() == Some(*device)))
        }
    }
}

fn exact<N: Node>(context: &Context, vf: PciAddr, pool: Option<&Pool>, node: &mut N) -> Result<Chosen, Failure> {
    let seen = context.sysfs.look(vf).map_err(Failure::because(Code::Kernel, format!("failed to look at `{vf}`")))?;
    let absent = || {
        Failure::new(
            Code::NoDevice,
            format!(
                "there is no PCI device `{vf}`; its PF has fewer VFs now (`sriov_numvfs`), or the address is wrong"
            ),
        )
    };
    let Function::Virtual { pf, number } = seen.ok_or_else(absent)?.function else {
        return Err(Failure::new(
            Code::NoDevice,
            format!("`{vf}` is no SR-IOV virtual function; name one, as `/sys/bus/pci/devices/PF/virtfn0` leads to"),
        ));
    };
    let mut driver = None;
    if let Some(pool) = pool {
        let inside = pool.vfs.contains(number) && physical(&context.sysfs, pool)?.iter().any(|one| one.addr == pf);
        if !inside {
            return Err(Failure::new(
                Code::NoDevice,
                format!("`{vf}` is VF {number} of `{pf}`, which is not one of {pool} (VFs {})", pool.vfs),
            ));
        }
        driver = pool.driver.as_deref();
    }
    let pf_lock = context.store.lock(pf)?;
    match judge(context, (pf, number, vf), Wants { driver, vfio: true }, node)? {
        Ok(free) => Ok(chosen((pf, number, vf), free, pf_lock)),
        Err(taken) => {
            let code = if taken.soon { Code::TryAgain } else { Code::InUse };
            Err(Failure::new(code, format!("VF {number} of `{pf}` (`{vf}`) is in use: {}", taken.why)))
        }
    }
}

fn any<N: Node>(context: &Context, pool: &Pool, node: &mut N) -> Result<Chosen, Failure> {
    let mut taken = Vec::new();
    let pfs = physical(&context.sysfs, pool)?;
    for pf in &pfs {
        let pf_lock = context.store.lock(pf.addr)?;
        for (number, vf) in pf.vfs.iter().copied().filter(|(number, _)| pool.vfs.contains(*number)) {
            let wants = Wants { driver: pool.driver.as_deref(), vfio: false };
            match judge(context, (pf.addr, number, vf), wants, node)? {
                Ok(free) => return Ok(chosen((pf.addr, number, vf), free, pf_lock)),
                Err(why) => taken.push((number, why)),
            }
        }
    }
    Err(exhausted(pool, &pfs, &taken))
}

fn exhausted(pool: &Pool, pfs: &[PhysicalFunction], taken: &[(u32, Taken)]) -> Failure {
    let [enabled, total] = [|pf: &PhysicalFunction| pf.enabled, |pf: &PhysicalFunction| pf.total]
        .map(|of| pfs.iter().map(of).sum::<u32>());
    if taken.is_empty() {
        let text = format!(
            "{pool} has no VFs: {enabled} of {total} exist, the pool is VFs {}; raise `sriov_numvfs` of the PF, \
             or widen `vfs`",
            pool.vfs
        );
        return Failure::new(Code::Exhausted, text);
    }
    let mut users: Vec<String> =
        taken.iter().take(MAX_TOLD).map(|(number, taken)| format!("VF {number}: {}", taken.why)).collect();
    if taken.len() > MAX_TOLD {
        users.push(format!("and {} more", taken.len() - MAX_TOLD));
    }
    let code = if taken.iter().any(|(_, taken)| taken.soon) { Code::TryAgain } else { Code::Exhausted };
    let text = format!(
        "{pool} has no free VF: all {} are in use ({}); raise `sriov_numvfs` of the PF (now {enabled} of {total}), \
         widen `vfs`, or lower the number of pods on this node",
        taken.len(),
        users.join("; ")
    );
    Failure::new(code, text)
}

/// What a VF's driver should be.
#[derive(Clone, Copy)]
struct Wants<'a> {
    /// This one; without it, one with a netdev.
    driver: Option<&'a str>,
    /// Whether vfio-pci is right as well without a name.
    vfio: bool,
}

/// Whether a VF is free, and if not, why. The PF is locked.
fn judge<N: Node>(
    context: &Context,
    which: (PciAddr, u32, PciAddr),
    wants: Wants<'_>,
    node: &mut N,
) -> Result<Result<Free, Taken>, Failure> {
    let (pf, number, vf) = which;
    let taken = |why: String| Ok(Err(Taken { why, soon: false }));
    let Some(lock) = context.store.try_lock(vf)? else {
        return Ok(Err(Taken { why: "another virtlet-sriov works on it at this moment".to_owned(), soon: true }));
    };
    match context.store.read(vf) {
        Ok(None) => {}
        Ok(Some(earlier)) if is_void(context, &earlier) => context.store.remove(vf)?,
        Ok(Some(earlier)) => {
            let owner = earlier.owner.told();
            let alive = node.netns_exists(&earlier.owner.netns);
            if alive.map_err(Failure::kernel(format!("failed to look whether {owner} is there")))? {
                return taken(owner);
            }
            // Nobody will call DEL for it any more.
            if let Err(failure) = give_back::give_back(context, &earlier, node).and_then(|()| context.store.remove(vf))
            {
                return taken(format!("{owner} is gone, and it could not be put back: {failure}"));
            }
            context.log(&format!("VF {number} of `{pf}` was put back: {owner} is gone"));
        }
        Err(failure) => return taken(failure.to_string()),
    }
    let looked = context.sysfs.look(vf).map_err(Failure::because(Code::Kernel, format!("failed to look at `{vf}`")))?;
    let Some(seen) = looked.filter(|seen| seen.function == Function::Virtual { pf, number }) else {
        return taken("it is gone".to_owned());
    };
    let Some(driver) = seen.driver.clone() else { return taken("it has no driver".to_owned()) };
    let vfio = driver == VFIO_PCI;
    match wants.driver {
        Some(wanted) if wanted != driver => return taken(format!("it has the driver `{driver}` and not `{wanted}`")),
        None if vfio && !wants.vfio => {
            return taken(
                "it is on vfio-pci, and so may be a VM's; a pool of such VFs has `driver = \"vfio-pci\"`".to_owned(),
            );
        }
        _ => {}
    }
    let netdev = if vfio {
        if is_open(context, vf)? {
            return taken("a process has it open, as a VM does".to_owned());
        }
        None
    } else {
        match node.find(vf, Place::Host).map_err(Failure::kernel(format!("failed to find the netdev of `{vf}`")))? {
            Some(netdev) => Some(netdev),
            None => return taken(format!("it has the driver `{driver}` and no netdev in the host's namespace")),
        }
    };
    Ok(Ok(Free { seen, driver, netdev, lock }))
}

fn chosen((pf, number, vf): (PciAddr, u32, PciAddr), free: Free, pf_lock: Lock) -> Chosen {
    let Free { seen, driver, netdev, lock } = free;
    Chosen { vf, pf, number, incarnation: seen.incarnation, driver, netdev, pf_lock, vf_lock: lock }
}
