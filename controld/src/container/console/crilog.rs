//! CRI's log form: `<RFC 3339 time> stdout <P|F> <content>\n` per line (kubelet's `logs` package). Pure.
//!
//! The time has a fixed length, so the length of what is written follows from the input alone. That lets a restarted
//! follower find out how much input the tail of a log stands for ([`input_behind`]).

use std::time::SystemTime;

/// Longest content of one log line; a longer one is cut into `P` pieces, as containerd does.
pub const MAX_CONTENT: usize = 16 * 1024;

/// `2016-10-06T00:17:09.669794202Z`
const STAMP_LEN: usize = 30;
const STREAM: &[u8] = b" stdout ";
/// Where a batch of lines ends, with the line that passes it.
const BATCH: usize = 64 * 1024;

/// One log line in the making.
struct Piece<'a> {
    content: &'a [u8],
    full: bool,
    consumed: usize,
}

impl Piece<'_> {
    fn written_len(&self) -> usize {
        STAMP_LEN + STREAM.len() + 2 + self.content.len() + 1
    }
}

/// Appends a batch of log lines for what of `input` makes whole ones, and says how many bytes of it that was; 0 if none is
/// left. At the `end` of all input the unfinished rest becomes a line too, marked partial.
pub fn format(input: &[u8], end: bool, at: SystemTime, out: &mut Vec<u8>) -> usize {
    let stamp = humantime::format_rfc3339_nanos(at).to_string();
    debug_assert_eq!(stamp.len(), STAMP_LEN);
    let mut consumed = 0;
    while out.len() < BATCH
        && let Some(piece) = next_piece(input.get(consumed..).unwrap_or_default(), end)
    {
        out.extend_from_slice(stamp.as_bytes());
        out.extend_from_slice(STREAM);
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
pub fn input_behind(input: &[u8], written: u64) -> (usize, u64) {
    let (mut consumed, mut lines) = (0, 0);
    while lines < written
        && let Some(piece) = next_piece(input.get(consumed..).unwrap_or_default(), false)
    {
        consumed += piece.consumed;
        lines += piece.written_len() as u64;
    }
    (consumed, lines)
}

fn next_piece(input: &[u8], end: bool) -> Option<Piece<'_>> {
    let within = input.get(..MAX_CONTENT + 1).unwrap_or(input);
    if let Some(newline) = within.iter().position(|byte| *byte == b'\n') {
        let line = &within[..newline];
        // Serial consoles end lines with CR LF.
        let content = line.strip_suffix(b"\r").unwrap_or(line);
        return Some(Piece { content, full: true, consumed: newline + 1 });
    }
    if input.len() > MAX_CONTENT {
        return Some(Piece { content: &input[..MAX_CONTENT], full: false, consumed: MAX_CONTENT });
    }
    if end && !input.is_empty() {
        return Some(Piece { content: input, full: false, consumed: input.len() });
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
        let consumed = format(input, end, at, &mut out);
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
    fn a_long_line_is_cut() {
        let mut line = vec![b'x'; 2 * MAX_CONTENT + 5];
        line.push(b'\n');
        let (out, consumed) = formatted(&line, false);
        let tags: Vec<&str> = out.lines().map(|line| &line[STAMP_LEN + STREAM.len()..][..1]).collect();
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
            let consumed = format(input.as_bytes(), false, SystemTime::UNIX_EPOCH, &mut out);
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
            let consumed = format(&input, false, SystemTime::UNIX_EPOCH, &mut out);
            prop_assert_eq!(input_behind(&input, out.len() as u64), (consumed, out.len() as u64));
        }

        #[test]
        fn input_in_any_slices_gives_the_same_log(
            input in proptest::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'\n')], 0..2_000),
            cut in 0_usize..2_000
        ) {
            let mut whole = Vec::new();
            format(&input, true, SystemTime::UNIX_EPOCH, &mut whole);
            let cut = cut.min(input.len());
            let mut sliced = Vec::new();
            let consumed = format(&input[..cut], false, SystemTime::UNIX_EPOCH, &mut sliced);
            format(&input[consumed..], true, SystemTime::UNIX_EPOCH, &mut sliced);
            prop_assert_eq!(sliced, whole);
        }
    }
}
