//! Entry for benches: a claim of a virtual function and its way back, without a pod around them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Chain;
use proto::tap::PodId;
use sriov::policy::Arrival;
use sriov::settings::VfSettings;
use sriov::{PciAddr, Sysfs};

use super::claims::{Claims, Wanted};
use super::notes::ClaimNotes;
use super::problem::VfError;
use crate::faults::Faults;

/// How long it took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// From a link in a pod's namespace to a device that a machine may have.
    pub claim: Duration,
    /// Back.
    pub release: Duration,
}

/// Claims the function whose link is `name` in `netns`, and gives it back. Notes are made in `state`.
///
/// # Errors
/// When it is refused or fails, in words.
pub(crate) fn exercise(sysfs: Sysfs, vf: &str, netns: &Path, name: &str, state: &Path) -> Result<Took, String> {
    let vf: PciAddr = vf.parse().map_err(told)?;
    let pod: PodId = "bench".parse().map_err(told)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(told)?;
    let notes = ClaimNotes::open(state).map_err(told)?;
    let claims = Claims::load(sysfs, notes, "bench".to_owned(), Arc::new(Faults::none())).map_err(told)?;
    let arrival = Arrival::Netdev { netns: netns.display().to_string(), name: name.to_owned() };
    let work = async {
        let begun = Instant::now();
        claims.take(&pod, vec![Wanted { vf, arrival, asked: VfSettings::default() }]).await?;
        claims.hand_out(&pod, &[vf], false).await?;
        let claim = begun.elapsed();
        let begun = Instant::now();
        claims.give_back(&pod).await?;
        Ok::<_, VfError>(Took { claim, release: begun.elapsed() })
    };
    runtime.block_on(work).map_err(told)
}

fn told(error: impl std::error::Error + 'static) -> String {
    Chain(&error).to_string()
}
