#!/bin/bash
# What:     libvirtd 11.3.0 (Debian 11.3.0-2~bpo12+1) that is started again, on another processor than before, where KVM is and the processors have
#           CPUID leaf 0x1f (Intel's V2 extended topology: servers since Ice Lake)
# Expected: what an emulator has answered stays in /var/cache/libvirt/qemu/capabilities until the emulator, libvirt, the kernel or the kind of processor
#           is another.
# Seen:     with each answer libvirt keeps what KVM_GET_SUPPORTED_CPUID says. Linux (6.18) reads some of that on the processor that asks, among it the number
#           of this very processor: leaf 1 EBX 31..24, leaf 0xb EDX, leaf 0x1f EDX. libvirt leaves out the first two and compares the third: "Outdated
#           capabilities ...: host cpuid changed". On the processor of last time the answers are good again.
# So:       on such a node nearly every restart of libvirtd asks each emulator again, two QEMUs each, half a second of a processor and more, within the first
#           call that is about it. Who measures or tests what libvirtd does starts it on one processor (taskset -c 0).
source "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || fail "needs root, as it starts a libvirtd in namespaces of its own"
need qemu-system-x86_64 "apt-get install qemu-system-x86"
need unshare "apt-get install util-linux"
need python3 "apt-get install python3"
[ -w /dev/kvm ] || fail "needs /dev/kvm"

cat >"$tmp/cpuid.py" <<'PY'
import fcntl, os, struct

KVM_GET_SUPPORTED_CPUID = 0xC008AE05  # linux/kvm.h


def supported(processor):
    os.sched_setaffinity(0, {processor})
    buffer = bytearray(struct.pack("II", 200, 0) + bytes(40 * 200))
    with open("/dev/kvm", "rb+", buffering=0) as kvm:
        fcntl.ioctl(kvm, KVM_GET_SUPPORTED_CPUID, buffer)
    found = {}
    for at in range(struct.unpack_from("I", buffer)[0]):
        leaf, index, _, *registers = struct.unpack_from("7I", buffer, 8 + 40 * at)
        found[leaf, index] = registers
    return found


first, second = supported(0), supported(1)
differing = {leaf for leaf, index in first if first[leaf, index] != second[leaf, index]}
print(" ".join(map(hex, sorted(differing))))
PY
differing=$(python3 "$tmp/cpuid.py")
[[ " $differing " = *" 0x1f "* ]] || fail "needs an Intel server's processor since Ice Lake: leaves that differ here are $differing"
expect "leaves that are others on another processor" "0x1 0xb 0x1f" "$differing"

debian libvirt bookworm-backports libvirt-daemon=11.3.0-2~bpo12+1 libvirt-daemon-common=11.3.0-2~bpo12+1 \
	libvirt-daemon-driver-qemu=11.3.0-2~bpo12+1 libvirt-common=11.3.0-2~bpo12+1 libvirt0=11.3.0-2~bpo12+1 \
	libvirt-clients=11.3.0-2~bpo12+1
lib=$tmp/libvirt/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib LIBVIRT_DRIVER_DIR=$lib/libvirt/connection-driver
export LIBVIRT_LOG_FILTERS="1:qemu.qemu_capabilities" LIBVIRT_LOG_OUTPUTS="1:stderr"
cat >"$tmp/libvirtd.conf" <<'CONF'
auth_unix_rw = "none"
auth_unix_ro = "none"
CONF

# lives: one libvirtd after the other, each on the processor that is named, in directories that are new
cat >"$tmp/lives.sh" <<'SH'
set -eu
for directory in /var/lib/libvirt /var/cache /var/log /run /etc/libvirt; do
	mkdir -p "$directory"
	mount -t tmpfs none "$directory"
done
for processor; do
	timeout 100 taskset -c "$processor" "$tmp/libvirt/usr/sbin/libvirtd" --config "$tmp/libvirtd.conf" 2>"$tmp/log" &
	libvirtd=$!
	up() { timeout 60 "$tmp/libvirt/usr/bin/virsh" -q -c qemu:///system capabilities >"$tmp/out" 2>&1; }
	for _ in $(seq 100); do
		! up || break
		sleep 0.2
	done
	up
	kill "$libvirtd"
	wait "$libvirtd" 2>/dev/null || :
	asked=$(grep -c 'Saved caps' "$tmp/log") || :
	outdated=$(grep -c 'Outdated capabilities .*qemu-system-x86_64.*: host cpuid changed' "$tmp/log") || :
	echo "processor $processor: $([ "$asked" = 0 ] && echo kept || echo asked)$([ "$outdated" = 0 ] || echo ', host cpuid changed')"
done
SH
export tmp
said=$(timeout 300 unshare --mount --pid --fork --kill-child --mount-proc bash "$tmp/lives.sh" 0 0 1 1 0)
expect "answers of the emulator" "processor 0: asked
processor 0: kept
processor 1: asked, host cpuid changed
processor 1: kept
processor 0: asked, host cpuid changed" "$said"
