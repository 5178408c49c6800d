//! An image that is sent instead of pulled: steps 5 to 9 of a pull, without anybody to ask.
//!
//! It takes no slot: who sends slowly would keep pulls waiting, and what is sent costs no host a connection.

use std::sync::Arc;

use tokio::sync::watch;
use vmimage::declared::Declared;
use vmimage::name::IMPORT;

use super::error::{DownloadError, PullError};
use super::find::Found;
use super::job::Job;
use super::order::Order;
use super::origin::{origin, place};
use super::progress::{Meter, Progress};
use super::{Puller, promises};
use crate::sources::provider::{Choice, Upload, Uploaded};
use crate::storage::content::Image;

impl Puller {
    /// Takes what is sent, and gives it the name of the order.
    pub(crate) async fn import(
        self: Arc<Self>,
        order: Order,
        upload: Upload,
        declared: Option<Declared>,
    ) -> Result<Image, PullError> {
        let provider = Arc::new(Uploaded::new(upload));
        let image = provider.image();
        let found = Found { choice: Choice { provider, image }, by: IMPORT.into(), digest: None, declared };
        self.take(&order, &found).await.map_err(|cause| PullError::Import { image: order.key.image.clone(), cause })
    }

    async fn take(self: &Arc<Self>, order: &Order, found: &Found) -> Result<Image, Arc<DownloadError>> {
        self.check_declared(found.declared, order.key.image.digest().is_some()).map_err(Arc::new)?;
        let promises = promises(order, found);
        let origin = origin(order, found, &promises, &place(found));
        let (progress, _nobody_looks) = watch::channel(Progress::default());
        let job = Arc::new(Job::new(order, found, promises, None, self.policy));
        let landed = self.receive(&job, Meter::new(progress.clone())).await.map_err(Arc::new)?;
        let below = self.pull_layers(order, &landed.hold, &found.choice, &progress).await;
        let _below = below.map_err(|cause| Arc::new(cause.into()))?;
        let bound = self.bind(order, found.declared, landed.hold, origin, None).await.map_err(Arc::new)?;
        tracing::debug!(image = %order.key.image, id = %bound.id, "import done");
        Ok(bound)
    }
}
