//! Why a machine that is on does not run: the reason that `controld` gives in CRI, and its clients know.

/// Why a machine is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The guest wrote to its disk and the file system that this is on had no room, or did not take it for another reason where that is told
    /// apart by nobody, as of a quota. It goes on when there is room again.
    DiskFull,
    /// Somebody paused it, by `virtletctl pause` or at libvirt. A person ends that.
    ByHand,
}

impl Pause {
    /// One word for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskFull => "PausedDiskFull",
            Self::ByHand => "Paused",
        }
    }

    /// A sentence for people.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::DiskFull => {
                "the guest is paused: the file system of one of its disks had no room for what it wrote, or did not take it; \
                 it goes on when that is taken"
            }
            Self::ByHand => "the guest was paused by hand; `virtletctl resume` lets it go on",
        }
    }
}
