//! Step 7: inspects what was downloaded as a whole, and publishes it under its digest, without a name yet.

use vmimage::inspect;

use super::Puller;
use super::error::DownloadError;
use super::job::Job;
use super::origin::sought;
use crate::sources::provider::Covers;
use crate::storage::content::{Alias, Facts, Hold, Parent, Received, Sought};

impl Puller {
    /// Judges what came, and puts it into the content store. Blocks.
    pub(super) fn judge_and_keep(&self, job: &Job, received: Received) -> Result<Hold, DownloadError> {
        let verdict = inspect::examine(received.part.file(), received.length, job.expected);
        let summary = verdict.map_err(DownloadError::Reread)??;
        let parent = summary.parent().map(|parent| Parent {
            named: parent.reference.to_string(),
            format: parent.format,
            id: None,
        });
        // What a rule demands is the digest of what is stored, and is known by that, unless it was converted.
        let promises = if job.foreign.is_some() { &job.promises } else { &job.remote.promises };
        let aliases = promises.iter().map(|promise| {
            let Sought { hash, covers, foreign } = sought(promise, job.foreign);
            // What comes out of an archive is its provider's word, as weak hashes are.
            let unpacked = job.remote.unpack.is_some() && promise.covers != Covers::Content;
            let own = unpacked || !promise.hash.alg().is_strong();
            Alias { hash, covers, provider: own.then(|| job.provider.id().to_owned()), foreign }
        });
        let giver = Some(job.giver.clone());
        let facts = Facts {
            aliases: aliases.collect(),
            parent,
            giver,
            converted: job.foreign.is_some(),
            ..Facts::from(summary.info())
        };
        Ok(self.content.keep(received, facts)?)
    }
}
