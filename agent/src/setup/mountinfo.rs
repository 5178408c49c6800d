//! What is mounted, by the kernel's own list (proc_pid_mountinfo(5)). Pure but for [`read`].

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use nix::mount::MsFlags;

use super::flags;

/// Of the thread that asks: it may have file systems of its own.
const LIST: &str = "/proc/thread-self/mountinfo";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// Major and minor number of the file system.
    pub(super) device: String,
    /// What of the file system is seen.
    pub(super) root: PathBuf,
    /// Where.
    pub(super) point: PathBuf,
    /// What it forbids.
    pub(super) flags: MsFlags,
}

/// All that is mounted, the latest last.
pub(super) fn read() -> io::Result<Vec<Mounted>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("`{LIST}` not read: {error}"));
    Ok(parse(&fs::read(LIST).map_err(named)?))
}

/// The latest of which this is so, unless what was mounted above it later hides it.
pub(super) fn seen(all: &[Mounted], is_it: impl Fn(&Mounted) -> bool) -> Option<&Mounted> {
    let at = all.iter().rposition(is_it)?;
    let (found, later) = all.get(at..)?.split_first()?;
    let hides = |one: &Mounted| found.point.starts_with(&one.point) && found.point != one.point;
    (!later.iter().any(hides)).then_some(found)
}

fn parse(list: &[u8]) -> Vec<Mounted> {
    list.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let flags = flags::of_list(fields.next()?);
    Some(Mounted { device, root, point, flags })
}

/// White space and backslashes are a backslash and three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.first_chunk::<3>().filter(|_| *byte == b'\\').and_then(octal);
        plain.push(code.unwrap_or(*byte));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(plain).into()
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_whatever_their_paths() {
        let list = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     40 22 0:38 /0 /a\\040b\\134\\011 ro,nosuid - virtiofs virtlet rw\n\
                     41 22 0:38 /1 /c\\ rw shared:3 master:1 - virtiofs virtlet ro\n\
                     short line\n";
        let of = |root: &str, point: &str, flags| {
            let device = if root == "/" { "8:1" } else { "0:38" };
            Mounted { device: device.into(), root: root.into(), point: point.into(), flags }
        };
        let held = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID;
        let none = MsFlags::empty();
        assert_eq!(parse(list), [of("/", "/", none), of("/0", "/a b\\\t", held), of("/1", "/c\\", none)]);
    }

    #[test]
    fn what_is_hidden_by_a_later_mount_above_it_is_not_seen() {
        let of = |device: &str, point: &str| Mounted {
            device: device.into(),
            root: "/".into(),
            point: point.into(),
            flags: MsFlags::empty(),
        };
        let mut all = vec![of("8:1", "/"), of("8:2", "/data"), of("0:38", "/data/conf"), of("8:3", "/data/conf/sub")];
        let is_seen = |all: &[Mounted]| seen(all, |one| one.device == "0:38").is_some();
        assert!(is_seen(&all));
        // The place itself is its owner's.
        all.extend([of("8:4", "/database"), of("8:4", "/data/conf")]);
        assert!(is_seen(&all));
        all.push(of("8:5", "/data"));
        assert!(!is_seen(&all));
        all.push(of("0:38", "/data/conf"));
        assert!(is_seen(&all));
    }
}
