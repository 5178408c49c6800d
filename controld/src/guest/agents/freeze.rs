//! File systems of a guest that stand still for a while, so that somebody can copy its disks: QEMU's agent freezes them, and thaws them
//! when it is asked to, or when their time is over, whichever comes first.
//!
//! A guest whose file systems stay frozen is lost. So the end of their time is written down before they are frozen, and a task waits for it, which
//! tries until the guest is thawed or gone. An end that was written down by a controld that is no more is the next one's to wait for
//! ([`Agents::thaw_left`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Chain, off_reactor, small_file};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::{Agents, Machine, facts};
use crate::files::{io_failed, remove};

const FREEZE: &str = "guest-fsfreeze-freeze";
const THAW: &str = "guest-fsfreeze-thaw";
const STATUS: &str = "guest-fsfreeze-status";
/// The longest that anybody may freeze them for.
pub const MAX_FROZEN: Duration = Duration::from_secs(3600);
/// Between two tries to thaw a guest: one that is paused does not answer.
const AGAIN: Duration = Duration::from_secs(5);
/// Of the file.
const VERSION: u32 = 1;

/// Until when file systems are frozen.
#[derive(Debug, Serialize, Deserialize)]
struct Frozen {
    version: u32,
    /// Milliseconds since the epoch.
    until: u64,
}

/// Where it is written down that a machine's file systems are frozen.
#[must_use]
pub fn frozen_file(dir: &Path, id: MachineId) -> PathBuf {
    dir.join(format!("{id}.frozen"))
}

impl Agents {
    /// Freezes a guest's file systems, for no longer than this. A caller that leaves before it hears that they are frozen leaves them thawed.
    ///
    /// # Errors
    /// When they are frozen already, or QEMU's agent does not answer, not in time, or refuses: then they are thawed.
    pub async fn freeze(&self, id: MachineId, limit: Duration) -> Result<()> {
        let (machine, file) = (self.machine(id), frozen_file(&self.dir, id));
        let (caller, heard) = oneshot::channel();
        // In a task: what was begun is to be undone, too, if nobody waits for its end any more.
        let freezing = async move { machine.freeze(limit.min(MAX_FROZEN), file, caller).await };
        tokio::spawn(freezing.instrument(tracing::Span::current()));
        // Without a word only by a panic, of which the log tells.
        heard.await.unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the guest's file systems are not frozen")))
    }

    /// Thaws a guest's file systems; fine if they are not frozen.
    ///
    /// # Errors
    /// When QEMU's agent does not answer, not in time, or refuses.
    pub async fn thaw(&self, id: MachineId) -> Result<()> {
        let machine = self.machine(id);
        let _turn = machine.freezing.lock().await;
        self.asked::<u64>(id, THAW).await?;
        machine.is_thawed(frozen_file(&self.dir, id)).await
    }

    /// Thaws a machine's guest in time that an earlier controld has frozen, if it has.
    pub fn thaw_left(&self, id: MachineId) {
        let machine = self.machine(id);
        let mut thawing = machine.thawing.lock().unwrap_or_else(PoisonError::into_inner);
        if thawing.is_some() {
            return;
        }
        let (weak, file) = (Arc::downgrade(&machine), frozen_file(&self.dir, id));
        let task = async move {
            let note = off_reactor({
                let file = file.clone();
                move || small_file::read::<Frozen>(&file, VERSION)
            });
            let left = match note.await {
                Ok(None) => return,
                Ok(Some(Frozen { until, .. })) => {
                    let end = UNIX_EPOCH.checked_add(Duration::from_millis(until)).unwrap_or(UNIX_EPOCH);
                    // The clock may have been set meanwhile.
                    end.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO).min(MAX_FROZEN)
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "until when a guest is frozen is not known; thawing it now");
                    Duration::ZERO
                }
            };
            thaw_in_time(weak, left, file).await;
        };
        *thawing = Some(AbortOnDropHandle::new(tokio::spawn(task.instrument(machine.span()))));
    }
}

impl Machine {
    /// Freezes, and tells the caller. Each step has a deadline, but not all of them together.
    async fn freeze(self: Arc<Self>, limit: Duration, file: PathBuf, caller: oneshot::Sender<Result<()>>) {
        let _turn = self.freezing.lock().await;
        let status = self.qga.ask::<String>(STATUS).await;
        // Who has left wants nothing any more.
        if caller.is_closed() {
            return;
        }
        let noted = match status {
            Ok(status) if status == "frozen" => {
                Err(Error::new(Kind::State, "the guest's file systems are frozen already"))
            }
            Ok(_) => note(limit, file.clone()).await,
            Err(cause) => Err(facts::failed(cause)),
        };
        if let Err(error) = noted {
            let _ = caller.send(Err(error));
            return;
        }
        self.thaw_after(limit, file.clone());
        match self.qga.ask::<u64>(FREEZE).await {
            Ok(_frozen) => {
                if caller.send(Ok(())).is_err() {
                    tracing::info!("nobody waits for a freeze any more; the guest's file systems are thawed");
                    self.thaw_now(file).await;
                }
            }
            // It may have come to it all the same, and who is told of a failure thaws nothing.
            Err(error) => {
                self.thaw_now(file).await;
                let _ = caller.send(Err(facts::failed(error)));
            }
        }
    }

    /// Thaws it, or has that tried again. For who holds `freezing`.
    async fn thaw_now(self: &Arc<Self>, file: PathBuf) {
        match self.qga.ask::<u64>(THAW).await {
            Ok(_thawed) => {
                if let Err(error) = self.is_thawed(file).await {
                    tracing::warn!(error = %Chain(&error), "a guest whose freeze is not wanted or failed is thawed");
                }
            }
            Err(cause) => {
                tracing::warn!(error = %Chain(&cause), "a guest whose freeze is not wanted or failed not thawed; trying again");
                self.thaw_after(AGAIN, file);
            }
        }
    }

    /// Has it thawed after this time. For who holds `freezing`: the task before this one is ended, but not in the middle of its work.
    fn thaw_after(self: &Arc<Self>, left: Duration, file: PathBuf) {
        let task = tokio::spawn(thaw_in_time(Arc::downgrade(self), left, file).instrument(self.span()));
        *self.thawing.lock().unwrap_or_else(PoisonError::into_inner) = Some(AbortOnDropHandle::new(task));
    }

    async fn is_thawed(&self, file: PathBuf) -> Result<()> {
        self.thawing.lock().unwrap_or_else(PoisonError::into_inner).take();
        off_reactor(move || remove(&file)).await.map_err(|cause| io_failed("the end of a freeze stays noted", cause))
    }
}

/// Writes down when a freeze ends.
async fn note(limit: Duration, file: PathBuf) -> Result<()> {
    let end = SystemTime::now() + limit;
    let until = end.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_millis()).ok());
    let note = Frozen { version: VERSION, until: until.unwrap_or(0) };
    // The machine does not outlive a power failure either.
    let noted = off_reactor(move || small_file::write_unflushed(&file, &note));
    noted.await.map_err(|cause| Error::because(Kind::Internal, "the end of the freeze not noted", cause))
}

/// Waits for the end of the time, and thaws the guest then, however often that takes. Ends with its machine, which it does not keep.
async fn thaw_in_time(machine: Weak<Machine>, left: Duration, file: PathBuf) {
    sleep(left).await;
    let mut was_told = false;
    loop {
        let Some(machine) = machine.upgrade() else { return };
        // Until the note is removed: it would be that of the next freeze otherwise.
        let turn = machine.freezing.lock().await;
        let Err(cause) = machine.qga.ask::<u64>(THAW).await else {
            tracing::info!("the time of a freeze was over; the guest's file systems are thawed");
            if let Err(error) = off_reactor(move || remove(&file)).await {
                tracing::warn!(%error, "the end of a freeze stays noted");
            }
            return;
        };
        if !was_told {
            tracing::warn!(error = %Chain(&facts::failed(cause)), "the time of a freeze is over, and the guest not thawed; trying again");
            was_told = true;
        }
        drop(turn);
        drop(machine);
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixListener;
    use tokio::time::timeout;

    use super::super::qemu_socket;
    use super::super::tests::answered;
    use super::*;

    fn frozen(dir: &Path) -> (Arc<Agents>, MachineId, UnixListener) {
        let id = MachineId::random();
        let qemu = UnixListener::bind(qemu_socket(dir, id)).expect("binds");
        (Arc::new(Agents::new(dir.to_owned())), id, qemu)
    }

    fn executed(asked: &[serde_json::Value]) -> Vec<&str> {
        asked.iter().filter_map(|asked| asked["execute"].as_str()).collect()
    }

    #[tokio::test]
    async fn a_guest_that_an_earlier_controld_has_frozen_is_thawed_when_its_time_is_over() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = frozen(dir.path());
        let freezing = tokio::spawn(async move { agents.freeze(id, MAX_FROZEN).await });
        let asked = answered(&qemu, &[json!({"return": "thawed"}), json!({"return": 2})]).await;
        assert_eq!(executed(&asked), [STATUS, FREEZE]);
        freezing.await.expect("no panic").expect("frozen");
        let file = frozen_file(dir.path(), id);
        let mut note = small_file::read::<Frozen>(&file, VERSION).expect("read").expect("written down");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        assert!(u128::from(note.until) > now, "{} is over", note.until);
        // As it is once that time is over.
        note.until = 0;
        small_file::write_unflushed(&file, &note).expect("written");
        let next = Agents::new(dir.path().to_owned());
        next.thaw_left(id);
        next.thaw_left(id);
        assert_eq!(executed(&answered(&qemu, &[json!({"return": 2})]).await), [THAW]);
        let thawing = next.machine(id).thawing.lock().expect("lock").take().expect("a task");
        thawing.await.expect("no panic");
        assert!(!file.exists(), "and nobody thaws it again");
    }

    #[tokio::test]
    async fn who_thaws_it_earlier_ends_the_wait() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = frozen(dir.path());
        let ours = agents.clone();
        let freezing = tokio::spawn(async move { ours.freeze(id, MAX_FROZEN).await });
        answered(&qemu, &[json!({"return": "thawed"}), json!({"return": 1})]).await;
        freezing.await.expect("no panic").expect("frozen");
        let ours = agents.clone();
        let again = tokio::spawn(async move { ours.freeze(id, MAX_FROZEN).await });
        answered(&qemu, &[json!({"return": "frozen"})]).await;
        let refused = again.await.expect("no panic").expect_err("frozen already");
        assert!(refused.kind() == Kind::State && refused.to_string().contains("frozen already"), "{refused}");
        let ours = agents.clone();
        let thawing = tokio::spawn(async move { ours.thaw(id).await });
        assert_eq!(executed(&answered(&qemu, &[json!({"return": 1})]).await), [THAW]);
        thawing.await.expect("no panic").expect("thawed");
        assert!(!frozen_file(dir.path(), id).exists());
        assert!(agents.machine(id).thawing.lock().expect("lock").is_none());
    }

    #[tokio::test]
    async fn a_freeze_that_fails_leaves_a_guest_thawed() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = frozen(dir.path());
        let ours = agents.clone();
        let freezing = tokio::spawn(async move { ours.freeze(id, MAX_FROZEN).await });
        let answers = [json!({"return": "thawed"}), json!({"error": {"desc": "no hook"}}), json!({"return": 0})];
        assert_eq!(executed(&answered(&qemu, &answers).await), [STATUS, FREEZE, THAW]);
        let refused = freezing.await.expect("no panic").expect_err("refused");
        assert!(refused.kind() == Kind::State && Chain(&refused).to_string().contains("no hook"), "{refused:?}");
        assert!(!frozen_file(dir.path(), id).exists());
    }

    #[tokio::test]
    async fn a_guest_whose_freeze_nobody_waits_for_any_more_is_thawed_at_once() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = frozen(dir.path());
        let ours = agents.clone();
        let freezing = tokio::spawn(async move { ours.freeze(id, MAX_FROZEN).await });
        answered(&qemu, &[json!({"return": "thawed"})]).await;
        // It is asked to freeze, and the caller leaves.
        let (stream, _) = qemu.accept().await.expect("accepts");
        freezing.abort();
        assert!(freezing.await.expect_err("it has left").is_cancelled());
        let mut stream = BufReader::new(stream);
        let mut sync = Vec::new();
        stream.read_until(b'\n', &mut sync).await.expect("reads");
        let sync: serde_json::Value = serde_json::from_slice(&sync[1..]).expect("JSON");
        let answer = json!({"return": sync["arguments"]["id"]}).to_string();
        stream.write_all(&[b"\xff", answer.as_bytes(), b"\n"].concat()).await.expect("writes");
        let mut request = String::new();
        stream.read_line(&mut request).await.expect("reads");
        assert!(request.contains(FREEZE), "{request}");
        stream.write_all(b"{\"return\": 1}\n").await.expect("writes");
        assert_eq!(executed(&answered(&qemu, &[json!({"return": 1})]).await), [THAW]);
        drop(agents.machine(id).freezing.lock().await);
        assert!(!frozen_file(dir.path(), id).exists());
        assert!(agents.machine(id).thawing.lock().expect("lock").is_none());
    }

    #[tokio::test]
    async fn the_end_of_a_freeze_waits_for_who_freezes_and_ends_with_its_machine() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (agents, id, qemu) = frozen(dir.path());
        let machine = agents.machine(id);
        let turn = machine.freezing.lock().await;
        machine.thaw_after(Duration::ZERO, frozen_file(dir.path(), id));
        let asked = timeout(Duration::from_millis(100), qemu.accept()).await;
        assert!(asked.is_err(), "it is thawed beside another");
        drop(turn);
        assert_eq!(executed(&answered(&qemu, &[json!({"return": 1})]).await), [THAW]);
        let turn = machine.freezing.lock().await;
        machine.thaw_after(MAX_FROZEN, frozen_file(dir.path(), id));
        drop(turn);
        agents.forget(id);
        let kept = Arc::downgrade(&machine);
        drop(machine);
        assert!(kept.upgrade().is_none(), "it is kept by who waits for its end");
    }
}
