//! Decompression in a process of its own: crafted input that breaks a decoder breaks nothing else.
//!
//! ```text
//! input --> [thread: feed] --pipe--> PROGRAM decompress KIND --pipe--> whoever reads
//!                                         `--pipe--> how it ended: one line, see `child`
//! ```
//!
//! The process confines itself before it looks at a byte ([`super::child`]). It is killed when the reader goes, and when
//! somebody else gives up ([`Keeper`]); everything that waits for one of its pipes is then at an end.

use std::fmt;
use std::io::{self, BufRead, Read, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::fcntl::{FcntlArg, fcntl};

use super::child::{Outcome, SUBCOMMAND};
use super::{Compression, DecodeError, Decoder};

/// Room in each pipe, if the kernel gives it: what it gives to anybody by default.
const PIPE: libc::c_int = 1 << 20;
/// Most that a process may say of its end.
const WORDS: u64 = 4096;

/// Decompresses, in this process or apart.
#[derive(Debug, Clone, Default)]
pub struct Decompressor(Option<Arc<PathBuf>>);

impl Decompressor {
    /// By a program that [`super::run_apart`] is behind; in this process if there is none.
    pub fn new(program: Option<PathBuf>) -> Self {
        Self(program.map(Arc::new))
    }

    /// What is in `input`, which is compressed by `by`. A process for it is on the leash.
    pub fn open<I>(&self, by: Compression, input: I, leash: &Leash) -> Result<Decompressed<I>, DecodeError>
    where
        I: BufRead + Send + 'static,
    {
        match &self.0 {
            None => Ok(Decompressed(Way::Here(Box::new(Decoder::new(by, input)?)))),
            Some(program) => {
                let started = Apart::start(program, by, input, leash);
                started.map(|apart| Decompressed(Way::Apart(apart))).map_err(|cause| DecodeError::Start { by, cause })
            }
        }
    }
}

/// Reads what is in a compressed stream. Its errors carry a [`DecodeError`], except those of the input.
pub struct Decompressed<I: BufRead>(Way<I>);

enum Way<I: BufRead> {
    Here(Box<Decoder<I>>),
    Apart(Apart<I>),
}

impl<I: BufRead> fmt::Debug for Decompressed<I> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match &self.0 {
            Way::Here(_) => "decompressed here",
            Way::Apart(_) => "decompressed apart",
        })
    }
}

impl<I: BufRead> Decompressed<I> {
    /// The input, if it was read to its end.
    pub fn into_input(self) -> Option<I> {
        match self.0 {
            Way::Here(decoder) => Some(decoder.into_inner()),
            Way::Apart(mut apart) => apart.input.take(),
        }
    }
}

impl<I: BufRead> Read for Decompressed<I> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Way::Here(decoder) => decoder.read(room),
            Way::Apart(apart) => apart.read(room),
        }
    }
}

/// Holds a process that may have to be ended by somebody who does not wait for it. Clones hold the same one.
#[derive(Debug, Clone, Default)]
pub struct Leash(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    process: Option<Child>,
    /// Nobody may be started any more.
    cut: bool,
}

/// Cuts a leash when it is dropped: for whoever gives up by being dropped.
#[derive(Debug, Default)]
pub struct Keeper(Leash);

impl Keeper {
    pub fn leash(&self) -> Leash {
        self.0.clone()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.cut();
    }
}

impl Leash {
    /// Kills who is held, and lets nobody be started.
    fn cut(&self) {
        let mut held = self.lock();
        held.cut = true;
        // Its pipes close, and so its reader comes to collect it.
        if let Some(child) = &mut held.process {
            let _ = child.kill();
        }
    }

    fn hold(&self, command: &mut Command) -> io::Result<(ChildStdin, ChildStdout, ChildStderr)> {
        let mut held = self.lock();
        if held.cut {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        held.process = Some(child);
        match pipes {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((stdin, stdout, stderr)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends and collects the process, which has nothing more to say. How it ended, if that is known.
    fn collect(&self) -> Option<ExitStatus> {
        let mut held = self.lock();
        let child = held.process.as_mut()?;
        // One that is on its way out has closed its pipes and is not killed once more by this.
        let _ = child.kill();
        child.wait().ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that decompresses.
pub(crate) struct Apart<I> {
    by: Compression,
    plain: ChildStdout,
    said: ChildStderr,
    leash: Leash,
    feeder: Option<JoinHandle<Option<I>>>,
    /// Why the input failed.
    failed: Arc<Mutex<Option<io::Error>>>,
    /// At the end.
    input: Option<I>,
    ended: bool,
}

impl<I: BufRead + Send + 'static> Apart<I> {
    fn start(program: &Path, by: Compression, input: I, leash: &Leash) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args([SUBCOMMAND, &by.to_string()]).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (packed, plain, said) = leash.hold(&mut command)?;
        // Slower with less, not wrong.
        let _ = fcntl(packed.as_fd(), FcntlArg::F_SETPIPE_SZ(PIPE));
        let _ = fcntl(plain.as_fd(), FcntlArg::F_SETPIPE_SZ(PIPE));
        // Whatever fails from here on, dropping it ends the process.
        let mut apart = Self {
            by,
            plain,
            said,
            leash: leash.clone(),
            feeder: None,
            failed: Arc::default(),
            input: None,
            ended: false,
        };
        let failed = apart.failed.clone();
        let feeder = std::thread::Builder::new().name("image-feed".into());
        apart.feeder = Some(feeder.spawn(move || feed(input, packed, &failed))?);
        Ok(apart)
    }
}

impl<I> Apart<I> {
    /// What is behind the last byte: all is well, or why it is not.
    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        let mut words = String::new();
        let _ = (&mut self.said).take(WORDS).read_to_string(&mut words);
        let status = self.leash.collect();
        // What ended the input ended the rest too.
        if let Some(error) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        match words.parse() {
            Ok(Outcome::Done) => {
                self.input = self.feeder.take().and_then(|feeder| feeder.join().ok().flatten());
                Ok(())
            }
            Ok(Outcome::Failed(failure)) => Err(io::Error::other(failure.of(self.by))),
            Err(()) => Err(io::Error::other(DecodeError::Died { by: self.by, status })),
        }
    }
}

impl<I> Read for Apart<I> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.ended || room.is_empty() {
            return Ok(0);
        }
        match self.plain.read(room)? {
            0 => self.end().map(|()| 0),
            count => Ok(count),
        }
    }
}

impl<I> Drop for Apart<I> {
    fn drop(&mut self) {
        let _ = self.leash.collect();
    }
}

/// Body of the thread: the input, if all of it was taken.
fn feed<I: BufRead>(mut input: I, mut pipe: ChildStdin, failed: &Mutex<Option<io::Error>>) -> Option<I> {
    loop {
        let count = match input.fill_buf() {
            Ok([]) => return Some(input),
            Ok(bytes) => {
                // Whoever does not take it has said why.
                pipe.write_all(bytes).ok()?;
                bytes.len()
            }
            Err(error) => {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return None;
            }
        };
        input.consume(count);
    }
}
