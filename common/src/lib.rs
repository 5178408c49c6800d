//! What several programs of virtlet-rs need and no crate has. A leaf: it knows none of them.
//!
//! - [`bounded`]: files that another process fills as it likes.
//! - [`chain`]: prints an error with its causes.
//! - [`clock`]: the time of the day, as records and CRI have it.
//! - [`dns`]: DNS labels, of which names of Kubernetes objects consist.
//! - [`file_error`], [`small_file`]: small versioned JSON files that are replaced as a whole.
//! - `jail` (feature): limits and filters of system calls for a process that confines itself.
//! - `keyed_mutex` (feature `runtime`): one change at a time for each object.
//! - `log` (feature): what a daemon logs, on stderr or in the journal.
//! - `logged` (feature): what a test's work writes to the log.
//! - `manual` (feature): man pages and completions of a program, from its command line.
//! - `off_reactor` (feature `runtime`): work that blocks, kept off the threads that serve everybody.
//! - [`quantity`]: Kubernetes quantities as bytes.
//! - `ready` (feature `runtime`): a descriptor that the runtime watches.
//! - [`reason`]: an error that is a text and a cause.
//! - [`shown`](fn@shown): a stranger's text on a line of ours.
//! - [`version`]: what a program says its version is.
//! - `watch` (feature `runtime`): one inotify descriptor for all directories that are watched.

pub mod bounded;
pub mod chain;
pub mod clock;
pub mod dns;
pub mod file_error;
#[cfg(feature = "jail")]
pub mod jail;
#[cfg(feature = "runtime")]
pub mod keyed_mutex;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "logged")]
pub mod logged;
#[cfg(feature = "manual")]
pub mod manual;
#[cfg(feature = "runtime")]
pub mod off_reactor;
pub mod quantity;
#[cfg(feature = "runtime")]
pub mod ready;
pub mod reason;
pub mod shown;
pub mod small_file;
pub mod version;
#[cfg(feature = "runtime")]
pub mod watch;

pub use self::chain::Chain;
pub use self::clock::now_nanos;
pub use self::file_error::FileError;
#[cfg(feature = "runtime")]
pub use self::keyed_mutex::KeyedMutex;
#[cfg(feature = "runtime")]
pub use self::off_reactor::off_reactor;
#[cfg(feature = "runtime")]
pub use self::ready::Ready;
pub use self::reason::Reason;
pub use self::shown::shown;
pub use self::version::version;
