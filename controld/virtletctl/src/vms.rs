//! The commands of `vm` that ask a cluster: KubeVirt's verbs for VMs, by the words of its virtctl. As `kubectl virtlet` they are a plugin of
//! kubectl's.
//!
//! [`names`] reads what a command line calls a VM. [`act`] does what is done by one call, [`list`] and [`tell`] print what the cluster knows. [`reach`]
//! opens streams of a VM, which [`console`], [`screen`] and [`forward`] join to a terminal, a viewer or a port of ours ([`join`]); [`login`] has
//! ssh come by such a port.

mod act;
mod console;
mod forward;
mod join;
mod list;
mod login;
mod names;
mod reach;
mod screen;
mod tell;

use std::io::Write;

use super::cli::VmVerb;
use super::error::CtlError;
use super::interrupt::Interrupt;

/// Does one of them. `ours` is what `version` says of this program.
///
/// # Errors
/// One for each thing that failed.
pub(super) async fn run(
    verb: &VmVerb,
    ours: &str,
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), Vec<CtlError>> {
    let one = |error| vec![error];
    match verb {
        VmVerb::Get(wanted) => list::run(wanted, out).await,
        VmVerb::Start(wanted) => act::start(wanted, out).await,
        VmVerb::Stop(wanted) => act::stop(&act::STOP, wanted, out).await,
        VmVerb::Restart(wanted) => act::stop(&act::RESTART, wanted, out).await,
        VmVerb::Pause(wanted) => act::act(&act::PAUSE, wanted, out).await,
        VmVerb::Unpause(wanted) => act::act(&act::UNPAUSE, wanted, out).await,
        VmVerb::Reset(wanted) => act::act(&act::RESET, wanted, out).await,
        VmVerb::SoftReboot(wanted) => act::act(&act::SOFT_REBOOT, wanted, out).await,
        VmVerb::Freeze(wanted) => act::freeze(wanted, out).await,
        VmVerb::Unfreeze(wanted) => act::act(&act::UNFREEZE, wanted, out).await,
        VmVerb::Console(wanted) => console::run(wanted).await.map_err(one),
        VmVerb::Vnc(wanted) => screen::vnc(wanted, out, interrupt).await.map_err(one),
        VmVerb::Screenshot(wanted) => screen::screenshot(wanted, out).await.map_err(one),
        VmVerb::Ssh(wanted) => login::ssh(wanted).await.map_err(one),
        VmVerb::Scp(wanted) => login::scp(wanted).await.map_err(one),
        VmVerb::PortForward(wanted) => forward::run(wanted, out, interrupt).await.map_err(one),
        VmVerb::Guestosinfo(wanted) => tell::of_guest("guestosinfo", wanted, out).await.map_err(one),
        VmVerb::Userlist(wanted) => tell::of_guest("userlist", wanted, out).await.map_err(one),
        VmVerb::Fslist(wanted) => tell::of_guest("filesystemlist", wanted, out).await.map_err(one),
        VmVerb::Version(wanted) => tell::version(wanted, ours, out).await.map_err(one),
    }
}

#[cfg(test)]
mod tests;
