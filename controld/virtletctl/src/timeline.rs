//! `timeline`: where the seconds of a machine's start went, as controld has seen it.
//!
//! What controld did not see is told as that, and nothing is concluded from what it did. [`bars`] draws.

mod bars;

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::cli;
use super::client::Client;
use super::describe::info;
use super::document;
use super::error::CtlError;
use super::find::Node;
use super::terminal;
use super::text::{moment_of, shown};

/// Most parts of a start that are taken from an answer.
const MOST: usize = 64;
/// Of what is drawn, in columns, where there is no terminal.
const WIDTH: usize = 100;
/// See <https://no-color.org>.
const NO_COLOR: &str = "NO_COLOR";

/// A start.
#[derive(Debug, PartialEq, Eq)]
struct Timeline {
    /// By the wall's clock, if that is known.
    began: Option<String>,
    /// In the order in which they began.
    phases: Vec<Phase>,
    unseen: Vec<String>,
}

/// A part of it.
#[derive(Debug, PartialEq, Eq)]
struct Phase {
    name: String,
    /// Since the first part began.
    from: Duration,
    /// `None` if it is under way.
    took: Option<Duration>,
    failed: bool,
}

pub(super) async fn run(client: &Client, wanted: &cli::Timeline, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let (pod, container) = node.find_container(&wanted.pod, wanted.container.as_deref())?;
    let told = client.container_in_full(&container.id).await?;
    let timeline = read(info(&told.info).get("timeline").unwrap_or(&Value::Null));
    let timeline = timeline.ok_or_else(|| CtlError::NoTimeline(shown(&pod.name())))?;
    let text = match wanted.output.form() {
        Some(form) => document::of(timeline.document(&pod.name()), form)?,
        None => {
            let terminal = io::stdout().is_terminal();
            let size = terminal.then(|| terminal::size(io::stdout())).flatten();
            let width = size.map_or(WIDTH, |size| usize::from(size.width));
            let is_colored = terminal && std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty());
            bars::draw(&pod.name(), &timeline, width, is_colored)
        }
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// What controld has told, if it has told anything that is understood.
fn read(told: &Value) -> Option<Timeline> {
    let micros = |phase: &Value, key: &str| phase.get(key)?.as_u64().map(Duration::from_micros);
    let phase = |told: &Value| {
        Some(Phase {
            name: told.get("phase")?.as_str()?.to_owned(),
            from: micros(told, "fromMicros")?,
            took: micros(told, "tookMicros"),
            failed: told.get("failed").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    let phases: Vec<Phase> = told.get("phases")?.as_array()?.iter().filter_map(phase).take(MOST).collect();
    let unseen = told.get("unseen").and_then(Value::as_array).into_iter().flatten();
    let unseen = unseen.filter_map(Value::as_str).take(MOST).map(str::to_owned).collect();
    let began = told.get("beganNanos").and_then(Value::as_i64).and_then(moment_of);
    (!phases.is_empty()).then_some(Timeline { began, phases, unseen })
}

impl Timeline {
    fn document(&self, pod: &str) -> Value {
        let phase = |phase: &Phase| {
            json!({
                "phase": phase.name, "fromSeconds": phase.from.as_secs_f64(),
                "tookSeconds": phase.took.map(|took| took.as_secs_f64()), "failed": phase.failed,
            })
        };
        json!({
            "pod": pod, "began": self.began, "phases": self.phases.iter().map(phase).collect::<Vec<_>>(),
            "unseen": self.unseen,
        })
    }
}

#[cfg(test)]
mod tests;
