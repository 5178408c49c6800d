//! What may be done about a VM.

use std::time::Duration;

/// What is to be done, once the status is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The finalizer is put on it.
    Claim,
    /// The finalizer is taken off.
    Release,
    /// The annotation with a request, which is answered, is taken off.
    Forget,
    /// Its strategy is set.
    Set(&'static str),
    /// An instance is made.
    Start,
    /// Its instance is deleted, and has so many seconds to end in if that is said.
    Stop { grace: Option<u32> },
    /// It is looked at again after this.
    Wait(Duration),
    /// News are waited for.
    Nothing,
}
