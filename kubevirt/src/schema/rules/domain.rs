//! A domain, but for its devices.

use super::{Rule, rule};

/// Nothing and zero are one of a thing.
fn of(field: &str) -> String {
    format!("(has(self.{field}) && self.{field} > 0 ? self.{field} : 1)")
}

const COUNT: &str = "sockets, cores and threads make more than 255 vCPUs";

pub(super) fn rules() -> Vec<Rule> {
    let (sockets, cores, threads, most) = (of("sockets"), of("cores"), of("threads"), of("maxSockets"));
    let mut rules = vec![
        rule(
            "domain.cpu",
            "",
            COUNT,
            format!("{sockets} * {cores} * {threads} <= 255 && {most} * {cores} * {threads} <= 255"),
        ),
        rule(
            "domain.cpu",
            "sockets",
            "is more than maxSockets",
            format!("!has(self.maxSockets) || self.maxSockets == 0 || {sockets} <= self.maxSockets"),
        ),
        rule(
            "domain.cpu",
            "dedicatedCpuPlacement",
            "takes at most 2 threads a core",
            format!("!has(self.dedicatedCpuPlacement) || !self.dedicatedCpuPlacement || {threads} <= 2"),
        ),
        rule(
            "domain.memory",
            "guest",
            "is below 1Mi",
            "!has(self.guest) || quantity(string(self.guest)).compareTo(quantity('1Mi')) >= 0",
        ),
        rule(
            "domain.memory",
            "hugepages.pageSize",
            "does not divide the guest's memory",
            "!has(self.hugepages) || !has(self.guest) || !quantity(string(self.guest)).isInteger() \
             || quantity(string(self.guest)).asInteger() > 0 \
             && quantity(string(self.guest)).asInteger() % (self.hugepages.pageSize == '1Gi' ? 1073741824 : 2097152) == 0",
        ),
        rule(
            "domain",
            "memory.guest",
            "is more than limits.memory",
            "!has(self.memory) || !has(self.memory.guest) || !has(self.resources) || !has(self.resources.limits) \
             || !('memory' in self.resources.limits) \
             || quantity(string(self.memory.guest)).compareTo(quantity(string(self.resources.limits['memory']))) <= 0",
        ),
        rule(
            "domain",
            "features.smm.enabled",
            "secure boot needs it",
            "!has(self.firmware) || !has(self.firmware.bootloader) || !has(self.firmware.bootloader.efi) \
             || has(self.firmware.bootloader.efi.secureBoot) && !self.firmware.bootloader.efi.secureBoot \
             || !has(self.features) || !has(self.features.smm) || !has(self.features.smm.enabled) || self.features.smm.enabled",
        ),
        rule(
            "domain.firmware.bootloader",
            "",
            "is both bios and efi; write one of them",
            "!has(self.bios) || !has(self.efi)",
        ),
        rule(
            "domain.clock",
            "",
            "has both utc and timezone; write one of them",
            "!has(self.utc) || !has(self.timezone) || self.timezone == ''",
        ),
        rule(
            "domain.features.hyperv",
            "synictimer",
            "needs synic",
            "!has(self.synictimer) || has(self.synictimer.enabled) && !self.synictimer.enabled \
             || has(self.synic) && (!has(self.synic.enabled) || self.synic.enabled)",
        ),
    ];
    rules.extend(["requests", "limits"].into_iter().map(dedicated));
    rules
}

/// Pinned vCPUs are whole processors.
fn dedicated(all: &'static str) -> Rule {
    let of = |field: &str| format!("(has(self.cpu.{field}) && self.cpu.{field} > 0 ? self.cpu.{field} : 1)");
    let count = format!("{} * {} * {}", of("sockets"), of("cores"), of("threads"));
    let holds = format!(
        "!has(self.cpu) || !has(self.cpu.dedicatedCpuPlacement) || !self.cpu.dedicatedCpuPlacement || !has(self.resources) \
         || !has(self.resources.{all}) || !('cpu' in self.resources.{all}) \
         || quantity(string(self.resources.{all}['cpu'])).asApproximateFloat() == double({count})"
    );
    let field = if all == "requests" { "resources.requests" } else { "resources.limits" };
    rule("domain", field, "cpu is not the number of vCPUs, as dedicatedCpuPlacement wants it", holds)
}
