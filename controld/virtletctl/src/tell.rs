//! What is said beside the result, on the standard error output. What goes wrong with that is no reason to stop.

use std::io::{self, Write as _};

/// Says a text as it is.
pub(super) fn tell(text: &str) {
    if !text.is_empty() {
        let mut stderr = io::stderr();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Says a line.
pub(super) fn tell_line(text: &str) {
    tell(&format!("{text}\n"));
}
