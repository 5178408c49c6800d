//! Describes an image of a registry from its manifest and its configuration: what to download, and what is known of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmimage::error::printable;

use super::Oci;
use super::documents::Chosen;
use super::manifest::{self, Config, Content, Manifest};
use super::reference::Reference;
use super::session::Session;
use crate::sources::provider::{
    Covers, ImageHash, ImageMetadata, Promise, ProviderError, Registered, RemoteImage, Unpack, Want, timestamp,
};

/// Largest configuration.
const CONFIG: usize = 4 * 1024 * 1024;

impl Oci {
    /// What is to be downloaded of an image, and all that is known of it.
    pub(super) async fn describe(
        &self,
        session: &Session,
        reference: &Reference,
        top: &ImageHash,
        chosen: Chosen,
        want: &Want,
    ) -> Result<RemoteImage, ProviderError> {
        let Chosen { manifest, digest, platform } = chosen;
        let shown = reference.to_string();
        let content = manifest.content().map_err(|cause| self.unusable(&shown, cause))?;
        let config = if manifest.has_config() {
            let bytes = self.blob(session, &shown, &manifest.config, CONFIG).await?;
            let config = manifest::config(&bytes).map_err(|cause| self.unusable(&shown, cause))?;
            // Without an index, this alone says what the image is for; with one, both must.
            if !want.platform.accepts(&config.platform()) {
                let available = vec![printable(&config.platform().to_string())];
                return Err(self.other_platform(&shown, &want.platform, available));
            }
            Some(config)
        } else {
            None
        };
        let (at, unpack) = match content {
            Content::Disk => (0, None),
            Content::Layers => {
                let (at, layer) = self.find_disk(session, &shown, &manifest).await?;
                (at, Some(layer))
            }
        };
        let layer = &manifest.layers[at];
        let hash = layer.hash().map_err(|cause| self.unusable(&shown, cause))?;
        let mut promises = vec![Promise { hash: hash.clone(), covers: Covers::Hosted }];
        if let (Content::Layers, Some(config)) = (content, &config) {
            let ids = config.diff_ids(manifest.layers.len()).map_err(|cause| self.unusable(&shown, cause))?;
            promises.extend(ids.into_iter().nth(at).map(|hash| Promise { hash, covers: Covers::Unpacked }));
        }
        let request = session.get(session.url("blobs", &hash));
        let mut image = RemoteImage::at(&self.id, request);
        // Who asks does not change the bytes, but must have been let in; the session knows how.
        image.key = format!("{hash} {}", session.key());
        image.shown = shown;
        image.size = Some(layer.size);
        image.promises.clone_from(&promises);
        image.unpack = unpack.map(|layer| Arc::new(layer) as Arc<dyn Unpack>);
        image.registered = Some(registered(config.as_ref(), top, &digest));
        image.metadata = ImageMetadata {
            name: format!("{}/{}", reference.registry, reference.repository),
            aliases: vec![reference.version.to_string()],
            provider: self.id.clone(),
            promises,
            artifact_size: Some(layer.size),
            platform: config.as_ref().map(Config::platform).or(platform).unwrap_or_else(|| want.platform.clone()),
            created: config.as_ref().and_then(|config| timestamp::of_internet(config.created.as_deref()?)),
            extra: extra(&manifest, config.as_ref()),
            ..ImageMetadata::default()
        };
        Ok(image)
    }
}

/// By what the registry knows an image: the index if there is one, and the manifest.
fn registered(config: Option<&Config>, top: &ImageHash, manifest: &ImageHash) -> Registered {
    let mut digests = vec![top.clone(), manifest.clone()];
    digests.dedup();
    let run = config.and_then(|config| config.config.clone()).unwrap_or_default();
    Registered { digests, user: run.user.filter(|user| !user.is_empty()), labels: run.labels.unwrap_or_default() }
}

/// Facts that have no field of their own.
fn extra(manifest: &Manifest, config: Option<&Config>) -> BTreeMap<String, String> {
    let annotations = manifest.annotations.iter().map(|(name, value)| (format!("annotation.{name}"), value.clone()));
    let mut extra: BTreeMap<_, _> = annotations.collect();
    let Some(run) = config.and_then(|config| config.config.clone()) else { return extra };
    for variable in run.env.unwrap_or_default() {
        if let Some((name, value)) = variable.split_once('=') {
            extra.insert(format!("env.{name}"), value.to_owned());
        }
    }
    extra
}
