//! Fetches an image and shows how far it is.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::error::CtlError;
use super::text::{shown, size};

/// How often controld is asked how far it is: CRI has no event for it.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// How much of a name a line shows, so that it stays one line.
const NAME_SHOWN: usize = 40;
/// Goes back to the start of the line and clears it (ECMA-48, EL).
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// What controld says of a pull that runs.
#[derive(Debug, Deserialize)]
struct Progress {
    bytes: u64,
    total: Option<u64>,
}

/// Fetches an image and says its id.
pub(super) async fn run(client: &Client, name: &str, interrupt: &CancellationToken) -> Result<String, CtlError> {
    let live = io::stderr().is_terminal();
    let pulled = watch(client, name, interrupt, live).await;
    if live {
        tell(CLEAR_LINE);
    }
    let id = pulled?;
    // Only for the text: the image is there.
    let image = client.image(&id).await.ok().and_then(|answer| answer.image);
    let size = image.map(|image| format!(" ({})", size(image.size))).unwrap_or_default();
    tell(&format!("pulled {}{size}\n", shown(name)));
    Ok(id)
}

async fn watch(client: &Client, name: &str, interrupt: &CancellationToken, live: bool) -> Result<String, CtlError> {
    let mut ticks = interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut pull = std::pin::pin!(client.pull_image(name));
    loop {
        tokio::select! {
            pulled = &mut pull => return pulled,
            // Dropping the call makes controld stop.
            () = interrupt.cancelled() => return Err(CtlError::Interrupted),
            _ = ticks.tick(), if live => {}
        }
        let asked = client.image(name);
        let answer = tokio::select! {
            pulled = &mut pull => return pulled,
            answer = asked => answer,
        };
        let progress = answer.ok().and_then(|answer| serde_json::from_str(answer.info.get("pull")?).ok());
        if let Some(progress) = progress {
            tell(&format!("{CLEAR_LINE}{}", line(name, &progress)));
        }
    }
}

fn line(name: &str, progress: &Progress) -> String {
    let length = name.chars().count();
    let name: String = name.chars().skip(length.saturating_sub(NAME_SHOWN)).collect();
    let cut = if length > NAME_SHOWN { "..." } else { "" };
    let bytes = size(progress.bytes);
    let name = shown(&name);
    match progress.total {
        Some(total @ 1..) => {
            let percent = u128::from(progress.bytes.min(total)) * 100 / u128::from(total);
            format!("pulling {cut}{name}: {bytes} of {} ({percent}%)", size(total))
        }
        _ => format!("pulling {cut}{name}: {bytes}"),
    }
}

/// What goes wrong with it is no reason to stop.
fn tell(text: &str) {
    let mut stderr = io::stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let line = |name, json| line(name, &serde_json::from_str(json).expect("progress"));
        assert_eq!(
            line("a\u{1b}", r#"{"bytes":1048576,"total":4194304}"#),
            "pulling a\\u{1b}: 1.0 MiB of 4.0 MiB (25%)"
        );
        assert_eq!(line("a", r#"{"bytes":5,"total":null,"more":1}"#), "pulling a: 5 B");
        assert_eq!(line("a", r#"{"bytes":5,"total":0}"#), "pulling a: 5 B");
        assert_eq!(line("a", r#"{"bytes":9,"total":3}"#), "pulling a: 9 B of 3 B (100%)");
        assert!(line(&"x/".repeat(99), r#"{"bytes":5}"#).len() < 80);
    }
}
