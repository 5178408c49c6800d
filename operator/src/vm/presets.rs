//! Whether presets would make something else of a VM's next run: they act when an instance is made.

use kube::runtime::reflector::Store;
use kubevirt::preset;
use kubevirt::types::Metadata;

use crate::names::PRESETS;
use crate::objects::{Meta as _, Preset, Vmi};

/// What became of presets since an instance was made.
pub(super) fn changes(vmi: &Vmi, presets: &Store<Preset>) -> Vec<String> {
    let known = presets.state_filter(|preset| preset.namespace() == vmi.namespace());
    if known.is_empty() && vmi.annotation(PRESETS).is_none() {
        return Vec::new();
    }
    let presets: Vec<&preset::Preset> = known.iter().filter_map(|preset| preset.facts().as_ref()).collect();
    let metadata = Metadata {
        labels: vmi.metadata.labels.clone().unwrap_or_default(),
        annotations: vmi.metadata.annotations.clone().unwrap_or_default(),
        ..Metadata::default()
    };
    preset::changes(&metadata, &presets, || vmi.spec.value().get("domain").cloned().unwrap_or_default())
}
