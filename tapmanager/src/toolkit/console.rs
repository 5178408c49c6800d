//! A script at a console: which line is sent when. Pure.
//!
//! A line goes out when the guest's output ends with the prompt, so it is neither lost in a guest that boots nor read by
//! the command before it. Sequences that move a terminal's cursor are not looked at: shells put them after a prompt.

use std::collections::VecDeque;

/// Longest end of the output that is kept for comparison.
const MAX_TAIL: usize = 4096;

/// What is to be done after some output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for more of it.
    Wait,
    /// Send this.
    Send(Vec<u8>),
    /// The prompt after the last line: all is done.
    End,
}

/// A script on its way to a guest.
#[derive(Debug)]
pub(super) struct Script {
    lines: VecDeque<String>,
    prompt: Vec<u8>,
    tail: Vec<u8>,
}

impl Script {
    pub(super) fn new(text: &str, prompt: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect(), prompt: prompt.into(), tail: Vec::new() }
    }

    /// How many lines the guest has not been sent.
    pub(super) fn unsent(&self) -> usize {
        self.lines.len()
    }

    /// Takes up what the guest has printed.
    pub(super) fn saw(&mut self, output: &[u8]) -> Step {
        self.tail.extend_from_slice(output);
        let over = self.tail.len().saturating_sub(MAX_TAIL);
        self.tail.drain(..over);
        if !without_escapes(&self.tail).ends_with(&self.prompt) {
            return Step::Wait;
        }
        self.tail.clear();
        match self.lines.pop_front() {
            None => Step::End,
            Some(mut line) => {
                line.push('\r');
                Step::Send(line.into())
            }
        }
    }
}

/// Without control sequences (ECMA-48 section 5.4: ESC `[`, parameters, one final byte from `@` to `~`).
fn without_escapes(output: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(output.len());
    let mut rest = output;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match after.strip_prefix(b"[") {
            Some(parameters) if first == 0x1b => {
                let end = parameters.iter().position(|byte| (b'@'..=b'~').contains(byte));
                rest = end.and_then(|end| parameters.get(end + 1..)).unwrap_or_default();
            }
            _ => plain.push(first),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(line: &str) -> Step {
        Step::Send(line.as_bytes().to_vec())
    }

    #[test]
    fn each_line_waits_for_a_prompt_and_the_last_one_for_its_end() {
        let mut script = Script::new("ip a\nping x\n", "# ");
        assert_eq!(script.saw(b"Linux boots # 1\r\n"), Step::Wait);
        assert_eq!(script.saw(b"tiny:~#"), Step::Wait);
        assert_eq!(script.saw(b" "), send("ip a\r"));
        assert_eq!(script.saw(b"ip a\r\n1: lo\r\n"), Step::Wait);
        assert_eq!(script.unsent(), 1);
        assert_eq!(script.saw(b"tiny:~# \x1b[6n"), send("ping x\r"));
        assert_eq!(script.saw(b"ping x\r\n"), Step::Wait);
        assert_eq!(script.saw(b"\x1b[1;32mtiny\x1b[0m:~# \x1b[0m"), Step::End);
    }

    #[test]
    fn an_empty_script_ends_at_the_first_prompt() {
        assert_eq!(Script::new("", "login: ").saw(b"tiny login: "), Step::End);
    }

    #[test]
    fn a_guest_that_never_prompts_costs_no_memory() {
        let mut script = Script::new("x", "# ");
        for _ in 0..1000 {
            assert_eq!(script.saw(&[b'a'; 1000]), Step::Wait);
        }
        assert!(script.tail.len() <= MAX_TAIL);
        assert_eq!(script.saw(b"# "), send("x\r"));
    }

    #[test]
    fn sequences_that_are_cut_off_hide_nothing_before_them() {
        for cut in [&b"# \x1b["[..], b"# \x1b[1;"] {
            assert_eq!(without_escapes(cut), b"# ");
        }
        assert_eq!(without_escapes(b"a\x1bb"), b"a\x1bb");
    }
}
