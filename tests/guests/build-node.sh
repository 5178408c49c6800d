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
kernel_modules "$R" "$K/lib/modules" "$N/modules" $TREES
[ "$NAME" = node ] || "$HERE/build-iommufd.sh" "$R" "$N/modules/$R"
find "$N/modules" -name '*.ko' -exec strip --strip-debug {} +
rm -rf "$WORK/base"; mkdir -p "$WORK/base/lib" # depmod wants lib/modules above
ln -s "$N/modules" "$WORK/base/lib/modules"
depmod -b "$WORK/base" "$R"

early_initrd "$R" "$WORK/base" "$HERE/node-root/init" "$N/initrd" $EARLY
elf_kernel "$K/boot/vmlinuz-$R" "$N/vmlinux"
log "$N: kernel $(stat -c %s "$N/vmlinux") bytes, initrd $(stat -c %s "$N/initrd"), modules $(du -sk "$N/modules" | cut -f1) KiB"
