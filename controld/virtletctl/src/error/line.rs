//! How an error is told.

use std::fmt;

use common::Chain;

use super::CtlError;
use crate::text::shown;

/// An error as one line for the user: what, why, and what to do about it.
#[derive(Debug)]
pub struct Line<'a>(pub &'a CtlError);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&Chain(self.0).to_string()))?;
        match self.0.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}
