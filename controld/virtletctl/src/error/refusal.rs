//! An answer of controld that is no result.

use std::error::Error as StdError;
use std::fmt;

use tonic::Status;

/// What a server says when it does not do what it was asked.
#[derive(Debug)]
pub struct Refusal(pub Status);

impl Refusal {
    /// Whether nobody answered at all.
    pub(super) fn is_lost_connection(&self) -> bool {
        self.0.source().is_some_and(|cause| cause.is::<tonic::transport::Error>())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_lost_connection() {
            f.write_str("the connection was lost")
        } else if self.0.message().is_empty() {
            write!(f, "{}", self.0.code())
        } else {
            f.write_str(self.0.message())
        }
    }
}

impl StdError for Refusal {}
