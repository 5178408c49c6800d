//! The commands of `image`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Import, Output, Progress, Prune, Save};
use crate::name::non_empty;

/// The commands of `image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List images
    ///
    /// One that is only pinned has no name.
    #[command(alias = "list")]
    Ls(List),
    /// Fetch an image; prints its id
    ///
    /// What has `://` in it is where the image is, and what begins with `/`, `./` or `../` is a file, as of `import`. How far it is goes to the standard error output. Ctrl-C ends it.
    Pull(Pull),
    /// Take a file, or the standard input, as an image; prints its id
    ///
    /// It is inspected and stored as one that is pulled, and pods of any pull policy may use it under a name that begins
    /// with `localhost/`.
    Import(Import),
    /// Write the disk of an image to a file, or to the standard output
    Save(Save),
    /// Find images at providers
    Search(Search),
    /// Forget an image; prints what went
    ///
    /// A name goes alone; an id takes all names of its image along. An image goes with its last name, unless something needs it.
    #[command(alias = "remove")]
    Rm(Remove),
    /// Tell all about an image of this node, or whether a file would be taken as one
    ///
    /// What begins with `/`, `./` or `../` is a file, and so is what there is a file of that name for. Of a file, no
    /// daemon is asked: exits with 0 and a summary if the file would be taken as it is, with 65 and the reason if not,
    /// with 66 if it cannot be opened and with 74 if it cannot be read. A layer would not be taken, as a store wants
    /// whole disks unless it is told otherwise. A compressed file would not be taken as it is either; a pull unpacks it.
    Inspect(Inspect),
    /// Hash images anew; those that are broken are put aside
    ///
    /// Exits with 4 if one is broken or missing.
    Verify(Verify),
    /// Remove what nobody needs
    Gc(Gc),
    /// Remove images that no pod uses
    ///
    /// All that were pulled, and not only those without a name, as by docker. Prints what went. Pinned images stay, and so do those that
    /// others in use stand on.
    Prune(Prune),
    /// Keep an image, also when it has no name left; prints its id
    Pin(Pin),
    /// Give up keeping an image; prints its id
    Unpin(Pin),
    /// Where images come from
    Providers {
        /// What to do; `ls` if nothing.
        #[command(subcommand)]
        command: Option<ProvidersCommand>,
    },
}

/// Of `image ls`.
#[derive(Debug, Args)]
pub struct List {
    /// Only images of this runtime handler
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// Only ids, in full
    #[arg(short, long, conflicts_with_all = ["output", "json"])]
    pub quiet: bool,
    /// Always so: no image is left out
    #[arg(short, long, hide = true)]
    pub all: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Of `image pull`.
#[derive(Debug, Args)]
pub struct Pull {
    /// The image
    #[arg(value_parser = non_empty)]
    pub name: String,
    /// Runtime handler that it is for [default: the daemon's]
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// The only provider to ask
    #[arg(long, value_name = "ID", value_parser = non_empty)]
    pub provider: Option<String>,
    /// When an image that is here is good enough: `auto` if its source cannot be reached [default: the daemon's]
    #[arg(long, value_name = "WHEN")]
    pub offline: Option<Mode>,
    /// Download also what did not change
    #[arg(long)]
    pub force: bool,
    /// Leave out what the image stands on
    #[arg(long)]
    pub no_recursive: bool,
    /// How to say how far it is
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
    /// What to log in with.
    #[command(flatten)]
    pub credentials: Credentials,
}

/// What to log in with, at the place that the name leads to and nowhere else. Secrets come in files, since others can
/// read a command line.
#[derive(Debug, Default, Args)]
pub struct Credentials {
    /// Who to log in as
    #[arg(long, value_name = "USER", requires = "password_file", value_parser = non_empty)]
    pub username: Option<String>,
    /// File of the password
    #[arg(long, value_name = "FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
    /// File of a bearer token
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    pub token_file: Option<PathBuf>,
}

/// When nobody is asked whether an image is current.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Mode {
    /// Its source is always asked
    Never,
    /// When its source cannot be reached
    Auto,
    /// Nobody is asked at all
    Always,
}

/// Of `image search`.
#[derive(Debug, Args)]
pub struct Search {
    /// Beginning of a name, or a whole hash as ALGORITHM:HEX [default: all that providers have]
    #[arg(value_name = "PREFIX|HASH", default_value = "", hide_default_value = true)]
    pub query: String,
    /// Only images for the platform of this runtime handler
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// The only provider to ask
    #[arg(long, value_name = "ID", value_parser = non_empty)]
    pub provider: Option<String>,
    /// Also what sources say in fields of their own, such as a root password
    #[arg(long)]
    pub secrets: bool,
    /// Also images whose names begin so and that cannot be used, and why; as JSON, `image providers ls` tells them
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Of `image rm`.
#[derive(Debug, Args)]
pub struct Remove {
    /// Names of images, their ids, or 8 characters or more of the beginning of an id
    #[arg(value_name = "NAME|ID", required = true, value_parser = non_empty)]
    pub names: Vec<String>,
    /// Only for this runtime handler [default: for all]
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
    /// Taken as docker has it: what a pod uses stays all the same
    #[arg(short, long, hide = true)]
    pub force: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Of `image inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The image, its id, 8 characters or more of the beginning of its id, or a file
    #[arg(value_name = "NAME|ID|PATH")]
    pub path: PathBuf,
    /// What the file is said to be [default: qcow2]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Take a layer too, as with `images.layered`, and tell what it stands on; of a file only
    #[arg(long)]
    pub layered: bool,
    /// Runtime handler that the image is for [default: the daemon's]
    #[arg(long, value_name = "HANDLER", conflicts_with_all = ["format", "layered"], value_parser = non_empty)]
    pub handler: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Formats of images.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Format {
    /// QEMU's copy-on-write format
    Qcow2,
    /// Sector after sector
    Raw,
}

/// Of `image verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Images, their ids, or 8 characters or more of the beginnings of their ids [default: all images]
    #[arg(value_name = "NAME|ID", value_parser = non_empty)]
    pub names: Vec<String>,
    /// All images
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// As JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

/// Of `image gc`.
#[derive(Debug, Args)]
pub struct Gc {
    /// Also all broken-off downloads that nobody works on
    #[arg(long)]
    pub partials: bool,
    /// Also the names of runtime handlers that are configured no more
    #[arg(long)]
    pub orphan_handlers: bool,
    /// Also what was found broken and put aside
    #[arg(long)]
    pub quarantine: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Of `image pin` and `image unpin`.
#[derive(Debug, Args)]
pub struct Pin {
    /// The image, its id, or 8 characters or more of the beginning of its id
    #[arg(value_name = "NAME|ID", value_parser = non_empty)]
    pub name: String,
    /// Runtime handler that the name is of [default: the daemon's]
    #[arg(long, value_name = "HANDLER", value_parser = non_empty)]
    pub handler: Option<String>,
}

/// The commands of `image providers`.
#[derive(Debug, Subcommand)]
pub enum ProvidersCommand {
    /// List providers in the order in which they are asked
    Ls {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask sources anew
    Refresh {
        /// The provider [default: all]
        #[arg(value_name = "ID", value_parser = non_empty)]
        provider: Option<String>,
    },
    /// Forget what is known of sources, but not how new it was
    ClearCache {
        /// The provider [default: all]
        #[arg(value_name = "ID", value_parser = non_empty)]
        provider: Option<String>,
    },
    /// Take older signed documents of a source again, as when a newer one was withdrawn
    Forget {
        /// The provider
        #[arg(value_name = "ID", value_parser = non_empty)]
        provider: String,
    },
}

// === impl Inspect ===

impl Inspect {
    /// The name or id of an image that is to be asked for; `None` if it is a file that is to be looked into.
    pub(crate) fn name(&self) -> Option<&str> {
        let text = self.path.as_os_str().as_bytes();
        let is_path = [&b"/"[..], b"./", b"../"].iter().any(|start| text.starts_with(start));
        // A directory is no image: a name may begin like one.
        let is_there = || self.path.metadata().is_ok_and(|found| !found.is_dir());
        if is_path || self.format.is_some() || self.layered || (self.handler.is_none() && is_there()) {
            return None;
        }
        self.path.to_str()
    }
}
