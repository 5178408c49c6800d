//! Step 1: how a name leads to its source: by the caller's URL or a translation rule, or else as a name that providers,
//! the catalogue or the host of the name may know.

use std::sync::Arc;

use common::off_reactor;
use vmimage::declared::Declared;
use vmimage::digest::Digest;
use vmimage::name::Version;

use super::Puller;
use super::error::PullError;
use super::order::Order;
use crate::sources::net::Transport;
use crate::sources::provider::{Locator, REGISTRIES, Registry};
use crate::sources::translate::{TranslateError, Translated, Wanted};

/// How messages and records name a URL that a caller gave.
const BY_URL: &str = "URL of the caller";

/// How a name leads to its source, as far as that is known without asking anybody.
#[derive(Debug)]
pub(super) enum Way {
    /// By a rule, or by the URL that the caller gave.
    Rule(Translated),
    /// To the first provider that knows this name, or else where the catalogue or the default rule leads.
    Name { name: String, default: Result<Translated, TranslateError> },
}

impl Way {
    /// What a rule says of the image: its format, and its digest.
    pub(super) fn demanded(&self) -> (Option<Declared>, Option<Digest>) {
        match self {
            Self::Rule(rule) => (rule.format, rule.digest.clone()),
            Self::Name { .. } => (None, None),
        }
    }

    /// All that it depends on.
    pub(super) fn text(&self, order: &Order, registry: &Registry) -> String {
        match self {
            Self::Rule(rule) => format!("rule {}", rule.locator.identity()),
            Self::Name { name, default } => {
                let default = default.as_ref().map(|default| default.locator.identity()).ok();
                let ids = registry.providers().iter().map(|provider| provider.id());
                // Always there, and no other server than the default's. Releases without it left it out.
                let asked: Vec<_> = ids.filter(|id| *id != REGISTRIES).collect();
                format!("name {name} {:?} {:?} {asked:?} {default:?}", order.provider, order.providers)
            }
        }
    }
}

impl Puller {
    /// How the name of an order leads to its source.
    pub(super) async fn way(self: &Arc<Self>, order: &Order) -> Result<Way, PullError> {
        let (this, of) = (self.clone(), order.clone());
        // Rules are read from files.
        off_reactor(move || this.read_way(&of)).await
    }

    fn read_way(&self, order: &Order) -> Result<Way, PullError> {
        let image = &order.key.image;
        let untranslated = |cause| PullError::Translate { image: image.clone(), cause: Box::new(cause) };
        if let Some(url) = &order.url {
            let locator = Locator::new(url.clone(), BY_URL.into(), Transport::plain());
            return Ok(Way::Rule(Translated { locator, digest: None, format: None }));
        }
        if let Some(rule) = self.by_rule(order).map_err(untranslated)? {
            return Ok(Way::Rule(rule));
        }
        let name = self.translator.stripped(image.name().as_str());
        let name = match image.version() {
            Version::Tag(tag) if tag != "latest" => format!("{name}:{tag}"),
            _ => name.to_owned(),
        };
        Ok(Way::Name { name, default: self.translator.otherwise(image.name(), &wanted(order)) })
    }

    fn by_rule(&self, order: &Order) -> Result<Option<Translated>, TranslateError> {
        // Who names a provider wants that one, whatever the rules say.
        if order.provider.is_some() {
            return Ok(None);
        }
        self.translator.by_rule(order.key.image.name(), &wanted(order))
    }
}

fn wanted(order: &Order) -> Wanted<'_> {
    let tag = match order.key.image.version() {
        Version::Tag(tag) => Some(tag.as_str()),
        Version::Digest(_) => None,
    };
    Wanted { handler: &order.handler, platform: &order.want.platform, configs: order.translations.as_ref(), tag }
}
