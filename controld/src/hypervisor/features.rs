//! What libvirt can do, by its version. Pure.

use std::fmt;

/// The oldest libvirt that machines are defined for.
const LEAST: Version = Version::new(9, 0, 0);
/// Knows the panic device of PCI, `<panic model='pvpanic'>`.
const PVPANIC_PCI: Version = Version::new(9, 1, 0);
/// Can be told to remove a TPM's state, `VIR_DOMAIN_UNDEFINE_TPM`.
const UNDEFINE_TPM: Version = Version::new(8, 9, 0);
/// Of QEMU: has `-object iommufd`.
const IOMMUFD: Version = Version::new(9, 0, 0);
/// Of QEMU: the oldest one that machines are tried with.
const TRIED_QEMU: Version = Version::new(8, 0, 0);

/// Version of a libvirt daemon or of QEMU, as libvirt counts: a million for each major number, a thousand for each minor one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

/// What a machine may be made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Of libvirt.
    pub version: Version,
    /// Of the QEMU that libvirt found, if it found one.
    pub qemu: Option<Version>,
    /// A panic device on PCI; else it is on ISA.
    pub pvpanic_pci: bool,
    /// A machine's definition goes together with its TPM's state.
    pub undefine_tpm: bool,
    /// QEMU takes devices by their descriptors, through iommufd.
    pub iommufd: bool,
}

/// A libvirt that lacks what every machine needs.
#[derive(Debug, thiserror::Error)]
#[error("version {found} is older than {LEAST}; update libvirt")]
pub(super) struct TooOld {
    found: Version,
}

impl Version {
    const fn new(major: u64, minor: u64, release: u64) -> Self {
        Self(major * 1_000_000 + minor * 1000 + release)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 1_000_000, self.0 / 1000 % 1000, self.0 % 1000)
    }
}

impl Features {
    /// Of the versions of libvirt and QEMU as `virConnectGetLibVersion` and `virConnectGetVersion` tell them.
    ///
    /// # Errors
    /// When libvirt is too old.
    pub(super) fn of(libvirt: u64, qemu: u64) -> Result<Self, TooOld> {
        let (version, qemu) = (Version(libvirt), Version(qemu));
        if version < LEAST {
            return Err(TooOld { found: version });
        }
        Ok(Self {
            version,
            qemu: (qemu > Version(0)).then_some(qemu),
            pvpanic_pci: version >= PVPANIC_PCI,
            undefine_tpm: version >= UNDEFINE_TPM,
            iommufd: qemu >= IOMMUFD,
        })
    }

    /// What is missing compared with the newest, each with what comes of it. For people.
    #[must_use]
    pub fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if !self.pvpanic_pci {
            lacks.push(format!("libvirt before {PVPANIC_PCI} has no panic device on PCI: machines get one on ISA"));
        }
        if !self.undefine_tpm {
            lacks.push(format!("libvirt before {UNDEFINE_TPM} does not remove the state of a TPM with its machine"));
        }
        match self.qemu {
            None => lacks.push("libvirt found no QEMU: no machine starts".to_owned()),
            Some(qemu) if qemu < TRIED_QEMU => {
                lacks.push(format!("QEMU before {TRIED_QEMU} was not tried: machines may not start"));
            }
            Some(_) => {}
        }
        if self.qemu.is_some() && !self.iommufd {
            lacks.push(format!("QEMU before {IOMMUFD} has no iommufd: functions of SR-IOV cards need VFIO groups"));
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_with_a_version_is_not_asked_of_an_older_one() {
        let of = |version| Features::of(version, 8_002_002).expect("new enough");
        let least = Features {
            version: LEAST,
            qemu: Some(Version(8_002_002)),
            pvpanic_pci: false,
            undefine_tpm: true,
            iommufd: false,
        };
        assert_eq!(of(9_000_000), least);
        assert!(Features::of(9_000_000, 9_000_000).expect("new enough").iommufd);
        for version in [9_001_000, 11_003_000] {
            assert!(of(version).pvpanic_pci, "{version}");
        }
        assert_eq!(of(11_003_010).version.to_string(), "11.3.10");
        let refused = Features::of(8_010_000, 9_000_000).expect_err("too old").to_string();
        assert_eq!(refused, "version 8.10.0 is older than 9.0.0; update libvirt");
    }

    #[test]
    fn what_is_missing_is_told_with_what_comes_of_it() {
        let lacks = |libvirt, qemu| Features::of(libvirt, qemu).expect("new enough").lacks();
        assert_eq!(lacks(11_003_000, 10_000_002), [""; 0]);
        assert_eq!(lacks(11_003_000, 0), ["libvirt found no QEMU: no machine starts"]);
        insta::assert_snapshot!(lacks(9_000_000, 7_002_022).join("\n"), @r"
        libvirt before 9.1.0 has no panic device on PCI: machines get one on ISA
        QEMU before 8.0.0 was not tried: machines may not start
        QEMU before 9.0.0 has no iommufd: functions of SR-IOV cards need VFIO groups
        ");
    }
}
