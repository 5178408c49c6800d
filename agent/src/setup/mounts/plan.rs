//! Which mounts are made. Pure.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use proto::agent::{Mount, SHARE_DIR};

/// What the guest's kernel keeps there is no place for a volume.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Those that can be made, and why the others cannot, a line each.
pub(super) fn plan(wanted: &[Mount]) -> (Vec<&Mount>, Vec<String>) {
    let (mut fine, mut refused) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for one in wanted {
        let path = Path::new(&one.path);
        let is_first = seen.insert(path.components().collect::<PathBuf>());
        match check(path).and(if is_first { Ok(()) } else { Err("is another volume's; take another one") }) {
            Ok(()) => fine.push(one),
            Err(why) => refused.push(format!("volume `{}` was not mounted in the guest: the path {why}", one.path)),
        }
    }
    (fine, refused)
}

/// Whether a volume may be seen there; else why not.
pub(super) fn check(path: &Path) -> Result<(), &'static str> {
    if !path.is_absolute() {
        return Err("is not absolute");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("has a `..` in it");
    }
    if path.components().nth(1).is_none() {
        return Err("is the whole root file system");
    }
    if KERNELS.iter().any(|kernels| path.starts_with(kernels)) {
        return Err("is in `/proc`, `/sys` or `/dev`, which are the guest's kernel's");
    }
    let share = Path::new(SHARE_DIR);
    if share.starts_with(path) || path.starts_with(share) {
        return Err("would hide `/run/virtlet/share`, where volumes come from; take a path beside it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_no_volume_may_have_are_refused() {
        let why = |paths: &[&str]| {
            let wanted: Vec<_> = paths.iter().map(|path| Mount { path: (*path).into(), ..Mount::default() }).collect();
            plan(&wanted).1.join("\n")
        };
        let line = |path: &str, why: &str| format!("volume `{path}` was not mounted in the guest: the path {why}");
        for path in ["", "data", "./data"] {
            assert_eq!(why(&[path]), line(path, "is not absolute"));
        }
        assert_eq!(why(&["/a/../proc"]), line("/a/../proc", "has a `..` in it"));
        for path in ["/", "//", "/."] {
            assert_eq!(why(&[path]), line(path, "is the whole root file system"));
        }
        for path in ["/proc", "/proc/sys", "//sys/fs", "/./dev/null"] {
            assert_eq!(why(&[path]), line(path, "is in `/proc`, `/sys` or `/dev`, which are the guest's kernel's"));
        }
        for path in ["/run", "/run/virtlet/", "/run/virtlet/share", "/run/virtlet/share/0"] {
            let hides = "would hide `/run/virtlet/share`, where volumes come from; take a path beside it";
            assert_eq!(why(&[path]), line(path, hides));
        }
        assert_eq!(why(&["/a/b", "/a//b/"]), line("/a//b/", "is another volume's; take another one"));
        assert_eq!(why(&["/process", "/device", "/a..b", "/run/secrets"]), "");
    }
}
