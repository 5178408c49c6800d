//! Prints an error with all that caused it. Called where an error ends: in a log line, a reply or on stderr.

use std::error::Error;
use std::fmt;

/// Displays an error and its sources in one line, joined by `: `.
///
/// A source that says the same as the error above it (`#[error(transparent)]`) is not said twice.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl<'a> Chain<'a> {
    /// The error, then its sources.
    pub(crate) fn links(self) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
        std::iter::successors(Some(self.0), |error: &&'a (dyn Error + 'static)| (*error).source())
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<String> = None;
        for link in self.links() {
            let text = link.to_string();
            match before {
                None => f.write_str(&text)?,
                Some(before) if before == text => {}
                Some(_) => write!(f, ": {text}")?,
            }
            before = Some(text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("failed to write `a`")]
        Write(#[source] io::Error),
        #[error(transparent)]
        Through(#[from] Box<Outer>),
    }

    #[test]
    fn causes_are_joined_and_said_once() {
        let error = Outer::Write(io::Error::from_raw_os_error(28));
        let whole = "failed to write `a`: No space left on device (os error 28)";
        assert_eq!(Chain(&error).to_string(), whole);
        assert_eq!(Chain(&Outer::from(Box::new(error))).to_string(), whole);
    }
}
