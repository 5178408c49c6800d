#!/bin/bash
# build-iommufd.sh - builds what Debian's kernels leave out: IOMMUFD, and VFIO whose devices are files of their own
# (/dev/vfio/devices). All of it is modules, so Debian's kernel stays as it is; they are compiled from its own source.
#
# usage: build-iommufd.sh RELEASE DIR    e.g. 6.12.117+deb12-amd64, and its directory of modules, whose VFIO is replaced
. "$(dirname "$0")/lib.sh"
need make gcc-12 xz
TO=$2
I=drivers/iommu/iommufd V=drivers/vfio
kernel_tree "$1" $I $V drivers/iommu/iommu-priv.h lib/interval_tree.c
cat >>"$HEADERS/include/generated/autoconf.h" <<C
#define CONFIG_IOMMUFD_MODULE 1
#define CONFIG_VFIO_DEVICE_CDEV 1
#define CONFIG_INTERVAL_TREE_SPAN_ITER 1
C
printf 'CONFIG_IOMMUFD=m\nCONFIG_VFIO_DEVICE_CDEV=y\n' >>"$HEADERS/include/config/auto.conf"
# The one thing that it needs of the kernel proper and that Debian's lacks.
{
	printf '#include <linux/%s.h>\n' interval_tree interval_tree_generic compiler
	sed -n '/^#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER/,/^#endif/p' "$SOURCE/lib/interval_tree.c" | grep -v EXPORT_SYMBOL
} >"$SOURCE/$I/span.c"
echo 'iommufd-y += span.o' >>"$SOURCE/$I/Makefile"
compile_modules $I $V

(cd "$SOURCE" && find drivers -name '*.ko') | while read -r ko; do install -D -m644 "$SOURCE/$ko" "$TO/kernel/$ko"; done
[ -e "$TO/kernel/$I/iommufd.ko" ] || die "no iommufd.ko"
