//! Frames to bytes and back. Pure.

mod fields;

use self::fields::Fields;
use super::{
    Disk, Frame, HEADER, MAGIC, MAX_ANSWER, MAX_BODY, MAX_WORDS, Main, Message, Mount, MountOptions, Setup, Start,
    Stream,
};

const HELLO: u8 = 1;
const START: u8 = 2;
const STDIN: u8 = 3;
const STDIN_END: u8 = 4;
const CREDIT: u8 = 5;
const RESIZE: u8 = 6;
const SIGNAL: u8 = 7;
const CANCEL: u8 = 8;
const SETUP: u8 = 9;
const ATTACH: u8 = 10;
const STOP: u8 = 11;
const GO_ON: u8 = 12;
const STARTED: u8 = 16;
const REFUSED: u8 = 17;
const STDOUT: u8 = 18;
const STDERR: u8 = 19;
const EXITED: u8 = 20;
const READY: u8 = 21;
const WAITS: u8 = 22;

/// Bits of a mount's options.
const NOEXEC: u8 = 1;
const NODEV: u8 = 2;
const NOSUID: u8 = 4;

/// A message that does not fit into a frame.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Its body is too long.
    #[error("the command has {len} bytes of words and variables, the limit is {MAX_BODY}")]
    TooLong {
        /// How long.
        len: usize,
    },
    /// Too many words.
    #[error(
        "more than {MAX_WORDS} words or variables of the command, settings or mounts, or more groups than Linux takes"
    )]
    TooMany,
}

/// The bytes of a frame.
///
/// # Errors
/// When it would be longer than a frame may be.
pub fn encode(frame: &Frame) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = vec![0; HEADER];
    let kind = body(&frame.message, &mut bytes)?;
    let len = bytes.len() - HEADER;
    let short = u32::try_from(len).ok().filter(|_| len <= MAX_BODY);
    let len = short.ok_or(EncodeError::TooLong { len })?;
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC);
    header.extend([kind, 0, 0, 0]);
    header.extend(frame.session.to_le_bytes());
    header.extend(len.to_le_bytes());
    header.extend(frame.epoch.to_le_bytes());
    let check = fnv1a(&header);
    header.extend(check.to_le_bytes());
    bytes.splice(..HEADER, header);
    Ok(bytes)
}

fn body(message: &Message, bytes: &mut Vec<u8>) -> Result<u8, EncodeError> {
    Ok(match message {
        Message::Hello { version } => {
            bytes.extend(version.to_le_bytes());
            HELLO
        }
        Message::Start(start) => {
            command(start, bytes)?;
            START
        }
        Message::Stdin(data) => raw(data, bytes, STDIN),
        Message::StdinEnd => STDIN_END,
        Message::Credit { stream, bytes: credit } => {
            bytes.push(match stream {
                Stream::Stdin => 0,
                Stream::Stdout => 1,
                Stream::Stderr => 2,
            });
            bytes.extend(credit.to_le_bytes());
            CREDIT
        }
        Message::Resize(size) => {
            bytes.extend(size.width.to_le_bytes());
            bytes.extend(size.height.to_le_bytes());
            RESIZE
        }
        Message::Signal(number) => raw(&[*number], bytes, SIGNAL),
        Message::Cancel => CANCEL,
        Message::Setup(setup) => {
            set_up(setup, bytes)?;
            SETUP
        }
        Message::Attach => ATTACH,
        Message::Stop => STOP,
        Message::GoOn => GO_ON,
        Message::Waits => WAITS,
        Message::Ready(why) => raw(why.as_bytes(), bytes, READY),
        Message::Started { pid } => raw(&pid.to_le_bytes(), bytes, STARTED),
        Message::Refused(why) => raw(why.as_bytes(), bytes, REFUSED),
        Message::Stdout(data) => raw(data, bytes, STDOUT),
        Message::Stderr(data) => raw(data, bytes, STDERR),
        Message::Exited { code } => raw(&[*code], bytes, EXITED),
    })
}

fn set_up(setup: &Setup, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Setup { sysctls, main, mounts, resolver, disks } = setup;
    words(sysctls, bytes)?;
    bytes.push(u8::from(main.is_some()));
    if let Some(Main { start, read_only_root, stop_signal }) = main {
        bytes.extend([u8::from(*read_only_root), *stop_signal]);
        command(start, bytes)?;
    }
    let options: Vec<MountOptions> =
        mounts.iter().map(|mount| mount.options).chain(disks.iter().map(|disk| disk.options)).collect();
    let has_options = options.iter().any(|one| *one != MountOptions::default());
    // An agent of an earlier release skips a body that goes on here.
    if mounts.is_empty() && resolver.is_empty() && disks.is_empty() {
        return Ok(());
    }
    let count = u16::try_from(mounts.len()).map_err(|_too_many| EncodeError::TooMany)?;
    bytes.extend(count.to_le_bytes());
    for Mount { entry, path, read_only, options: _ } in mounts {
        bytes.extend(entry.to_le_bytes());
        bytes.push(u8::from(*read_only));
        text(path, bytes);
    }
    words(resolver, bytes)?;
    // As above.
    if disks.is_empty() && !has_options {
        return Ok(());
    }
    let count = u16::try_from(disks.len()).map_err(|_too_many| EncodeError::TooMany)?;
    bytes.extend(count.to_le_bytes());
    for Disk { serial, path, file_system, read_only, partition: _, options: _ } in disks {
        bytes.push(u8::from(*read_only));
        [serial, path, file_system].into_iter().for_each(|one| text(one, bytes));
    }
    // As above, for each disk.
    if has_options || disks.iter().any(|disk| disk.partition != 0) {
        disks.iter().for_each(|disk| bytes.extend(disk.partition.to_le_bytes()));
    }
    // As above, for each mount and each disk.
    if has_options {
        bytes.extend(options.into_iter().map(bits));
    }
    Ok(())
}

fn bits(MountOptions { noexec, nodev, nosuid }: MountOptions) -> u8 {
    [(noexec, NOEXEC), (nodev, NODEV), (nosuid, NOSUID)].iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum()
}

fn command(start: &Start, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
    let size = start.tty.unwrap_or_default();
    bytes.extend([u8::from(start.tty.is_some()), u8::from(start.stdin)]);
    bytes.extend(size.width.to_le_bytes());
    bytes.extend(size.height.to_le_bytes());
    words(&start.argv, bytes)?;
    words(&start.env, bytes)?;
    text(&start.cwd, bytes);
    text(&start.user, bytes);
    let count = u16::try_from(start.groups.len()).map_err(|_too_many| EncodeError::TooMany)?;
    bytes.extend(count.to_le_bytes());
    bytes.extend(start.groups.iter().flat_map(|group| group.to_le_bytes()));
    Ok(())
}

fn raw(data: &[u8], bytes: &mut Vec<u8>, kind: u8) -> u8 {
    bytes.extend(data);
    kind
}

fn words(words: &[String], bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
    let count = u16::try_from(words.len()).ok().filter(|_| words.len() <= MAX_WORDS).ok_or(EncodeError::TooMany)?;
    bytes.extend(count.to_le_bytes());
    words.iter().for_each(|word| text(word, bytes));
    Ok(())
}

/// One that is longer than the length's type is refused with the whole body.
fn text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Finds frames in a stream of bytes. Holds no more than one frame beyond what it was given last.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Longest body.
    limit: usize,
    /// What of the buffer has been looked at.
    at: usize,
    /// What was looked at and is not in the buffer any more.
    passed: u64,
    skipped: u64,
}

impl Decoder {
    /// For the agent.
    #[must_use]
    pub fn of_controld() -> Self {
        Self::new(MAX_BODY)
    }

    /// For `controld`.
    #[must_use]
    pub fn of_agent() -> Self {
        Self::new(MAX_ANSWER)
    }

    fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), limit, at: 0, passed: 0, skipped: 0 }
    }

    /// Takes bytes. Whoever gives them calls [`Decoder::next_frame`] until there is none.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.passed += self.at as u64;
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes were no frame, or no message.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many bytes were looked at: those of frames, and those that were skipped.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed + self.at as u64
    }

    /// The next frame that is whole.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            let rest = self.buffer.get(self.at..)?;
            let mark = rest.windows(MAGIC.len()).position(|window| window == MAGIC);
            let Some(mark) = mark else {
                // The beginning of a mark may be the end of what is here.
                self.skip(rest.len().saturating_sub(MAGIC.len() - 1));
                return None;
            };
            let rest = rest.get(mark..)?;
            let header = rest.first_chunk::<HEADER>();
            let Some(header) = header.map(|header| Header::of(header, self.limit)) else {
                self.skip(mark);
                return None;
            };
            let Some(header) = header else {
                self.skip(mark + 1);
                continue;
            };
            let Some(body) = rest.get(HEADER..HEADER + header.len) else {
                self.skip(mark);
                return None;
            };
            let message = message(header.kind, body);
            self.skip(mark);
            self.at += HEADER + header.len;
            match message {
                Some(message) => return Some(Frame { epoch: header.epoch, session: header.session, message }),
                None => self.skipped += (HEADER + header.len) as u64,
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.skipped += bytes as u64;
    }
}

struct Header {
    kind: u8,
    session: u32,
    len: usize,
    epoch: u64,
}

impl Header {
    fn of(bytes: &[u8; HEADER], limit: usize) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (checked, _) = bytes.split_last_chunk::<4>()?;
        fields.array::<4>()?;
        let [kind, zeros @ ..] = fields.array::<4>()?;
        let (session, len) = (fields.u32()?, usize::try_from(fields.u32()?).ok()?);
        let (epoch, check) = (u64::from_le_bytes(fields.array()?), fields.u32()?);
        let valid = zeros == [0; 3] && len <= limit && check == fnv1a(checked);
        valid.then_some(Self { kind, session, len, epoch })
    }
}

/// `None` for what is no message.
fn message(kind: u8, body: &[u8]) -> Option<Message> {
    let mut fields = Fields(body);
    let message = match kind {
        STDIN => return Some(Message::Stdin(body.to_vec())),
        STDOUT => return Some(Message::Stdout(body.to_vec())),
        STDERR => return Some(Message::Stderr(body.to_vec())),
        REFUSED => return Some(Message::Refused(String::from_utf8_lossy(body).into_owned())),
        READY => return Some(Message::Ready(String::from_utf8_lossy(body).into_owned())),
        HELLO => Message::Hello { version: fields.u16()? },
        START => Message::Start(fields.command()?),
        STDIN_END => Message::StdinEnd,
        CREDIT => {
            let stream = match fields.array()? {
                [0] => Stream::Stdin,
                [1] => Stream::Stdout,
                [2] => Stream::Stderr,
                [_] => return None,
            };
            Message::Credit { stream, bytes: fields.u32()? }
        }
        RESIZE => Message::Resize(fields.size()?),
        SIGNAL => Message::Signal(fields.byte()?),
        CANCEL => Message::Cancel,
        SETUP => {
            let sysctls = fields.words()?;
            let main = match fields.byte()? {
                0 => None,
                _ => {
                    let [read_only_root, stop_signal] = fields.array()?;
                    Some(Main { start: fields.command()?, read_only_root: read_only_root != 0, stop_signal })
                }
            };
            let goes_on = !fields.is_empty();
            let (mut mounts, resolver) = if goes_on { (fields.mounts()?, fields.words()?) } else { Default::default() };
            let mut disks = if fields.is_empty() { Vec::new() } else { fields.disks()? };
            if !fields.is_empty() {
                for disk in &mut disks {
                    disk.partition = fields.u16()?;
                }
            }
            if !fields.is_empty() {
                let mounts = mounts.iter_mut().map(|mount| &mut mount.options);
                for options in mounts.chain(disks.iter_mut().map(|disk| &mut disk.options)) {
                    *options = fields.options()?;
                }
            }
            Message::Setup(Setup { sysctls, main, mounts, resolver, disks })
        }
        ATTACH => Message::Attach,
        STOP => Message::Stop,
        GO_ON => Message::GoOn,
        WAITS => Message::Waits,
        STARTED => Message::Started { pid: fields.u32()? },
        EXITED => Message::Exited { code: fields.byte()? },
        _ => return None,
    };
    fields.is_empty().then_some(message)
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
