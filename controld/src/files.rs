//! Files of the node that a start looks at, makes or leaves: with a deadline where a file server may hang, and removed without an error if they are
//! gone. Whoever has something to do with such files calls this.

mod look;
mod remove;

pub(crate) use self::look::{io_failed, look};
pub(crate) use self::remove::{remove, remove_log};
