//! Step 2, and pulls that must not ask the source: gives an image that its source gave to the same login before
//! ([`super::grant`]).

use std::sync::Arc;

use common::off_reactor;
use vmimage::declared::Declared;
use vmimage::digest::Digest;

use super::Puller;
use super::error::PullError;
use super::grant::{Age, Claim};
use super::order::Order;
use super::origin::{promise_of, sought};
use crate::storage::content::{Image, Origin};
use crate::storage::fit;

impl Puller {
    /// What an order gives without anybody being asked: what its source once gave to the same login.
    pub(crate) async fn pull_offline(self: Arc<Self>, order: Order) -> Result<Image, PullError> {
        let known = self.had(&order, Age::Any).await?;
        // These bytes are never old.
        let stale = order.key.image.digest().is_none();
        let image = order.key.image;
        known.map(|known| Image { stale, ..known }).ok_or(PullError::Offline { image })
    }

    /// The image of an order if its source gave it to the same login lately.
    pub(crate) async fn pull_granted(self: Arc<Self>, order: Order) -> Result<Option<Image>, PullError> {
        if order.force {
            return Ok(None);
        }
        self.had(&order, Age::Within(self.limits.granted_for)).await
    }

    async fn had(self: &Arc<Self>, order: &Order, age: Age) -> Result<Option<Image>, PullError> {
        let way = self.way(order).await?;
        let claim = Arc::new(Claim::of(order, &way, &self.registry));
        self.granted(order, way.demanded(), &claim, age).await
    }

    /// The image of an order, if what is here was given to the one who asks, and is what they may have by now.
    pub(super) async fn granted(
        self: &Arc<Self>,
        order: &Order,
        (declared, digest): (Option<Declared>, Option<Digest>),
        claim: &Arc<Claim>,
        age: Age,
    ) -> Result<Option<Image>, PullError> {
        let image = order.key.image.clone();
        let (this, order, claim) = (self.clone(), order.clone(), claim.clone());
        let found = off_reactor(move || {
            let fits = |origin: &Origin| {
                fit::check_origin(order.providers.as_ref(), order.translations.as_ref(), origin).is_ok()
            };
            let counts = |origin: &Origin| claim.is_granted(origin.granted.as_deref(), age) && fits(origin);
            let Some((id, origin)) = this.content.had(&order.key, counts) else { return Ok(None) };
            // Whatever is wrong with it is told by the pull that follows.
            let demanded = digest.map(|digest| sought(&promise_of(&digest), declared.and_then(Declared::foreign)));
            let is_other =
                demanded.is_some_and(|demanded| this.content.promised(&[demanded], "").as_ref() != Some(&id));
            if is_other || this.check_format(&order, declared, &id).is_err() {
                return Ok(None);
            }
            this.content.adopt(&order.key, &id, origin)
        });
        found.await.map_err(|cause| PullError::Store { image, cause })
    }
}
