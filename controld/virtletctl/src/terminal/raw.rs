//! A terminal that hands over every key as it is (termios(3), raw mode), until dropped.

use std::io;
use std::os::fd::AsFd;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The terminal, and how it was before.
#[derive(Debug)]
pub(in super::super) struct Raw<T: AsFd> {
    terminal: T,
    before: Termios,
}

impl<T: AsFd> Raw<T> {
    pub(in super::super) fn enter(terminal: T) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSANOW, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl<T: AsFd> Drop for Raw<T> {
    fn drop(&mut self) {
        // Fails only if the terminal is gone.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use nix::pty::openpty;
    use nix::sys::termios::LocalFlags;

    use super::*;

    #[test]
    fn a_terminal_is_as_before_afterwards() {
        let pty = openpty(None, None).expect("pty");
        let before = tcgetattr(&pty.slave).expect("terminal");
        assert!(before.local_flags.contains(LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::ICANON));
        let raw = Raw::enter(&pty.slave).expect("raw");
        let during = tcgetattr(&pty.slave).expect("terminal").local_flags;
        assert!(!during.intersects(LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::ICANON));
        drop(raw);
        assert_eq!(tcgetattr(&pty.slave).expect("terminal"), before);
    }
}
