//! A container image around Debian's busybox, and the programs that critest looks for beside those of busybox.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::{command, run, sh};

const BUSYBOX: &str = "/bin/busybox";
/// A web server that says who it is.
pub const WEB_SERVER: &str = "/usr/sbin/nginx";

/// Files with their modes.
const FILES: [(&str, u32, &str); 6] = [
    (
        "etc/passwd",
        0o644,
        "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n\
         nobody:x:65534:65534::/:/bin/sh\n",
    ),
    (
        "etc/group",
        0o644,
        "root:x:0:\nwww-data:x:33:\nusers:x:100:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n\
         nogroup:x:65534:\n",
    ),
    ("www/index.html", 0o644, "a page\n"),
    ("bin/ipcs", 0o755, "#!/bin/sh\ncat /proc/sysvipc/shm\n"),
    ("bin/pgrep", 0o755, "#!/bin/sh\npids=$(pidof \"$1\") && echo \"$pids\"\n"),
    // Its first word is what a process of such a server is looked for by, the second its port.
    (
        "usr/sbin/nginx",
        0o755,
        "#!/bin/sh\necho httpd\nhttpd -f -p \"$2\" -h /www &\necho $$ >/var/run/nginx.pid\nwait\n",
    ),
];

/// The image's only layer, below `dir`.
///
/// # Errors
/// When a tool fails.
pub fn layer(dir: &Path) -> Result<PathBuf> {
    let root = dir.join("busybox");
    for folder in ["bin", "etc", "www", "tmp", "root", "usr/sbin", "var/run"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
    let busybox = root.join("bin/busybox");
    fs::copy(BUSYBOX, &busybox)?;
    for name in sh(&format!("{BUSYBOX} --list"))?.lines().filter(|name| *name != "busybox") {
        // Links: the archive has the program once.
        fs::hard_link(&busybox, root.join("bin").join(name))?;
    }
    for (name, mode, text) in FILES {
        fs::write(root.join(name), text)?;
        fs::set_permissions(root.join(name), Permissions::from_mode(mode))?;
    }
    let layer = dir.join("busybox.tar");
    let words = ["--numeric-owner", "--owner=0", "--group=0", "--mtime=@0", "-C"];
    run(command("tar", words).arg(&root).arg("-cf").arg(&layer).arg("."))?;
    Ok(layer)
}
