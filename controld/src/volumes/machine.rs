//! The machine type of a pod's VMs: `machine.json` in the pod's folder.
//!
//! ```json
//! {"version":1,"asked":"q35","machine":"pc-q35-9.2"}
//! ```
//!
//! A guest that is activated for one machine, or knows its devices by their places, finds them again after its container was restarted,
//! though QEMU was updated in between. It is for the pod and not for its disk: that may be made anew, and the devices stay.

use common::small_file::{self, SmallFileError};
use common::{Chain, off_reactor};
use serde::{Deserialize, Serialize};
use vmspec::plan::MachineType;

use super::{Folder, VolumeError, Volumes};

/// Version of the file.
const VERSION: u32 = 1;
const FILE: &str = "machine.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// As the pod's runtime handler had it.
    asked: MachineType,
    /// With its version.
    machine: MachineType,
}

impl Volumes {
    /// The machine type, with its version, that a pod's VMs have had; `None` if there were none, or their handler asked for another type
    /// than `asked`, or the note cannot be read.
    pub async fn machine_type(&self, pod_uid: &str, asked: &MachineType) -> Option<MachineType> {
        let (volumes, uid, asked) = (self.clone(), pod_uid.to_owned(), asked.clone());
        off_reactor(move || {
            let folder = volumes.of_pod(&uid).ok()?.into_iter().next()?;
            match read(&folder) {
                Ok(note) => note.filter(|note| note.asked == asked).map(|note| note.machine),
                Err(error) => {
                    tracing::warn!(pod = uid, error = %Chain(&error), "the machine type of the pod's earlier VMs is not known");
                    None
                }
            }
        })
        .await
    }

    /// Writes down the machine type of a pod's VMs, and what its handler had asked for. A note that cannot be read stays as it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn note_machine_type(
        &self,
        folder: &Folder,
        asked: &MachineType,
        machine: &MachineType,
    ) -> Result<(), VolumeError> {
        let folder = folder.clone();
        let note = Note { version: VERSION, asked: asked.clone(), machine: machine.clone() };
        off_reactor(move || match read(&folder) {
            Ok(there) if there.as_ref() == Some(&note) => Ok(()),
            Ok(_) => Ok(small_file::write(&folder.path.join(FILE), &note)?),
            Err(error @ SmallFileError::Io { .. }) => Err(error.into()),
            Err(SmallFileError::Newer { .. } | SmallFileError::Damaged { .. }) => Ok(()),
        })
        .await
    }
}

fn read(folder: &Folder) -> Result<Option<Note>, SmallFileError> {
    small_file::read(&folder.path.join(FILE), VERSION)
}
