#!/bin/bash
# build-node.sh - builds out/node/: Debian's generic kernel for a machine that borrows everything else from the machine
# it runs on. The bed mounts the root file system of its own machine in it, read-only, under an overlay in memory; so
# the tools are those that host/install.sh put there, and neither a new tool nor a new test needs a new image.
#
#   vmlinux   the kernel as ELF: QEMU starts it directly (PVH), without the 3 s that unpacking takes under TCG
#   initrd    busybox, the modules up to the mounts, and node-root/init
#   modules   the rest of the modules, with their tables: bound over /usr/lib/modules, loaded as the kernel asks
. "$(dirname "$0")/lib.sh"
need cpio depmod modprobe lz4 xz
HERE=$(cd "$(dirname "$0")" && pwd)
R=$KVER-amd64
# Up to the root file system and the wire to the bed.
EARLY="virtio_pci virtio_console 9pnet_virtio 9p overlay"
# What nodes have and cases use: the network with its devices, what emulated cards need, VFIO.
TREES="arch crypto lib net drivers/char drivers/dca drivers/i2c drivers/iommu drivers/net drivers/pps drivers/ptp
	drivers/vfio drivers/vhost drivers/virtio fs/9p fs/fscache fs/netfs fs/overlayfs"

K=$(unpack_deb "linux-image-$R")
N=$OUT/node
mkdir -p "$N/modules/$R"
for tree in $TREES; do
	[ -d "$K/lib/modules/$R/kernel/$tree" ] || continue
	mkdir -p "$N/modules/$R/kernel/$tree"
	cp -r "$K/lib/modules/$R/kernel/$tree/." "$N/modules/$R/kernel/$tree/"
done
rm -rf "$N/modules/$R/kernel/drivers/net/wireless"
cp "$K/lib/modules/$R"/modules.{builtin,builtin.modinfo,order} "$N/modules/$R/"
find "$N/modules" -name '*.ko' -exec strip --strip-debug {} + # their signatures go too: that taints, nothing more
tables() { # DIR: depmod wants lib/modules above
	rm -rf "$WORK/base"; mkdir -p "$WORK/base/lib"
	ln -s "$1" "$WORK/base/lib/modules"
	depmod -b "$WORK/base" "$R"
}
tables "$N/modules"

T=$WORK/node-root
rm -rf "$T"; mkdir -p "$T"/{bin,dev,host,node,proc,sys,top,lib/modules}
bb=$(unpack_deb busybox-static)/bin/busybox
cp "$bb" "$T/bin/busybox"
for a in $("$bb" --list); do [ -e "$T/bin/$a" ] || ln -s busybox "$T/bin/$a"; done
for m in $EARLY; do
	modprobe -d "$WORK/base" -S "$R" --show-depends "$m" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | sort -u | while read -r ko; do install -D -m644 "$ko" "$T/lib/modules/${ko##*/lib/modules/}"; done
cp "$N/modules/$R"/modules.{builtin,order} "$T/lib/modules/$R/"
depmod -b "$T" "$R"
install -m755 "$HERE/node-root/init" "$T/init"
(cd "$T" && find . | sort | cpio -o -H newc -R 0:0 --quiet --reproducible) | $NICE lz4 -q -l -9 >"$N/initrd"

# The compressed kernel lies somewhere inside the boot image: the first XZ stream that holds an ELF file.
for at in $(grep -obUaP '\xfd7zXZ\x00' "$K/boot/vmlinuz-$R" | cut -d: -f1); do
	tail -c "+$((at + 1))" "$K/boot/vmlinuz-$R" | xz -dcq --single-stream >"$N/vmlinux" 2>/dev/null || true
	[ "$(head -c4 "$N/vmlinux" | tail -c3)" != ELF ] || break
done
[ "$(head -c4 "$N/vmlinux" | tail -c3)" = ELF ] || die "no kernel in vmlinuz-$R"
log "$N: kernel $(stat -c %s "$N/vmlinux") bytes, initrd $(stat -c %s "$N/initrd"), modules $(du -sk "$N/modules" | cut -f1) KiB"
