#!/bin/bash
# build-installed.sh - builds out/NAME/: a Debian with systemd, AppArmor, libvirt and QEMU, on which nothing of ours is
# installed yet. The tier `installed` installs the packages there.
#
#   vmlinux      Debian's generic kernel as ELF: QEMU starts it directly (PVH)
#   initrd       busybox, the modules up to the root file system, and installed-root/init
#   disk.qcow2   the root file system, ext4 without a partition table
#
# The machine has the bed's own machine at /host, read-only; `installed-agent.service` starts the bed there, by whose hand the
# cases do what they do.
#
# usage: build-installed.sh installed|installed-13
#   installed      Debian 12, with libvirt and QEMU of its backports
#   installed-13   Debian 13, with its own, and virtqemud beside libvirtd (see build-virtqemud.sh)
. "$(dirname "$0")/lib.sh"
need cpio depmod modprobe lz4 xz zstd mmdebstrap mke2fs qemu-img
HERE=$(cd "$(dirname "$0")" && pwd)
NAME=$1
N=$OUT/$NAME
ROOT=$WORK/$NAME-root
DISK_MIB=${DISK_MIB:-6144}

PKGS=systemd-sysv,systemd-resolved,udev,dbus,kmod,apparmor,polkitd
PKGS=$PKGS,qemu-system-x86,qemu-utils,qemu-system-common
PKGS=$PKGS,libvirt-daemon-system,libvirt-clients
PKGS=$PKGS,containernetworking-plugins,iptables,nftables,iproute2,iputils-ping,ca-certificates,curl,procps,netbase
# Those that the machine has beside what its file system needs: the network, KVM, and the way to the bed.
TREES="arch crypto drivers/block drivers/char drivers/crypto/ccp drivers/net drivers/ptp drivers/pps drivers/vhost drivers/virtio
	fs lib net virt/lib"

rm -rf "$ROOT"
cat >"$WORK/installed-custom.sh" <<'CUSTOM'
#!/bin/sh
set -e
root=$1
echo '/dev/vda / ext4 rw 0 1' >"$root/etc/fstab"
echo installed >"$root/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 installed\n::1 localhost\n' >"$root/etc/hosts"
: >"$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id" "$root"/var/cache/apt/*.bin
rm -rf "$root"/var/lib/apt/lists/* "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
# What nobody waits for, and what would change the machine behind the cases' back.
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer dpkg-db-backup.timer; do
	chroot "$root" systemctl disable --quiet "$unit" || true
done
chroot "$root" systemctl mask --quiet systemd-networkd-wait-online.service libvirt-guests.service
chroot "$root" systemctl enable --quiet installed-agent.service
CUSTOM
cat >"$WORK/installed-apt.sh" <<'APT'
#!/bin/sh
# Gets the kernel's package, and libvirt's source, into DIRECTORY, and prints the kernel's release. By the new root's apt, as this
# machine's has no other Debian than its own. The kernel is not installed: that would make an initrd.
set -e
cd "$1"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
ls "${kernel}_"*.deb >/dev/null 2>&1 || apt-get download -qq -o APT::Sandbox::User=root "$kernel" >&2
apt-get source -qq --download-only --tar-only -o APT::Sandbox::User=root libvirt >&2
echo "${kernel#linux-image-}"
APT
chmod +x "$WORK/installed-custom.sh" "$WORK/installed-apt.sh"

case $NAME in
installed)
	SUITE=bookworm R=$KVER-amd64
	# As an administrator takes them from there.
	cat >"$WORK/backports.pref" <<'PREF'
Package: src:libvirt src:qemu src:seabios
Pin: release n=bookworm-backports
Pin-Priority: 900
PREF
	MORE=("deb $MIRROR bookworm-backports main")
	HOOKS=(--setup-hook="install -D -m644 '$WORK/backports.pref' \"\$1/etc/apt/preferences.d/backports\"")
	;;
installed-13)
	SUITE=trixie R=
	PKGS=$PKGS,virtiofsd
	MORE=("deb-src $MIRROR trixie main")
	HOOKS=(--customize-hook="'$WORK/installed-apt.sh' '$DEBS' >'$WORK/release'")
	;;
*) die "installed or installed-13" ;;
esac
rm -rf "$ROOT"
log "mmdebstrap -> $ROOT"
$NICE mmdebstrap --variant=minbase --arch=amd64 --mode=root \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	--aptopt='Acquire::Check-Date "false"' \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/virtlet/*' \
	"${HOOKS[@]}" \
	--customize-hook="cp -r '$HERE/installed-root/.' \"\$1/\" && rm \"\$1/init\"" \
	--customize-hook="$WORK/installed-custom.sh"' "$1"' \
	--include="$PKGS" "$SUITE" "$ROOT" \
	"deb $MIRROR $SUITE main" "deb $MIRROR $SUITE-updates main" "deb $SECURITY $SUITE-security main" "${MORE[@]}"

if [ "$NAME" = installed-13 ]; then
	version=$(dpkg-query --root="$ROOT" -Wf '${source:Upstream-Version}' libvirt0)
	"$HERE/build-virtqemud.sh" "$ROOT" "$DEBS/libvirt_$version.orig.tar.xz"
fi
R=${R:-$(cat "$WORK/release")}
K=$(unpack_deb "linux-image-$R")
FROM=$K/lib/modules
[ -d "$FROM" ] || FROM=$K/usr/lib/modules
M=$ROOT/usr/lib/modules
# shellcheck disable=SC2086 # a list of words
kernel_modules "$R" "$FROM" "$M" $TREES
find "$M" -name '*.ko' -exec strip --strip-debug {} +
cp "$K/boot/vmlinuz-$R" "$ROOT/boot/" # controld tries KVM with it
rm -rf "$WORK/base"; mkdir -p "$WORK/base/lib"
ln -s "$M" "$WORK/base/lib/modules"
depmod -b "$WORK/base" "$R"

mkdir -p "$N"
early_initrd "$R" "$WORK/base" "$HERE/installed-root/init" "$N/initrd" virtio_pci virtio_blk ext4 crc32c_generic
elf_kernel "$K/boot/vmlinuz-$R" "$N/vmlinux"
truncate -s "${DISK_MIB}M" "$WORK/$NAME.raw"
$NICE mke2fs -q -t ext4 -L installed -m 1 -E lazy_itable_init=1,lazy_journal_init=1 -d "$ROOT" "$WORK/$NAME.raw"
$NICE qemu-img convert -O qcow2 -c -o compression_type=zstd "$WORK/$NAME.raw" "$N/disk.qcow2"
log "$N: kernel $R $(stat -c %s "$N/vmlinux") bytes, initrd $(stat -c %s "$N/initrd"), disk $(stat -c %s "$N/disk.qcow2")"
