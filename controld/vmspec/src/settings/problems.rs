//! What is wrong with values, all of it at once.

use std::borrow::Cow;
use std::fmt;

/// Values out of their range.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

#[derive(Debug)]
struct Problem {
    key: &'static str,
    /// What is wrong with the value, and what would be right.
    text: Cow<'static, str>,
}

impl Problems {
    pub fn add(&mut self, key: &'static str, text: impl Into<Cow<'static, str>>) {
        self.0.push(Problem { key, text: text.into() });
    }

    pub fn unless(&mut self, is_right: bool, key: &'static str, text: &'static str) {
        if !is_right {
            self.add(key, text);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Problem { key, text }) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { "; " };
            write!(out, "{before}configuration key `{key}` {text}")?;
        }
        Ok(())
    }
}
