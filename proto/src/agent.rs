//! The protocol between `controld` and our agent in a guest: processes that are started in the guest, with their streams.
//!
//! # Wire
//!
//! A stream of bytes in each direction, the virtio-serial port [`PORT`]. Neither side knows where the other one begins: either
//! may be restarted in the middle of a frame, and the guest may write what it likes. So a frame has a mark to be found by:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | [`MAGIC`] |
//! | 1 | kind of message |
//! | 3 | zero |
//! | 4 | session, 0 for the connection itself |
//! | 4 | bytes of the body, at most [`MAX_BODY`] to the agent and [`MAX_ANSWER`] from it |
//! | 8 | epoch |
//! | 4 | FNV-1a of the 24 bytes before |
//! | n | the body |
//!
//! Numbers are little endian. What is no frame is skipped, byte by byte.
//!
//! # Epochs
//!
//! `controld` draws a random epoch for each connection and says it in [`Message::Hello`]; the agent ends what it has running, and
//! answers with a `Hello` of the same epoch. All other frames carry that epoch, and a frame with another one is dropped. An agent
//! that has just started says `Hello` with epoch 0: what ran under the one before is lost, and `controld` says `Hello` with a new
//! epoch.
//!
//! `controld` may have been cut off in the middle of a frame, and the agent need not see that the next connection is another one. So
//! `controld` sends as many zeros before its first `Hello` as a frame may be long: they are the rest of that frame, or skipped.
//!
//! # Sessions
//!
//! `controld` numbers sessions. [`Message::Start`] begins one; the agent answers [`Message::Started`], or [`Message::Refused`],
//! which ends it. [`Message::Exited`] is the last of a session, after all of its output. [`Message::Cancel`] kills the process and
//! its descendants.
//!
//! # The guest and its command
//!
//! [`Message::Setup`] says how the guest is to be, and which command its machine is for, if it is for one. `controld` says it after
//! each `Hello`, and the agent answers [`Message::Ready`]. The command outlives connections: an agent starts it once, and it ends with
//! the agent. Its output goes to a port of its own and its exit code to another, which are files at the other end, so that nothing is lost while
//! nobody listens. [`Message::Attach`] makes a session of it: the output from then on, and input. An agent that does not know these
//! messages skips them and does not answer.
//!
//! A pod's volumes come by one virtiofs device, the share [`SHARE_TAG`], whose root has an entry for each. The agent mounts it at
//! [`SHARE_DIR`], and its entries from there to where a `Setup` says, before the command starts. An agent of an earlier release
//! takes a `Setup` that has mounts or options of the resolver for no message.
//!
//! Block volumes are disks, whose order says nothing. A `Setup` names each by its serial, and the agent makes a link to it, or mounts it,
//! where the pod has it. An agent of an earlier release takes a `Setup` that has disks for no message, and a later one that cannot mount
//! partitions, one in which a disk has a partition. Of an image that is a volume nobody says which file system it has
//! ([`ANY_FILE_SYSTEM`]): the agent looks.
//!
//! Mounts of both kinds may have options ([`MountOptions`]). An agent of an earlier release takes a `Setup` in which one has some for no
//! message, and so does this one if it does not know an option: nothing is mounted without what is to hold there.
//!
//! # The gate
//!
//! Part of a boot can be done once, for many pods: a guest whose machine says so ([`WARM_FAMILY`]) waits before anything reads the
//! pod's seed, and what is saved of it there goes on as any of these pods. Its agent runs and says [`Message::Waits`] *before* it
//! answers a `Hello`, in the new epoch, so that `controld` knows it when it has the answer. It says so after each `Hello` while its guest
//! waits. [`Message::GoOn`] lets the boot go on; before that `controld` says no `Setup`. One that comes when no boot waits is ignored.
//!
//! A boot goes on by itself [`GATE`] after the last `Hello`, by the guest's own clock: what a `Waits` says holds for that long and no
//! longer. An agent that is started again in the same boot, for which it is too late to wait, says no `Waits`.
//!
//! # Credit
//!
//! Each stream has credit, which is [`WINDOW`] bytes at first: whoever reads it gives back by [`Message::Credit`] what has been taken
//! out, in steps of a quarter of that ([`Owed`]). More is not sent, so that one session that nobody reads holds up no other one.

mod codec;
mod credit;
pub mod log;
mod message;

use std::time::Duration;

pub use codec::{Decoder, EncodeError, encode};
pub use credit::Owed;
pub use message::{Disk, Frame, Main, Message, Mount, MountOptions, Setup, Size, Start, Stream};

/// Version of the protocol. Any change of meaning raises it.
pub const VERSION: u16 = 1;
/// Name of the virtio-serial port.
pub const PORT: &str = "org.virtlet.agent.0";
/// Name of the port that the output of a machine's command goes to, in the form of [`log`].
pub const LOG_PORT: &str = "org.virtlet.log.0";
/// Name of the port that its end goes to, one line: exit code, and why it did not start, if so.
pub const EXIT_PORT: &str = "org.virtlet.exit.0";
/// Tag of the virtiofs device that the pod's volumes come by.
pub const SHARE_TAG: &str = "virtlet";
/// Where the agent mounts it.
pub const SHARE_DIR: &str = "/run/virtlet/share";

/// Product family by which a machine's SMBIOS tells the agent that a node waits for it at the gate.
pub const WARM_FAMILY: &str = "warm";
/// How long a boot waits there: a node that is gone must not hold it for ever.
pub const GATE: Duration = Duration::from_secs(300);

/// In the place of a disk's file system: whichever is on its first partition or, if it has none, on all of it. An agent of an earlier
/// release says that its kernel knows none of this name.
pub const ANY_FILE_SYSTEM: &str = "auto";
/// What a frame begins with.
pub const MAGIC: [u8; 4] = *b"\xf0VA\x01";
/// Bytes of a frame before its body.
pub const HEADER: usize = 28;
/// Most bytes of a body that goes to the agent: a command with its environment, as much as Linux takes.
pub const MAX_BODY: usize = 1024 * 1024;
/// Most bytes of a body that comes from the agent, which may be hostile.
pub const MAX_ANSWER: usize = 64 * 1024;
/// Most bytes of a stream in one frame.
pub const MAX_CHUNK: usize = 32 * 1024;
/// Credit that a stream begins with, and the most that it may have.
pub const WINDOW: u32 = 256 * 1024;
/// Most sessions at a time.
pub const MAX_SESSIONS: usize = 64;
/// Most words of a command, and most variables of its environment: kubelet gives seven for each Service of a namespace.
pub const MAX_WORDS: usize = 65_535;

#[cfg(test)]
mod tests;
