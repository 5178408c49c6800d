//! The form of what goes to the port [`super::LOG_PORT`]: lines, each after a byte that says what it is. Pure.

use super::Stream;

/// Bytes of a line's longest piece. A longer line is more than one.
pub const MAX_PIECE: usize = 8192;

/// The byte before a piece of a line: which output it is of, and whether the line ends with it.
#[must_use]
pub fn tag(stream: Stream, ends_line: bool) -> u8 {
    match (stream, ends_line) {
        (Stream::Stderr, true) => b'e',
        (Stream::Stderr, false) => b'E',
        (_, true) => b'o',
        (_, false) => b'O',
    }
}

/// What a byte before a piece says: the output, and whether the line ends; `None` for any other byte.
#[must_use]
pub fn tagged(byte: u8) -> Option<(Stream, bool)> {
    let all = [Stream::Stdout, Stream::Stderr].map(|stream| [true, false].map(|ends_line| (stream, ends_line)));
    all.into_iter().flatten().find(|(stream, ends_line)| tag(*stream, *ends_line) == byte)
}

/// Output on its way into that form.
#[derive(Debug)]
pub struct Lines {
    stream: Stream,
    /// What has no end yet.
    open: Vec<u8>,
}

impl Lines {
    /// Those of an output.
    #[must_use]
    pub fn of(stream: Stream) -> Self {
        Self { stream, open: Vec::new() }
    }

    /// Appends to `form` what of the output so far makes whole lines, or long pieces.
    pub fn add(&mut self, output: &[u8], form: &mut Vec<u8>) {
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            let (line, ends) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
            let mut rest = line;
            while self.open.len() + rest.len() > MAX_PIECE {
                let (now, later) = rest.split_at(MAX_PIECE - self.open.len());
                self.open.extend(now);
                self.put(false, form);
                rest = later;
            }
            self.open.extend(rest);
            if ends {
                self.put(true, form);
            }
        }
    }

    /// There is no more: appends what has no end.
    pub fn end(&mut self, form: &mut Vec<u8>) {
        if !self.open.is_empty() {
            self.put(false, form);
        }
    }

    fn put(&mut self, ends_line: bool, form: &mut Vec<u8>) {
        form.push(tag(self.stream, ends_line));
        form.append(&mut self.open);
        form.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_lines_that_say_what_they_are() {
        let (mut out, mut err, mut form) = (Lines::of(Stream::Stdout), Lines::of(Stream::Stderr), Vec::new());
        out.add(b"one\ntw", &mut form);
        err.add(b"bad\n\n$ ", &mut form);
        out.add(b"o\n", &mut form);
        out.end(&mut form);
        err.end(&mut form);
        assert_eq!(form, b"oone\nebad\ne\notwo\nE$ \n");
    }

    #[test]
    fn a_long_line_is_pieces_of_which_the_last_ends_it() {
        for length in [MAX_PIECE, MAX_PIECE + 1, 3 * MAX_PIECE] {
            let (mut lines, mut form) = (Lines::of(Stream::Stdout), Vec::new());
            for part in vec![b'x'; length].chunks(1000) {
                lines.add(part, &mut form);
            }
            lines.add(b"\n", &mut form);
            let pieces: Vec<_> = form.split(|byte| *byte == b'\n').filter(|piece| !piece.is_empty()).collect();
            let content: usize = pieces.iter().map(|piece| piece.len() - 1).sum();
            assert_eq!((pieces.len(), content), (length.div_ceil(MAX_PIECE), length));
            let ends: Vec<_> = pieces.iter().filter_map(|piece| tagged(piece[0])).map(|(_, ends)| ends).collect();
            assert_eq!(ends.iter().position(|ends| *ends), Some(pieces.len() - 1));
        }
        assert_eq!(tagged(b'x'), None);
    }
}
