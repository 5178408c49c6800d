//! Network and mount namespaces for one test, on a thread of its own.
//!
//! The test neither sees nor changes anything of the machine: it has none of its links, and `/run` is an empty file
//! system, so that `/run/netns` is the test's own. All of it goes with the thread. Needs `CAP_SYS_ADMIN`.

mod guest;

use std::future::Future;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

pub(crate) use self::guest::{CLIENT_DEADLINE, Client, GuestNetns, host, needs, output};

/// Longest that a test waits for something that the kernel does at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `test` on a runtime of its own, apart from the machine.
pub(crate) fn apart(test: impl AsyncFnOnce() + Send) {
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
                .expect("no right to make namespaces: run the tests as root, or under `unshare --map-root-user`");
            let none = None::<&str>;
            mount(none, Path::new("/"), none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
            // The mounts of namespaces that the machine has would be listed here, although nothing leads to them.
            while umount2("/run/netns", MntFlags::MNT_DETACH).is_ok() {}
            mount(Some("tmpfs"), Path::new("/run"), Some("tmpfs"), MsFlags::empty(), none).expect("an empty /run");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(test());
        });
        worker.join()
    });
    done.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs iproute2's `ip` in this thread's namespaces.
pub(crate) fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().expect("`ip` of iproute2 is installed");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Awaits `what`, but not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(PATIENCE, future).await else {
        panic!("{what}: not within {PATIENCE:?}");
    };
    value
}
