//! What a test's work writes to the log.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// With one subscriber, tracing asks the thread that first comes to a span whether anybody wants it, and believes that for all
/// threads: the one of another test says no. With several it asks all of them.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));

/// The lines so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Has all that this thread logs written here, as long as the guard lives.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.subscriber());
        (lines, guard)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
    }

    fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        LazyLock::force(&OTHERS);
        let lines = self.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `work` logs.
pub(crate) fn logged(work: impl FnOnce()) -> String {
    let (lines, guard) = Lines::of_this_thread();
    work();
    drop(guard);
    lines.text()
}
