//! Memory of a domain, written to a file while it lives, and a domain that is made of such a file.

#![expect(unsafe_code, reason = "libvirt is a C library")]

use std::ptr::{self, NonNull};

use virt_sys as sys;

use super::{Connection, Domain, LibvirtError, c_string, done, last_error};

impl Connection {
    /// Starts the domain of a file's description with the memory that is in it, and no processor of the guest.
    pub(in crate::hypervisor) fn restore_paused(&self, file: &str) -> Result<(), LibvirtError> {
        let file = c_string(file)?;
        let (as_described, flags) = (ptr::null(), sys::VIR_DOMAIN_SAVE_PAUSED);
        // SAFETY: the connection is open, `file` lives through the call, and no description may be given.
        done(unsafe { sys::virDomainRestoreFlags(self.raw.as_ptr(), file.as_ptr(), as_described, flags) })
    }
}

impl Domain {
    /// Does what a `<domainsnapshot>` says, and has libvirt keep no note of it.
    pub(in crate::hypervisor) fn snapshot(&self, xml: &str) -> Result<(), LibvirtError> {
        let xml = c_string(xml)?;
        let flags = sys::VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA;
        // SAFETY: the domain is owned, `xml` lives through the call.
        let raw = unsafe { sys::virDomainSnapshotCreateXML(self.0.as_ptr(), xml.as_ptr(), flags) };
        let made = NonNull::new(raw).ok_or_else(last_error)?;
        // SAFETY: libvirt gave it to us to free, which leaves the file alone.
        unsafe { sys::virDomainSnapshotFree(made.as_ptr()) };
        Ok(())
    }

    /// Ends what libvirt is long about with the domain. `OPERATION_INVALID` if that is nothing.
    pub(in crate::hypervisor) fn abort_job(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainAbortJob(self.0.as_ptr()) })
    }
}
