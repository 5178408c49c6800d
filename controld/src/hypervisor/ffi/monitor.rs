//! QEMU's monitor, for what libvirt has no word for.

#![expect(unsafe_code, reason = "libvirt is a C library")]

use std::ptr;

use virt_sys as sys;

use super::{Domain, LibvirtError, c_string, done, owned_text};

impl Domain {
    /// QEMU's answer to a command of QMP, both in JSON. That QEMU refuses it is an answer, too.
    pub(in crate::hypervisor) fn monitor(&self, command: &str) -> Result<String, LibvirtError> {
        let command = c_string(command)?;
        let mut answer = ptr::null_mut();
        // SAFETY: the domain is owned, the text lives through the call, and libvirt writes one pointer.
        done(unsafe { sys::virDomainQemuMonitorCommand(self.0.as_ptr(), command.as_ptr(), &raw mut answer, 0) })?;
        owned_text(answer)
    }
}
