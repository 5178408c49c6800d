//! What the default has said once and kubelet asks for whether or not it is there: `Version`, `RuntimeConfig` and `ListMetricDescriptors`,
//! also over our restart; `Status` and `ImageFsInfo`, as long as we run.
//!
//! The file is replaced as a whole and written without a flush: its answers come again. One that cannot be read, or is of another
//! endpoint, is as none.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::{Chain, small_file};
use serde::{Deserialize, Serialize};

/// Of the file.
const FORMAT: u32 = 1;
/// Bytes of descriptors that are saved: the file is read up to 64 KiB, and a default has a few thousand.
const MOST_DESCRIPTORS: usize = 32 << 10;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    version: u32,
    endpoint: String,
    /// Answers of the default, encoded, in base64.
    cri_version: Option<String>,
    runtime_config: Option<String>,
    /// A file of before has none.
    metric_descriptors: Option<String>,
}

/// The last answers.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
    endpoint: String,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default, Clone)]
struct Answers {
    version: Option<Bytes>,
    runtime_config: Option<Bytes>,
    descriptors: Option<Bytes>,
    status: Option<Bytes>,
    /// Since when each has failed.
    status_fails: Option<Instant>,
    image_fs_info: Option<Bytes>,
}

impl Saved {
    /// What was saved of the runtime at `endpoint`.
    pub(super) fn open(path: PathBuf, endpoint: String) -> Self {
        let file = small_file::read::<File>(&path, FORMAT).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "last answers of the container runtime not read; it will be asked again");
            None
        });
        let file = file.filter(|file| file.endpoint == endpoint);
        let read = |text: Option<&String>| text.and_then(|text| STANDARD.decode(text).ok()).map(Bytes::from);
        let answers = Answers {
            version: read(file.as_ref().and_then(|file| file.cri_version.as_ref())),
            runtime_config: read(file.as_ref().and_then(|file| file.runtime_config.as_ref())),
            descriptors: read(file.as_ref().and_then(|file| file.metric_descriptors.as_ref())),
            ..Answers::default()
        };
        Self { path, endpoint, answers: Mutex::new(answers) }
    }

    pub(super) fn version(&self) -> Option<Bytes> {
        self.answers().version.clone()
    }

    pub(super) fn runtime_config(&self) -> Option<Bytes> {
        self.answers().runtime_config.clone()
    }

    pub(super) fn descriptors(&self) -> Option<Bytes> {
        self.answers().descriptors.clone()
    }

    pub(super) fn status(&self) -> Option<Bytes> {
        self.answers().status.clone()
    }

    pub(super) fn image_fs_info(&self) -> Option<Bytes> {
        self.answers().image_fs_info.clone()
    }

    /// Whether it is another than before.
    pub(super) fn keep_version(&self, answer: &Bytes) -> bool {
        self.keep(|answers| answers.version.replace(answer.clone()), answer)
    }

    /// Whether it is another than before.
    pub(super) fn keep_runtime_config(&self, answer: &Bytes) -> bool {
        self.keep(|answers| answers.runtime_config.replace(answer.clone()), answer)
    }

    /// Whether it is another than before.
    pub(super) fn keep_descriptors(&self, answer: &Bytes) -> bool {
        self.keep(|answers| answers.descriptors.replace(answer.clone()), answer)
    }

    pub(super) fn keep_status(&self, answer: Bytes) {
        self.answers().status = Some(answer);
    }

    /// A Status has come.
    pub(super) fn status_came(&self) {
        self.answers().status_fails = None;
    }

    /// A Status has not come; since when none has.
    pub(super) fn status_failed(&self, now: Instant) -> Instant {
        *self.answers().status_fails.get_or_insert(now)
    }

    pub(super) fn keep_image_fs_info(&self, answer: Bytes) {
        self.answers().image_fs_info = Some(answer);
    }

    fn keep(&self, replace: impl FnOnce(&mut Answers) -> Option<Bytes>, answer: &Bytes) -> bool {
        let mut answers = self.answers();
        if replace(&mut answers).as_ref() == Some(answer) {
            return false;
        }
        let text = |answer: &Option<Bytes>| answer.as_ref().map(|answer| STANDARD.encode(answer));
        let file = File {
            version: FORMAT,
            endpoint: self.endpoint.clone(),
            cri_version: text(&answers.version),
            runtime_config: text(&answers.runtime_config),
            metric_descriptors: text(&answers.descriptors.clone().filter(|answer| answer.len() <= MOST_DESCRIPTORS)),
        };
        // A few thousand bytes, when the runtime is another one.
        if let Err(error) = small_file::write_unflushed(&self.path, &file) {
            tracing::warn!(error = %Chain(&error), "last answers of the container runtime not saved");
        }
        true
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_config_outlive_us_if_they_are_of_this_runtime() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |endpoint: &str| Saved::open(dir.path().join("proxy.json"), endpoint.into());
        let saved = open("unix:///a");
        assert_eq!((saved.version(), saved.runtime_config()), (None, None));
        let answer = Bytes::from_static(&[8, 1, 0, 255]);
        assert!(saved.keep_version(&answer), "another than none");
        assert!(!saved.keep_version(&answer));
        assert!(saved.keep_runtime_config(&Bytes::new()));
        saved.keep_descriptors(&answer);
        saved.keep_status(answer.clone());
        let again = open("unix:///a");
        assert_eq!((again.version(), again.runtime_config()), (Some(answer.clone()), Some(Bytes::new())));
        assert_eq!(again.descriptors(), again.version());
        assert!(again.status().is_none(), "of a moment");
        again.keep_descriptors(&Bytes::from(vec![0; 64 << 10]));
        assert_eq!((open("unix:///a").version(), open("unix:///a").descriptors()), (again.version(), None), "too long");
        let before = r#"{"version":1,"endpoint":"unix:///a","cri_version":"","runtime_config":null}"#;
        std::fs::write(dir.path().join("proxy.json"), before).expect("written");
        assert_eq!((open("unix:///a").version(), open("unix:///a").descriptors()), (Some(Bytes::new()), None));
        assert_eq!(open("unix:///b").version(), None);
        for damaged in [
            "{",
            "{\"version\":2}",
            "{\"version\":1,\"endpoint\":\"unix:///a\",\"cri_version\":\"?\",\"runtime_config\":null}",
        ] {
            std::fs::write(dir.path().join("proxy.json"), damaged).expect("written");
            assert_eq!(open("unix:///a").version(), None, "{damaged}");
        }
    }
}
