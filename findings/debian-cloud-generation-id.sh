#!/bin/bash
# What:     what Debian's kernels have of a driver for the id of a VM's generation (ACPI's VM_GEN_COUNTER, Linux's drivers/virt/vmgenid.c since 5.18):
#           those for clouds and the usual ones, of Debian 12 (6.1.176-1) and Debian 13 (6.12.117-1)
# Expected: all have it, and those for clouds before others: there VMs are saved and copied
# Seen:     that of Debian 12 for clouds has no drivers of drivers/virt at all (CONFIG_VIRT_DRIVERS is off). The other three have it built in.
# So:       a VM of Debian 12's cloud image that goes on from a snapshot under another generation id draws the random numbers that every other copy
#           draws, until its generator begins anew by itself, a minute later at most. Somebody in the guest has to have it begin anew: by the ioctl
#           RNDRESEEDCRNG (random(4)), as what is written to /dev/urandom is mixed in, and waits for that.
source "$(dirname "$0")/lib.sh"

# suite FOLDER SUITE VERSION KERNEL...: what the configuration of each kernel says
suite() {
	local folder=$1 suite=$2 version=$3 kernel
	shift 3
	debian "$folder" "$suite" $(printf "linux-image-%s=$version " "$@")
	for kernel; do
		echo "$kernel: $(grep -E '^(# )?CONFIG_(VIRT_DRIVERS|VMGENID)[= ]' "$tmp/$folder/boot/config-$kernel" | sort | paste -sd ,)"
	done
}

{
	suite debian12 bookworm 6.1.176-1 6.1.0-50-cloud-amd64 6.1.0-50-amd64
	suite debian13 trixie 6.12.117-1 6.12.117+deb13-cloud-amd64 6.12.117+deb13-amd64
} >"$tmp/said"
expect "configurations" "6.1.0-50-cloud-amd64: # CONFIG_VIRT_DRIVERS is not set
6.1.0-50-amd64: CONFIG_VIRT_DRIVERS=y,CONFIG_VMGENID=y
6.12.117+deb13-cloud-amd64: CONFIG_VIRT_DRIVERS=y,CONFIG_VMGENID=y
6.12.117+deb13-amd64: CONFIG_VIRT_DRIVERS=y,CONFIG_VMGENID=y" "$(cat "$tmp/said")"
