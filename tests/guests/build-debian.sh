#!/bin/bash
# build-debian.sh - builds out/debian.qcow2: Debian 12 with systemd, cloud-init,
# openssh-server, qemu-guest-agent and the cloud kernel, BIOS GRUB, no loop device.
#
# Environment: DISK_MIB (default 4096), EXTRA_PKGS (comma list), REBUILD=1 to
# rebuild the root filesystem tree kept in work/debian-root.
. "$(dirname "$0")/lib.sh"
need mmdebstrap mke2fs sfdisk grub-mkimage qemu-img
ROOT=$WORK/debian-root
DISK_MIB=${DISK_MIB:-4096}
KPKG=linux-image-$KVER-cloud-amd64

PKGS=systemd-sysv,systemd-resolved,udev,dbus,kmod,initramfs-tools,zstd,$KPKG
PKGS=$PKGS,cloud-init,cloud-guest-utils,e2fsprogs,openssh-server,qemu-guest-agent
# netplan + networkd + resolved, as in Debian's own cloud image: netplan also makes
# networkd use the MTU of the DHCP server (networkd alone does not)
PKGS=$PKGS,netplan.io
PKGS=$PKGS,iproute2,iputils-ping,ca-certificates,sudo,less,procps,netbase,curl
[ -n "${EXTRA_PKGS:-}" ] && PKGS=$PKGS,$EXTRA_PKGS

if [ ! -e "$ROOT/.built" ] || [ -n "${REBUILD:-}" ]; then
	rm -rf "$ROOT"
	log "mmdebstrap -> $ROOT"
	# Written before the kernel is configured, so that the initrd is built once,
	# small (MODULES=list) and quick to unpack (lz4 would be quicker still, but
	# its tool is one more package).
	cat > "$WORK/debian-pre.sh" <<'PRE'
#!/bin/sh
set -e
root=$1
mkdir -p "$root/etc/initramfs-tools/conf.d"
echo 'MODULES=list
COMPRESS=zstd
RESUME=none' > "$root/etc/initramfs-tools/conf.d/vm.conf"
printf '%s\n' virtio_pci virtio_blk virtio_scsi sd_mod sr_mod > "$root/etc/initramfs-tools/modules.vm"
printf 'do_symlinks=yes\nlink_in_boot=no\n' > "$root/etc/kernel-img.conf"
PRE
	cat > "$WORK/debian-custom.sh" <<'CUST'
#!/bin/sh
set -e
root=$1
cat "$root/etc/initramfs-tools/modules.vm" >> "$root/etc/initramfs-tools/modules"
rm "$root/etc/initramfs-tools/modules.vm"
chroot "$root" update-initramfs -u
echo 'LABEL=debroot / ext4 rw,errors=remount-ro,x-systemd.growfs 0 1' > "$root/etc/fstab"
echo debian > "$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' > "$root/etc/hosts"
# network: cloud-init -> netplan -> systemd-networkd (no ifupdown)
mkdir -p "$root/etc/cloud/cloud.cfg.d"
cat > "$root/etc/cloud/cloud.cfg.d/90-vm.cfg" <<'C'
datasource_list: [ NoCloud, ConfigDrive, None ]
datasource: { NoCloud: { fs_label: cidata } }
system_info:
  network: { renderers: ['netplan', 'networkd'] }
# quicker and quieter first boot under emulation
locale: C.UTF-8
ssh_genkeytypes: [ ed25519 ]
ssh: { emit_keys_to_console: false }
no_ssh_fingerprints: true
apt: { preserve_sources_list: true }
C
chroot "$root" systemctl enable systemd-networkd systemd-resolved ssh serial-getty@ttyS0 >/dev/null 2>&1
chroot "$root" systemctl disable apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer >/dev/null 2>&1 || true
chroot "$root" systemctl mask systemd-networkd-wait-online.service >/dev/null 2>&1
# qemu-guest-agent.service is started by udev when the virtio port is there
ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
# power button -> poweroff is the default of systemd-logind; make sure it is there
# first-boot state
: > "$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_* "$root"/var/lib/dbus/machine-id
rm -rf "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/* \
	"$root"/usr/share/man/* "$root"/usr/share/locale/* "$root"/usr/share/info/*
# emergency login on the serial console: root / root
echo root:root | chroot "$root" chpasswd
touch "$root/.built"
CUST
	chmod +x "$WORK"/debian-pre.sh "$WORK"/debian-custom.sh
	$NICE mmdebstrap --variant=minbase --arch=amd64 --mode=root \
		--aptopt='Acquire::Check-Valid-Until "false"' \
		--aptopt='Acquire::Check-Date "false"' \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--essential-hook="$WORK/debian-pre.sh"' "$1"' \
		--customize-hook="$WORK/debian-custom.sh"' "$1"' \
		--include="$PKGS" bookworm "$ROOT" \
		"deb $MIRROR bookworm main" "deb $MIRROR bookworm-updates main" \
		"deb $SECURITY bookworm-security main"
fi
log "rootfs: $(du -sm "$ROOT" | cut -f1) MiB, initrd $(stat -Lc %s "$ROOT"/boot/initrd.img-*) bytes"

# no_timer_check: see build-tiny.sh
cat > "$WORK/debian-grub.cfg" <<'C'
set root=(hd0,msdos1)
set timeout=0
if [ -e /boot/grub/custom.cfg ]; then source /boot/grub/custom.cfg; fi
linux /vmlinuz root=LABEL=debroot ro console=tty0 console=ttyS0,115200 quiet net.ifnames=0 no_timer_check mitigations=off
initrd /initrd.img
boot
C
# compressed: a third of the size, and it starts as quickly
QCOW2_OPTS=${QCOW2_OPTS--c -o compression_type=zstd}
disk_from_dir "$ROOT" "$OUT/debian.qcow2" "$DISK_MIB" debroot "$WORK/debian-grub.cfg"
log "done: $OUT/debian.qcow2 $(stat -c %s "$OUT/debian.qcow2") bytes, virtual $DISK_MIB MiB"
