//! That a call is another container runtime's. Who passes it on says so, and it is no measure of ours: how long containers take, and what
//! fails for them, would be told as of VMs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonic::codegen::http::Extensions;

/// Whether it is. Clones share it; one is among the extensions of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct PassedOn(Arc<AtomicBool>);

impl PassedOn {
    /// The call whose request has these extensions is passed on.
    pub(crate) fn note(extensions: &Extensions) {
        if let Some(Self(is)) = extensions.get() {
            is.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
