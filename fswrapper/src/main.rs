//! `fswrapper`: what libvirt starts as the virtiofsd of a VM whose pod has volumes.
//!
//! libvirt gives it a socket and a directory. In that directory `controld` has written which directories and files of the node the
//! guest is to see ([`proto::share`]). In a mount namespace of its own it covers the directory with a small file system, which has an
//! entry for each of them, bound there; and then it becomes the real virtiofsd, in the same process. So nothing is mounted on
//! the node, and nothing has to be undone: however it ends, its mounts end with it. libvirt, which is root, starts and ends
//! it with the VM; `controld` needs no capability for that.
//!
//! libvirt first asks what its virtiofsd can, by `--print-capabilities`: the real one is asked, and what it says is passed on. Where that
//! is nothing of use, this program answers for itself, with a line on stderr.
//!
//! Invariants: one thread; no descriptor is touched; a failure is one line on stderr, `fswrapper[CODE]: what: why`, which libvirt
//! puts into a log that `controld` reads.
//!
//! | code | sysexits name | when |
//! |---|---|---|
//! | 64 | `EX_USAGE` | the arguments are not those that libvirt gives |
//! | 66 | `EX_NOINPUT` | what is to be shared is not there, or is neither directory nor file |
//! | 71 | `EX_OSERR` | the kernel refused a mount, or virtiofsd could not be executed |
//! | 78 | `EX_CONFIG` | what `controld` has written cannot be read |

mod arguments;
mod binds;
mod capabilities;

use std::convert::Infallible;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{self, Command, exit};

use proto::share::{FILE, PID_FILE, Share, VIRTIOFSD_OPTIONS};

use self::arguments::{Asked, UsageError};
use self::binds::BindError;

/// Why nothing is shared.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("arguments are not libvirt's")]
    Usage(#[from] UsageError),
    #[error("`{}` does not say what is to be shared; install controld and fswrapper of one release", file.display())]
    Plan {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("process id not written to `{}`", file.display())]
    Told {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the pod's volumes cannot be shared")]
    Bind(#[from] BindError),
    #[error("failed to execute `{}`; is virtiofsd installed?", virtiofsd.display())]
    Exec {
        virtiofsd: PathBuf,
        #[source]
        cause: io::Error,
    },
}

fn main() {
    let mut args = std::env::args_os();
    let invoked = args.next().unwrap_or_default();
    let Err(failure) = run(&invoked, &args.collect::<Vec<_>>());
    // Nobody is left to tell if this fails.
    let _ = io::stderr().write_all(failure.line().as_bytes());
    exit(failure.code());
}

/// Returns only if virtiofsd did not start.
fn run(invoked: &OsStr, args: &[OsString]) -> Result<Infallible, Failure> {
    let (socket, dir) = match arguments::parse(args)? {
        Asked::Capabilities => {
            let (said, trouble) = capabilities::answer(invoked);
            // Whoever asks and does not listen goes without.
            let _ = io::stdout().write_all(&said);
            if let Some(error) = trouble {
                let _ = io::stderr().write_all(line("fswrapper", &error).as_bytes());
            }
            exit(0)
        }
        Asked::Share { socket, dir } => (socket, dir),
    };
    let Share { virtiofsd, mounts } =
        Share::read(&dir).map_err(|cause| Failure::Plan { file: dir.join(FILE), cause })?;
    let file = dir.join(PID_FILE);
    fs::write(&file, process::id().to_string()).map_err(|cause| Failure::Told { file, cause })?;
    binds::gather(&dir, &mounts)?;
    let cause = Command::new(&virtiofsd)
        .arg(format!("--fd={socket}"))
        .args(VIRTIOFSD_OPTIONS)
        .arg("--shared-dir")
        .arg(dir)
        .exec();
    Err(Failure::Exec { virtiofsd, cause })
}

impl Failure {
    fn code(&self) -> i32 {
        match self {
            Self::Usage(_) => 64,
            Self::Bind(BindError::Source { .. } | BindError::Kind { .. }) => 66,
            Self::Told { .. } | Self::Bind(_) | Self::Exec { .. } => 71,
            Self::Plan { .. } => 78,
        }
    }

    fn line(&self) -> String {
        line(&format!("fswrapper[{}]", self.code()), self)
    }
}

/// An error and its causes, behind who tells it.
fn line(whose: &str, error: &dyn Error) -> String {
    let mut text = format!("{whose}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    // A path may have anything in it.
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).chain(['\n']).collect()
}
