//! Says which cases run when none has begun or ended for a while: whoever stops a run that hangs sees what it waited for.
#![expect(clippy::print_stdout, reason = "a line of a test program's report")]

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// On a quiet machine a few cases take longer, and other cases end beside them.
const SILENCE: Duration = Duration::from_secs(120);

/// What is told of a case.
#[derive(Debug)]
enum News {
    Begun(&'static str),
    Ended(&'static str),
}

/// To whom it is told.
#[derive(Debug, Clone)]
pub(crate) struct Silence(Sender<News>);

/// Held while a case runs.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Silence, &'static str);

impl Silence {
    /// Listens until nobody is left who tells.
    pub(crate) fn watched() -> Self {
        let (sender, news) = channel();
        thread::spawn(move || listen(&news, SILENCE, |line| println!("{line}")));
        Self(sender)
    }

    pub(crate) fn run(&self, case: &'static str) -> Running<'_> {
        // Nobody listens: then nobody says anything.
        let _nobody = self.0.send(News::Begun(case));
        Running(self, case)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _nobody = self.0.0.send(News::Ended(self.1));
    }
}

fn listen(news: &Receiver<News>, silence: Duration, mut say: impl FnMut(String)) {
    let mut running = BTreeMap::new();
    loop {
        match news.recv_timeout(silence) {
            Ok(News::Begun(case)) => {
                running.insert(case, Instant::now());
            }
            Ok(News::Ended(case)) => {
                running.remove(case);
            }
            Err(RecvTimeoutError::Timeout) => {
                let cases: Vec<_> =
                    running.iter().map(|(case, since)| format!("{case} ({} s)", since.elapsed().as_secs())).collect();
                say(format!("still running: {}", if cases.is_empty() { "none".to_owned() } else { cases.join(", ") }));
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_still_runs_is_said_in_each_silence() {
        let (sender, news) = channel();
        let silence = Silence(sender);
        let held = silence.run("a");
        drop(silence.run("b"));
        let (lines, said) = channel();
        let listener =
            thread::spawn(move || listen(&news, Duration::from_millis(1), move |line| drop(lines.send(line))));

        let first = said.recv().unwrap();
        assert!(first.starts_with("still running: a (") && !first.contains("b ("), "{first}");
        drop(held);
        let last = said.iter().find(|line| line == "still running: none");
        drop(silence);
        listener.join().unwrap();
        assert!(last.is_some());
    }
}
