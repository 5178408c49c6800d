//! Log lines in CRI form to what the guest wrote. Pure; holds no more than the beginning of one line.
//!
//! A line is `<RFC 3339 time> <stdout|stderr> <tags> <content>`; of its tags, divided by colons, the first is `F` or, if
//! the next line goes on with the same line of the guest, `P`. What is not in that form is passed on as it is.

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
}

impl Unwrap {
    /// Appends the content of the next bit of a log to `out`.
    pub(super) fn feed(&mut self, log: &[u8], out: &mut Vec<u8>) {
        let mut rest = log;
        while let [first, after @ ..] = rest {
            match self.state {
                State::Content { full } => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let (content, next) = rest.split_at(end.unwrap_or(rest.len()));
                    out.extend_from_slice(content);
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
        out.append(&mut self.head);
        if in_line || self.unfinished {
            out.push(b'\n');
        }
        *self = Self::default();
    }

    /// Whether the next byte begins a line of the guest.
    pub(super) fn is_between_lines(&self) -> bool {
        self.state == State::Head && self.head.is_empty() && !self.unfinished
    }

    fn head(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b'\n' {
            out.append(&mut self.head);
            self.end_line(true, out);
            return;
        }
        self.head.push(byte);
        let is_whole = byte == b' ' && self.head.iter().filter(|byte| **byte == b' ').count() == SPACES;
        if !is_whole && self.head.len() <= MAX_HEAD {
            return;
        }
        let full = if is_whole { is_full(&self.head) } else { None };
        if full.is_none() {
            out.append(&mut self.head);
        }
        self.head.clear();
        self.state = State::Content { full: full.unwrap_or(true) };
    }

    fn end_line(&mut self, full: bool, out: &mut Vec<u8>) {
        if full {
            out.push(b'\n');
        }
        self.unfinished = !full;
        self.state = State::Head;
    }
}

/// Whether a line with this head has the end of a line of the guest; `None` if it is not in CRI form.
fn is_full(head: &[u8]) -> Option<bool> {
    let mut words = std::str::from_utf8(head).ok()?.split(' ');
    let (time, stream, tags) = (words.next()?, words.next()?, words.next()?);
    is_time(time).then_some(())?;
    matches!(stream, "stdout" | "stderr").then_some(())?;
    match tags.split(':').next() {
        Some("F") => Some(true),
        Some("P") => Some(false),
        _ => None,
    }
}

/// Time of RFC 3339 in UTC, as ours are, or with an offset, as other runtimes' are.
fn is_time(text: &str) -> bool {
    let utc = match text.as_bytes() {
        [time @ .., b'+' | b'-', h1, h2, b':', m1, m2]
            if [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()) =>
        {
            format!("{}Z", String::from_utf8_lossy(time))
        }
        _ => text.to_owned(),
    };
    humantime::parse_rfc3339(&utc).is_ok()
}
