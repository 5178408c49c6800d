//! Fields of a domain, but for its devices.

use super::devices::{DEVICES, STATE};
use super::forms::{CPU_MODEL, Form, LINE, MACHINE, NAME, PAGE_SIZE, TEXT, TIMEZONE, UUID, form};
use super::{Json, Object, Shape, later, must, never, whole, yes};

/// Most vCPUs, and of each of what they are a product.
const MAX_VCPUS: i64 = 255;

pub(crate) static DOMAIN: Object = Object(&[
    yes("resources", Shape::Object(&RESOURCES)),
    yes("cpu", Shape::Object(&CPU)),
    yes("memory", Shape::Object(&MEMORY)),
    yes("machine", Shape::Object(&MACHINE_TYPE)),
    yes("firmware", Shape::Object(&FIRMWARE)),
    yes("chassis", Shape::Object(&CHASSIS)),
    yes("clock", Shape::Object(&CLOCK)),
    yes("features", Shape::Object(&FEATURES)),
    yes("devices", Shape::Object(&DEVICES)),
    yes("ioThreadsPolicy", Shape::Word(&["shared", "auto"])),
    later("ioThreads", Json::Object, ""),
    never("launchSecurity", Json::Object, "memory of guests is not encrypted"),
    yes("rebootPolicy", Shape::Word(&["Reboot", "Terminate"])),
]);

static RESOURCES: Object = Object(&[
    yes("requests", Shape::Quantities),
    yes("limits", Shape::Quantities),
    yes("overcommitGuestOverhead", Shape::Bool),
]);

static CPU: Object = Object(&[
    yes("cores", whole(MAX_VCPUS)),
    yes("sockets", whole(MAX_VCPUS)),
    yes("threads", whole(MAX_VCPUS)),
    yes("maxSockets", whole(MAX_VCPUS)),
    yes("model", Shape::Text(&CPU_MODEL)),
    yes("features", Shape::List(&Shape::Object(&CPU_FEATURE), 256)),
    yes("dedicatedCpuPlacement", Shape::Bool),
    later("isolateEmulatorThread", Json::Bool, ""),
    later("numa", Json::Object, ""),
    later("realtime", Json::Object, ""),
]);

static CPU_FEATURE: Object = Object(&[
    must("name", Shape::Text(&NAME)),
    yes("policy", Shape::Word(&["force", "require", "optional", "disable", "forbid"])),
]);

static MEMORY: Object = Object(&[
    yes("guest", Shape::Quantity),
    yes("hugepages", Shape::Object(&HUGE_PAGES)),
    later("maxGuest", Json::Quantity, "annotation virtlet.cloud/max-memory has a guest grow by its balloon"),
    never("reservedOverhead", Json::Object, "what QEMU takes is computed"),
]);

static HUGE_PAGES: Object = Object(&[must("pageSize", Shape::Text(&PAGE_SIZE))]);

static MACHINE_TYPE: Object = Object(&[yes("type", Shape::Text(&MACHINE))]);

static FIRMWARE: Object = Object(&[
    yes("uuid", Shape::Text(&UUID)),
    yes("serial", Shape::Text(&TEXT)),
    yes("bootloader", Shape::Object(&BOOTLOADER)),
    later("kernelBoot", Json::Object, "make a disk with the kernel on it"),
    later("acpi", Json::Object, ""),
]);

static BOOTLOADER: Object = Object(&[yes("bios", Shape::Object(&BIOS)), yes("efi", Shape::Object(&EFI))]);

static BIOS: Object = Object(&[yes("useSerial", Shape::Bool)]);

static EFI: Object = Object(&[
    yes("secureBoot", Shape::Bool),
    later("persistent", Json::Bool, "variables last as long as the pod's root disk"),
]);

static CHASSIS: Object = Object(&[
    yes("manufacturer", Shape::Text(&TEXT)),
    yes("version", Shape::Text(&TEXT)),
    yes("serial", Shape::Text(&TEXT)),
    yes("asset", Shape::Text(&TEXT)),
    yes("sku", Shape::Text(&TEXT)),
]);

static CLOCK: Object = Object(&[
    yes("utc", Shape::Object(&UTC)),
    yes("timezone", Shape::Text(&TIMEZONE)),
    yes("timer", Shape::Object(&TIMERS)),
]);

static UTC: Object = Object(&[yes("offsetSeconds", Shape::Int(-(1 << 31), 1 << 31))]);

static TIMERS: Object = Object(&[
    yes("hpet", Shape::Object(&HPET)),
    yes("kvm", Shape::Object(&PRESENT)),
    yes("pit", Shape::Object(&PIT)),
    yes("rtc", Shape::Object(&RTC)),
    yes("hyperv", Shape::Object(&PRESENT)),
]);

static PRESENT: Object = Object(&[yes("present", Shape::Bool)]);

static HPET: Object =
    Object(&[yes("tickPolicy", Shape::Word(&["delay", "catchup", "merge", "discard"])), yes("present", Shape::Bool)]);

static PIT: Object =
    Object(&[yes("tickPolicy", Shape::Word(&["delay", "catchup", "discard"])), yes("present", Shape::Bool)]);

static RTC: Object = Object(&[
    yes("tickPolicy", Shape::Word(&["delay", "catchup"])),
    yes("present", Shape::Bool),
    yes("track", Shape::Word(&["guest", "wall"])),
]);

static FEATURES: Object = Object(&[
    yes("acpi", Shape::Object(&STATE)),
    yes("apic", Shape::Object(&APIC)),
    yes("smm", Shape::Object(&STATE)),
    yes("pvspinlock", Shape::Object(&STATE)),
    yes("kvm", Shape::Object(&KVM)),
    yes("hyperv", Shape::Object(&HYPERV)),
    later("hypervPassthrough", Json::Object, "name the features under hyperv"),
]);

static APIC: Object = Object(&[yes("enabled", Shape::Bool), yes("endOfInterrupt", Shape::Bool)]);

static KVM: Object = Object(&[yes("hidden", Shape::Bool)]);

static HYPERV: Object = Object(&[
    yes("relaxed", Shape::Object(&STATE)),
    yes("vapic", Shape::Object(&STATE)),
    yes("spinlocks", Shape::Object(&SPINLOCKS)),
    yes("vpindex", Shape::Object(&STATE)),
    yes("runtime", Shape::Object(&STATE)),
    yes("synic", Shape::Object(&STATE)),
    yes("synictimer", Shape::Object(&SYNIC_TIMER)),
    yes("reset", Shape::Object(&STATE)),
    yes("vendorid", Shape::Object(&VENDOR_ID)),
    yes("frequencies", Shape::Object(&STATE)),
    yes("reenlightenment", Shape::Object(&STATE)),
    yes("tlbflush", Shape::Object(&TLB_FLUSH)),
    yes("ipi", Shape::Object(&STATE)),
    yes("evmcs", Shape::Object(&STATE)),
]);

static SPINLOCKS: Object = Object(&[yes("enabled", Shape::Bool), yes("spinlocks", Shape::Int(4095, u32::MAX as i64))]);

static SYNIC_TIMER: Object = Object(&[yes("enabled", Shape::Bool), yes("direct", Shape::Object(&STATE))]);

static VENDOR_ID: Object = Object(&[yes("enabled", Shape::Bool), yes("vendorid", Shape::Text(&VENDOR))]);

static VENDOR: Form = form("a text of at most 12 characters", 12, LINE, |text| !text.chars().any(char::is_control));

static TLB_FLUSH: Object = Object(&[
    yes("enabled", Shape::Bool),
    yes("direct", Shape::Object(&STATE)),
    yes("extended", Shape::Object(&STATE)),
]);
