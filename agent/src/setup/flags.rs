//! What a mount is to forbid, by the kernel's flags.

use std::io;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use proto::agent::MountOptions;

/// No source, type or options of a mount.
const NOTHING: Option<&str> = None;
/// Each by mount(8)'s word.
const WORDS: [(MsFlags, &str); 4] = [
    (MsFlags::MS_RDONLY, "ro"),
    (MsFlags::MS_NOEXEC, "noexec"),
    (MsFlags::MS_NODEV, "nodev"),
    (MsFlags::MS_NOSUID, "nosuid"),
];

/// Of what a pod wants of a mount.
pub(super) fn of(read_only: bool, MountOptions { noexec, nodev, nosuid }: MountOptions) -> MsFlags {
    let wanted = [read_only, noexec, nodev, nosuid];
    WORDS.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|((flag, _), _)| *flag).collect()
}

/// Of the words of a mount's own options in the kernel's list; others are left out.
pub(super) fn of_list(options: &[u8]) -> MsFlags {
    let words = options.split(|byte| *byte == b',');
    words.filter_map(|word| WORDS.iter().find(|(_, known)| known.as_bytes() == word)).map(|(flag, _)| *flag).collect()
}

/// Gives what is mounted at `target` these flags in place of those that it has. If that fails, the mount is removed. `wanted`, those of
/// them that the pod wants, are for the error.
pub(super) fn hold(target: &Path, flags: MsFlags, wanted: MsFlags) -> Result<(), String> {
    let all = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    mount(NOTHING, target, NOTHING, all, NOTHING).map_err(|errno| {
        let gone = umount2(target, MntFlags::MNT_DETACH);
        let left = gone.err().map_or("", |_still_there| ", and it is left without");
        format!("failed to make it {}: {}{left}", words(wanted), io::Error::from(errno))
    })
}

fn words(flags: MsFlags) -> String {
    let words = WORDS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, word)| format!("`{word}`"));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_words() {
        let options = MountOptions { noexec: true, nodev: false, nosuid: true };
        let flags = of(true, options);
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID);
        assert_eq!(words(flags), "`ro`, `noexec`, `nosuid`");
        assert_eq!(of_list(b"ro,noexec,relatime,nosuid"), flags);
        assert_eq!(of(false, MountOptions::default()), MsFlags::empty());
        assert_eq!(of_list(b"rw,relatime,idmapped"), MsFlags::empty());
    }
}
