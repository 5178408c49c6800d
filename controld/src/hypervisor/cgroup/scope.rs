//! Scopes: units by which systemd knows of processes that something else has started, here of a machine's QEMU.
//!
//! A scope is made with its processes, and systemd moves them to its cgroup. It is delegated: what lies below its cgroup is ours,
//! and systemd leaves it and the slices above all controllers (systemd.resource-control(5), `Delegate=`; D-Bus interface in
//! org.freedesktop.systemd1(5)). It ends when its last process has ended, and then its cgroup goes with all that is below.

use std::pin::pin;
use std::time::Duration;

use common::Reason;
use futures_util::StreamExt as _;
use tokio::time::timeout;
use vmspec::plan::Scope;
use zbus::{Connection, OwnedObjectPath, Variant, proxy};

/// Of systemd for a unit that only moves a process; it may have much else to do, as while a node boots.
const DEADLINE: Duration = Duration::from_secs(30);
/// What a unit's job ends with if it has done what it was for.
const DONE: &str = "done";

#[proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    /// Has the signals below sent to this connection.
    fn subscribe(&self) -> zbus::Result<()>;

    /// Makes a unit that is gone when it has stopped, and starts it; the path of the job that does so.
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        auxiliary: &[(&str, &[(&str, Variant<'_>)])],
    ) -> zbus::Result<OwnedObjectPath>;

    /// A job has ended.
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String);
}

/// Has systemd make a scope and move a process to it.
///
/// # Errors
/// When there is no system bus, when systemd refuses it, as for a unit that is there, and at the deadline.
pub async fn start(scope: Scope<'_>, pid: u32) -> Result<(), Reason> {
    let unit = scope.unit;
    let failed = || format!("failed to have systemd make `{unit}` in `{}`", scope.slice);
    match timeout(DEADLINE, ask(scope, pid)).await {
        Ok(Ok(result)) if result == DONE => Ok(()),
        Ok(Ok(result)) => {
            let result = Reason::new(format!("its job ended as `{result}`; `journalctl -u {unit}` says why"));
            Err(Reason::new(failed()).with(result))
        }
        Ok(Err(cause)) => Err(Reason::new(failed()).with(cause)),
        Err(_) => Err(Reason::new(failed()).with(Reason::new(format!("no answer within {} s", DEADLINE.as_secs())))),
    }
}

/// How the job has ended.
async fn ask(scope: Scope<'_>, pid: u32) -> zbus::Result<String> {
    let bus = Connection::system().await?;
    let manager = ManagerProxy::new(&bus).await?;
    manager.subscribe().await?;
    let mut ends = manager.receive_job_removed().await?;
    let description = format!("Virtual machine of {}", scope.slice);
    let properties = [
        ("Description", Variant::from(description.as_str())),
        ("Slice", Variant::from(scope.slice)),
        ("PIDs", Variant::from(vec![pid])),
        ("Delegate", Variant::from(true)),
        // The slice's end is its end, as for containers.
        ("DefaultDependencies", Variant::from(false)),
        // QEMU has a thread for each vCPU and many for disks; the pod's limit is on its slice.
        ("TasksMax", Variant::from(u64::MAX)),
        // One that failed would keep its name.
        ("CollectMode", Variant::from("inactive-or-failed")),
    ];
    let mut asked = pin!(manager.start_transient_unit(scope.unit, "fail", &properties, &[]));
    let (mut job, mut ended) = (None, Vec::new());
    loop {
        // Signals are taken while the answer is waited for: it comes behind those of other units.
        tokio::select! {
            answer = &mut asked, if job.is_none() => job = Some(answer?),
            end = ends.next() => {
                let end = end.ok_or_else(|| zbus::Error::Failure("the system bus has closed the connection".to_owned()))?;
                let end = end.args()?;
                ended.push((end.job().clone(), end.result().clone()));
            }
        }
        if let Some((_, result)) = ended.iter().find(|(of, _)| Some(of) == job.as_ref()) {
            return Ok(result.clone());
        }
    }
}
