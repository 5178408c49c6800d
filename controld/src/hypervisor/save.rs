//! A machine's memory, written to a file while the machine stays, and its disks copied: it is paused for that, and goes on.
//!
//! libvirt's own save ends the machine. What does not is a snapshot of the memory alone, into a file of the same form. QEMU has given
//! up its disks once that is written, until the guest goes on: nothing is left in its caches, and whoever copies a disk meanwhile
//! has what the memory knows of.
//!
//! All that the guest stands still for is one call: nothing of it waits for its turn behind others then, and nobody has to be there to
//! let the guest go on. A call cannot be taken back, so one that comes too late to be wanted pauses nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Chain, now_nanos};
use quick_xml::escape::escape;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use super::calls::{PEER, QUICK_DEADLINE, finished};
use super::ffi::{Connection, Domain, LibvirtError, NO_DOMAIN, OPERATION_INVALID};
use super::link::Lane;
use super::machines::{existing, look_up};
use super::monitor::{self, Since};
use super::press::Press;
use super::{Hypervisor, meaning};
use crate::trace;

const WHAT: &str = "write the machine's memory and disks";
/// How long it waits behind others. The guest runs meanwhile.
const TURN_DEADLINE: Duration = Duration::from_secs(60);
/// Between two tries to end one that is not wanted any more.
const AGAIN: Duration = Duration::from_secs(1);
/// How long those go on.
const GIVING_UP: Duration = Duration::from_secs(30);

/// When a guest has stood still, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct Stood {
    pub since: i64,
    pub until: i64,
}

/// Why a machine was not saved.
#[derive(Debug)]
pub struct NotSaved {
    pub error: Error,
    /// Whether its guest may stand still for that.
    pub may_stand: bool,
}

impl Hypervisor {
    /// Pauses a machine, writes its memory and devices to a file that is there, in libvirt's form of saved machines, has its disks copied,
    /// which may block, and lets it go on. If it is `unwanted` meanwhile, or takes longer than `deadline`, libvirt is told to end it.
    ///
    /// # Errors
    /// When there is no such machine, it is paused, something of it cannot be saved, the file cannot be written, or libvirt does not
    /// answer in time; when somebody else has let it go on before all was copied; that of `copy`.
    pub async fn save<T: Send + 'static>(
        &self,
        id: Uuid,
        file: &Path,
        deadline: Duration,
        unwanted: &CancellationToken,
        copy: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<(Stood, T), NotSaved> {
        let held = Arc::new(AtomicBool::new(false));
        let saved = async {
            let file = file.to_str().map(str::to_owned).ok_or_else(|| {
                Error::new(Kind::Invalid, format!("`{}` is not UTF-8, which libvirt wants", file.display()))
            })?;
            let (token, held) = (unwanted.clone(), held.clone());
            let save = move |connection: &Connection| {
                let domain = existing(connection, id)?;
                let targets = meaning::targets_of(&domain.xml()?);
                hold(&domain, &token, &held)?;
                let since = now_nanos();
                let copied = domain.snapshot(&memory_alone(&file, &targets)).map(|()| copy());
                let gone_on = let_go(&domain, copied.is_ok(), &token, &held);
                let stood = Stood { since, until: now_nanos() };
                match copied? {
                    Ok(copied) => gone_on.map(|()| Ok((stood, copied))),
                    Err(error) => Ok(Err(error)),
                }
            };
            let turn = unwanted.run_until_cancelled(self.turn(WHAT, Lane::Saves, TURN_DEADLINE)).await;
            let (lines, turn) = turn.unwrap_or_else(|| Err(given_up()))?;
            let saved = finished(WHAT, deadline + GIVING_UP, lines.run(turn, save));
            let mut saving = std::pin::pin!(trace::step(PEER, WHAT, saved));
            let why = match timeout(deadline, unwanted.run_until_cancelled(&mut saving)).await {
                Ok(Some(saved)) => return saved?,
                Ok(None) => given_up(),
                Err(_elapsed) => {
                    let what = format!("memory and disks were not written within {} s", deadline.as_secs());
                    Error::new(Kind::Deadline, what)
                }
            };
            if timeout(GIVING_UP, self.end(id, saving)).await.is_err() {
                tracing::warn!("memory and disks that are not wanted any more are still written");
            }
            Err(why)
        };
        saved.await.map_err(|error| NotSaved { error, may_stand: held.load(Ordering::SeqCst) })
    }

    /// Ends what is written of a machine that is not wanted any more.
    async fn end(&self, id: Uuid, mut saving: impl Future + Unpin) {
        loop {
            if let Err(error) = self.end_save(id).await {
                tracing::warn!(error = %Chain(&error), "memory that is not wanted any more is still written; trying again");
            }
            // libvirt may not have come to it yet: then there was nothing to end.
            if timeout(AGAIN, &mut saving).await.is_ok() {
                return;
            }
        }
    }

    /// Has libvirt end to write a machine's memory; fine if it does not, or there is no such machine. It is not told again while it has not
    /// answered: there are few turns.
    ///
    /// # Errors
    /// When libvirt does not answer, or has not answered the last time, or does not do it.
    pub async fn end_save(&self, id: Uuid) -> Result<()> {
        let Some(one) = Press::begin(&self.shared.aborts, id) else {
            let what =
                "libvirt was told before to end to write the machine's memory, and has not answered; is QEMU stuck?";
            return Err(Error::new(Kind::Unavailable, what));
        };
        let abort = move |connection: &Connection| {
            let _one = one;
            match look_up(connection, id)?.map(|domain| domain.abort_job()) {
                Some(Err(error)) if !is_nothing_to_end(&error) => Err(error),
                _ => Ok(()),
            }
        };
        self.call_in(Lane::Presses, "end to write the machine's memory", QUICK_DEADLINE, abort).await
    }
}

/// Pauses a machine that runs and is still to be written. One that somebody else has paused is not ours to let go on.
fn hold(domain: &Domain, unwanted: &CancellationToken, held: &AtomicBool) -> Result<(), LibvirtError> {
    let not_wanted = || Err(invalid("it is not wanted any more".into()));
    if unwanted.is_cancelled() {
        return not_wanted();
    }
    if let Some(pause) = meaning::state_of(domain.state()?).pause {
        return Err(invalid(pause.message().to_owned()));
    }
    held.store(true, Ordering::SeqCst);
    domain.suspend()?;
    // Who does not want it may have seen it run.
    if unwanted.is_cancelled() {
        domain.resume()?;
        held.store(false, Ordering::SeqCst);
        return not_wanted();
    }
    Ok(())
}

/// Lets a machine go on that [`hold`] has paused, unless somebody has done that: then its disks are not as its memory knows them, and if it is
/// paused again, somebody wants that.
fn let_go(
    domain: &Domain,
    is_saved: bool,
    unwanted: &CancellationToken,
    held: &AtomicBool,
) -> Result<(), LibvirtError> {
    let status = || domain.monitor(monitor::QUERY_STATUS).map(|answer| monitor::since_save(&answer));
    let since = is_saved.then(status);
    let known = since.as_ref().and_then(|since| since.as_ref().ok());
    match is_ours(known, unwanted.is_cancelled()) {
        Some(true) => {
            if meaning::state_of(domain.state()?).pause.is_some() {
                domain.resume()?;
            }
            held.store(false, Ordering::SeqCst);
        }
        Some(false) => held.store(false, Ordering::SeqCst),
        None => {}
    }
    match since.transpose()? {
        None | Some(Since::Stood) => Ok(()),
        Some(Since::Reset) => Err(invalid("somebody has reset the guest before its disks were copied".into())),
        Some(Since::Moved(state)) => {
            Err(invalid(format!("somebody has let the guest go on before its disks were copied: QEMU is `{state}`")))
        }
        Some(Since::Untold) => {
            let what = "QEMU does not tell whether the guest has stood still until its disks were copied";
            Err(invalid(what.into()))
        }
    }
}

/// Whether a pause is the one that [`hold`] made, if anybody is to act on that here; `since` is what has become of the guest since its memory was
/// written, if it was and that is known. Who does not want a save any more lets the guest go on, and may pause it then.
fn is_ours(since: Option<&Since>, is_unwanted: bool) -> Option<bool> {
    match since {
        Some(Since::Stood | Since::Reset) => Some(true),
        Some(Since::Moved(_)) => Some(false),
        Some(Since::Untold) | None => (!is_unwanted).then_some(true),
    }
}

fn invalid(message: String) -> LibvirtError {
    LibvirtError { code: OPERATION_INVALID, message }
}

fn is_nothing_to_end(error: &LibvirtError) -> bool {
    matches!(error.code, NO_DOMAIN | OPERATION_INVALID)
}

fn given_up() -> Error {
    Error::new(Kind::State, "it was given up before the machine's memory was written")
}

/// A snapshot of no disk: each has to be named, or libvirt would put a layer on it.
fn memory_alone(file: &str, targets: &[String]) -> String {
    let disk = |target: &String| format!("<disk name='{}' snapshot='no'/>", escape(target.as_str()));
    let disks: String = targets.iter().map(disk).collect();
    let file = escape(file);
    format!("<domainsnapshot><memory snapshot='external' file='{file}'/><disks>{disks}</disks></domainsnapshot>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_names_each_disk_and_takes_none() {
        let targets = ["vda".to_owned(), "sdb".to_owned()];
        assert_eq!(
            memory_alone("/c/a&'b/memory", &targets),
            "<domainsnapshot><memory snapshot='external' file='/c/a&amp;&apos;b/memory'/><disks><disk name='vda' snapshot='no'/>\
             <disk name='sdb' snapshot='no'/></disks></domainsnapshot>"
        );
    }

    #[test]
    fn a_pause_of_somebody_elses_is_not_ours_to_end() {
        for is_unwanted in [false, true] {
            let of = |since| is_ours(Some(&since), is_unwanted);
            assert_eq!([of(Since::Stood), of(Since::Reset)], [Some(true), Some(true)], "it stands as we paused it");
            assert_eq!(of(Since::Moved("paused".into())), Some(false), "it has run since");
        }
        for since in [Some(&Since::Untold), None] {
            assert_eq!(
                [false, true].map(|is_unwanted| is_ours(since, is_unwanted)),
                [Some(true), None],
                "who gave it up sees to it"
            );
        }
    }

    #[test]
    fn where_nothing_is_written_there_is_nothing_to_end() {
        let error = |code| LibvirtError { code, message: String::new() };
        assert!(is_nothing_to_end(&error(NO_DOMAIN)) && is_nothing_to_end(&error(OPERATION_INVALID)));
        assert!(!is_nothing_to_end(&error(38)), "a system error");
    }
}
