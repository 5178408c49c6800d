# lib.sh - shared helpers of the guest image builders.  Source it, do not run it.
#
# Everything here works on plain files: no loop device, no mount, no kpartx.
#   - sfdisk writes the MBR into a file
#   - mke2fs -d fills an ext4 partition image from a directory
#   - mtools (mformat/mcopy) + "syslinux -t OFFSET" make a bootable FAT partition
#   - grub-mkimage makes a core.img that is copied behind the MBR by hand
#
# The packages that it takes are in ../host/install.sh.

set -euo pipefail
export LC_ALL=C
# Installed by "apt-get install" into sbin, which is not always in PATH
export PATH=$PATH:/usr/sbin:/sbin

G=${G:-$PWD/guests}                    # base directory
WORK=${WORK:-$G/work}                  # scratch, may be deleted
OUT=${OUT:-$G/out}                     # finished images
DEBS=${DEBS:-$G/debs}                  # downloaded .deb files (cache)
NICE=${NICE:-nice -n 10}
mkdir -p "$WORK" "$OUT" "$DEBS"

# Debian 12's kernel ABI. One that the mirror no longer has gives way to its newest.
KVER=${KVER:-6.1.0-56}
kernel_there() { ls "$DEBS/linux-image-$KVER-"*.deb >/dev/null 2>&1 || apt-cache show "linux-image-$KVER-cloud-amd64" >/dev/null 2>&1; }
if ! kernel_there; then
	apt-get update -q >&2
	kernel_there || KVER=$(apt-cache depends linux-image-cloud-amd64/bookworm | sed -n 's/.*Depends: linux-image-\(.*\)-cloud-amd64/\1/p' | head -1)
fi
# And the newer one that Debian 12 has beside it.
KVER_NEW=${KVER_NEW:-6.12.117+deb12}
MIRROR=${MIRROR:-$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Codename: bookworm" | head -1)}
SECURITY=${SECURITY:-$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Codename: bookworm-security" | head -1)}

log() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { log "ERROR: $*"; exit 1; }

need() {  # need TOOL...: stop early if a tool is missing
	local t miss=
	for t; do command -v "$t" >/dev/null || miss="$miss $t"; done
	[ -z "$miss" ] || die "missing:$miss; run ../host/install.sh"
}

# fetch_deb PACKAGE[=VERSION] -> prints the path of the .deb; downloads it once.
# Looks in $DEBS first, then asks apt.
fetch_deb() {
	local p=${1%%=*} v f
	v=${1#"$p"}; v=${v#=}
	for f in "$DEBS/$p"_${v:-*}_amd64.deb "$DEBS/$p"_${v:-*}_all.deb; do
		[ -e "$f" ] && { echo "$f"; return; }
	done
	( cd "$DEBS" && apt-get download -qq -o APT::Sandbox::User=root "$1" >&2 )
	for f in "$DEBS/$p"_${v:-*}_amd64.deb "$DEBS/$p"_${v:-*}_all.deb; do
		[ -e "$f" ] && { echo "$f"; return; }
	done
	die "cannot download $1"
}

# unpack_deb PACKAGE -> prints a directory with the unpacked contents (cached)
unpack_deb() {
	local deb dir
	deb=$(fetch_deb "$1")
	dir=$WORK/unpacked/$(basename "$deb" .deb)
	if [ ! -e "$dir/.done" ]; then
		rm -rf "$dir"; mkdir -p "$dir"
		$NICE dpkg-deb -x "$deb" "$dir"
		touch "$dir/.done"
	fi
	echo "$dir"
}

# kernel_tree RELEASE PATH...: unpacks what compiles modules for Debian's kernel RELEASE: $HEADERS, and in $SOURCE the
# PATHs of the kernel's own source. The headers find each other by where they lie, so all lie in one tree.
kernel_tree() {
	local r=$1 deb series p; shift
	deb=$(fetch_deb "linux-headers-$r")
	series=$(echo "$r" | cut -d. -f1,2)
	HEADERS=$WORK/$r/usr/src/linux-headers-$r SOURCE=$WORK/$r/source
	rm -rf "${WORK:?}/$r"; mkdir -p "$SOURCE"
	$NICE dpkg-deb -x "$deb" "$WORK/$r"
	for p in $(dpkg-deb -f "$deb" Depends | grep -oE 'linux-(headers-[^ ]*-common|kbuild-[^ ,]*)'); do
		$NICE dpkg-deb -x "$(fetch_deb "$p")" "$WORK/$r"
	done
	sed "s|include /usr|include $WORK/$r/usr|" -i "$HEADERS/Makefile"
	rm -f "$HEADERS/vmlinux" # only for type information that nobody asks for
	deb=$(fetch_deb "linux-source-$series=$(dpkg-deb -f "$deb" Version)")
	$NICE dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/src/linux-source-$series.tar.xz" |
		$NICE tar -xJ -C "$SOURCE" --strip-components=1 --wildcards "${@/#/linux-source-$series/}"
}

# compile_modules DIR...: compiles those of $SOURCE
compile_modules() {
	echo "obj-m += ${*/%//}" >"$SOURCE/Makefile"
	$NICE make -s -C "$HEADERS" M="$SOURCE" -j"$(nproc)" modules >&2
}

# kernel_modules RELEASE FROM TO TREE...: copies each TREE of FROM's modules, unpacked. Whoever strips them takes their
# signatures away, too: that taints, nothing more.
kernel_modules() {
	local r=$1 from=$2 to=$3 tree; shift 3
	mkdir -p "$to/$r"
	for tree; do
		[ -d "$from/$r/kernel/$tree" ] || continue
		mkdir -p "$to/$r/kernel/$tree"
		cp -r "$from/$r/kernel/$tree/." "$to/$r/kernel/$tree/"
	done
	rm -rf "$to/$r/kernel/drivers/net/wireless"
	cp "$from/$r"/modules.{builtin,builtin.modinfo,order} "$to/$r/"
	find "$to" -name '*.ko.xz' -exec xz -d {} +
}

# early_initrd RELEASE BASE INIT OUT MODULE...: busybox, the modules with what they need of BASE/lib/modules, and INIT.
early_initrd() {
	local r=$1 base=$2 init=$3 out=$4 tree=$WORK/early bb a m ko; shift 4
	rm -rf "$tree"; mkdir -p "$tree"/{bin,dev,host,node,proc,sys,top,lib/modules}
	bb=$(unpack_deb busybox-static)/bin/busybox
	cp "$bb" "$tree/bin/busybox"
	for a in $("$bb" --list); do [ -e "$tree/bin/$a" ] || ln -s busybox "$tree/bin/$a"; done
	for m; do
		modprobe -d "$base" -S "$r" --show-depends "$m" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
	done | sort -u | while read -r ko; do install -D -m644 "$ko" "$tree/lib/modules/${ko##*/lib/modules/}"; done
	cp "$base/lib/modules/$r"/modules.{builtin,order} "$tree/lib/modules/$r/"
	depmod -b "$tree" "$r"
	install -m755 "$init" "$tree/init"
	(cd "$tree" && find . | sort | cpio -o -H newc -R 0:0 --quiet --reproducible) | $NICE lz4 -q -l -9 >"$out"
}

# elf_kernel VMLINUZ OUT: the compressed kernel lies somewhere inside the boot image: the first stream that holds an ELF file.
elf_kernel() {
	local from=$1 out=$2
	unpacked() { # MAGIC COMMAND...
		local magic=$1 at; shift
		for at in $(LC_ALL=C grep -obUaP "$magic" "$from" | cut -d: -f1); do
			tail -c "+$((at + 1))" "$from" | "$@" >"$out" 2>/dev/null || true
			[ "$(head -c4 "$out" | tail -c3)" != ELF ] || return 0
		done
		return 1
	}
	unpacked '\xfd7zXZ\x00' xz -dcq --single-stream || unpacked '\x28\xb5\x2f\xfd' zstd -dcq || die "no kernel in $from"
}

# put_at FILE IMAGE BYTE_OFFSET: copy FILE into IMAGE without truncating, sparse
put_at() { dd if="$1" of="$2" bs=64K seek="$3" oflag=seek_bytes conv=notrunc,sparse status=none; }

# grub_mbr IMAGE CONFIG MODULE...: BIOS GRUB without grub-install/grub-bios-setup.
#  boot.img loads LBA 1, the diskboot sector of core.img loads LBA 2 and
#  following: those are the compiled-in defaults, so core.img is simply placed
#  at LBA 1, in the gap before the first partition (1 MiB).  The partition table
#  (bytes 440..511) stays as sfdisk wrote it.
grub_mbr() {
	local img=$1 cfg=$2; shift 2
	local core=$WORK/core.img
	grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -c "$cfg" -o "$core" \
		biosdisk part_msdos ext2 linux normal minicmd "$@"
	[ "$(stat -c %s "$core")" -lt $((2047 * 512)) ] || die "core.img too big"
	dd if=/usr/lib/grub/i386-pc/boot.img of="$img" bs=1 count=440 conv=notrunc status=none
	put_at "$core" "$img" 512
}

# disk_from_dir DIR OUT.qcow2 SIZE_MIB LABEL GRUB_CFG: one MBR disk with one
# ext4 partition filled from DIR and BIOS GRUB.
disk_from_dir() {
	local dir=$1 out=$2 mib=$3 label=$4 cfg=$5
	local raw=$WORK/$(basename "$out" .qcow2).raw part=$WORK/$(basename "$out" .qcow2).part
	rm -f "$raw" "$part"
	truncate -s "${mib}M" "$raw"
	printf 'label: dos\nstart=2048, type=83, bootable\n' | sfdisk -q "$raw"
	truncate -s "$((mib - 1))M" "$part"
	# no resize_inode limits, no 64bit-only features GRUB 2.06 cannot read
	# (metadata_csum_seed, orphan_file are off by default in e2fsprogs 1.47.0)
	$NICE mke2fs -q -t ext4 -L "$label" -m 1 -E lazy_itable_init=1,lazy_journal_init=1 \
		-d "$dir" "$part"
	put_at "$part" "$raw" 1048576
	grub_mbr "$raw" "$cfg"
	rm -f "$part"
	$NICE qemu-img convert -O qcow2 ${QCOW2_OPTS:-} "$raw" "$out.tmp"
	mv "$out.tmp" "$out"
	rm -f "$raw"
}
