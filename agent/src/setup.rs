//! How a guest is to be: what a [`Setup`] says, done in the guest. The loop calls it for each `Setup` that is another one than before.

mod disks;
mod file_system;
mod flags;
mod look;
mod mountinfo;
mod mounts;
mod places;
mod resolver;
mod sysctls;

use std::path::Path;

use proto::agent::{SHARE_DIR, Setup};

use self::disks::Disks;
use self::mounts::Share;
pub(crate) use self::resolver::Resolver;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was not done and why, a line each.
    pub(crate) failed: String,
    /// Why the machine's command may not start.
    pub(crate) obstacle: Option<String>,
    /// Goes on looking after the resolver's options, if there are some.
    pub(crate) resolver: Option<Resolver>,
}

/// Does what of it is not done yet.
pub(crate) fn apply(setup: &Setup) -> Outcome {
    let unmounted = places::see(setup, &Share::at(SHARE_DIR), &Disks::of(Path::new("/")));
    let obstacle = (!unmounted.is_empty()).then(|| unmounted.join("; "));
    let mut failed = sysctls::set(Path::new("/proc/sys"), &setup.sysctls);
    failed.extend(unmounted);
    let mut resolver = None;
    if !setup.resolver.is_empty() {
        match Resolver::of(Path::new("/etc"), &setup.resolver) {
            Ok((watching, left_alone)) => {
                failed.extend(left_alone);
                resolver = Some(watching);
            }
            Err(why) => failed.push(why),
        }
    }
    Outcome { failed: failed.join("\n"), obstacle, resolver }
}
