//! Step 6: converts an image of a foreign format to qcow2, once it is here whole and has the digests that were
//! promised.
//!
//! Only formats that the operator allows are converted, and only if a rule or a provider declares the format: nothing
//! is guessed. The downloaded file is removed once the converted one is there. The promised digests are those of the
//! former, the image's id is that of the latter.

use std::sync::Arc;

use common::off_reactor;
use vmimage::convert::ForeignFormat;

use crate::storage::content::{Part, Received, reserve};

use super::Puller;
use super::error::DownloadError;

impl Puller {
    /// The qcow2 image of what came.
    pub(super) async fn converted(
        self: &Arc<Self>,
        format: ForeignFormat,
        received: Received,
    ) -> Result<Received, DownloadError> {
        let this = self.clone();
        let made = off_reactor(move || {
            let disk = this.content.disk();
            Part::create(disk, reserve(disk, this.limits.reserve))
        });
        let mut part = made.await?;
        let path = part.path().display().to_string();
        let failed = |cause| DownloadError::Converted { path: path.clone(), cause };
        let output = part.lend().map_err(failed)?;
        self.programs.converter.convert(format, received.part.file(), output).await?;
        let adopted =
            off_reactor(move || part.adopt().map(|(length, sha256)| Received { part, length, sha256, sha512: None }));
        adopted.await.map_err(failed)
    }
}
