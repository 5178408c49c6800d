//! The user's browser, where there is a display for one.

use std::process::Stdio;

use tokio::process::Command;

/// Opens a URL, if there is a display and a program that knows the user's browser. The URL is printed in any case.
pub(super) fn open(url: &str) {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|display| !display.is_empty()));
    if !has_display {
        return;
    }
    let mut command = Command::new("xdg-open");
    // Of no group of ours: Ctrl-C ends us, and not the user's browser.
    command.arg(url).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut opener) = command.spawn() {
        tokio::spawn(async move { opener.wait().await });
    }
}
