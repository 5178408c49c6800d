//! The few libvirt calls that this crate makes, safe to call: every returned pointer is owned, every error is read in the
//! call that made it (libvirt keeps the last one per thread).

#![expect(unsafe_code, reason = "libvirt is a C library; nothing but this file and those below it calls it")]

mod monitor;
mod save;
mod secret;

use std::ffi::{CStr, CString, NulError, c_char, c_int, c_void};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Once;

use uuid::Uuid;
use virt_sys as sys;

use super::features::Features;

/// What libvirt says of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("libvirt: {message}")]
pub struct LibvirtError {
    /// `virErrorNumber` of libvirt's `virterror.h`.
    pub code: i32,
    /// Its text.
    pub message: String,
}

/// `VIR_ERR_NO_DOMAIN`.
pub(super) const NO_DOMAIN: i32 = 42;
/// `VIR_ERR_INVALID_ARG`.
pub(super) const INVALID_ARG: i32 = 8;
/// `VIR_ERR_OPERATION_INVALID`: the domain is not in a state for it.
pub(super) const OPERATION_INVALID: i32 = 55;

/// State and reason as numbers of libvirt's `virDomainState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawState {
    pub(super) state: i32,
    pub(super) reason: i32,
}

/// A lifecycle event as numbers of libvirt's `virDomainEventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawEvent {
    pub(super) id: Uuid,
    pub(super) event: i32,
    pub(super) detail: i32,
}

/// A connection to libvirtd. Closed when dropped, which may take a call: not on the reactor. Its calls may be made from any
/// thread.
#[derive(Debug)]
pub(super) struct Connection {
    raw: NonNull<sys::_virConnect>,
    /// What is at its other end.
    pub(super) features: Features,
    /// Callbacks by their ids. Each holds a reference to the connection, which would go on telling without its owner.
    callbacks: Vec<c_int>,
}

// SAFETY: libvirt locks connections internally; its documentation allows use from several threads.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

/// A domain of a connection. Freed when dropped; that leaves the machine alone.
#[derive(Debug)]
pub(super) struct Domain(NonNull<sys::_virDomain>);

type EventSink = Box<dyn Fn(RawEvent) + Send + Sync>;
type CloseSink = Box<dyn Fn() + Send + Sync>;

/// Sets libvirt up for this process and runs its event loop on a thread that lives as long.
pub(super) fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: called once, before any other call.
        unsafe { sys::virInitialize() };
        // SAFETY: the handler takes whatever libvirt passes and keeps nothing.
        unsafe { sys::virSetErrorFunc(ptr::null_mut(), Some(silent)) };
        // SAFETY: called once, before any connection.
        unsafe { sys::virEventRegisterDefaultImpl() };
        let spawned = std::thread::Builder::new().name("libvirt-events".into()).spawn(|| {
            loop {
                // SAFETY: this thread alone runs the loop.
                let ran = unsafe { sys::virEventRunDefaultImpl() };
                if ran < 0 {
                    tracing::error!(error = %last_error(), "libvirt's event loop failed");
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "libvirt's event loop not started; machines' ends will not be seen");
        }
    });
}

impl Connection {
    pub(super) fn open(uri: &str) -> Result<Self, LibvirtError> {
        let uri = c_string(uri)?;
        // SAFETY: `uri` lives through the call.
        let raw = unsafe { sys::virConnectOpen(uri.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        let features = features(raw).inspect_err(|_| {
            // SAFETY: the connection is open, and nobody else has it.
            unsafe { sys::virConnectClose(raw.as_ptr()) };
        })?;
        let connection = Self { raw, features, callbacks: Vec::new() };
        // A daemon that hangs is as good as gone: three probes, five seconds apart.
        // SAFETY: the connection is open.
        unsafe { sys::virConnectSetKeepAlive(connection.raw.as_ptr(), 5, 3) };
        Ok(connection)
    }

    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { sys::virConnectIsAlive(self.raw.as_ptr()) == 1 }
    }

    pub(super) fn define(&self, xml: &str) -> Result<Domain, LibvirtError> {
        let xml = c_string(xml)?;
        // SAFETY: the connection is open, `xml` lives through the call.
        let raw =
            unsafe { sys::virDomainDefineXMLFlags(self.raw.as_ptr(), xml.as_ptr(), sys::VIR_DOMAIN_DEFINE_VALIDATE) };
        NonNull::new(raw).map(Domain).ok_or_else(last_error)
    }

    /// `None` if there is no such domain.
    pub(super) fn look_up(&self, id: Uuid) -> Result<Option<Domain>, LibvirtError> {
        // SAFETY: the connection is open, the UUID is 16 bytes.
        let raw = unsafe { sys::virDomainLookupByUUID(self.raw.as_ptr(), id.as_bytes().as_ptr()) };
        match NonNull::new(raw) {
            Some(domain) => Ok(Some(Domain(domain))),
            None => match last_error() {
                error if error.code == NO_DOMAIN => Ok(None),
                error => Err(error),
            },
        }
    }

    pub(super) fn domains(&self) -> Result<Vec<Domain>, LibvirtError> {
        let mut list: *mut sys::virDomainPtr = ptr::null_mut();
        // SAFETY: the connection is open; libvirt writes one pointer.
        let count = unsafe { sys::virConnectListAllDomains(self.raw.as_ptr(), &raw mut list, 0) };
        // SAFETY: libvirt made the list, and says how long it is.
        let entries = unsafe { taken(list, count) }?;
        Ok(entries.into_iter().map(Domain).collect())
    }

    /// What machines of a type `emulator` can make.
    pub(super) fn domain_capabilities(
        &self,
        emulator: &str,
        machine: &str,
        domain_type: &str,
    ) -> Result<String, LibvirtError> {
        let (emulator, arch) = (c_string(emulator)?, c_string("x86_64")?);
        let (machine, domain_type) = (c_string(machine)?, c_string(domain_type)?);
        let texts = [&emulator, &arch, &machine, &domain_type].map(|text| text.as_ptr());
        let [emulator, arch, machine, domain_type] = texts;
        // SAFETY: the connection is open, the texts outlive the call.
        owned_text(unsafe {
            sys::virConnectGetDomainCapabilities(self.raw.as_ptr(), emulator, arch, machine, domain_type, 0)
        })
    }

    pub(super) fn capabilities(&self) -> Result<String, LibvirtError> {
        // SAFETY: the connection is open.
        owned_text(unsafe { sys::virConnectGetCapabilities(self.raw.as_ptr()) })
    }

    /// Calls `sink` on libvirt's event thread for each lifecycle event, until the connection is closed.
    pub(super) fn on_lifecycle(&mut self, sink: EventSink) -> Result<(), LibvirtError> {
        type Callback = unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, c_int, c_int, *mut c_void) -> c_int;
        let callback: Callback = lifecycle;
        // SAFETY: libvirt calls a lifecycle callback with the signature of `lifecycle` and takes it by this type.
        let generic = unsafe { std::mem::transmute::<Callback, unsafe extern "C" fn(_, _, _)>(callback) };
        self.register(sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, generic, sink)
    }

    /// Calls `sink` on libvirt's event thread for each reboot of a guest; event and detail are 0.
    pub(super) fn on_reboot(&mut self, sink: EventSink) -> Result<(), LibvirtError> {
        self.register(sys::VIR_DOMAIN_EVENT_ID_REBOOT, reboot, sink)
    }

    fn register(
        &mut self,
        event: sys::virDomainEventID,
        callback: unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void),
        sink: EventSink,
    ) -> Result<(), LibvirtError> {
        let opaque = Box::into_raw(Box::new(sink)).cast();
        let event = c_int::try_from(event).unwrap_or_default();
        // SAFETY: libvirt keeps `opaque` until it calls `free_events` with it.
        let id = unsafe {
            sys::virConnectDomainEventRegisterAny(
                self.raw.as_ptr(),
                ptr::null_mut(),
                event,
                Some(callback),
                opaque,
                Some(free_events),
            )
        };
        if id < 0 {
            // SAFETY: libvirt did not take it.
            drop(unsafe { Box::from_raw(opaque.cast::<EventSink>()) });
            return Err(last_error());
        }
        self.callbacks.push(id);
        Ok(())
    }

    /// Calls `sink` on libvirt's event thread when the connection ends by itself.
    pub(super) fn on_close(&self, sink: CloseSink) -> Result<(), LibvirtError> {
        let opaque = Box::into_raw(Box::new(sink)).cast();
        // SAFETY: libvirt keeps `opaque` until it calls `free_close` with it.
        let done =
            unsafe { sys::virConnectRegisterCloseCallback(self.raw.as_ptr(), Some(closed), opaque, Some(free_close)) };
        if done < 0 {
            // SAFETY: libvirt did not take it.
            drop(unsafe { Box::from_raw(opaque.cast::<CloseSink>()) });
            return Err(last_error());
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.callbacks) {
            // SAFETY: the connection is open, `id` is a callback of it.
            unsafe { sys::virConnectDomainEventDeregisterAny(self.raw.as_ptr(), id) };
        }
        // Holds a reference to the connection, too.
        // SAFETY: the connection is open; an unknown callback is only an error.
        unsafe { sys::virConnectUnregisterCloseCallback(self.raw.as_ptr(), Some(closed)) };
        // SAFETY: this was the owner.
        unsafe { sys::virConnectClose(self.raw.as_ptr()) };
    }
}

impl Domain {
    pub(super) fn id(&self) -> Result<Uuid, LibvirtError> {
        let mut bytes = [0; 16];
        // SAFETY: the domain is owned, libvirt writes 16 bytes.
        done(unsafe { sys::virDomainGetUUID(self.0.as_ptr(), bytes.as_mut_ptr()) })?;
        Ok(Uuid::from_bytes(bytes))
    }

    pub(super) fn name(&self) -> Result<String, LibvirtError> {
        // SAFETY: the domain is owned; the text is part of it.
        let raw = unsafe { sys::virDomainGetName(self.0.as_ptr()) };
        borrowed_text(raw).ok_or_else(last_error)
    }

    pub(super) fn state(&self) -> Result<RawState, LibvirtError> {
        let (mut state, mut reason) = (0, 0);
        // SAFETY: the domain is owned, libvirt writes two numbers.
        done(unsafe { sys::virDomainGetState(self.0.as_ptr(), &raw mut state, &raw mut reason, 0) })?;
        Ok(RawState { state, reason })
    }

    /// The element of our namespace in the domain's metadata, if it has one.
    pub(super) fn metadata(&self, namespace: &str) -> Result<Option<String>, LibvirtError> {
        let kind = c_int::try_from(sys::VIR_DOMAIN_METADATA_ELEMENT).unwrap_or_default();
        let namespace = c_string(namespace)?;
        // SAFETY: the domain is owned, the text lives through the call.
        let raw = unsafe { sys::virDomainGetMetadata(self.0.as_ptr(), kind, namespace.as_ptr(), 0) };
        match owned_text(raw) {
            Ok(text) => Ok(Some(text)),
            Err(error) if i64::from(error.code) == i64::from(sys::VIR_ERR_NO_DOMAIN_METADATA) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its description, as it is now.
    pub(super) fn xml(&self) -> Result<String, LibvirtError> {
        // SAFETY: the domain is owned.
        owned_text(unsafe { sys::virDomainGetXMLDesc(self.0.as_ptr(), 0) })
    }

    /// Gives libvirt a file that the domain's description names so. It has a descriptor of its own then.
    pub(super) fn associate(&self, name: &str, file: BorrowedFd<'_>) -> Result<(), LibvirtError> {
        let name = c_string(name)?;
        let mut fd = file.as_raw_fd();
        // SAFETY: the domain is owned, the text lives through the call, and libvirt reads one descriptor, which is open.
        done(unsafe { sys::virDomainFDAssociate(self.0.as_ptr(), name.as_ptr(), 1, &raw mut fd, 0) })
    }

    pub(super) fn start(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainCreateWithFlags(self.0.as_ptr(), 0) })
    }

    /// Starts QEMU, and no processor of the guest: that is for [`Self::resume`].
    pub(super) fn start_paused(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainCreateWithFlags(self.0.as_ptr(), sys::VIR_DOMAIN_START_PAUSED) })
    }

    pub(super) fn suspend(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainSuspend(self.0.as_ptr()) })
    }

    pub(super) fn resume(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainResume(self.0.as_ptr()) })
    }

    /// Plugs virtual CPUs into a machine that runs, up to this number.
    pub(super) fn set_vcpus(&self, count: u16) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainSetVcpusFlags(self.0.as_ptr(), count.into(), sys::VIR_DOMAIN_AFFECT_LIVE) })
    }

    /// The virtual CPUs that it has now.
    pub(super) fn vcpus(&self) -> Result<u16, LibvirtError> {
        // SAFETY: the domain is owned.
        let count = unsafe { sys::virDomainGetVcpusFlags(self.0.as_ptr(), sys::VIR_DOMAIN_VCPU_LIVE) };
        done(count.min(0))?;
        Ok(u16::try_from(count).unwrap_or(u16::MAX))
    }

    /// Has the balloon leave so much memory to the guest, which takes its time.
    pub(super) fn set_memory(&self, kib: u64) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainSetMemoryFlags(self.0.as_ptr(), kib, sys::VIR_DOMAIN_AFFECT_LIVE) })
    }

    /// Bytes of a disk, as QEMU has it.
    pub(super) fn disk_size(&self, target: &str) -> Result<u64, LibvirtError> {
        let target = c_string(target)?;
        let mut info = sys::virDomainBlockInfo { capacity: 0, allocation: 0, physical: 0 };
        // SAFETY: the domain is owned, the text lives through the call, and libvirt writes three numbers.
        done(unsafe { sys::virDomainGetBlockInfo(self.0.as_ptr(), target.as_ptr(), &raw mut info, 0) })?;
        Ok(info.capacity)
    }

    /// Tells QEMU, and by that the guest, of another size of a disk.
    pub(super) fn resize_disk(&self, target: &str, bytes: u64) -> Result<(), LibvirtError> {
        let target = c_string(target)?;
        // SAFETY: the domain is owned, the text lives through the call.
        done(unsafe {
            sys::virDomainBlockResize(self.0.as_ptr(), target.as_ptr(), bytes, sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES)
        })
    }

    pub(super) fn press_power_button(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainShutdownFlags(self.0.as_ptr(), sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN) })
    }

    /// As the reset button: the guest hears nothing of it before.
    pub(super) fn reset(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainReset(self.0.as_ptr(), 0) })
    }

    /// Presses the power button, and has libvirt start the guest anew in place of ending the machine.
    pub(super) fn reboot(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainReboot(self.0.as_ptr(), sys::VIR_DOMAIN_REBOOT_ACPI_POWER_BTN) })
    }

    pub(super) fn destroy(&self) -> Result<(), LibvirtError> {
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainDestroyFlags(self.0.as_ptr(), 0) })
    }

    /// With all that libvirt keeps of it: what an admin saved would else keep the domain. UEFI's variables stay, which are the pod's.
    pub(super) fn undefine(&self, features: Features) -> Result<(), LibvirtError> {
        let tpm = if features.undefine_tpm { sys::VIR_DOMAIN_UNDEFINE_TPM } else { 0 };
        let all = sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
            | sys::VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
            | tpm;
        // SAFETY: the domain is owned.
        done(unsafe { sys::virDomainUndefineFlags(self.0.as_ptr(), all) })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: this was the owner.
        unsafe { sys::virDomainFree(self.0.as_ptr()) };
    }
}

fn features(connection: NonNull<sys::_virConnect>) -> Result<Features, LibvirtError> {
    let mut version = 0;
    // SAFETY: the connection is open, libvirt writes a number.
    done(unsafe { sys::virConnectGetLibVersion(connection.as_ptr(), &raw mut version) })?;
    let mut qemu = 0;
    // SAFETY: the connection is open, libvirt writes a number. It fails where there is no QEMU, whose machines say so.
    if unsafe { sys::virConnectGetVersion(connection.as_ptr(), &raw mut qemu) } < 0 {
        qemu = 0;
    }
    Features::of(version, qemu).map_err(|old| LibvirtError { code: 0, message: old.to_string() })
}

fn done(result: c_int) -> Result<(), LibvirtError> {
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// The entries of a list that libvirt has made, which are the caller's from now on; the list itself is freed.
///
/// # Safety
/// A `count` that is not negative is the length of `list`, which libvirt made and which nobody else frees.
unsafe fn taken<T>(list: *mut *mut T, count: c_int) -> Result<Vec<NonNull<T>>, LibvirtError> {
    let count = usize::try_from(count).map_err(|_negative| last_error())?;
    let mut entries = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: the list has `count` entries.
        let entry = unsafe { list.add(at) };
        // SAFETY: as above, and libvirt has filled each.
        entries.extend(NonNull::new(unsafe { entry.read() }));
    }
    // SAFETY: the list came from libvirt's malloc, and its entries are owned above.
    unsafe { libc::free(list.cast()) };
    Ok(entries)
}

fn last_error() -> LibvirtError {
    // SAFETY: libvirt keeps the thread's last error until its next call.
    let raw = unsafe { sys::virGetLastError() };
    let Some(error) = NonNull::new(raw) else {
        return LibvirtError { code: 0, message: "failed without saying why".into() };
    };
    // SAFETY: as above.
    let error = unsafe { error.as_ref() };
    LibvirtError { code: error.code, message: borrowed_text(error.message).unwrap_or_default() }
}

fn c_string(text: &str) -> Result<CString, LibvirtError> {
    CString::new(text).map_err(|_nul: NulError| LibvirtError { code: 0, message: "text has a NUL byte".into() })
}

fn borrowed_text(raw: *const c_char) -> Option<String> {
    if raw.is_null() {
        return None;
    }
    // SAFETY: libvirt's texts end with NUL and live through this call.
    Some(unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned())
}

fn owned_text(raw: *mut c_char) -> Result<String, LibvirtError> {
    let text = borrowed_text(raw).ok_or_else(last_error)?;
    // SAFETY: libvirt gave it to us to free.
    unsafe { libc::free(raw.cast()) };
    Ok(text)
}

unsafe extern "C" fn silent(_user: *mut c_void, _error: sys::virErrorPtr) {}

fn tell(domain: sys::virDomainPtr, event: i32, detail: i32, opaque: *mut c_void) {
    let mut bytes = [0; 16];
    // SAFETY: libvirt lends the domain for the call and writes 16 bytes.
    if unsafe { sys::virDomainGetUUID(domain, bytes.as_mut_ptr()) } < 0 {
        return;
    }
    // SAFETY: `opaque` is the sink that `register` leaked, alive until `free_events`.
    let sink = unsafe { &*opaque.cast::<EventSink>() };
    sink(RawEvent { id: Uuid::from_bytes(bytes), event, detail });
}

unsafe extern "C" fn lifecycle(
    _connection: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    tell(domain, event, detail, opaque);
    0
}

unsafe extern "C" fn reboot(_connection: sys::virConnectPtr, domain: sys::virDomainPtr, opaque: *mut c_void) {
    tell(domain, 0, 0, opaque);
}

unsafe extern "C" fn closed(_connection: sys::virConnectPtr, _reason: c_int, opaque: *mut c_void) {
    // SAFETY: `opaque` is the sink that `on_close` leaked, alive until `free_close`.
    let sink = unsafe { &*opaque.cast::<CloseSink>() };
    sink();
}

unsafe extern "C" fn free_events(opaque: *mut c_void) {
    // SAFETY: libvirt calls this once, last.
    drop(unsafe { Box::from_raw(opaque.cast::<EventSink>()) });
}

unsafe extern "C" fn free_close(opaque: *mut c_void) {
    // SAFETY: libvirt calls this once, last.
    drop(unsafe { Box::from_raw(opaque.cast::<CloseSink>()) });
}
