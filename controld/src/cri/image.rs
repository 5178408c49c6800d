//! ImageService. Calls that are not here answer Unimplemented.

use std::collections::HashMap;
use std::sync::Arc;

use imagestore::Image as Stored;
use proto::cri::image_service_server::ImageService;
use proto::cri::*;
use tonic::{Request, Response, Status};

use super::{finish, status};
use crate::container::actor::Parts;
use crate::error::{Error, Kind};
use crate::model::now_nanos;

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct ImageCalls {
    parts: Arc<Parts>,
}

impl ImageCalls {
    /// Calls to the image store.
    #[must_use]
    pub fn new(parts: Arc<Parts>) -> Self {
        Self { parts }
    }

    /// The name in a request. Images of a handler of their own come later; one that no pod could name is refused now.
    fn name(&self, spec: Option<ImageSpec>) -> Result<String, Status> {
        let spec = spec.unwrap_or_default();
        let handlers = &self.parts.config.runtime_handlers;
        if !spec.runtime_handler.is_empty() && !handlers.contains(&spec.runtime_handler) {
            let what =
                format!("unknown runtime handler `{}`; this node has {}", spec.runtime_handler, handlers.join(", "));
            return Err(status::of(&Error::new(Kind::Invalid, what)));
        }
        Ok(spec.image)
    }
}

#[tonic::async_trait]
impl ImageService for ImageCalls {
    async fn pull_image(&self, request: Request<PullImageRequest>) -> Result<Response<PullImageResponse>, Status> {
        let request = request.into_inner();
        let name = self.name(request.image)?;
        if request.auth.is_some_and(|auth| auth != AuthConfig::default()) {
            let what = "pull secrets are not supported yet; put credentials into the URL of a translation";
            return Err(status::of(&Error::new(Kind::Unimplemented, what)));
        }
        // Not spawned: a pull that nobody waits for any more is to stop, and leaves nothing half made.
        let image = self.parts.images.pull(&name).await.map_err(|error| status::of(&error))?;
        Ok(Response::new(PullImageResponse { image_ref: image.id.to_string() }))
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let request = request.into_inner();
        let name = self.name(request.image)?;
        let image = self.parts.images.look_up(&name);
        let mut info = HashMap::new();
        if request.verbose {
            // How far a pull is: CRI has no call for it.
            if let Some(progress) = self.parts.images.progress(&name) {
                info.insert("pull".into(), progress);
            }
            if let Some(image) = &image {
                let facts =
                    serde_json::json!({ "format": image.format.to_string(), "virtualSize": image.virtual_size });
                info.insert("info".into(), facts.to_string());
            }
        }
        Ok(Response::new(ImageStatusResponse { image: image.map(shown), info }))
    }

    async fn list_images(&self, request: Request<ListImagesRequest>) -> Result<Response<ListImagesResponse>, Status> {
        let filter = request.into_inner().filter.and_then(|filter| filter.image);
        let name = filter.map(|image| image.image).unwrap_or_default();
        let images = if name.is_empty() {
            self.parts.images.list()
        } else {
            self.parts.images.look_up(&name).into_iter().collect()
        };
        Ok(Response::new(ListImagesResponse { images: images.into_iter().map(shown).collect() }))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = self.name(request.into_inner().image)?;
        let parts = self.parts.clone();
        finish(async move { parts.images.remove(&name).await }).await?;
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        let usage = self.parts.images.usage().await.map_err(|error| status::of(&error))?;
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
    Image {
        id: image.id.to_string(),
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        // Never absent: kubelet looks into it.
        spec: Some(ImageSpec::default()),
        ..Default::default()
    }
}
