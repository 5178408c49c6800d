//! Which programs the server starts: fixed before the daemon reads any input, and the daemon cannot change it.
//!
//! An attacker who has taken the daemon over is root in the mount namespace of the plugins, so this does not stop them
//! (`docs/adr/0012`). It stops a path or variable that went wrong on its way, and a plugin that others than the
//! administrator can write.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Directories whose files are started.
#[derive(Debug)]
pub(crate) struct Allowed {
    dirs: Vec<PathBuf>,
}

/// Why nothing was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("it is in none of the plugin directories that tapmanager was started with")]
    Place,
    #[error(
        "others than root and its owner may write it, the directory it is in, or the one it is linked from; \
         take that right away (chmod o-w, or g-w)"
    )]
    Writable,
    #[error("it was to be told other variables than PATH and those of CNI")]
    Environment,
    #[error("of another release of tapmanager; restart it")]
    Unheard,
}

/// Why a program is not started.
#[derive(Debug)]
pub(super) enum Refusal {
    Denied(Denied),
    /// It cannot be looked at.
    Os(io::Error),
}

impl Denied {
    /// On the wire.
    pub(super) const fn number(self) -> i32 {
        match self {
            Self::Unheard => 0,
            Self::Place => 1,
            Self::Writable => 2,
            Self::Environment => 3,
        }
    }

    pub(super) const fn of(number: i32) -> Self {
        match number {
            1 => Self::Place,
            2 => Self::Writable,
            3 => Self::Environment,
            _ => Self::Unheard,
        }
    }
}

impl Allowed {
    /// The files of these directories, which need not be there yet.
    pub(crate) fn new(dirs: &[PathBuf]) -> Self {
        Self { dirs: dirs.to_vec() }
    }

    /// Why `program` would not be started, as far as this can be seen from the daemon, which has fewer rights.
    pub(crate) fn denies(&self, program: &Path) -> Option<Denied> {
        match self.file(program) {
            Err(Refusal::Denied(denied)) => Some(denied),
            Ok(_) | Err(Refusal::Os(_)) => None,
        }
    }

    /// Whether `program` is started with these variables, and as which file.
    pub(super) fn check(&self, program: &OsStr, env: &[(OsString, OsString)]) -> Result<PathBuf, Refusal> {
        let file = self.file(Path::new(program))?;
        if !env.iter().all(|(name, _)| name == "PATH" || name.as_bytes().starts_with(b"CNI_")) {
            return Err(Refusal::Denied(Denied::Environment));
        }
        Ok(file)
    }

    /// The file that `path` leads to. A link is followed: some distributions have all plugins in one file.
    fn file(&self, path: &Path) -> Result<PathBuf, Refusal> {
        let (Some(dir), Some(_name)) = (path.parent(), path.file_name()) else {
            return Err(Refusal::Denied(Denied::Place));
        };
        // Name by name: a slash more or less is the same directory, and `..` is in none that was configured.
        if !self.dirs.iter().any(|allowed| allowed == dir) {
            return Err(Refusal::Denied(Denied::Place));
        }
        let file = fs::canonicalize(path).map_err(Refusal::Os)?;
        for path in [dir, file.parent().unwrap_or(dir), &file] {
            if is_open_to_others(&fs::metadata(path).map_err(Refusal::Os)?) {
                return Err(Refusal::Denied(Denied::Writable));
            }
        }
        Ok(file)
    }
}

/// That its owner may write it is the administrator's word: kubespray, for one, has a user of its own for plugins.
fn is_open_to_others(file: &Metadata) -> bool {
    let (group, others) = (file.mode() & 0o020 != 0, file.mode() & 0o002 != 0);
    others || (group && file.gid() != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn bin() -> (tempfile::TempDir, Allowed) {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("bin")).expect("bin");
        chmod(&dir.path().join("bin"), 0o755);
        let plugin = dir.path().join("bin/plugin");
        fs::write(&plugin, "").expect("plugin");
        chmod(&plugin, 0o755);
        let allowed = Allowed::new(&[dir.path().join("none"), dir.path().join("bin")]);
        (dir, allowed)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }

    fn denied(outcome: Result<PathBuf, Refusal>) -> Option<Denied> {
        match outcome {
            Ok(_) => None,
            Err(Refusal::Denied(denied)) => Some(denied),
            Err(Refusal::Os(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn only_files_of_the_directories_are_started() {
        let (dir, allowed) = bin();
        let check = |path: &Path| denied(allowed.check(path.as_os_str(), &[]));
        assert_eq!(check(&dir.path().join("bin/plugin")), None);
        symlink("plugin", dir.path().join("bin/link")).expect("link");
        assert_eq!(check(&dir.path().join("bin/link")), None);
        for path in ["bin/../bin/plugin", "bin/../other", "plugin", "bin/deeper/plugin", "bin/.."] {
            assert_eq!(check(&dir.path().join(path)), Some(Denied::Place), "{path}");
        }
        for path in ["/bin/sh", "plugin", "", "/"] {
            assert_eq!(check(Path::new(path)), Some(Denied::Place), "{path}");
        }
        let absent = allowed.check(dir.path().join("bin/absent").as_os_str(), &[]);
        assert!(matches!(absent, Err(Refusal::Os(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn a_directory_is_known_however_many_slashes_it_is_written_with() {
        let (dir, _) = bin();
        let plugin = dir.path().join("bin/plugin");
        let name = dir.path().to_str().expect("text");
        for written in ["bin", "bin/", "bin//", "/bin", "bin/."] {
            let allowed = Allowed::new(&[format!("{name}/{written}").into()]);
            let configured = PathBuf::from(format!("{name}/{written}")).join("plugin");
            assert_eq!(denied(allowed.check(configured.as_os_str(), &[])), None, "{written}");
            assert_eq!(denied(allowed.check(plugin.as_os_str(), &[])), None, "{written}");
        }
    }

    #[test]
    fn what_a_link_leads_to_is_judged_and_is_what_is_started() {
        let (dir, allowed) = bin();
        let (link, far) = (dir.path().join("bin/link"), dir.path().join("far"));
        fs::create_dir(&far).expect("far");
        fs::write(far.join("all"), "").expect("file");
        chmod(&far.join("all"), 0o755);
        chmod(&far, 0o755);
        symlink("../far/all", &link).expect("link");
        let started = allowed.check(link.as_os_str(), &[]).expect("started");
        assert_eq!(started, fs::canonicalize(far.join("all")).expect("there"));
        for path in [&far, &far.join("all")] {
            chmod(path, 0o757);
            assert_eq!(denied(allowed.check(link.as_os_str(), &[])), Some(Denied::Writable), "{}", path.display());
            assert_eq!(allowed.denies(&link), Some(Denied::Writable));
            chmod(path, 0o755);
        }
        assert_eq!(allowed.denies(&link), None);
    }

    #[test]
    fn what_others_can_write_is_not_started() {
        let (dir, allowed) = bin();
        let plugin = dir.path().join("bin/plugin");
        let check = || denied(allowed.check(plugin.as_os_str(), &[]));
        for path in [&plugin, &dir.path().join("bin")] {
            chmod(path, 0o757);
            assert_eq!(check(), Some(Denied::Writable));
            // Of root's group, as some archives have it; then of another one.
            chmod(path, 0o775);
            assert_eq!(check(), None);
            chown(path, None, Some(1001)).expect("chown");
            assert_eq!(check(), Some(Denied::Writable));
            chmod(path, 0o755);
            chown(path, Some(1001), Some(1001)).expect("chown");
            assert_eq!(check(), None);
        }
    }

    #[test]
    fn only_variables_of_cni_are_told() {
        let (dir, allowed) = bin();
        let plugin = dir.path().join("bin/plugin");
        let check = |name: &str| denied(allowed.check(plugin.as_os_str(), &[(name.into(), "x".into())]));
        assert_eq!((check("CNI_COMMAND"), check("PATH")), (None, None));
        for name in ["LD_PRELOAD", "PATH_", "", "XCNI_"] {
            assert_eq!(check(name), Some(Denied::Environment), "{name}");
        }
    }

    #[test]
    fn numbers_of_the_wire_come_back() {
        for denied in [Denied::Place, Denied::Writable, Denied::Environment, Denied::Unheard] {
            assert_eq!(Denied::of(denied.number()), denied);
        }
    }
}
