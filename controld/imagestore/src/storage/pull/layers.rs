//! Step 8: what an image stands on is found, pulled and put below it, before the image has a name.
//!
//! For the image, and then for each one below it, until one stands on nothing:
//!
//! 1. Read which image it names.
//! 2. Look that up by its digest: here, or at a provider that knows the digest.
//! 3. Otherwise look it up by its name: at the provider of the image above, or at the others.
//! 4. Otherwise, if it has no digest, take what is here under that name.
//!
//! When all are here and held, edges are written from the bottom up.
//!
//! The text in an image is looked up and never followed: QEMU is told every file of a chain by its path. A digest
//! counts for more than a name, whether the image or its source says it. If the header of an image names no parent, it
//! has none, whatever its source says: another disk would show through its holes.
//!
//! The caller's credentials are for the source of the image that they asked for, so none are sent from here. Names in images
//! are asked for at configured providers alone, never at hosts that they name.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::off_reactor;
use tokio::sync::watch;
use vmimage::digest::Digest;
use vmimage::inspect::ParentRef;

use super::Puller;
use super::error::LayerError;
use super::find::Found;
use super::order::Order;
use super::origin::{promise_of, sought};
use super::progress::Progress;
use crate::sources::provider::{Choice, Promise, Provider, ProviderError};
use crate::storage::config::Layers;
use crate::storage::content::{Hold, Key, MAX_CHAIN, Misfit, Parent};

/// An image of a chain.
struct Layer {
    hold: Arc<Hold>,
    /// What it says that it stands on.
    parent: Option<Parent>,
    /// Id of the provider that it is from.
    provider: String,
    /// What its source says that it stands on.
    told: Option<String>,
}

/// What is known of an image that is looked for.
struct Clues {
    named: String,
    digest: Option<Digest>,
    names: Vec<String>,
}

impl Puller {
    /// Has what an image stands on below it, as far as the order wants that. The answer keeps it until the image has a
    /// name.
    pub(super) async fn pull_layers(
        self: &Arc<Self>,
        order: &Order,
        top: &Arc<Hold>,
        choice: &Choice,
        progress: &watch::Sender<Progress>,
    ) -> Result<Vec<Arc<Hold>>, LayerError> {
        let told = choice.image.metadata.parent.clone();
        let top = self.layer(top.clone(), choice.provider.id(), told);
        let Some(parent) = &top.parent else { return Ok(Vec::new()) };
        if order.layers == Layers::Refuse {
            // What an operator has let in under this very name is taken.
            return match self.content.is_bound_whole(&order.key, top.hold.id()) {
                true => Ok(Vec::new()),
                false => Err(LayerError::NotAllowed { named: parent.named.clone() }),
            };
        }
        let mut order = Order { force: false, ..order.clone() };
        (order.want.auth, order.want.anywhere) = (None, false);
        let mut chain = vec![top];
        let mut asked = BTreeSet::from([(choice.provider.id().to_owned(), choice.image.key.clone())]);
        while let Some((upper, parent)) = chain.last().and_then(|upper| Some((upper, upper.parent.as_ref()?))) {
            let clues = clues(parent, upper.told.as_deref());
            let named = || clues.named.clone();
            if chain.len() == MAX_CHAIN {
                return Err(LayerError::Depth);
            }
            let lower = match self.here_by_digest(&clues, &upper.provider).await? {
                Some(hold) => Some(self.layer(hold, &upper.provider, None)),
                None if order.layers == Layers::Leave => self.here_by_name(&order, &clues, upper).await?,
                None => self.elsewhere(&order, &clues, upper, &mut asked, progress).await?,
            };
            match lower {
                Some(lower) if chain.iter().any(|layer| layer.hold.id() == lower.hold.id()) => {
                    return Err(LayerError::Cycle { named: named() });
                }
                Some(lower) => chain.push(lower),
                None if order.layers == Layers::Leave => break,
                None => return Err(LayerError::Missing { named: named() }),
            }
        }
        let this = self.clone();
        off_reactor(move || this.stack(chain)).await
    }

    /// Puts each image on the next one, the lowest first.
    fn stack(&self, chain: Vec<Layer>) -> Result<Vec<Arc<Hold>>, LayerError> {
        for pair in chain.windows(2).rev() {
            let [upper, lower] = pair else { continue };
            let named = || upper.parent.as_ref().map(|parent| parent.named.clone()).unwrap_or_default();
            self.content.stand(upper.hold.id(), lower.hold.id())?.map_err(|misfit| match misfit {
                Misfit::Format { declared, found } => LayerError::Format { named: named(), declared, found },
                Misfit::Cycle => LayerError::Cycle { named: named() },
                Misfit::Taken { by } => LayerError::Differs { named: named(), id: by },
                Misfit::Gone => LayerError::Gone,
            })?;
        }
        Ok(chain.into_iter().map(|layer| layer.hold).collect())
    }

    fn layer(&self, hold: Arc<Hold>, provider: &str, told: Option<String>) -> Layer {
        Layer { parent: self.content.parent(hold.id()), hold, provider: provider.to_owned(), told }
    }

    async fn here_by_digest(self: &Arc<Self>, clues: &Clues, provider: &str) -> Result<Option<Arc<Hold>>, LayerError> {
        let Some(digest) = &clues.digest else { return Ok(None) };
        let (this, provider) = (self.clone(), provider.to_owned());
        let sought = [sought(&promise_of(digest), None)];
        let hold = off_reactor(move || this.content.hold_promised(&sought, &provider)).await?;
        Ok(hold.map(Arc::new))
    }

    /// What is below an image already, or has the name of that under the same handler, from the same provider.
    async fn here_by_name(
        self: &Arc<Self>,
        order: &Order,
        clues: &Clues,
        upper: &Layer,
    ) -> Result<Option<Layer>, LayerError> {
        let (this, provider) = (self.clone(), upper.provider.clone());
        let below = upper.parent.as_ref().and_then(|parent| parent.id.clone());
        let keys: Vec<Key> = keys(order, clues).collect();
        let hold = off_reactor(move || {
            if let Some(hold) = below.map_or(Ok(None), |id| this.content.hold_trusted(&id))? {
                return Ok(Some(hold));
            }
            keys.iter().find_map(|key| this.content.hold_named(key, Some(&provider)).transpose()).transpose()
        });
        Ok(hold.await.map_err(LayerError::Disk)?.map(|hold| self.layer(Arc::new(hold), &upper.provider, None)))
    }

    /// What a provider has, or else what has the name here.
    async fn elsewhere(
        self: &Arc<Self>,
        order: &Order,
        clues: &Clues,
        upper: &Layer,
        asked: &mut BTreeSet<(String, String)>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Option<Layer>, LayerError> {
        let named = || clues.named.clone();
        let promise: Option<Promise> = clues.digest.as_ref().map(promise_of);
        let find = async {
            let by_digest = match &promise {
                Some(promise) => self.find_by_digest(order, promise, &upper.provider).await?,
                None => None,
            };
            match by_digest {
                Some(choice) => Ok(Some(choice)),
                None => self.find_by_names(order, &clues.names, &upper.provider).await,
            }
        };
        let Some(choice) = find.await.map_err(|cause| LayerError::Find { named: named(), cause })? else {
            let (this, keys) = (self.clone(), keys(order, clues).collect::<Vec<_>>());
            let held = off_reactor(move || {
                keys.iter().find_map(|key| this.content.hold_named(key, None).transpose()).transpose()
            });
            // Whoever has to be a digest was not found under it.
            let held = held.await?.filter(|_| clues.digest.is_none());
            return Ok(held.map(|hold| self.layer(Arc::new(hold), &upper.provider, None)));
        };
        if !asked.insert((choice.provider.id().to_owned(), choice.image.key.clone())) {
            return Err(LayerError::Cycle { named: named() });
        }
        let url = choice.image.shown.clone();
        let failed = |cause| LayerError::Pull { named: named(), url: url.clone(), cause };
        let promises = choice.image.promises.iter().cloned().chain(promise).collect();
        let declared = choice.image.metadata.format;
        let by_digest = clues.digest.is_some();
        self.check_declared(declared, by_digest).map_err(|cause| failed(Arc::new(cause)))?;
        let found = Found { choice, by: format!("image that stands on `{}`", clues.named), digest: None, declared };
        let landed = match self.obtain(order, &found, promises, progress).await {
            Ok(landed) => landed,
            Err(cause) => return Err(failed(cause)),
        };
        self.check_format(order, declared, landed.hold.id()).map_err(|cause| failed(Arc::new(cause)))?;
        let Choice { provider, image } = found.choice;
        Ok(Some(self.layer(landed.hold, provider.id(), image.metadata.parent)))
    }

    /// The image of a digest: of the provider that the upper one is from, else of another that can tell.
    async fn find_by_digest(
        &self,
        order: &Order,
        promise: &Promise,
        first: &str,
    ) -> Result<Option<Choice>, ProviderError> {
        let providers = self.registry.providers();
        let (own, others): (Vec<_>, Vec<_>) = providers.iter().partition(|provider| provider.id() == first);
        for provider in own.into_iter().chain(others).filter(|provider| may_ask(order, provider)) {
            if !provider.caps().by_hash {
                continue;
            }
            let Some(told) = provider.metadata(&promise.hash).await? else { continue };
            if let Some(image) = provider.find(&told.name, &order.want).await? {
                return Ok(Some(Choice { provider: provider.clone(), image }));
            }
        }
        Ok(None)
    }

    async fn find_by_names(
        &self,
        order: &Order,
        names: &[String],
        first: &str,
    ) -> Result<Option<Choice>, ProviderError> {
        for name in names {
            let own = self.registry.by_id(first).ok().filter(|provider| may_ask(order, provider));
            if let Some(provider) = own
                && let Some(image) = provider.find(name, &order.want).await?
            {
                return Ok(Some(Choice { provider: provider.clone(), image }));
            }
            if let Some(choice) = self.by_name(order, name).await? {
                return Ok(Some(choice));
            }
        }
        Ok(None)
    }
}

fn may_ask(order: &Order, provider: &Arc<dyn Provider>) -> bool {
    let id = provider.id();
    order.provider.as_deref().is_none_or(|only| only == id)
        && order.providers.as_ref().is_none_or(|allowed| allowed.contains(id))
}

/// What an image says of the one below it, and what its source says.
fn clues(parent: &Parent, told: Option<&str>) -> Clues {
    let mut clues = Clues { named: parent.named.clone(), digest: None, names: Vec::new() };
    for said in [Some(parent.named.as_str()), told].into_iter().flatten().filter_map(ParentRef::parse) {
        match said {
            ParentRef::Hash(digest) => {
                clues.digest.get_or_insert(digest);
            }
            ParentRef::Named { .. } => clues.names.push(said.to_string()),
        }
    }
    clues
}

/// What the names stand for under the handler of an order.
fn keys<'a>(order: &'a Order, clues: &'a Clues) -> impl Iterator<Item = Key> + 'a {
    let images = clues.names.iter().filter_map(|name| name.parse().ok());
    images.map(|image| Key::new(&order.key.handler, &image))
}
