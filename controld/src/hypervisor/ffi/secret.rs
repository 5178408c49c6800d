//! Secrets of libvirt's.

#![expect(unsafe_code, reason = "libvirt is a C library")]

use std::ptr::{self, NonNull};

use uuid::Uuid;
use virt_sys as sys;

use super::{Connection, LibvirtError, borrowed_text, c_string, done, last_error, taken};

/// `VIR_ERR_NO_SECRET`.
const NO_SECRET: i32 = 66;

/// A secret of a connection. Freed when dropped; that leaves libvirt's alone.
#[derive(Debug)]
pub(in crate::hypervisor) struct Secret(NonNull<sys::_virSecret>);

impl Connection {
    /// Defines a secret, or defines it anew.
    pub(in crate::hypervisor) fn define_secret(&self, xml: &str) -> Result<Secret, LibvirtError> {
        let xml = c_string(xml)?;
        // SAFETY: the connection is open, `xml` lives through the call.
        let raw = unsafe { sys::virSecretDefineXML(self.raw.as_ptr(), xml.as_ptr(), 0) };
        NonNull::new(raw).map(Secret).ok_or_else(last_error)
    }

    /// `None` if there is no such secret.
    pub(in crate::hypervisor) fn look_up_secret(&self, id: Uuid) -> Result<Option<Secret>, LibvirtError> {
        // SAFETY: the connection is open, the UUID is 16 bytes.
        let raw = unsafe { sys::virSecretLookupByUUID(self.raw.as_ptr(), id.as_bytes().as_ptr()) };
        match NonNull::new(raw) {
            Some(secret) => Ok(Some(Secret(secret))),
            None => match last_error() {
                error if error.code == NO_SECRET => Ok(None),
                error => Err(error),
            },
        }
    }

    pub(in crate::hypervisor) fn secrets(&self) -> Result<Vec<Secret>, LibvirtError> {
        let mut list: *mut sys::virSecretPtr = ptr::null_mut();
        // SAFETY: the connection is open; libvirt writes one pointer.
        let count = unsafe { sys::virConnectListAllSecrets(self.raw.as_ptr(), &raw mut list, 0) };
        // SAFETY: libvirt made the list, and says how long it is.
        let entries = unsafe { taken(list, count) }?;
        Ok(entries.into_iter().map(Secret).collect())
    }
}

impl Secret {
    pub(in crate::hypervisor) fn id(&self) -> Result<Uuid, LibvirtError> {
        let mut bytes = [0; 16];
        // SAFETY: the secret is owned, libvirt writes 16 bytes.
        done(unsafe { sys::virSecretGetUUID(self.0.as_ptr(), bytes.as_mut_ptr()) })?;
        Ok(Uuid::from_bytes(bytes))
    }

    /// libvirt's word for its name.
    pub(in crate::hypervisor) fn usage(&self) -> Result<String, LibvirtError> {
        // SAFETY: the secret is owned; the text is part of it.
        let raw = unsafe { sys::virSecretGetUsageID(self.0.as_ptr()) };
        borrowed_text(raw).ok_or_else(last_error)
    }

    pub(in crate::hypervisor) fn set(&self, value: &[u8]) -> Result<(), LibvirtError> {
        // SAFETY: the secret is owned, and libvirt reads as many bytes as there are.
        done(unsafe { sys::virSecretSetValue(self.0.as_ptr(), value.as_ptr(), value.len(), 0) })
    }

    /// Fine if it is gone.
    pub(in crate::hypervisor) fn undefine(&self) -> Result<(), LibvirtError> {
        // SAFETY: the secret is owned.
        match done(unsafe { sys::virSecretUndefine(self.0.as_ptr()) }) {
            Err(error) if error.code != NO_SECRET => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: this was the owner.
        unsafe { sys::virSecretFree(self.0.as_ptr()) };
    }
}
