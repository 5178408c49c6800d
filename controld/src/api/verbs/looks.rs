//! How many looks at screens there are at a time, and how many pictures of them: both take memory, the first by what a guest says its
//! screen's size is, the second for as long as a client takes to read it.

use std::sync::Arc;

use common::KeyedMutex;
use common::keyed_mutex::KeyGuard;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

/// Looks at a time. One that QEMU is slow to answer leaves room for another machine's.
const LOOKS: usize = 2;
/// Pictures at a time, those that are being made among them. Each may take 50 MB.
const PICTURES: usize = 4;

/// Who looks. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Looks {
    machines: KeyedMutex,
    pictures: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// A picture, and its place among them until it is dropped.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) bytes: Vec<u8>,
    _places: (KeyGuard, OwnedSemaphorePermit),
}

impl Looks {
    pub(super) fn new() -> Self {
        let (pictures, turns) = (Semaphore::new(PICTURES), Semaphore::new(LOOKS));
        Self { machines: KeyedMutex::default(), pictures: Arc::new(pictures), turns: Arc::new(turns) }
    }

    /// What `look` at a machine's screen shows, behind earlier pictures of the same machine: who may look at one machine has one place
    /// and not all. The caller has a deadline for that, and `look` has its own.
    ///
    /// # Errors
    /// When others have all places, or the look fails.
    pub(super) async fn picture(
        &self,
        machine: MachineId,
        look: impl Future<Output = Result<Vec<u8>>> + Send + 'static,
    ) -> Result<Picture> {
        let machine = self.machines.lock(machine.to_string()).await;
        let full = |_none| {
            let what = format!("{PICTURES} pictures of other screens are being made or read; try again");
            Error::new(Kind::Exhausted, what)
        };
        let place = self.pictures.clone().try_acquire_owned().map_err(full)?;
        let turn = self.turns.clone().acquire_owned().await;
        // A caller that leaves does not end the packing of a picture, and so not its place either.
        let looking = tokio::spawn(async move {
            let bytes = look.await?;
            // Closed by nobody, so it is one.
            drop(turn);
            Ok(Picture { bytes, _places: (machine, place) })
        });
        looking.await.unwrap_or_else(|cause| Err(Error::because(Kind::Internal, "no picture of the screen", cause)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_machine_has_one_place_until_its_picture_is_dropped() {
        let (looks, one) = (Looks::new(), MachineId::random());
        let first = looks.picture(one, ready(Ok(vec![1]))).await.expect("a picture");
        timeout(LONG, looks.picture(one, ready(Ok(vec![2])))).await.expect_err("behind the first");
        looks.picture(MachineId::random(), ready(Ok(vec![3]))).await.expect("of another machine");
        drop(first);
        let second = timeout(LONG, looks.picture(one, ready(Ok(vec![4])))).await.expect("in time");
        assert_eq!(second.expect("a picture").bytes, [4]);
    }

    #[tokio::test]
    async fn pictures_that_nobody_reads_are_not_joined_by_more() {
        let looks = Looks::new();
        let mut kept = Vec::new();
        for _ in 0..PICTURES {
            kept.push(looks.picture(MachineId::random(), ready(Ok(Vec::new()))).await.expect("a picture"));
        }
        let refused = looks.picture(MachineId::random(), ready(Ok(Vec::new()))).await.expect_err("full");
        assert_eq!(refused.kind(), Kind::Exhausted);
        kept.pop();
        looks.picture(MachineId::random(), ready(Ok(Vec::new()))).await.expect("a picture");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_whose_caller_has_left_keeps_its_place_until_it_ends() {
        let (looks, one) = (Looks::new(), MachineId::random());
        let (end, ended) = oneshot::channel::<()>();
        let look = async {
            let _ = ended.await;
            Ok(Vec::new())
        };
        timeout(LONG, looks.picture(one, look)).await.expect_err("it has not ended");
        timeout(LONG, looks.picture(one, pending())).await.expect_err("behind it");
        end.send(()).expect("awaited");
        looks.picture(one, ready(Ok(Vec::new()))).await.expect("a picture");
    }
}
