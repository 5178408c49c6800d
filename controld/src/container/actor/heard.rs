//! What libvirt said of a machine and its task has not taken yet.
//!
//! Not a queue: a task that is busy keeps nobody waiting who has other machines to tell, and what it missed is at most one end
//! and the wish that it look for itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::hypervisor::{Ending, HvEvent};

/// The place.
#[derive(Debug, Default)]
pub(super) struct Heard {
    news: Mutex<News>,
    came: Notify,
}

/// What there is to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// The machine has ended like this.
    pub(super) ending: Option<Ending>,
    /// The machine was paused.
    pub(super) paused: bool,
    /// Something else became of the machine.
    pub(super) stirred: bool,
    /// Events may have been missed.
    pub(super) missed: bool,
}

impl Heard {
    pub(super) fn hear(&self, event: &HvEvent) {
        {
            let mut news = self.news();
            match event {
                HvEvent::Lifecycle { ending: Some(ending), .. } => news.ending = Some(*ending),
                HvEvent::Lifecycle { ending: None, .. } => news.stirred = true,
                HvEvent::Paused { .. } => news.paused = true,
                HvEvent::Resync => news.missed = true,
                HvEvent::Reboot { .. } | HvEvent::Down => return,
            }
        }
        self.came.notify_one();
    }

    /// Waits for news, and takes them.
    pub(super) async fn next(&self) -> News {
        loop {
            let news = std::mem::take(&mut *self.news());
            if news != News::default() {
                return news;
            }
            self.came.notified().await;
        }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        // Nothing between lock and unlock can panic.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn nobody_waits_to_tell_and_nothing_that_matters_is_lost() {
        let heard = Heard::default();
        let id = Uuid::nil();
        for _ in 0..1000 {
            heard.hear(&HvEvent::Lifecycle { id, ending: None });
            heard.hear(&HvEvent::Paused { id });
            heard.hear(&HvEvent::Resync);
        }
        heard.hear(&HvEvent::Lifecycle { id, ending: Some(Ending::Panicked) });
        let all = News { ending: Some(Ending::Panicked), paused: true, stirred: true, missed: true };
        assert_eq!(heard.next().await, all);
        heard.hear(&HvEvent::Resync);
        assert_eq!(heard.next().await, News { missed: true, ..News::default() }, "what was taken is gone");
    }
}
