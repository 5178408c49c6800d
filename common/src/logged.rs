//! What a test's work writes to the log, by thread: tests run beside each other. Tests of the daemons call it; no program has it.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// With one subscriber, tracing asks the thread that first comes to a span whether anybody wants it, and believes that for all
/// threads: the one of another test says no. With several it asks all of them.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::default())));

/// The lines so far.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Has all that this thread logs written here, as long as the guard lives.
    #[must_use]
    pub fn of_this_thread() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.subscriber());
        (lines, guard)
    }

    /// # Panics
    /// If the test has.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
    }

    /// # Panics
    /// Unless there is a line that has both.
    pub fn assert_line(&self, span: &str, message: &str) {
        let text = self.text();
        assert!(text.lines().any(|line| line.contains(span) && line.contains(message)), "{span} {message}: {text}");
    }

    fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        LazyLock::force(&OTHERS);
        let lines = self.clone();
        let format = tracing_subscriber::fmt().with_max_level(LevelFilter::DEBUG).with_ansi(false);
        format.with_writer(move || lines.clone()).finish()
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
pub fn logged(work: impl FnOnce()) -> String {
    let (lines, guard) = Lines::of_this_thread();
    work();
    drop(guard);
    lines.text()
}
