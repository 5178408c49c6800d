//! Waits until a record says whether its guest is paused: those that a controld begins with do not, and libvirt knows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::model::Container;

/// Until libvirt is asked again.
const AGAIN: Duration = Duration::from_secs(10);

/// Ends when both say the same. `ask` is whether the guest is paused, as libvirt says.
pub(super) async fn settled<E, F>(ask: impl Fn() -> F, container: &mut watch::Receiver<Arc<Container>>)
where
    F: Future<Output = Result<bool, E>>,
{
    loop {
        let is_paused = ask().await;
        if is_paused.is_ok_and(|is_paused| is_paused == container.borrow_and_update().pause.is_some()) {
            return;
        }
        tokio::select! {
            changed = container.changed() => if changed.is_err() {
                return;
            },
            () = sleep(AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proto::pause::Pause;

    use super::*;
    use crate::api::cri::convert::tests::container;

    #[tokio::test(start_paused = true)]
    async fn a_record_that_does_not_say_it_yet_is_waited_for() {
        let (sender, mut receiver) = watch::channel(Arc::new(container()));
        // First libvirt is not there.
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            std::future::ready(if asked.get() == 1 { Err(()) } else { Ok(true) })
        };
        let waiting = settled(ask, &mut receiver);
        let telling = async {
            sleep(AGAIN * 5 / 2).await;
            sender.send_replace(Arc::new(Container { pause: Some(Pause::ByHand), ..container() }));
        };
        let began = tokio::time::Instant::now();
        tokio::join!(waiting, telling);
        assert_eq!((asked.get(), began.elapsed()), (4, AGAIN * 5 / 2));
        settled(|| std::future::ready(Ok::<_, ()>(true)), &mut receiver).await;
        assert_eq!(began.elapsed(), AGAIN * 5 / 2, "both say the same");
    }
}
