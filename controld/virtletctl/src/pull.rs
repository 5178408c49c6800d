//! Fetches an image and shows how far it is.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use proto::images::pull_with_progress_response::Event;
use proto::images::{PullResult, PullWithProgressRequest};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::teller::{Manner, Teller};
use super::cli::Progress;
use super::client::Client;
use super::error::CtlError;
use super::interrupt::Interrupt;
use super::tell::tell;

mod meter;
pub(super) mod teller;

/// How often the line on a terminal is written anew while nothing comes, so that a stalled pull looks like one.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Fetches an image and says its id. What goes to the standard error output is no part of the result.
pub(super) async fn run(
    client: &Client,
    request: PullWithProgressRequest,
    progress: Progress,
    interrupt: &Interrupt,
) -> Result<String, CtlError> {
    let mut teller = Teller::new(manner(progress), &request.name);
    let pulled = watch(client, request, &mut teller, interrupt).await;
    tell(teller.clear());
    let PullResult { image, stale, downloaded } = pulled?;
    let image = image.ok_or_else(|| CtlError::Answer { action: "pull the image".into(), lacks: "image" })?;
    tell(&teller.done(&image, stale, downloaded));
    Ok(image.id)
}

/// How it is said what an option asks for.
pub(super) fn manner(progress: Progress) -> Manner {
    match progress {
        Progress::Auto if io::stderr().is_terminal() => Manner::Line,
        Progress::Auto => Manner::Outcome,
        Progress::Plain => Manner::Plain,
        Progress::Json => Manner::Json,
        Progress::None => Manner::Silent,
    }
}

async fn watch(
    client: &Client,
    request: PullWithProgressRequest,
    teller: &mut Teller,
    interrupt: &Interrupt,
) -> Result<PullResult, CtlError> {
    let began = Instant::now();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut messages = tokio::select! {
        messages = client.pull(request) => messages?,
        // Dropping the call, or its messages, makes controld stop.
        signal = interrupt.fired() => return Err(CtlError::Interrupted(signal)),
    };
    loop {
        let message = tokio::select! {
            message = messages.next() => message?,
            signal = interrupt.fired() => return Err(CtlError::Interrupted(signal)),
            _ = ticks.tick() => {
                tell(&teller.tick(began.elapsed()));
                continue;
            }
        };
        match message.map(|message| message.event) {
            Some(Some(Event::Result(result))) => return Ok(result),
            Some(Some(Event::Progress(progress))) => tell(&teller.progress(began.elapsed(), &progress)),
            // Of a later version.
            Some(None) => {}
            None => return Err(CtlError::Answer { action: "pull the image".into(), lacks: "result" }),
        }
    }
}
