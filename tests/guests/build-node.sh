#!/bin/bash
# build-node.sh - builds out/NAME/: Debian's generic kernel for a machine that borrows everything else from the machine
# it runs on. The bed mounts the root file system of its own machine in it, read-only, under an overlay in memory; so
# the tools are those that host/install.sh put there, and neither a new tool nor a new test needs a new image.
#
#   vmlinux   the kernel as ELF: QEMU starts it directly (PVH), without the 3 s that unpacking takes under TCG
#   initrd    busybox, the modules up to the mounts, and node-root/init
#   modules   the rest of the modules, with their tables: bound over /usr/lib/modules, loaded as the kernel asks
#
# usage: build-node.sh node|node-new
#   node       Debian 12's kernel: VFIO with groups alone
#   node-new   the newer one of Debian 12, with IOMMUFD and VFIO's devices of their own (see build-iommufd.sh)
. "$(dirname "$0")/lib.sh"
need cpio depmod modprobe lz4 xz zstd
HERE=$(cd "$(dirname "$0")" && pwd)
NAME=$1
case $NAME in
node) R=$KVER-amd64 ;;
node-new) R=$KVER_NEW-amd64 ;;
*) die "node or node-new" ;;
esac
# Up to the root file system and the wire to the bed.
EARLY="virtio_pci virtio_console 9pnet_virtio 9p overlay"
# What nodes have and cases use: the network with its devices, what emulated cards need, VFIO.
TREES="arch crypto lib net drivers/char drivers/crypto/ccp drivers/dca drivers/i2c drivers/iommu drivers/net drivers/pps drivers/ptp
	drivers/vfio drivers/vhost drivers/virtio fs/9p fs/fscache fs/netfs fs/overlayfs virt/lib"

K=$(unpack_deb "linux-image-$R")
N=$OUT/$NAME
mkdir -p "$N/modules/$R"
for tree in $TREES; do
	[ -d "$K/lib/modules/$R/kernel/$tree" ] || continue
	mkdir -p "$N/modules/$R/kernel/$tree"
	cp -r "$K/lib/modules/$R/kernel/$tree/." "$N/modules/$R/kernel/$tree/"
done
rm -rf "$N/modules/$R/kernel/drivers/net/wireless"
cp "$K/lib/modules/$R"/modules.{builtin,builtin.modinfo,order} "$N/modules/$R/"
find "$N/modules" -name '*.ko.xz' -exec xz -d {} +
[ "$NAME" = node ] || "$HERE/build-iommufd.sh" "$R" "$N/modules/$R"
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

# The compressed kernel lies somewhere inside the boot image: the first stream that holds an ELF file.
is_elf() { [ "$(head -c4 "$1" | tail -c3)" = ELF ]; }
unpacked() { # MAGIC COMMAND...
	local magic=$1 at; shift
	for at in $(LC_ALL=C grep -obUaP "$magic" "$K/boot/vmlinuz-$R" | cut -d: -f1); do
		tail -c "+$((at + 1))" "$K/boot/vmlinuz-$R" | "$@" >"$N/vmlinux" 2>/dev/null || true
		! is_elf "$N/vmlinux" || return 0
	done
	return 1
}
unpacked '\xfd7zXZ\x00' xz -dcq --single-stream || unpacked '\x28\xb5\x2f\xfd' zstd -dcq || die "no kernel in vmlinuz-$R"
log "$N: kernel $(stat -c %s "$N/vmlinux") bytes, initrd $(stat -c %s "$N/initrd"), modules $(du -sk "$N/modules" | cut -f1) KiB"
