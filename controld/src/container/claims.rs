//! Which machine may use a device that is a root disk: one at a time. QEMU's own lock does not see to that, since each QEMU has the device's
//! node in a `/dev` of its own. So it is told by the records of containers, of which one that has ended has no machine, and by who has got
//! past here.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::error::{Error, Kind, Result};
use crate::model::plan::{BlockDevice, DeviceNumber, MachinePlan};
use crate::model::{Container, ContainerState, MachineId};

/// Machines that may use their devices, as far as this controld has started them.
#[derive(Debug, Default)]
pub struct Claims {
    passed: Mutex<HashSet<MachineId>>,
}

impl Claims {
    /// Lets the container's machine have its devices. `records` are the containers as they are on record when it is asked, which is while
    /// nobody else gets past here: by an older list somebody might have passed who is not on it as one who starts.
    ///
    /// # Errors
    /// When another one's machine runs, or is being started, that has a device of it, and one of the two has that as its root disk.
    pub(super) fn claim(&self, container: &Container, records: impl FnOnce() -> Vec<Arc<Container>>) -> Result<()> {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let all = records();
        passed.retain(|machine| all.iter().any(|other| other.machine.id == *machine && other.state.may_run()));
        let uses = |other: &Container| match other.state {
            ContainerState::Running | ContainerState::Uncertain => true,
            // Of two that are being started the first one has it.
            ContainerState::Starting => passed.contains(&other.machine.id),
            ContainerState::Created | ContainerState::Exited => false,
        };
        let holder = rivals(container, &all).find(|(other, _)| uses(other));
        if let Some((other, number)) = holder {
            return Err(in_use(other, number));
        }
        passed.insert(container.machine.id);
        Ok(())
    }
}

/// That a device is another machine's.
fn in_use(other: &Container, number: DeviceNumber) -> Error {
    let what = format!(
        "block device {number} is in use by the VM of container `{}` (`{}`), and a root disk is one VM's at a time",
        other.id, other.config.name
    );
    Error::new(Kind::State, what)
}

/// Containers whose machines cannot run while this one's does, each with a device that is why.
fn rivals<'a>(
    container: &'a Container,
    all: &'a [Arc<Container>],
) -> impl Iterator<Item = (&'a Container, DeviceNumber)> {
    let others = all.iter().map(Arc::as_ref).filter(|other| other.id != container.id);
    others.filter_map(|other| Some((other, shared_root(&container.machine, &other.machine)?)))
}

/// A device that two machines have and that is the root disk of one of them.
fn shared_root(one: &MachinePlan, other: &MachinePlan) -> Option<DeviceNumber> {
    let has = |plan: &MachinePlan, number: DeviceNumber| {
        root(plan).is_some_and(|root| root.number == number) || disks(plan).any(|disk| disk.number == number)
    };
    let of_one = root(one).map(|root| root.number).filter(|number| has(other, *number));
    of_one.or_else(|| root(other).map(|root| root.number).filter(|number| has(one, *number)))
}

fn root(plan: &MachinePlan) -> Option<&BlockDevice> {
    plan.root.persistent.as_ref().map(|root| &root.device)
}

fn disks(plan: &MachinePlan) -> impl Iterator<Item = &BlockDevice> {
    plan.disks.iter().filter_map(|disk| disk.source.block())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::container::tests::container;
    use crate::model::plan::{Disk, DiskSource, OnImageChange, PersistentRoot, Serial};

    fn device(minor: u32) -> BlockDevice {
        BlockDevice { node: format!("/dev/loop{minor}").into(), number: DeviceNumber { major: 7, minor } }
    }

    fn of(state: ContainerState, root: Option<u32>, disk: Option<u32>) -> Arc<Container> {
        let mut container = Container { state, ..container("vm", 0) };
        container.machine.root.persistent = root.map(|minor| PersistentRoot {
            device: device(minor),
            volume: "pvc".into(),
            virtual_size: 1,
            on_image_change: OnImageChange::Keep,
            as_is: false,
            converted: false,
        });
        container.machine.disks = disk.map(data_disk).into_iter().collect();
        Arc::new(container)
    }

    fn in_state(container: &Arc<Container>, state: ContainerState) -> Arc<Container> {
        Arc::new(Container { state, ..container.as_ref().clone() })
    }

    fn data_disk(minor: u32) -> Disk {
        Disk {
            serial: Serial::of_path("/dev/a"),
            source: DiskSource::Block(device(minor)),
            path: "/dev/a".into(),
            read_only: false,
        }
    }

    #[test]
    fn a_root_disk_is_one_machines_at_a_time() {
        let wants = of(ContainerState::Starting, Some(1), None);
        for (other, free) in [
            (of(ContainerState::Running, Some(1), None), false),
            (of(ContainerState::Uncertain, Some(1), None), false),
            (of(ContainerState::Running, None, Some(1)), false),
            (of(ContainerState::Running, Some(2), Some(3)), true),
            (of(ContainerState::Exited, Some(1), None), true),
            (of(ContainerState::Created, Some(1), None), true),
            // It has not got past here itself.
            (of(ContainerState::Starting, Some(1), None), true),
        ] {
            let claimed = Claims::default().claim(&wants, || vec![wants.clone(), other.clone()]);
            assert_eq!(claimed.is_ok(), free, "{other:?}");
        }
        // Who has it as a disk of another kind waits as well.
        let running = of(ContainerState::Running, Some(1), None);
        let reads = of(ContainerState::Starting, None, Some(1));
        let error = Claims::default().claim(&reads, || vec![running, reads.clone()]).expect_err("refused");
        assert!(error.kind() == Kind::State && error.to_string().contains("7:1"), "{error}");
        let shares = vec![of(ContainerState::Running, None, Some(1)), reads.clone()];
        assert!(Claims::default().claim(&reads, || shares).is_ok(), "nobody's root disk");
    }

    #[test]
    fn of_two_that_start_at_once_the_first_one_has_it() {
        let claims = Claims::default();
        let (one, two) = (of(ContainerState::Starting, Some(1), None), of(ContainerState::Starting, Some(1), None));
        let all = || vec![one.clone(), two.clone()];
        assert!(claims.claim(&one, all).is_ok());
        assert!(claims.claim(&two, all).is_err());
        assert!(claims.claim(&one, all).is_ok(), "again is fine");
        let ended = in_state(&one, ContainerState::Exited);
        assert!(claims.claim(&two, || vec![ended, two.clone()]).is_ok());
    }

    #[test]
    fn who_has_it_as_another_disk_counts_from_its_start_until_it_is_known_to_be_gone() {
        let claims = Claims::default();
        let (reads, wants) = (of(ContainerState::Starting, None, Some(1)), of(ContainerState::Starting, Some(1), None));
        claims.claim(&reads, || vec![reads.clone(), wants.clone()]).expect("the first one");
        for state in [ContainerState::Starting, ContainerState::Running, ContainerState::Uncertain] {
            let other = in_state(&reads, state);
            assert!(claims.claim(&wants, || vec![other, wants.clone()]).is_err(), "{state:?}");
        }
        let ended = in_state(&reads, ContainerState::Exited);
        assert!(claims.claim(&wants, || vec![ended, wants.clone()]).is_ok());
    }

    #[test]
    fn of_two_whose_claims_meet_one_has_it() {
        /// One that has waited so long is not let past.
        const HELD: Duration = Duration::from_millis(200);
        let claims = Claims::default();
        let (one, two) = (of(ContainerState::Created, Some(1), None), of(ContainerState::Starting, Some(1), None));
        let records = Mutex::new(vec![one.clone(), two.clone()]);
        let all = || records.lock().expect("no panic").clone();
        let (tell, told) = mpsc::channel();
        let (first, second) = thread::scope(|scope| {
            let mut begun = None;
            let first = claims.claim(&two, || {
                let before = all();
                // Amid this claim the other one's start is recorded, and claims.
                let one = in_state(&one, ContainerState::Starting);
                *records.lock().expect("no panic") = vec![one.clone(), two.clone()];
                let (claims, all) = (&claims, &all);
                begun = Some(scope.spawn(move || {
                    let claimed = claims.claim(&one, all);
                    let _ = tell.send(());
                    claimed
                }));
                let _ = told.recv_timeout(HELD);
                before
            });
            (first, begun.expect("begun").join().expect("no panic"))
        });
        assert!(first.is_ok() && second.is_err(), "{first:?} {second:?}");
    }
}
