//! How a daemon logs: lines on stderr, or, where its stderr is journald's, entries that have the pod as fields. Called once by the
//! daemons, before anything is logged.
//!
//! The lines of stderr are the same whether or not a journal exists. An entry that journald cannot be given becomes such a line; one
//! that it does not take is counted.

mod entry;
pub mod journal;
mod pod;

use std::io::{self, IsTerminal as _};

use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

use self::journal::{Entries, Journal};
use self::pod::PodFields;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Logs from now on what `filter` lets through: to `journal` if there is one, to stderr otherwise.
///
/// # Panics
/// If this process logs already.
pub fn start<F: Layer<Registry> + Send + Sync>(filter: F, look: Look, journal: Option<Journal>) {
    let registry = tracing_subscriber::registry().with(filter);
    let Some(journal) = journal else {
        let lines = fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(io::stderr);
        return match look {
            Look::Text => registry.with(lines).init(),
            Look::Json => registry.with(lines.json()).init(),
        };
    };
    // What is written is an entry; nothing is left for a writer.
    let entries = fmt::layer().with_ansi(false).with_writer(io::sink);
    let registry = registry.with(PodFields);
    match look {
        // The journal has the time.
        Look::Text => {
            registry.with(entries.event_format(Entries::new(journal, fmt::format().without_time()))).init();
        }
        Look::Json => {
            let lines = fmt::format().json();
            registry.with(entries.fmt_fields(JsonFields::new()).event_format(Entries::new(journal, lines))).init();
        }
    }
}
