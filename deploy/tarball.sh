#!/bin/bash
# Makes a tarball of what the Debian packages have, for nodes without dpkg. Called by `make tarball`.
#
# usage: tarball.sh DIST OUT      DIST has the programs, OUT gets virtlet-VERSION-x86_64.tar.xz
#
# It is unpacked at `/` and has files below `/usr` alone: what the packages have in `/etc` is in
# `/usr/share/doc/virtlet/examples/etc`, so that no edited file is lost. Directories are no entries of it, for a distribution may have
# a link where another has a directory (`/usr/sbin`). The same programs at the same commit make the same bytes.
. "$(dirname "$0")/begin.sh"

COMPRESS=none deploy/deb/build.sh "$DIST" "$work/deb" >/dev/null 2>&1
for package in "$work"/deb/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
version=$(basename "$work"/deb/virtlet_*.deb | cut -d_ -f2)
mv "$work/root/etc" "$work/root/usr/share/doc/virtlet/examples/etc"
# Which Debian has for all packages.
install -m 644 LICENSE "$work/root/usr/share/doc/virtlet/LICENSE"

tarball=$OUT/virtlet-$version-x86_64.tar.xz
(cd "$work/root" && find . ! -type d -printf '%P\n' | sort) >"$work/files"
tar --create --directory="$work/root" --no-recursion --files-from="$work/files" --mtime="@$SOURCE_DATE_EPOCH" \
	--owner=0 --group=0 --numeric-owner --format=gnu | xz -T1 -"${LEVEL:-6}" >"$tarball"
echo "$tarball"
