//! A script at a console: which line is sent when. Pure.
//!
//! A line goes out when the guest's output ends with the prompt, so it is neither lost in a guest that boots nor read by
//! the command before it. Sequences that move a terminal's cursor are not looked at: shells put them after a prompt.

/// Longest end of the output that is kept for comparison.
const MAX_TAIL: usize = 4096;

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for more output, or for a line.
    Wait,
    /// Send this.
    Send(Vec<u8>),
    /// The prompt after the last line: all is done.
    End,
}

/// A script on its way to a guest.
#[derive(Debug)]
pub(super) struct Script {
    next: Option<String>,
    /// No line comes after `next`.
    closed: bool,
    prompt: Vec<u8>,
    /// The guest has prompted since it was sent something, whatever it printed after that.
    prompted: bool,
    tail: Vec<u8>,
}

impl Script {
    pub(super) fn new(prompt: &str) -> Self {
        Self { next: None, closed: false, prompt: prompt.into(), prompted: false, tail: Vec::new() }
    }

    /// Whether a line, or the news that there is none, is to be given to [`Script::line`].
    pub(super) const fn wants_line(&self) -> bool {
        self.next.is_none() && !self.closed
    }

    /// Takes up the next line; `None` says that there is none.
    pub(super) fn line(&mut self, line: Option<String>) {
        self.closed = line.is_none();
        self.next = line;
    }

    /// Whether the guest has been sent all of it.
    pub(super) const fn is_sent(&self) -> bool {
        self.next.is_none() && self.closed
    }

    /// Takes up what the guest has printed.
    pub(super) fn saw(&mut self, output: &[u8]) {
        self.tail.extend_from_slice(output);
        let over = self.tail.len().saturating_sub(MAX_TAIL);
        self.tail.drain(..over);
        self.prompted |= without_escapes(&self.tail).ends_with(&self.prompt);
    }

    pub(super) fn step(&mut self) -> Step {
        if !self.prompted {
            return Step::Wait;
        }
        match self.next.take() {
            Some(line) => {
                self.prompted = false;
                self.tail.clear();
                Step::Send(format!("{line}\r").into())
            }
            None if self.closed => Step::End,
            None => Step::Wait,
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

    fn after(script: &mut Script, output: &[u8]) -> Step {
        script.saw(output);
        script.step()
    }

    #[test]
    fn each_line_waits_for_a_prompt_and_the_last_one_for_its_end() {
        let mut script = Script::new("# ");
        script.line(Some("ip a".into()));
        assert!(!script.wants_line());
        assert_eq!(after(&mut script, b"Linux boots # 1\r\n"), Step::Wait);
        assert_eq!(after(&mut script, b"tiny:~#"), Step::Wait);
        assert_eq!(after(&mut script, b" "), send("ip a\r"));
        script.line(Some("ping x".into()));
        assert_eq!(after(&mut script, b"ip a\r\n1: lo\r\n"), Step::Wait);
        assert_eq!(after(&mut script, b"tiny:~# \x1b[6n"), send("ping x\r"));
        script.line(None);
        assert!(script.is_sent() && !script.wants_line());
        assert_eq!(after(&mut script, b"ping x\r\n"), Step::Wait);
        assert_eq!(after(&mut script, b"\x1b[1;32mtiny\x1b[0m:~# \x1b[0m"), Step::End);
    }

    #[test]
    fn a_line_that_comes_after_the_prompt_is_sent_at_once_whatever_was_printed_since() {
        let mut script = Script::new("# ");
        assert_eq!(after(&mut script, b"tiny:~# "), Step::Wait);
        assert_eq!(after(&mut script, b"\r\n[1.2] eth0 is up\r\n"), Step::Wait);
        script.line(Some("x".into()));
        assert_eq!(script.step(), send("x\r"));
        script.line(Some("y".into()));
        assert_eq!(script.step(), Step::Wait, "one line for each prompt");
    }

    #[test]
    fn an_empty_script_ends_at_the_first_prompt() {
        let mut script = Script::new("login: ");
        script.line(None);
        assert_eq!(after(&mut script, b"tiny login: "), Step::End);
    }

    #[test]
    fn a_guest_that_never_prompts_costs_no_memory() {
        let mut script = Script::new("# ");
        script.line(Some("x".into()));
        for _ in 0..1000 {
            assert_eq!(after(&mut script, &[b'a'; 1000]), Step::Wait);
        }
        assert!(script.tail.len() <= MAX_TAIL);
        assert_eq!(after(&mut script, b"# "), send("x\r"));
    }

    #[test]
    fn sequences_that_are_cut_off_hide_nothing_before_them() {
        for cut in [&b"# \x1b["[..], b"# \x1b[1;"] {
            assert_eq!(without_escapes(cut), b"# ");
        }
        assert_eq!(without_escapes(b"a\x1bb"), b"a\x1bb");
    }
}
