//! ImageService. Calls that are not here answer Unimplemented.
//!
//! An image is known by its name and runtime handler (KEP-4216). Clients that cannot send the handler of an image may
//! name it in an annotation of the image spec, [`IMAGE_HANDLER`].

use std::collections::HashMap;
use std::sync::Arc;

use common::now_nanos;
use imagestore::net::Auth;
use imagestore::{Image as Stored, PullRequest};
use proto::cri::image_service_server::ImageService;
use proto::cri::*;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use vmspec::annotations::IMAGE_HANDLER;
use vmspec::error::{Error, Kind, Result as Answer};

use super::lists;
use crate::api::status::{self, finish};
use crate::images::Images;
use crate::store::moments::{Moments, Of, Phase};

#[cfg(test)]
mod tests;

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct ImageCalls {
    images: Images,
    /// Where it is noted how long pods waited for pulls.
    moments: Moments,
}

impl ImageCalls {
    /// Calls to the image store.
    #[must_use]
    pub fn new(images: Images) -> Self {
        Self { images, moments: Moments::default() }
    }

    /// The same, by which it is noted there how long pods waited for pulls.
    #[must_use]
    pub fn noting(self, moments: Moments) -> Self {
        Self { moments, ..self }
    }

    fn listed(&self, filter: Option<ImageFilter>) -> Answer<Vec<Image>> {
        let (name, handler) = asked(filter.and_then(|filter| filter.image));
        let images = self.images.list(&name, &handler)?;
        Ok(images.into_iter().map(Arc::unwrap_or_clone).map(shown).collect())
    }
}

/// Name and handler of a request. Whether there is such a handler is the store's to say.
fn asked(spec: Option<ImageSpec>) -> (String, String) {
    let mut spec = spec.unwrap_or_default();
    let annotated = spec.annotations.remove(IMAGE_HANDLER).filter(|_| spec.runtime_handler.is_empty());
    (spec.image, annotated.unwrap_or(spec.runtime_handler))
}

fn answer<T>(result: Answer<T>) -> Result<T, Status> {
    result.map_err(|error| status::of(&error))
}

/// The credentials of a pull secret. They go to the place that the image's name leads to, and nowhere else.
fn credentials(auth: AuthConfig) -> Answer<Option<Auth>> {
    let AuthConfig { username, password, auth, identity_token, registry_token, .. } = &auth;
    imagestore::provider::login(username, password, auth, identity_token, registry_token)
        .map_err(|cause| Error::because(Kind::Invalid, "pull secret not understood", cause))
}

#[tonic::async_trait]
impl ImageService for ImageCalls {
    async fn pull_image(&self, request: Request<PullImageRequest>) -> Result<Response<PullImageResponse>, Status> {
        let request = request.into_inner();
        let (name, handler) = asked(request.image);
        let auth = request.auth.unwrap_or_default();
        let auth_server = auth.server_address.clone();
        let auth = answer(credentials(auth))?;
        // Clients that are no kubelet say no pod, or one without a UID.
        let pod = request.sandbox_config.and_then(|pod| pod.metadata).map(|pod| pod.uid).filter(|uid| !uid.is_empty());
        // Not spawned: a pull that nobody waits for any more is to stop, and leaves nothing half made.
        let pull = self.images.pull(PullRequest { name, handler, auth, auth_server, ..PullRequest::default() });
        let pulled = match pod {
            Some(uid) => self.moments.begin(Of::Pod(uid), Phase::Pull).over(pull).await,
            None => pull.await,
        };
        let image = answer(pulled)?;
        Ok(Response::new(PullImageResponse { image_ref: image.id.to_string() }))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let (name, handler) = asked(request.image);
        let image = answer(self.images.look_up(&name, &handler))?;
        let mut info = HashMap::new();
        if request.verbose {
            // How far a pull is: CRI has no call for it.
            if let Some(progress) = self.images.progress(&name, &handler) {
                info.insert("pull".into(), progress);
            }
            if let Some(image) = &image {
                let facts = serde_json::json!({
                    "format": image.format.to_string(),
                    "virtualSize": image.virtual_size,
                    "provider": image.provider,
                    "weak": image.weak,
                    "missing": image.missing,
                });
                info.insert("info".into(), facts.to_string());
            }
        }
        Ok(Response::new(ImageStatusResponse { image: image.map(shown), info }))
    }

    async fn list_images(&self, request: Request<ListImagesRequest>) -> Result<Response<ListImagesResponse>, Status> {
        let images = answer(self.listed(request.into_inner().filter))?;
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> Result<Response<BoxStream<StreamImagesResponse>>, Status> {
        let images = answer(self.listed(request.into_inner().filter))?;
        Ok(lists::stream(images, |images| StreamImagesResponse { images }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let (name, handler) = asked(request.into_inner().image);
        let images = self.images.clone();
        finish(async move { images.remove(&name, &handler).await }).await?;
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let usage = answer(self.images.usage().await)?;
        let filesystem = FilesystemUsage {
            timestamp: now_nanos(),
            fs_id: Some(FilesystemIdentifier { mountpoint: usage.mountpoint.display().to_string() }),
            used_bytes: Some(UInt64Value { value: usage.used_bytes }),
            inodes_used: Some(UInt64Value { value: usage.inodes }),
        };
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![filesystem],
            container_filesystems: Vec::new(),
        }))
    }
}

fn shown(image: Stored) -> Image {
    // As in a container's configuration: `user` or `user:group`, each a name or a number.
    let user = image.user.as_deref().map(|user| user.split(':').next().unwrap_or_default()).unwrap_or_default();
    let uid = user.parse::<i64>().ok();
    Image {
        id: image.id.to_string(),
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        uid: uid.map(|value| Int64Value { value }),
        username: if uid.is_some() { String::new() } else { user.to_owned() },
        // Never absent: kubelet looks into it. The same whoever asks, so nothing of the question.
        spec: Some(ImageSpec { runtime_handler: image.handler, ..ImageSpec::default() }),
        pinned: image.pinned,
    }
}
