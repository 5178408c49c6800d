//! Prints an error with its causes. Called where an error ends: in a log line, in an answer, on standard error.

use std::error::Error;
use std::fmt;

/// An error and all its causes in one line, joined by `: `. A cause that the text above ends with is not said twice.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            // Other people's errors often have their cause in their text already.
            if !said.ends_with(&text) {
                said.push_str(": ");
                said.push_str(&text);
            }
            next = cause.source();
        }
        f.write_str(&said)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failed {
        text: &'static str,
        #[source]
        cause: io::Error,
    }

    #[test]
    fn every_cause_is_named_once() {
        for text in ["failed to make pod `x`", "failed to make pod `x`: Device or resource busy (os error 16)"] {
            let error = Failed { text, cause: io::Error::from_raw_os_error(nix::libc::EBUSY) };
            let expected = "failed to make pod `x`: Device or resource busy (os error 16)";
            assert_eq!(Chain(&error).to_string(), expected);
        }
    }
}
