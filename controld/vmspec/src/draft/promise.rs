//! What a machine would have, by all that is known without the node: no image, no emulator and no network is asked, and no
//! volume is read.

use proto::tap::{Dns, PodNet};
use uuid::Uuid;

use super::{Draft, Wishes};
use crate::error::Result;
use crate::explain::{Made, Root, Said, Setting, explain};
use crate::plan::Passed;
use crate::seed;

/// What it would have.
///
/// # Errors
/// When no node would make it.
pub fn promise(wishes: Wishes<'_>) -> Result<Vec<Setting>> {
    let Wishes { sandbox, container, annotations, handler, .. } = wishes;
    let draft = Draft::of(wishes)?;
    let wishes = seed::Wishes {
        sandbox,
        container,
        annotations,
        objects: &seed::Objects::new(),
        handler,
        // Which NICs the pod would have, only its plugins know.
        net: &PodNet { netns: "/run/netns/x".into(), nics: Vec::new(), dns: Dns::default() },
        share: draft.share(),
        disks: &draft.guest_disks(),
        instance: draft.has_lasting_root().then(Uuid::nil),
    };
    wishes.check_unread()?;
    let made = Made {
        cpus: draft.cpus,
        memory: draft.memory,
        huge_page: draft.huge_page,
        hardware: &draft.hardware,
        share: draft.share.as_ref(),
        // What a device plugin will allocate, only it knows.
        passed: &Passed::default(),
        net: None,
        disks: &draft.flexvolumes,
        root: (draft.root.as_ref())
            .map(|root| Root::Block { on_image_change: root.on_image_change, as_is: root.as_is })
            .or_else(|| {
                draft.volume_root.as_ref().map(|root| if root.is_lasting() { Root::File } else { Root::Overlay })
            }),
    };
    Ok(explain(Said { annotations, container, handler }, made))
}
