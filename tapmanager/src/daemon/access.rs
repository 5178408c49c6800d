//! Who QEMU runs as, and therefore who may use the hand-off socket. Called by the service at `Hello` and at each `Get`.
//!
//! The configuration decides, if it names a user; else the user is the one that `controld` read from libvirt and sent
//! in its last `Hello`. That is kept in the state directory, so that VMs can start after a restart before `controld`
//! has said hello. If it cannot be kept, they start all the same.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::Chain;
use proto::tap::QemuUser;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::config::Config;
use crate::durable::{self, Existing, Keep};
use crate::rpc::{SocketError, open_to_group};

const FILE: &str = "qemu.json";
const VERSION: u32 = 1;

/// The user, and what hangs on it.
#[derive(Debug)]
pub(super) struct QemuAccess {
    state_dir: PathBuf,
    socket: PathBuf,
    /// The configuration said it, so nobody else can.
    pinned: bool,
    user: Mutex<Option<QemuUser>>,
    /// Whom the note names. Held while the user is changed, so that note, socket and memory agree in the end.
    noted: Mutex<Option<QemuUser>>,
}

/// Why another user was not taken up.
#[derive(Debug, thiserror::Error)]
#[error("failed to open the hand-off socket to QEMU")]
pub(super) struct AccessError(#[source] SocketError);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    version: u32,
    uid: u32,
    gid: u32,
}

impl QemuAccess {
    /// As the configuration says, or the note of an earlier run.
    pub(super) fn load(config: &Config) -> Self {
        let pinned = config.qemu_user();
        let noted = read(&config.state_dir.join(FILE));
        Self {
            state_dir: config.state_dir.clone(),
            socket: config.handoff_socket(),
            pinned: pinned.is_some(),
            user: Mutex::new(pinned.or(noted)),
            noted: Mutex::new(noted),
        }
    }

    /// Who QEMU runs as; `None` as long as nobody has said it.
    pub(super) fn user(&self) -> Option<QemuUser> {
        *lock(&self.user)
    }

    /// Opens the socket to QEMU's group, if that is known. Called once it is bound.
    pub(super) fn open_socket(&self) -> Result<(), SocketError> {
        self.user().map_or(Ok(()), |user| open_to_group(&self.socket, user.gid))
    }

    /// Takes up what `controld` says, and keeps it. Blocks on the disk.
    pub(super) fn adopt(&self, user: QemuUser) -> Result<(), AccessError> {
        let mut noted = lock(&self.noted);
        let before = self.user();
        if self.pinned {
            if before != Some(user) {
                warn!(?user, configured = ?before, "controld names another QEMU user than the configuration, which holds");
            }
            return Ok(());
        }
        if *noted != Some(user) {
            let note = Note { version: VERSION, uid: user.uid, gid: user.gid };
            let bytes = format!("{}\n", serde_json::json!(note));
            match durable::write(&self.state_dir, FILE, bytes.as_bytes(), Existing::Replace, Keep::ForGood) {
                Ok(()) => *noted = Some(user),
                // It is tried again with the next word of controld's.
                Err(error) => warn!(error = %Chain(&error), "QEMU's user cannot be kept for the next start"),
            }
        }
        if before != Some(user) {
            open_to_group(&self.socket, user.gid).map_err(AccessError)?;
            *lock(&self.user) = Some(user);
            info!(uid = user.uid, gid = user.gid, "QEMU's user taken up");
        }
        Ok(())
    }
}

/// A note that is not understood is as good as none: `controld` says it anew.
fn read(path: &Path) -> Option<QemuUser> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                warn!(path = %path.display(), %error, "note of QEMU's user cannot be read");
            }
            return None;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(Note { version: VERSION, uid, gid }) => Some(QemuUser { uid, gid }),
        _ => {
            warn!(path = %path.display(), "note of QEMU's user is not understood");
            None
        }
    }
}

/// Nothing is left half done under these locks, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const USER: QemuUser = QemuUser { uid: 64055, gid: 993 };

    fn config() -> (tempfile::TempDir, Config) {
        let dir = tempfile::tempdir().expect("tempdir");
        let config = Config { state_dir: dir.path().into(), run_dir: dir.path().into(), ..Config::default() };
        std::fs::write(config.handoff_socket(), "").expect("stands for the socket");
        (dir, config)
    }

    #[test]
    fn what_controld_says_survives_a_restart_and_opens_the_socket() {
        let (_dir, config) = config();
        let access = QemuAccess::load(&config);
        assert_eq!(access.user(), None);
        access.adopt(USER).expect("adopts");
        assert_eq!(access.user(), Some(USER));
        let socket = std::fs::metadata(config.handoff_socket()).expect("socket");
        assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o777), (0, 993, 0o660));
        assert_eq!(QemuAccess::load(&config).user(), Some(USER));
    }

    #[test]
    fn the_configuration_overrides_controld_and_the_note() {
        let (_dir, mut config) = config();
        QemuAccess::load(&config).adopt(USER).expect("adopts");
        (config.qemu_uid, config.qemu_gid) = (Some(1), Some(2));
        let access = QemuAccess::load(&config);
        access.adopt(USER).expect("is heard");
        assert_eq!(access.user(), Some(QemuUser { uid: 1, gid: 2 }));
    }

    #[test]
    fn a_note_that_is_not_understood_is_as_good_as_none() {
        let (_dir, config) = config();
        for bad in ["", "{", "{\"version\":2,\"uid\":1,\"gid\":2}", "{\"version\":1,\"uid\":-1,\"gid\":2}"] {
            std::fs::write(config.state_dir.join(FILE), bad).expect("write");
            assert_eq!(QemuAccess::load(&config).user(), None, "{bad}");
        }
        QemuAccess::load(&config).adopt(USER).expect("writes anew");
        assert_eq!(QemuAccess::load(&config).user(), Some(USER));
    }

    /// As with a full disk: the machines of the node start.
    #[test]
    fn a_user_that_cannot_be_kept_is_taken_up_and_kept_later() {
        let (_dir, mut config) = config();
        config.state_dir.push("missing");
        let access = QemuAccess::load(&config);
        access.adopt(USER).expect("taken up");
        assert_eq!((access.user(), QemuAccess::load(&config).user()), (Some(USER), None));
        std::fs::create_dir(&config.state_dir).expect("made");
        access.adopt(USER).expect("as before");
        assert_eq!(QemuAccess::load(&config).user(), Some(USER));
    }
}
