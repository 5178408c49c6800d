//! An answer of QEMU's agent, taken in as it comes. Pure.
//!
//! What a command has printed stands in it as two strings in base64, of together more than 40 MiB. They are decoded at once and kept as
//! far as there is room, so that no more of them is in memory than is passed on. In the line that is left for the reader of JSON there
//! is a mark for each such string, which no base64 is.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::output::{Output, Room};

/// Bytes of a stream that the agent keeps (`GUEST_EXEC_MAX_OUTPUT` in QEMU's `qga/commands.c`).
const OF_AGENT: usize = 16 << 20;
/// Longest answer: two streams in base64.
pub(super) const MAX_ANSWER: usize = 2 * OF_AGENT.div_ceil(3) * 4 + MAX_LINE;
/// Longest answer without output.
pub(super) const MAX_LINE: usize = 64 << 10;
/// Longest string that is left in the line.
const MAX_STRING: usize = 4096;
/// What stands in the line for a longer one, before its number.
const MARK: char = '#';
/// Longer strings of an answer: stdout and stderr.
const MAX_TEXTS: usize = 2;

/// An answer that is heard.
#[derive(Debug)]
pub(super) struct Intake {
    line: Vec<u8>,
    place: Place,
    texts: Vec<Text>,
    room: Room,
    heard: usize,
}

/// Where in the answer it is.
#[derive(Debug, Clone, Copy)]
enum Place {
    Outside,
    /// In a string that begins there in the line.
    String {
        begin: usize,
        is_escaped: bool,
    },
    /// In the last of the texts.
    Text,
}

/// A long string.
#[derive(Debug, Default)]
struct Text {
    kept: Vec<u8>,
    /// What is no whole group of four yet.
    rest: Vec<u8>,
    is_cut: bool,
}

impl Intake {
    pub(super) fn new(room: Room) -> Self {
        Self { line: Vec::new(), place: Place::Outside, texts: Vec::new(), room, heard: 0 }
    }

    /// Takes what came; whether the answer is whole. A line's end is always an answer's.
    ///
    /// # Errors
    /// When it is too long, or a long string is no base64.
    pub(super) fn take(&mut self, mut block: &[u8]) -> io::Result<bool> {
        self.heard += block.len();
        while let Some(&next) = block.first() {
            if self.line.len() > MAX_LINE || self.heard > MAX_ANSWER {
                return Err(no_answer("the answer is too long"));
            }
            if next == b'\n' {
                return Ok(true);
            }
            block = match self.place {
                Place::Outside => self.outside(block),
                Place::String { begin, is_escaped } => self.string(block, begin, is_escaped)?,
                Place::Text => self.text(block)?,
            };
        }
        Ok(false)
    }

    /// What there is to read of it as JSON.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    /// Bytes of it.
    pub(super) fn heard(&self) -> usize {
        self.heard
    }

    /// What a command has printed in whose answer these strings stood; `None` if they are no base64.
    pub(super) fn output(mut self, code: u8, data: [&str; 2], is_cut: bool) -> Option<Output> {
        let [stdout, stderr] = data.map(|data| self.decoded(data));
        let is_cut = is_cut || self.texts.iter().any(|text| text.is_cut);
        Some(Output::new(code, [stdout?, stderr?], is_cut, self.room))
    }

    fn decoded(&mut self, data: &str) -> Option<Vec<u8>> {
        match data.strip_prefix(MARK) {
            Some(number) => {
                self.texts.get_mut(number.parse::<usize>().ok()?).map(|text| std::mem::take(&mut text.kept))
            }
            None => STANDARD.decode(data).ok(),
        }
    }

    fn outside<'a>(&mut self, block: &'a [u8]) -> &'a [u8] {
        let (now, rest) = split_at_quote(block);
        self.line.extend_from_slice(now);
        if now.ends_with(b"\"") {
            self.place = Place::String { begin: self.line.len(), is_escaped: false };
        }
        rest
    }

    fn string<'a>(&mut self, block: &'a [u8], begin: usize, is_escaped: bool) -> io::Result<&'a [u8]> {
        let Some((&byte, rest)) = block.split_first() else { return Ok(block) };
        if self.line.len() - begin < MAX_STRING {
            self.line.push(byte);
            let ends = byte == b'"' && !is_escaped;
            let is_escaped = byte == b'\\' && !is_escaped;
            self.place = if ends { Place::Outside } else { Place::String { begin, is_escaped } };
            return Ok(rest);
        }
        if self.texts.len() == MAX_TEXTS {
            return Err(no_answer("there are more long strings in it than a command has streams"));
        }
        let begun = self.line.split_off(begin);
        self.line.extend_from_slice(format!("{MARK}{}", self.texts.len()).as_bytes());
        self.texts.push(Text::default());
        self.place = Place::Text;
        self.text(&begun)?;
        Ok(block)
    }

    fn text<'a>(&mut self, block: &'a [u8]) -> io::Result<&'a [u8]> {
        let (now, rest) = split_at_quote(block);
        let Some(text) = self.texts.last_mut() else { return Ok(rest) };
        let (data, ends) = now.strip_suffix(b"\"").map_or((now, false), |data| (data, true));
        text.take(data, &mut self.room)?;
        if ends {
            text.end()?;
            self.line.push(b'"');
            self.place = Place::Outside;
        }
        Ok(rest)
    }
}

impl Text {
    fn take(&mut self, data: &[u8], room: &mut Room) -> io::Result<()> {
        if self.is_cut {
            return Ok(());
        }
        // The only thing that could be escaped is a slash.
        self.rest.extend(data.iter().filter(|byte| **byte != b'\\'));
        let (whole, rest) = self.rest.split_at(self.rest.len() / 4 * 4);
        let decoded = STANDARD.decode(whole).map_err(|_no_base64| no_base64())?;
        self.rest = rest.to_vec();
        self.is_cut = !room.keep(&mut self.kept, &decoded);
        Ok(())
    }

    fn end(&self) -> io::Result<()> {
        if self.is_cut || self.rest.is_empty() { Ok(()) } else { Err(no_base64()) }
    }
}

/// Parts a block after its first quote, or before its line's end.
fn split_at_quote(block: &[u8]) -> (&[u8], &[u8]) {
    let at = block.iter().position(|byte| matches!(*byte, b'"' | b'\n')).unwrap_or(block.len());
    block.split_at(at + usize::from(block.get(at) == Some(&b'"')))
}

fn no_base64() -> io::Error {
    no_answer("what a command has printed is no base64 in it")
}

fn no_answer(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::super::super::output::{Budget, MAX_OF_ALL, STEP};
    use super::*;

    fn heard(answer: &str, block: usize, budget: &Budget) -> io::Result<Option<Intake>> {
        let mut intake = Intake::new(budget.room());
        for block in answer.as_bytes().chunks(block) {
            if intake.take(block)? {
                return Ok(Some(intake));
            }
        }
        Ok(None)
    }

    #[test]
    fn long_strings_are_decoded_as_they_come_and_the_rest_is_left_as_it_is() {
        let budget = Budget::new(MAX_OF_ALL);
        let printed = vec![0xff; 100_000];
        // As some write it.
        let data = STANDARD.encode(&printed).replace('/', "\\/");
        let answer = format!("{{\"a\": \"q\\\"\\\\\", \"out\": \"{data}\", \"err\": \"aGk=\"}}\n");
        for block in [1, 1000, answer.len()] {
            let intake = heard(&answer, block, &budget).expect("an answer").expect("whole");
            let line = std::str::from_utf8(intake.line()).expect("text");
            assert_eq!(line, r##"{"a": "q\"\\", "out": "#0", "err": "aGk="}"##);
            assert_eq!(intake.heard(), answer.len());
            let output = intake.output(7, ["#0", "aGk="], false).expect("base64");
            assert!(output.stdout == printed && output.stderr == b"hi" && !output.cut && output.code == 7);
        }
        assert!(heard(&answer[..answer.len() - 1], 1000, &budget).expect("so far").is_none());
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let budget = Budget::new(0);
        let data = STANDARD.encode(vec![0; 1 << 20]);
        let answer = format!("{{\"out\":\"{data}\",\"err\":\"{data}\"}}\n");
        let intake = heard(&answer, 4096, &budget).expect("an answer").expect("whole");
        assert_eq!(intake.line(), br##"{"out":"#0","err":"#1"}"##);
        let output = intake.output(0, ["#0", "#1"], false).expect("base64");
        assert_eq!((output.stdout.len(), output.stderr.len(), output.cut), (STEP as usize, 0, true));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let budget = Budget::new(MAX_OF_ALL);
        let refused = |answer: String| heard(&answer, 4096, &budget).expect_err("no answer").to_string();
        let long = "A".repeat(MAX_STRING + 4);
        assert!(refused("x".repeat(2 * MAX_LINE + 4096)).contains("too long"));
        assert!(refused(format!("\"{long}") + &"\"\"".repeat(MAX_LINE)).contains("too long"));
        let mut endless = Intake { heard: MAX_ANSWER, ..Intake::new(budget.room()) };
        assert!(endless.take(b"A").expect_err("no answer").to_string().contains("too long"));
        assert!(refused(format!("\"{long}!!!!\"\n")).contains("no base64"));
        assert!(refused(format!("\"{long}A\"\n")).contains("no base64"));
        assert!(refused(format!("\"{long}\",\"{long}\",\"{long}\"\n")).contains("more long strings"));
        let intake = heard("\"#0\"\n", 1, &budget).expect("an answer").expect("whole");
        assert!(intake.output(0, ["#0", ""], false).is_none(), "there is none");
    }
}
