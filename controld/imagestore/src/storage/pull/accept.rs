//! Whether an image may have the format that a rule or a source declares, and that its bytes have.

use vmimage::declared::Declared;
use vmimage::digest::ImageId;

use super::Puller;
use super::error::DownloadError;
use super::order::Order;
use crate::storage::fit;

impl Puller {
    /// Whether an image that is declared so may be taken; `by_digest` if the bytes that are kept must have one.
    pub(super) fn check_declared(&self, declared: Option<Declared>, by_digest: bool) -> Result<(), DownloadError> {
        let Some(Declared::Foreign(format)) = declared else { return Ok(()) };
        if !self.programs.convert.contains(&format) {
            return Err(DownloadError::NotConverted { format });
        }
        if by_digest { Err(DownloadError::ConvertedDigest { format }) } else { Ok(()) }
    }

    /// Whether the handler takes images of its format, and whether it is the one that was declared: what was here
    /// already may have come under another name.
    pub(super) fn check_format(
        &self,
        order: &Order,
        declared: Option<Declared>,
        id: &ImageId,
    ) -> Result<(), DownloadError> {
        let Some(format) = self.content.format(id) else { return Ok(()) };
        if let Some(Declared::Kept(declared)) = declared
            && declared != format
        {
            return Err(DownloadError::Other { format, declared });
        }
        fit::check_format(order.formats.as_ref(), format).map_err(|_unfit| DownloadError::Format { format })
    }
}
