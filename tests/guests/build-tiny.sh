#!/bin/bash
# build-tiny.sh - builds the tiny BIOS guest: Debian kernel + one initramfs with
# busybox-static, dropbear and qemu-ga, on an MBR disk with
#   p1 FAT32/16 "BOOT": SYSLINUX, vmlinuz, initrd, syslinux.cfg
#   p2 ext4 "tinydata": state that survives in a qcow2 overlay (boot counter)
#
#   (dropbear-bin, qemu-guest-agent and libraries are only downloaded, not installed)
#
# usage: build-tiny.sh [cloud|amd64|vf]   kernel flavour, default cloud
#   cloud -> out/tiny.qcow2        virtio only: no AHCI (so no SATA CD-ROM), no
#                                  igbvf, no e1000, no 9p; LZ4 kernel, starts fast
#   amd64 -> out/tiny-amd64.qcow2  with ahci, igb, igbvf, e1000(e), iavf, 9p;
#                                  XZ kernel, about two seconds slower under TCG
#   vf    -> out/tiny-vf.qcow2     cloud, with igbvf compiled for it, and without
#                                  what takes time to start (see "tiny.fast" in
#                                  tiny-root/sbin/rc): for emulators in emulators
# Environment: COMP=lz4|zstd|gzip|none (initramfs; lz4 is quickest, zstd 2 MB smaller), APPEND="extra kernel words"
# MINI=1: instead of the disk image only out/NAME-mini.initrd: no ssh, no agent, few
#   modules (for TCG inside TCG; boot it with "tiny.fast" on the command line)
# Also left in out/: tiny[-amd64].vmlinuz, .initrd for direct -kernel boot; shim.efi, grub.efi (cloud).
. "$(dirname "$0")/lib.sh"
need mke2fs sfdisk syslinux mcopy mformat qemu-img cpio depmod modprobe readelf
HERE=$(cd "$(dirname "$0")" && pwd)
FLAVOUR=${1:-cloud}
COMP=${COMP:-lz4}
APPEND=${APPEND:-}
case $FLAVOUR in
cloud) NAME=tiny R=$KVER-cloud-amd64 ;;
amd64) NAME=tiny-amd64 R=$KVER-amd64 ;;
vf) NAME=tiny-vf R=$KVER-cloud-amd64 APPEND="no_timer_check tsc=reliable audit=0 $APPEND" ;;
*) die "flavour cloud, amd64 or vf" ;;
esac
MODS="virtio_pci virtio_net virtio_blk virtio_scsi virtio_console virtio_rng virtio_balloon
 sd_mod sr_mod isofs vfat nls_ascii nls_cp437 nls_utf8 button evdev fuse virtiofs overlay
 vmw_vsock_virtio_transport 8021q bridge dummy qemu_fw_cfg ixgbevf
 ext4 crc32c_generic crc32c_intel ahci ata_piix 9p 9pnet_virtio igb igbvf e1000 e1000e iavf i6300esb virtio-gpu"
[ -z "${MINI:-}" ] || MODS="virtio_pci virtio_net virtio_blk button evdev igbvf ixgbevf iavf"
[ -z "${MINI:-}" ] || [ $FLAVOUR = vf ] || NAME=$NAME-mini

K=$(unpack_deb linux-image-$R)
if [ $FLAVOUR = vf ]; then
	need make gcc-12 xz
	igbvf=drivers/net/ethernet/intel/igbvf
	kernel_tree "$R" $igbvf
	printf 'obj-m += igbvf.o\nigbvf-y := vf.o mbx.o ethtool.o netdev.o\n' >"$SOURCE/$igbvf/Makefile" # the cloud kernel's says no
	compile_modules $igbvf
	install -D -m644 "$SOURCE/$igbvf/igbvf.ko" "$K/lib/modules/$R/kernel/$igbvf/igbvf.ko"
fi
T=$WORK/$NAME-root
rm -rf "$T"; mkdir -p "$T"/{bin,sbin,usr/bin,usr/sbin,lib64,lib/x86_64-linux-gnu,proc,sys,dev,run,tmp,mnt,root,lib/modules}

# --- busybox: real file once, links for all its commands
bb=/bin/busybox; [ -e $bb ] && ! ldd $bb >/dev/null 2>&1 || bb=$(unpack_deb busybox-static)/bin/busybox
cp "$bb" "$T/bin/busybox"
for a in $("$T/bin/busybox" --list); do [ -e "$T/bin/$a" ] || ln -s busybox "$T/bin/$a"; done

# paths that the kernel and other programs call
for a in modprobe ifconfig route ip; do ln -s /bin/busybox "$T/sbin/$a"; done
ln -s /bin/env "$T/usr/bin/env"

if [ -z "${MINI:-}" ]; then
# --- dropbear and qemu-ga with the libraries they need, from Debian 12 packages
LIBS="libc6 libcrypt1 libtomcrypt1 libtommath1 libgmp10 zlib1g libglib2.0-0 libpcre2-8-0 libnuma1 libudev1 liburing2"
dirs=
for p in dropbear-bin qemu-guest-agent $LIBS; do
	# "/bookworm": not a newer version that the host may prefer
	ls "$DEBS/${p}"_*.deb >/dev/null 2>&1 || ( cd "$DEBS" && apt-get download -qq -o APT::Sandbox::User=root "$p/bookworm" >&2 )
	dirs="$dirs $(unpack_deb "$p")"
done
for f in usr/sbin/dropbear usr/bin/dropbearkey usr/bin/dbclient; do cp "$(unpack_deb dropbear-bin)/$f" "$T/usr/bin/"; done
cp "$(unpack_deb qemu-guest-agent)/usr/sbin/qemu-ga" "$T/usr/bin/"
L=$T/lib/x86_64-linux-gnu	# in the loader's built-in path, unlike /lib64
copied=1
while [ $copied = 1 ]; do	# until all NEEDED libraries are there
	copied=0
	for l in $(readelf -d "$T"/usr/bin/{dropbear,dropbearkey,dbclient,qemu-ga} "$L"/*.so* 2>/dev/null |
			sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
		[ -e "$L/$l" ] && continue
		src=$(find $dirs -name "$l" | head -1); [ -n "$src" ] || die "library $l not found"
		cp -L "$src" "$L/$l"; copied=1
	done
done
mv "$L/ld-linux-x86-64.so.2" "$T/lib64/"
fi

# --- kernel modules with dependencies (a name that the flavour lacks is skipped).
# modprobe reads modules.builtin too, so built-in drivers cost nothing.
rm -rf "$WORK/$NAME-mods"; mkdir -p "$WORK/$NAME-mods/lib/modules"
ln -s "$K/lib/modules/$R" "$WORK/$NAME-mods/lib/modules/$R"
depmod -b "$WORK/$NAME-mods" "$R"
for m in $MODS; do
	modprobe -d "$WORK/$NAME-mods" -S "$R" --show-depends "$m" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p' || true
done | sort -u | while read -r ko; do
	install -D -m644 "$ko" "$T/lib/modules/$R/${ko##*/lib/modules/$R/}"
	strip --strip-debug "$T/lib/modules/$R/${ko##*/lib/modules/$R/}" 2>/dev/null || true
done
cp "$K/lib/modules/$R"/modules.{builtin,order} "$T/lib/modules/$R/"
cp "$K/lib/modules/$R"/modules.builtin.modinfo "$T/lib/modules/$R/"
depmod -b "$T" "$R"
# (busybox modprobe knows no softdep, and has no use for the rest)
rm -f "$T/lib/modules/$R"/{*.bin,modules.symbols,modules.devname,modules.builtin*,modules.order,modules.softdep}

# --- our own files; they replace busybox links of the same name
(cd "$HERE/tiny-root" && find . -type f) | while read -r f; do
	case $f in ./sbin/*) rm -f "$T/bin/${f##*/}" ;; esac
	install -D "$HERE/tiny-root/$f" "$T/$f"
done
chmod 700 "$T/root"; chmod 600 "$T/etc/shadow"; chmod 1777 "$T/tmp"

# --- initramfs
case $COMP in
zstd) c="zstd -q -19 -T2" ;; lz4) c="lz4 -q -l -9" ;; gzip) c="gzip -9n" ;; none) c=cat ;; *) die "COMP" ;;
esac
(cd "$T" && find . | sort | cpio -o -H newc -R 0:0 --quiet --reproducible) > "$WORK/$NAME.cpio"
$NICE $c < "$WORK/$NAME.cpio" > "$OUT/$NAME.initrd"
[ -z "${MINI:-}" ] || [ $FLAVOUR = vf ] || { log "$OUT/$NAME.initrd $(stat -c %s "$OUT/$NAME.initrd") bytes"; exit 0; }
cp "$K/boot/vmlinuz-$R" "$OUT/$NAME.vmlinuz"

# --- loaders for firmware that starts what is signed alone: Microsoft has signed the first, Debian the second and the kernel
if [ $FLAVOUR = cloud ]; then
	cp "$(unpack_deb shim-signed)/usr/lib/shim/shimx64.efi.signed" "$OUT/shim.efi"
	cp "$(unpack_deb grub-efi-amd64-signed)/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" "$OUT/grub.efi"
fi

# --- disk
kb=$(( ($(stat -c %s "$OUT/$NAME.vmlinuz") + $(stat -c %s "$OUT/$NAME.initrd")) / 1024 ))
fat=$(( kb / 1024 + 4 )) data=16			# MiB
raw=$WORK/$NAME.raw; rm -f "$raw"; truncate -s $(( (1 + fat + data + 1) ))M "$raw"
printf 'label: dos\nlabel-id: 0x74696e79\nstart=2048, size=%d, type=e, bootable\nstart=%d, size=%d, type=83\n' \
	$((fat * 2048)) $((2048 + fat * 2048)) $((data * 2048)) | sfdisk -q "$raw"
dd if=/usr/lib/syslinux/mbr/mbr.bin of="$raw" bs=440 count=1 conv=notrunc status=none
export MTOOLS_SKIP_CHECK=1
mformat -i "$raw@@1M" -T $((fat * 2048)) -h 255 -s 63 -H 2048 -v BOOT ::
# no_timer_check: an emulated guest that has to wait for a processor loses ticks of its timer, and the kernel's check at boot, which
# counts four, ends in a panic ("IO-APIC + timer doesn't work"). Under KVM the kernel leaves the check out by itself.
cat > "$WORK/$NAME-syslinux.cfg" <<C
DEFAULT tiny
PROMPT 0
TIMEOUT 0
LABEL tiny
  KERNEL /vmlinuz
  INITRD /initrd
  APPEND console=tty0 console=ttyS0,115200n8 quiet no_timer_check mitigations=off scsi_mod.scan=sync random.trust_cpu=on cryptomgr.notests $APPEND
C
syslinux -t 1048576 --install "$raw"
mcopy -i "$raw@@1M" "$OUT/$NAME.vmlinuz" ::/vmlinuz
mcopy -i "$raw@@1M" "$OUT/$NAME.initrd" ::/initrd
mcopy -i "$raw@@1M" "$WORK/$NAME-syslinux.cfg" ::/syslinux.cfg
part=$WORK/$NAME.part; rm -f "$part"; truncate -s ${data}M "$part"
mke2fs -q -t ext4 -O ^has_journal -L tinydata -m 0 "$part"
put_at "$part" "$raw" $((1048576 * (1 + fat)))
$NICE qemu-img convert -O qcow2 ${QCOW2_OPTS:-} "$raw" "$OUT/$NAME.qcow2.tmp"
mv "$OUT/$NAME.qcow2.tmp" "$OUT/$NAME.qcow2"; rm -f "$raw" "$part" "$WORK/$NAME.cpio"
log "$OUT/$NAME.qcow2 $(stat -c %s "$OUT/$NAME.qcow2") bytes (kernel $(stat -c %s "$OUT/$NAME.vmlinuz"), initrd $(stat -c %s "$OUT/$NAME.initrd"), unpacked $(du -sk "$T" | cut -f1) KiB)"
