//! The screen of a machine that has one: QEMU makes the socket itself, so it has a directory of its own for it, which nobody else enters.
//!
//! What lies there is what QEMU has put there, and whoever has taken QEMU over may have put anything else there. We are root, and what we
//! connect to takes us for root. So no link is followed, and the other end is the machine's QEMU or nobody. One client at a time views a
//! screen ([`viewers`]); a look at it by VNC's own protocol ([`rfb`]) is a picture ([`png`]).

mod png;
mod rfb;
pub(crate) mod viewers;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use proto::tap::QemuUser;
use tokio::net::UnixStream;
use tokio::time::timeout;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::MachinePlan;

use crate::config::Config;
use crate::files::remove;
use crate::hypervisor::process::{Processes, STATUS_DIR};

/// For one look at a screen.
const LOOK: Duration = Duration::from_secs(20);

/// A screen.
#[derive(Debug)]
pub(crate) struct Screen {
    /// In a directory to which none but root's lead.
    socket: PathBuf,
    /// The process of QEMU, which is to be the other end; `None` if the machine does not run.
    pid: Option<i32>,
}

impl Screen {
    /// That of a machine that has one.
    pub(crate) async fn of(config: &Config, processes: &Arc<Processes>, machine: &MachinePlan) -> Self {
        let (processes, domain, id) = (processes.clone(), machine.domain.clone(), machine.id);
        let found = off_reactor(move || processes.pid(Path::new(STATUS_DIR), &domain, id.uuid())).await;
        let pid = found.unwrap_or_else(|error| {
            tracing::warn!(machine = %id, error = %Chain(&error), "QEMU behind a screen not found");
            None
        });
        Self { socket: socket(config, id), pid }
    }

    /// Connects to it.
    ///
    /// # Errors
    /// When the machine does not run, or what is in the place of its screen is none.
    pub(crate) async fn connect(&self) -> Result<UnixStream> {
        let no_qemu = || Error::new(Kind::State, "no QEMU is found behind the screen; does the VM run?");
        let qemu = self.pid.ok_or_else(no_qemu)?;
        let failed = |cause| {
            Error::because(
                Kind::Unavailable,
                format!("failed to connect to the screen at `{}`", self.socket.display()),
                cause,
            )
        };
        let found = self.found().map_err(failed)?.ok_or_else(|| self.strange("it is no socket"))?;
        // By its descriptor: under its name may be something else by now.
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", found.as_raw_fd())).await.map_err(failed)?;
        // The process that has called listen(2), as the kernel remembers it.
        match stream.peer_cred().map_err(failed)?.pid() {
            Some(pid) if pid == qemu => Ok(stream),
            _ => Err(self.strange("another process listens there")),
        }
    }

    /// What it shows, as PNG.
    ///
    /// # Errors
    /// As of [`Self::connect`], and when QEMU does not show it in time.
    pub(crate) async fn picture(&self, moves_pointer: bool) -> Result<Vec<u8>> {
        let looked = async { Ok::<_, Error>(rfb::look(self.connect().await?, moves_pointer).await) };
        let late = |_elapsed| {
            let what = format!("QEMU did not show the screen within {} s", LOOK.as_secs());
            Error::new(Kind::Deadline, what)
        };
        let no_picture = |cause| Error::because(Kind::Unavailable, "no picture of the screen", cause);
        let picture = timeout(LOOK, looked).await.map_err(late)??.map_err(no_picture)?;
        off_reactor(move || {
            let mut file = Vec::new();
            png::write(&picture, &mut file).map(|()| file)
        })
        .await
        .map_err(no_picture)
    }

    /// What is there, if it is a socket.
    fn found(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = open(&self.socket, flags, Mode::empty())?;
        let kind = SFlag::from_bits_truncate(fstat(&found)?.st_mode) & SFlag::S_IFMT;
        Ok((kind == SFlag::S_IFSOCK).then_some(found))
    }

    fn strange(&self, why: &str) -> Error {
        let place = self.socket.display();
        let what = format!(
            "`{place}` is not the screen of the machine: {why}; if that stays so, its guest may have taken QEMU over, which alone \
             writes there"
        );
        Error::new(Kind::Internal, what)
    }
}

/// Where a machine's socket is.
pub(crate) fn dir(config: &Config, machine: MachineId) -> PathBuf {
    config.run_dir.join("screen").join(machine.to_string())
}

/// The socket, if the machine has a screen and runs.
pub(crate) fn socket(config: &Config, machine: MachineId) -> PathBuf {
    dir(config, machine).join("vnc.sock")
}

/// Makes the directory for a machine that is to be started, without what an earlier start left. Blocks.
pub(crate) fn prepare(config: &Config, machine: MachineId, qemu: QemuUser) -> io::Result<()> {
    let dir = dir(config, machine);
    remove(&dir)?;
    if let Some(all) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o711).create(all)?;
        fs::set_permissions(all, fs::Permissions::from_mode(0o711))?;
    }
    DirBuilder::new().mode(0o700).create(&dir)?;
    chown(&dir, Some(qemu.uid), Some(qemu.gid))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::unistd::getpid;

    use super::*;

    /// Why there is no connection, without the directory.
    async fn refusal(screen: &Screen) -> String {
        let error = screen.connect().await.expect_err("refused");
        let dir = screen.socket.parent().expect("directory").to_str().expect("UTF-8").to_owned();
        Chain(&error).to_string().replace(&dir, "DIR")
    }

    #[tokio::test]
    async fn nothing_but_the_socket_of_its_own_qemu_is_a_screen() {
        let dir = tempfile::tempdir().expect("directory");
        let listener = UnixListener::bind(dir.path().join("vnc.sock")).expect("socket");
        symlink("vnc.sock", dir.path().join("link")).expect("link");
        fs::write(dir.path().join("file"), "").expect("file");
        let own = getpid().as_raw();
        let screen = |name, pid| Screen { socket: dir.path().join(name), pid };
        screen("vnc.sock", Some(own)).connect().await.expect("its own");
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
        no QEMU is found behind the screen; does the VM run?
        ");
    }
}
