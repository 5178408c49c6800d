//! Copies one machine's console log to its pod's log, each line once.
//!
//! Started by the container's actor with the machine, or when controld finds it running; ends after [`Follower::finish`],
//! when all is copied. All file work runs off the reactor. A pod's log that cannot be written (a full disk) is tried
//! again after [`RETRY`], also once the machine has ended; nothing is skipped that virtlogd still has.

mod copy;
mod pod_log;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::watch::{Watch, Watcher};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use self::copy::Copy;
pub use self::pod_log::make_log;
use super::scribe::{Scribe, StandIn};

/// When a log that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long the end of a machine waits for virtlogd to hand over what is still in its pipe.
const WRITER_CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// A running copy.
#[derive(Debug)]
pub struct Follower {
    commands: mpsc::Sender<Command>,
    heard: Option<oneshot::Receiver<()>>,
}

#[derive(Debug)]
enum Command {
    Reopen(oneshot::Sender<io::Result<()>>),
    Finish { wait_for_writer: bool, tried: oneshot::Sender<bool> },
}

impl Follower {
    /// Begins or resumes copying the first of the files `names` of `dir` to `log`, which may have `limit` bytes and as many in an
    /// older file. The log exists when this returns. The machine writes to the other files, too. With `scribe` the first is written
    /// where virtlogd does so no more; `is_running` says that the machine is there already.
    ///
    /// # Errors
    /// When the log or the position cannot be opened.
    pub fn start(
        watcher: &Watcher,
        dir: &Path,
        names: &'static [&'static str],
        log: PathBuf,
        limit: u64,
        (scribe, is_running): (Option<Scribe>, bool),
    ) -> io::Result<Self> {
        let watch = watcher.watch(dir)?;
        let name = names.first().copied().unwrap_or_default();
        let copy = Copy::open(dir, name, log, limit)?;
        let (commands, inbox) = mpsc::channel(4);
        let stand_in = StandIn::new(scribe, is_running);
        let (tell, heard) = oneshot::channel();
        tokio::spawn(run(copy, watch, names, (inbox, stand_in), tell).in_current_span());
        Ok(Self { commands, heard: Some(heard) })
    }

    /// Tells when there is a first byte to be copied, and fails if the copy ends before. To be had once.
    pub fn heard(&mut self) -> Option<oneshot::Receiver<()>> {
        self.heard.take()
    }

    /// The log was renamed away: goes on in a new file of its name.
    ///
    /// # Errors
    /// When the new file cannot be made; the old one is written on.
    pub async fn reopen(&self) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the machine's log has ended");
        self.commands.send(Command::Reopen(reply)).await.map_err(|_closed| ended())?;
        answer.await.map_err(|_dropped| ended())?
    }

    /// The machine has ended: copies the rest and stops. With `wait_for_writer` the writer is given time to write it; whether it has
    /// written all that the machine has written to any of its files.
    ///
    /// If the log cannot be written now, that goes on behind the caller's back until the container is removed.
    pub async fn finish(self, wait_for_writer: bool) -> bool {
        let (tried, once) = oneshot::channel();
        // Both fail only if the task has ended already.
        let _ = self.commands.send(Command::Finish { wait_for_writer, tried }).await;
        once.await.unwrap_or(false)
    }
}

async fn run(
    mut copy: Copy,
    mut watch: Watch,
    names: &[&str],
    (mut inbox, mut stand_in): (mpsc::Receiver<Command>, StandIn),
    tell: oneshot::Sender<()>,
) {
    let (mut failing, mut tell) = (false, Some(tell));
    loop {
        let copied;
        (copy, copied) = off_reactor(copy, |copy| copy.advance(false)).await;
        report(copy.log_path(), failing, &copied);
        failing = copied.is_err();
        if copy.has_heard()
            && let Some(tell) = tell.take()
        {
            // Nobody may want to know.
            let _ = tell.send(());
        }
        stand_in.heed(watch.is_told().then(|| names.first().is_some_and(|name| watch.writer_closed(name))));
        let command = tokio::select! {
            // What is printed while nothing can be written is no reason to try.
            () = watch.changed(), if !failing => continue,
            () = tokio::time::sleep(RETRY), if failing => continue,
            () = stand_in.due() => {
                stand_in.go_on();
                continue;
            }
            command = inbox.recv() => command,
        };
        match command {
            Some(Command::Reopen(reply)) => {
                let reopened;
                (copy, reopened) = off_reactor(copy, Copy::reopen).await;
                // The caller may be gone.
                let _ = reply.send(reopened);
            }
            Some(Command::Finish { wait_for_writer, tried }) => {
                let mut is_all = false;
                if wait_for_writer {
                    // Past the deadline we copy what is there.
                    let closed = async {
                        stand_in.written().await;
                        writer_closed(&mut watch, names).await;
                    };
                    is_all = tokio::time::timeout(WRITER_CLOSE_DEADLINE, closed).await.is_ok();
                }
                let tried = || {
                    // The caller may be gone.
                    let _ = tried.send(is_all);
                };
                return copy_rest(copy, failing, tried).await;
            }
            // The actor is gone, so controld is going down: the next one resumes from the position.
            None => return,
        }
    }
}

/// Copies what an ended machine has printed, as soon as the log can be written. Whoever waits is told after one try.
async fn copy_rest(mut copy: Copy, mut failing: bool, tried: impl FnOnce()) {
    let mut tried = Some(tried);
    loop {
        let copied;
        (copy, copied) = off_reactor(copy, |copy| copy.advance(true)).await;
        report(copy.log_path(), failing, &copied);
        failing = copied.is_err();
        if let Some(tried) = tried.take() {
            tried();
        }
        // A console that is removed is of no use to anybody.
        if !failing || copy.is_removed() {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn writer_closed(watch: &mut Watch, names: &[&str]) {
    while !names.iter().all(|name| watch.writer_closed(name)) {
        watch.changed().await;
    }
}

/// Tells when copying begins to fail and when it works again, and nothing in between.
fn report(log: &Path, was_failing: bool, copied: &io::Result<()>) {
    match copied {
        Err(error) if !was_failing => {
            tracing::warn!(log = %log.display(), %error, "console not copied to the pod's log; trying again");
        }
        Ok(()) if was_failing => tracing::info!(log = %log.display(), "console copied to the pod's log again"),
        Err(_) | Ok(()) => {}
    }
}

async fn off_reactor<T: Send + 'static>(copy: Copy, work: impl FnOnce(&mut Copy) -> T + Send + 'static) -> (Copy, T) {
    let done = tokio::task::spawn_blocking(move || {
        let mut copy = copy;
        let result = work(&mut copy);
        (copy, result)
    });
    match done.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests;
