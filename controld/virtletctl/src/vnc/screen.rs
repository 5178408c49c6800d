//! The socket of a screen, as it lies in a directory of QEMU's: whoever has taken QEMU over may have put anything else there.
//!
//! We are root, and what we connect to takes us for root. So no link is followed, and the other end is the machine's QEMU or nobody.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use serde::Deserialize;
use tokio::net::UnixStream;

use super::super::error::CtlError;

/// As controld tells of it.
#[derive(Debug, Deserialize)]
pub(super) struct Screen {
    /// In a directory to which none but root's lead.
    pub(super) socket: PathBuf,
    /// The process of the machine's QEMU, if it runs.
    pub(super) pid: Option<i32>,
}

impl Screen {
    /// Connects to it; `pod` is whose it is.
    pub(super) async fn connect(&self, pod: &str) -> Result<UnixStream, CtlError> {
        let qemu = self.pid.ok_or_else(|| CtlError::NoQemu(pod.to_owned()))?;
        let failed = |cause| CtlError::File { action: "connect to the screen at", path: self.socket.clone(), cause };
        let strange = |why| CtlError::StrangeScreen { path: self.socket.clone(), why };
        let found = self.found().map_err(failed)?.ok_or_else(|| strange("it is no socket"))?;
        // By its descriptor: under its name may be something else by now.
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd())).await.map_err(failed)?;
        // The process that has called listen(2), as the kernel remembers it.
        match stream.peer_cred().map_err(failed)?.pid() {
            Some(pid) if pid == qemu => Ok(stream),
            _ => Err(strange("another process listens there")),
        }
    }

    /// What is there, if it is a socket.
    fn found(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = open(&self.socket, flags, Mode::empty())?;
        let kind = SFlag::from_bits_truncate(fstat(&found)?.st_mode) & SFlag::S_IFMT;
        Ok((kind == SFlag::S_IFSOCK).then_some(found))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::unistd::getpid;

    use super::*;

    /// Why there is no connection, without the directory.
    async fn refusal(screen: &Screen) -> String {
        let error = screen.connect("web").await.expect_err("refused");
        let dir = screen.socket.parent().expect("directory").to_str().expect("UTF-8").to_owned();
        common::Chain(&error).to_string().replace(&dir, "DIR")
    }

    #[tokio::test]
    async fn nothing_but_the_socket_of_its_own_qemu_is_a_screen() {
        let dir = tempfile::tempdir().expect("directory");
        let listener = UnixListener::bind(dir.path().join("vnc.sock")).expect("socket");
        symlink("vnc.sock", dir.path().join("link")).expect("link");
        fs::write(dir.path().join("file"), "").expect("file");
        let own = getpid().as_raw();
        let screen = |name, pid| Screen { socket: dir.path().join(name), pid };
        screen("vnc.sock", Some(own)).connect("web").await.expect("its own");
        let mut told = Vec::new();
        for (name, pid) in
            [("link", Some(own)), ("file", Some(own)), ("absent", Some(own)), ("vnc.sock", Some(1)), ("vnc.sock", None)]
        {
            told.push(refusal(&screen(name, pid)).await);
        }
        // The link was not followed to be refused then.
        listener.set_nonblocking(true).expect("socket");
        assert_eq!(std::iter::from_fn(|| listener.accept().ok()).count(), 2);
        insta::assert_snapshot!(told.join("\n"), @r"
        `DIR/link` is not the screen of the machine: it is no socket; if that stays so, its guest may have taken QEMU over, which alone writes there
        `DIR/file` is not the screen of the machine: it is no socket; if that stays so, its guest may have taken QEMU over, which alone writes there
        failed to connect to the screen at `DIR/absent`: No such file or directory (os error 2)
        `DIR/vnc.sock` is not the screen of the machine: another process listens there; if that stays so, its guest may have taken QEMU over, which alone writes there
        controld finds no QEMU of the machine of `web`; does it run? `virtletctl ps -a` shows how it is
        ");
    }
}
