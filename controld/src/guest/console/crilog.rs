//! CRI's log form: `<RFC 3339 time> <stdout|stderr> <P|F> <content>\n` per line (kubelet's `logs` package). Pure.
//!
//! The time has a fixed length, so the length of what is written follows from the input alone. That lets a restarted
//! follower find out how much input the tail of a log stands for ([`input_behind`]).

use std::time::SystemTime;

use proto::agent::Stream;
use proto::agent::log::tagged;

/// Longest content of one log line; a longer one is cut into `P` pieces, as containerd does.
pub const MAX_CONTENT: usize = 16 * 1024;

/// `2016-10-06T00:17:09.669794202Z`
const STAMP_LEN: usize = 30;
const STDOUT: &[u8] = b" stdout ";
/// As long as that of the other stream: see [`input_behind`].
const STDERR: &[u8] = b" stderr ";
/// Where a batch of lines ends, with the line that passes it.
const BATCH: usize = 64 * 1024;

/// What a log is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The bytes of a serial console.
    Console,
    /// Lines that say of which output they are: see `proto::agent::log`.
    Tagged,
}

/// One log line in the making.
struct Piece<'a> {
    stream: &'static [u8],
    content: &'a [u8],
    full: bool,
    consumed: usize,
}

impl Piece<'_> {
    fn written_len(&self) -> usize {
        STAMP_LEN + self.stream.len() + 2 + self.content.len() + 1
    }
}

/// Appends a batch of log lines for what of `input` makes whole ones, and says how many bytes of it that was; 0 if none is
/// left. At the `end` of all input the unfinished rest becomes a line too, marked partial.
pub fn format(form: Form, input: &[u8], end: bool, at: SystemTime, out: &mut Vec<u8>) -> usize {
    let stamp = humantime::format_rfc3339_nanos(at).to_string();
    debug_assert_eq!(stamp.len(), STAMP_LEN);
    let mut consumed = 0;
    while out.len() < BATCH
        && let Some(piece) = form.next_piece(input.get(consumed..).unwrap_or_default(), end)
    {
        out.extend_from_slice(stamp.as_bytes());
        out.extend_from_slice(piece.stream);
        out.extend_from_slice(if piece.full { b"F " } else { b"P " });
        out.extend_from_slice(piece.content);
        out.push(b'\n');
        consumed += piece.consumed;
    }
    consumed
}

/// How many bytes of `input` stand behind the last `written` bytes of a log that [`format`] began to write from it, and
/// how long the lines are that they make.
#[must_use]
pub fn input_behind(form: Form, input: &[u8], written: u64) -> (usize, u64) {
    let (mut consumed, mut lines) = (0, 0);
    while lines < written
        && let Some(piece) = form.next_piece(input.get(consumed..).unwrap_or_default(), false)
    {
        consumed += piece.consumed;
        lines += piece.written_len() as u64;
    }
    (consumed, lines)
}

impl Form {
    fn next_piece(self, input: &[u8], end: bool) -> Option<Piece<'_>> {
        match self {
            Self::Console => next_piece(input, end),
            Self::Tagged => next_tagged(input, end),
        }
    }
}

/// The agent in the guest keeps to the form. What does not is shown as it is.
fn next_tagged(input: &[u8], end: bool) -> Option<Piece<'_>> {
    // The tag counts as content here.
    let piece = next_piece(input, end)?;
    let Some((stream, ends_line)) = input.first().copied().and_then(tagged) else { return Some(piece) };
    let line = input.get(1..piece.consumed).unwrap_or_default();
    let content = line.strip_suffix(b"\n").unwrap_or(line);
    let stream = if stream == Stream::Stderr { STDERR } else { STDOUT };
    Some(Piece { stream, content, full: piece.full && ends_line, consumed: piece.consumed })
}

fn next_piece(input: &[u8], end: bool) -> Option<Piece<'_>> {
    let stream = STDOUT;
    let within = input.get(..MAX_CONTENT + 1).unwrap_or(input);
    if let Some(newline) = within.iter().position(|byte| *byte == b'\n') {
        let line = &within[..newline];
        // Serial consoles end lines with CR LF.
        let content = line.strip_suffix(b"\r").unwrap_or(line);
        return Some(Piece { stream, content, full: true, consumed: newline + 1 });
    }
    if input.len() > MAX_CONTENT {
        return Some(Piece { stream, content: &input[..MAX_CONTENT], full: false, consumed: MAX_CONTENT });
    }
    if end && !input.is_empty() {
        return Some(Piece { stream, content: input, full: false, consumed: input.len() });
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn formatted(input: &[u8], end: bool) -> (String, usize) {
        let mut out = Vec::new();
        let at = SystemTime::UNIX_EPOCH + Duration::new(1_475_713_029, 669_794_202);
        let consumed = format(Form::Console, input, end, at, &mut out);
        (String::from_utf8_lossy(&out).into_owned(), consumed)
    }

    #[test]
    fn lines_are_stamped_and_lose_their_line_ends() {
        let (out, consumed) = formatted(b"one\r\ntwo\n\nlogin: ", false);
        assert_eq!(
            out,
            "2016-10-06T00:17:09.669794202Z stdout F one\n\
             2016-10-06T00:17:09.669794202Z stdout F two\n\
             2016-10-06T00:17:09.669794202Z stdout F \n"
        );
        assert_eq!(consumed, 10, "the prompt waits for its line end");
    }

    #[test]
    fn the_rest_at_the_end_is_partial() {
        let (out, consumed) = formatted(b"login: ", true);
        assert_eq!(out, "2016-10-06T00:17:09.669794202Z stdout P login: \n");
        assert_eq!(consumed, 7);
    }

    #[test]
    fn tagged_lines_are_of_their_streams() {
        let mut out = Vec::new();
        let consumed = format(Form::Tagged, b"oone\r\nebad\nOtw\noo\n?\nopen", false, SystemTime::UNIX_EPOCH, &mut out);
        let out = String::from_utf8(out).expect("text");
        let lines: Vec<_> = out.trim_end().split('\n').map(|line| &line[STAMP_LEN..]).collect();
        assert_eq!(lines, [" stdout F one\r", " stderr F bad", " stdout P tw", " stdout F o", " stdout F ?"]);
        assert_eq!(consumed, 20);
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut line = vec![b'x'; 2 * MAX_CONTENT + 5];
        line.push(b'\n');
        let (out, consumed) = formatted(&line, false);
        let tags: Vec<&str> = out.lines().map(|line| &line[STAMP_LEN + STDOUT.len()..][..1]).collect();
        assert_eq!(tags, ["P", "P", "F"]);
        assert_eq!(consumed, line.len());
        let exact = [vec![b'y'; MAX_CONTENT], vec![b'\n']].concat();
        assert_eq!(formatted(&exact, false).0.lines().count(), 1, "a line of just the limit is one line");
    }

    #[test]
    fn a_batch_is_bounded_whatever_its_lines_are() {
        for line in ["\n".to_owned(), "x".repeat(MAX_CONTENT) + "\n"] {
            let input = line.repeat(4 * BATCH / line.len());
            let mut out = Vec::new();
            let consumed = format(Form::Console, input.as_bytes(), false, SystemTime::UNIX_EPOCH, &mut out);
            assert!(out.len() < BATCH + MAX_CONTENT + 64, "{} bytes of lines at once", out.len());
            assert!(consumed < input.len(), "the rest is for the next batch");
        }
    }

    proptest! {
        #[test]
        fn a_log_tells_how_much_input_it_holds(
            input in proptest::collection::vec(prop_oneof![8 => any::<u8>(), 1 => Just(b'\n')], 0..40_000)
        ) {
            let mut out = Vec::new();
            for form in [Form::Console, Form::Tagged] {
                out.clear();
                let consumed = format(form, &input, false, SystemTime::UNIX_EPOCH, &mut out);
                prop_assert_eq!(input_behind(form, &input, out.len() as u64), (consumed, out.len() as u64));
            }
        }

        #[test]
        fn input_in_any_slices_gives_the_same_log(
            input in proptest::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'\n')], 0..2_000),
            cut in 0_usize..2_000
        ) {
            let mut whole = Vec::new();
            format(Form::Console, &input, true, SystemTime::UNIX_EPOCH, &mut whole);
            let cut = cut.min(input.len());
            let mut sliced = Vec::new();
            let consumed = format(Form::Console, &input[..cut], false, SystemTime::UNIX_EPOCH, &mut sliced);
            format(Form::Console, &input[consumed..], true, SystemTime::UNIX_EPOCH, &mut sliced);
            prop_assert_eq!(sliced, whole);
        }
    }
}
