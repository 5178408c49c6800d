//! How large a terminal is (ioctl_tty(2), TIOCGWINSZ).
#![expect(unsafe_code, reason = "the ioctl has no safe form")]

use std::os::fd::{AsFd, AsRawFd as _};

use nix::pty::Winsize;
use streaming::TermSize;

nix::ioctl_read_bad!(window_size, nix::libc::TIOCGWINSZ, Winsize);

/// Its size; `None` if it is no terminal, or one that does not know its size.
pub(in super::super) fn size(terminal: impl AsFd) -> Option<TermSize> {
    let mut window = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes one `winsize`, which is alive.
    unsafe { window_size(terminal.as_fd().as_raw_fd(), &raw mut window) }.ok()?;
    (window.ws_row > 0 && window.ws_col > 0).then_some(TermSize { width: window.ws_col, height: window.ws_row })
}

#[cfg(test)]
mod tests {
    use nix::pty::openpty;

    use super::*;

    #[test]
    fn a_terminal_knows_its_size_and_a_file_has_none() {
        let window = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&window), None).expect("pty");
        assert_eq!(size(&pty.slave), Some(TermSize { width: 77, height: 33 }));
        assert_eq!(size(openpty(None, None).expect("pty").slave), None);
        assert_eq!(size(tempfile::tempfile().expect("file")), None);
    }
}
