//! Which accelerator new machines get: found out in the background, and remembered.
//!
//! That KVM works is remembered for the boot, the emulator and the settings that it was found out with. That it does not
//! is not: a probe fails also where a node is busy, and a node that emulates without need is a slow one. So it is tried
//! again with growing pauses, and `Status` and a metric tell until it works or is not wanted any more.
//!
//! Also notices that the real emulator was replaced behind vmwrapper, which libvirt's capability cache cannot see.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::Chain;
use vmspec::Accelerator;
use vmspec::settings::Accel;

use crate::config::Config;
use crate::hypervisor::accel::{self, Fingerprint, ProbeKey, Question, Verdict};
use crate::store::Store;

/// When a probe that failed is tried again first; a busy boot takes minutes.
const FIRST_RETRY: Duration = Duration::from_secs(60);
/// A probe boots a kernel.
const LAST_RETRY: Duration = Duration::from_secs(3600);
const FACT: &str = "accelerator";

/// The choice. Made at first need, since a probe takes seconds where KVM does not work. Clones share it.
#[derive(Debug, Clone)]
pub struct AcceleratorChoice {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    question: Question,
    store: Store,
    verdict: Mutex<Option<Verdict>>,
    /// One probe at a time.
    probing: tokio::sync::Mutex<()>,
}

impl AcceleratorChoice {
    /// The choice as configured.
    #[must_use]
    pub fn new(config: &Config, store: Store) -> Self {
        let question = Question {
            configured: config.machine.accel,
            emulator: config.emulator.clone(),
            kernel: config.machine.kvm_probe_kernel.clone(),
            deadline: config.machine.kvm_probe_deadline,
            work_dir: config.run_dir.clone(),
            device: "/dev/kvm".into(),
        };
        Self::of(question, store)
    }

    fn of(question: Question, store: Store) -> Self {
        let inner = Inner { question, store, verdict: Mutex::default(), probing: tokio::sync::Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The accelerator of a new machine.
    pub async fn get(&self) -> Accelerator {
        self.verdict().await.accelerator
    }

    /// What is known so far.
    #[must_use]
    pub fn known(&self) -> Option<Verdict> {
        self.inner.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known so far, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self.known() {
            Some(verdict) => format!("{} ({})", verdict.accelerator, verdict.reason),
            None => "not needed yet".into(),
        }
    }

    /// Why new machines are emulated although KVM may work, for people.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let verdict = self.known().filter(|verdict| verdict.kvm_may_work)?;
        Some(format!("new machines are emulated, and slow: {}", verdict.reason))
    }

    /// Chooses, so that no pod has to wait for it, and goes on trying while KVM does not work and may.
    pub async fn keep_trying(&self) {
        let mut pause = FIRST_RETRY;
        let mut verdict = self.verdict().await;
        while verdict.kvm_may_work {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
            verdict = self.try_again().await;
        }
    }

    /// Makes libvirt ask the emulator again what it can do if it is not the one of last time.
    pub async fn refresh_wrapper(&self, config: &Config) {
        let refreshed = async {
            let now = Fingerprint::of(&config.emulator)?;
            let before = self.inner.store.fact::<Fingerprint>("emulator");
            if before.as_ref() != Some(&now) {
                accel::refresh_wrapper(&config.vmwrapper)?;
                self.inner.store.put_fact("emulator", &now).await?;
                tracing::info!(emulator = %config.emulator.display(), "emulator is new; libvirt will ask it again");
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        if let Err(error) = refreshed.await {
            tracing::error!(error = %Chain(error.as_ref()), "libvirt may have outdated capabilities of the emulator");
        }
    }

    async fn verdict(&self) -> Verdict {
        if let Some(known) = self.known() {
            return known;
        }
        let _one = self.inner.probing.lock().await;
        match self.known() {
            Some(known) => known,
            None => self.decide().await,
        }
    }

    async fn try_again(&self) -> Verdict {
        let _one = self.inner.probing.lock().await;
        self.decide().await
    }

    async fn decide(&self) -> Verdict {
        let Inner { question, store, .. } = &*self.inner;
        let key = ProbeKey::of(question).ok().filter(|_| question.configured == Accel::Auto);
        let remembered = store.fact::<(ProbeKey, Verdict)>(FACT).filter(|(known, verdict)| {
            // Earlier releases remembered also that it did not work.
            Some(known) == key.as_ref() && verdict.accelerator == Accelerator::Kvm
        });
        let verdict = match remembered {
            Some((_, verdict)) => verdict,
            None => accel::decide(question).await,
        };
        let before = self.inner.verdict.lock().unwrap_or_else(PoisonError::into_inner).replace(verdict.clone());
        if before.as_ref() != Some(&verdict) {
            self.tell(&verdict);
        }
        if let Some(key) = key.filter(|_| verdict.accelerator == Accelerator::Kvm)
            && let Err(error) = store.put_fact(FACT, &(key, verdict.clone())).await
        {
            tracing::warn!(error = %Chain(&error), "accelerator not remembered; the next start probes again");
        }
        verdict
    }

    fn tell(&self, verdict: &Verdict) {
        let Verdict { accelerator, reason, kvm_may_work } = verdict;
        if *kvm_may_work {
            tracing::warn!(%accelerator, reason, "new machines are emulated; KVM is tried again");
        } else {
            tracing::info!(%accelerator, reason, "accelerator chosen");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::hypervisor::accel::tests::fixture;

    /// A node with an emulator, which the test may exchange for another one, and with something that can be opened as a device.
    fn node(dir: &Path, configured: Accel) -> (Store, Question) {
        let store = Store::open(&dir.join("meta.redb")).expect("opens");
        let question = Question {
            configured,
            emulator: dir.join("emulator"),
            kernel: Some("/x".into()),
            deadline: Duration::from_secs(30),
            work_dir: dir.to_owned(),
            device: "/dev/null".into(),
        };
        (store, question)
    }

    /// Programs of the system: a script that a test writes may still be open for writing in a process forked meanwhile.
    fn install(dir: &Path, emulator: impl AsRef<Path>) {
        let half = dir.join("emulator.new");
        std::os::unix::fs::symlink(emulator, &half).expect("linked");
        std::fs::rename(half, dir.join("emulator")).expect("installed");
    }

    const FAILS: &str = "/bin/false";

    fn works() -> PathBuf {
        fixture("working_emulator.sh")
    }

    #[tokio::test]
    async fn that_kvm_failed_is_not_remembered_and_that_it_works_is() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (store, question) = node(dir.path(), Accel::Auto);
        install(dir.path(), FAILS);
        let choice = AcceleratorChoice::of(question.clone(), store.clone());
        assert_eq!(choice.get().await, Accelerator::Qemu);
        assert!(choice.trouble().is_some_and(|trouble| trouble.contains("KVM did not work")), "{:?}", choice.trouble());
        assert_eq!(store.fact::<(ProbeKey, Verdict)>(FACT), None);

        install(dir.path(), works());
        assert_eq!(choice.try_again().await.accelerator, Accelerator::Kvm);
        assert_eq!(choice.get().await, Accelerator::Kvm, "new machines get it");
        assert_eq!(choice.trouble(), None);

        // The next life need not boot a kernel again, unless it is to be another one.
        let again =
            AcceleratorChoice::of(Question { device: dir.path().join("none"), ..question.clone() }, store.clone());
        assert_eq!(again.get().await, Accelerator::Kvm);
        let other = Question { device: dir.path().join("none"), kernel: Some("/y".into()), ..question };
        let other = AcceleratorChoice::of(other, store);
        assert_eq!(other.get().await, Accelerator::Qemu, "the configured kernel is part of the question");
    }

    #[tokio::test]
    async fn a_failure_that_an_earlier_release_remembered_is_forgotten() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (store, question) = node(dir.path(), Accel::Auto);
        install(dir.path(), works());
        let key = ProbeKey::of(&question).expect("there");
        let bad = serde_json::json!([key, { "accelerator": "qemu", "reason": "KVM does not work here" }]);
        store.put_fact(FACT, &bad).await.expect("put");
        let choice = AcceleratorChoice::of(question, store);
        assert_eq!(choice.get().await, Accelerator::Kvm);
    }

    #[tokio::test]
    async fn who_does_not_want_kvm_or_has_no_device_is_not_warned() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (store, question) = node(dir.path(), Accel::Qemu);
        install(dir.path(), FAILS);
        let wanted = AcceleratorChoice::of(question.clone(), store.clone());
        wanted.keep_trying().await;
        assert_eq!((wanted.trouble(), wanted.get().await), (None, Accelerator::Qemu));
        let question = Question { configured: Accel::Auto, device: dir.path().join("kvm"), ..question };
        let none = AcceleratorChoice::of(question, store);
        none.keep_trying().await;
        assert_eq!((none.trouble(), none.get().await), (None, Accelerator::Qemu));
    }
}
