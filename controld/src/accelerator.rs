//! Which accelerator new machines get: found out once per boot and emulator, in the background, and remembered.
//!
//! Also notices that the real emulator was replaced behind vmwrapper, which libvirt's capability cache cannot see.

use std::time::Duration;

use tokio::sync::OnceCell;

use crate::accel::{self, Fingerprint, ProbeKey, Question, Verdict};
use crate::config::{Accel, Config};
use crate::error::Chain;
use crate::store::Store;

/// The choice. Made at first need, since a probe takes seconds where KVM does not work.
#[derive(Debug)]
pub struct Accelerator {
    question: Question,
    store: Store,
    verdict: OnceCell<Verdict>,
}

impl Accelerator {
    /// The choice as configured.
    #[must_use]
    pub fn new(config: &Config, store: Store) -> Self {
        Self {
            question: Question {
                configured: config.machine.accel,
                emulator: config.emulator.clone(),
                kernel: config.machine.kvm_probe_kernel.clone(),
                deadline: Duration::from_secs(config.machine.kvm_probe_deadline_s),
                work_dir: config.run_dir.clone(),
            },
            store,
            verdict: OnceCell::new(),
        }
    }

    /// The accelerator of a new machine.
    pub async fn get(&self) -> accel::Accelerator {
        self.verdict.get_or_init(|| self.decide()).await.accelerator
    }

    /// What is known so far, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match self.verdict.get() {
            Some(verdict) => format!("{} ({})", verdict.accelerator, verdict.reason),
            None => "not needed yet".into(),
        }
    }

    /// Makes libvirt ask the emulator again what it can do if it is not the one of last time.
    pub async fn refresh_wrapper(&self, config: &Config) {
        let refreshed = async {
            let now = Fingerprint::of(&config.emulator)?;
            let before = self.store.fact::<Fingerprint>("emulator");
            if before.as_ref() != Some(&now) {
                accel::refresh_wrapper(&config.vmwrapper)?;
                self.store.put_fact("emulator", &now).await?;
                tracing::info!(emulator = %config.emulator.display(), "emulator is new; libvirt will ask it again");
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        if let Err(error) = refreshed.await {
            tracing::error!(error = %Chain(error.as_ref()), "libvirt may have outdated capabilities of the emulator");
        }
    }

    async fn decide(&self) -> Verdict {
        let key = ProbeKey::of(&self.question.emulator);
        if self.question.configured == Accel::Auto
            && let Some((known_key, verdict)) = self.store.fact::<(ProbeKey, Verdict)>("accelerator")
            && key.as_ref().is_ok_and(|key| *key == known_key)
        {
            return verdict;
        }
        let verdict = accel::decide(&self.question).await;
        tracing::info!(accelerator = %verdict.accelerator, reason = verdict.reason, "accelerator chosen");
        if self.question.configured == Accel::Auto
            && let Ok(key) = key
            && let Err(error) = self.store.put_fact("accelerator", &(key, verdict.clone())).await
        {
            tracing::warn!(error = %Chain(&error), "accelerator not remembered; the next start probes again");
        }
        verdict
    }
}
