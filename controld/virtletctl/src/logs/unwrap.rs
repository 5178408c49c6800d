//! Log lines in CRI form to what the guest wrote. Pure; holds no more than the beginning of one line.
//!
//! A line is `<RFC 3339 time> <stdout|stderr> <tags> <content>`; of its tags, divided by colons, the first is `F` or, if
//! the next line goes on with the same line of the guest, `P`. What is not in that form is passed on as it is.

use std::time::{Duration, SystemTime};

/// Longest beginning that a line in CRI form has before its content, with room for an offset and more tags.
const MAX_HEAD: usize = 96;
/// Spaces before the content.
const SPACES: usize = 3;

/// Where in the log we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before a line's content.
    #[default]
    Head,
    /// In the content of a line whose end is the end of the guest's line, or is not.
    Content { full: bool },
}

/// Takes a log bit by bit.
#[derive(Debug, Default)]
pub(super) struct Unwrap {
    state: State,
    head: Vec<u8>,
    /// The last line was a piece.
    unfinished: bool,
    /// Lines of the guest begin with their times.
    stamps: bool,
    /// Lines of before are left out.
    since: Option<SystemTime>,
    /// The line is one of those, or belongs to one.
    skips: bool,
}

/// What stands before a line's content.
struct Head<'a> {
    time: &'a str,
    at: SystemTime,
    full: bool,
}

impl Unwrap {
    /// Of lines since `since`, if that is given, with their times if `stamps` is set.
    pub(super) fn new(stamps: bool, since: Option<SystemTime>) -> Self {
        Self { stamps, since, skips: since.is_some(), ..Self::default() }
    }

    /// Appends the content of the next bit of a log to `out`.
    pub(super) fn feed(&mut self, log: &[u8], out: &mut Vec<u8>) {
        let mut rest = log;
        while let [first, after @ ..] = rest {
            match self.state {
                State::Content { full } => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let (content, next) = rest.split_at(end.unwrap_or(rest.len()));
                    if !self.skips {
                        out.extend_from_slice(content);
                    }
                    rest = next;
                    if let Some(next) = next.get(1..) {
                        rest = next;
                        self.end_line(full, out);
                    }
                }
                State::Head => {
                    rest = after;
                    self.head(*first, out);
                }
            }
        }
    }

    /// At the end of a log: what is there of a line, and its end.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let in_line = self.state != State::Head || !self.head.is_empty();
        self.pass_on_head(out);
        if (in_line || self.unfinished) && !self.skips {
            out.push(b'\n');
        }
        *self = Self::new(self.stamps, self.since);
    }

    /// Whether the next byte begins a line of the guest.
    pub(super) fn is_between_lines(&self) -> bool {
        self.state == State::Head && self.head.is_empty() && !self.unfinished
    }

    fn head(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b'\n' {
            self.pass_on_head(out);
            self.end_line(true, out);
            return;
        }
        self.head.push(byte);
        let is_whole = byte == b' ' && self.head.iter().filter(|byte| **byte == b' ').count() == SPACES;
        if !is_whole && self.head.len() <= MAX_HEAD {
            return;
        }
        let full = match Head::read(&self.head).filter(|_| is_whole) {
            Some(Head { time, at, full }) => {
                if !self.unfinished {
                    self.skips = self.since.is_some_and(|since| at < since);
                    if self.stamps && !self.skips {
                        out.extend_from_slice(time.as_bytes());
                        out.push(b' ');
                    }
                }
                self.head.clear();
                full
            }
            None => {
                self.pass_on_head(out);
                true
            }
        };
        self.state = State::Content { full };
    }

    /// What is no head of a line is shown as it is.
    fn pass_on_head(&mut self, out: &mut Vec<u8>) {
        if !self.skips {
            out.extend_from_slice(&self.head);
        }
        self.head.clear();
    }

    fn end_line(&mut self, full: bool, out: &mut Vec<u8>) {
        if full && !self.skips {
            out.push(b'\n');
        }
        self.unfinished = !full;
        self.state = State::Head;
    }
}

impl<'a> Head<'a> {
    /// `None` if it is not in CRI form.
    fn read(head: &'a [u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(head).ok()?.split(' ');
        let (time, stream, tags) = (words.next()?, words.next()?, words.next()?);
        let at = moment(time)?;
        matches!(stream, "stdout" | "stderr").then_some(())?;
        let full = match tags.split(':').next() {
            Some("F") => true,
            Some("P") => false,
            _ => return None,
        };
        Some(Self { time, at, full })
    }
}

/// Time of RFC 3339 in UTC, as ours are, or with an offset, as other runtimes' are.
fn moment(text: &str) -> Option<SystemTime> {
    let [time @ .., sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = text.as_bytes() else {
        return humantime::parse_rfc3339(text).ok();
    };
    let two = |tens: u8, ones: u8| char::from(tens).to_digit(10).zip(char::from(ones).to_digit(10));
    let ((h1, h2), (m1, m2)) = two(*h1, *h2).zip(two(*m1, *m2))?;
    let offset = Duration::from_secs(u64::from((h1 * 10 + h2) * 3600 + (m1 * 10 + m2) * 60));
    let there = humantime::parse_rfc3339(&format!("{}Z", String::from_utf8_lossy(time))).ok()?;
    if *sign == b'+' { there.checked_sub(offset) } else { there.checked_add(offset) }
}
