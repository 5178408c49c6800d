//! What the default has said once and kubelet asks for whether or not it is there: `Version`, `RuntimeConfig` and `ListMetricDescriptors`,
//! also over our restart; `Status` and `ImageFsInfo`, as long as we run.
//!
//! The file is replaced as a whole and written without a flush: its answers come again. One that cannot be read, or is of another
//! endpoint, is as none. A task of its own writes it, and then what has changed meanwhile, so that no call waits for the disk; what cannot
//! be written is written with the next answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::{Chain, off_reactor, small_file};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

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

/// The last answers. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Saved(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    endpoint: String,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: Answers,
    written: Written,
}

/// How far the file has come.
#[derive(Debug, Default)]
struct Written {
    /// Changes of what is in it, so far.
    changes: u64,
    /// So many of them it has.
    has: u64,
    /// A task is at it.
    is_under_way: bool,
    /// It could not be written the last time.
    has_failed: bool,
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
        Self(Arc::new(Shared { path, endpoint, kept: Mutex::new(Kept { answers, written: Written::default() }) }))
    }

    pub(super) fn version(&self) -> Option<Bytes> {
        self.kept().answers.version.clone()
    }

    pub(super) fn runtime_config(&self) -> Option<Bytes> {
        self.kept().answers.runtime_config.clone()
    }

    pub(super) fn descriptors(&self) -> Option<Bytes> {
        self.kept().answers.descriptors.clone()
    }

    pub(super) fn status(&self) -> Option<Bytes> {
        self.kept().answers.status.clone()
    }

    pub(super) fn image_fs_info(&self) -> Option<Bytes> {
        self.kept().answers.image_fs_info.clone()
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
        self.kept().answers.status = Some(answer);
    }

    /// A Status has come.
    pub(super) fn status_came(&self) {
        self.kept().answers.status_fails = None;
    }

    /// A Status has not come; since when none has.
    pub(super) fn status_failed(&self, now: Instant) -> Instant {
        *self.kept().answers.status_fails.get_or_insert(now)
    }

    pub(super) fn keep_image_fs_info(&self, answer: Bytes) {
        self.kept().answers.image_fs_info = Some(answer);
    }

    fn keep(&self, replace: impl FnOnce(&mut Answers) -> Option<Bytes>, answer: &Bytes) -> bool {
        let mut kept = self.kept();
        let is_another = replace(&mut kept.answers).as_ref() != Some(answer);
        kept.written.changes += u64::from(is_another);
        if kept.written.begin() {
            tokio::spawn(self.clone().write().in_current_span());
        }
        is_another
    }

    /// Writes until the file has all, or cannot be written.
    async fn write(self) {
        while let Some((change, answers)) = self.unwritten() {
            let shared = self.0.clone();
            // A few thousand bytes, when the runtime is another one.
            let written = off_reactor(move || {
                small_file::write_unflushed(&shared.path, &File::of(shared.endpoint.clone(), &answers))
            });
            let written = written.await;
            let was_told = self.kept().written.end(change, written.is_ok());
            if let Err(error) = written {
                // Once, however often it is tried.
                if !was_told {
                    let what = "last answers of the container runtime not saved; the next answer tries again";
                    tracing::warn!(error = %Chain(&error), "{what}");
                }
                return;
            }
        }
    }

    /// What the file lacks, with the number of the last change in it. If there is nothing, nobody is at it any more.
    fn unwritten(&self) -> Option<(u64, Answers)> {
        let mut kept = self.kept();
        let changes = kept.written.changes;
        kept.written.is_under_way = kept.written.has != changes;
        kept.written.is_under_way.then(|| (changes, kept.answers.clone()))
    }

    /// Whether the file has all that is kept over a restart.
    #[cfg(test)]
    pub(super) fn is_written(&self) -> bool {
        let kept = self.kept();
        kept.written.has == kept.written.changes
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// Whether somebody is to write now.
    fn begin(&mut self) -> bool {
        let begins = !self.is_under_way && self.has != self.changes;
        self.is_under_way |= begins;
        begins
    }

    /// An attempt to write all up to `change` is over. Whether the one before it had failed.
    fn end(&mut self, change: u64, well: bool) -> bool {
        if well {
            self.has = change;
        } else {
            self.is_under_way = false;
        }
        std::mem::replace(&mut self.has_failed, !well)
    }
}

impl File {
    fn of(endpoint: String, answers: &Answers) -> Self {
        let text = |answer: &Option<Bytes>| answer.as_ref().map(|answer| STANDARD.encode(answer));
        let descriptors = answers.descriptors.clone().filter(|answer| answer.len() <= MOST_DESCRIPTORS);
        Self {
            version: FORMAT,
            endpoint,
            cri_version: text(&answers.version),
            runtime_config: text(&answers.runtime_config),
            metric_descriptors: text(&descriptors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::tests::until;

    async fn is_written(saved: &Saved) {
        until("a file that has all", || saved.is_written()).await;
    }

    #[tokio::test]
    async fn version_and_config_outlive_us_if_they_are_of_this_runtime() {
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
        is_written(&saved).await;
        let again = open("unix:///a");
        assert_eq!((again.version(), again.runtime_config()), (Some(answer.clone()), Some(Bytes::new())));
        assert_eq!(again.descriptors(), again.version());
        assert!(again.status().is_none(), "of a moment");
        again.keep_descriptors(&Bytes::from(vec![0; 64 << 10]));
        is_written(&again).await;
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

    #[tokio::test]
    async fn what_could_not_be_written_is_written_with_the_next_answer() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/proxy.json");
        let saved = Saved::open(path.clone(), "unix:///a".into());
        let answers = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        saved.keep_version(&answers[0]);
        until("an attempt", || saved.kept().written.has_failed).await;
        std::fs::create_dir(dir.path().join("state")).expect("made");
        assert!(!saved.keep_version(&answers[0]), "no other than before");
        // While that may be under way.
        saved.keep_version(&answers[1]);
        is_written(&saved).await;
        assert_eq!(Saved::open(path, "unix:///a".into()).version().as_ref(), answers.last());
        assert!(!saved.kept().written.has_failed);
    }
}
