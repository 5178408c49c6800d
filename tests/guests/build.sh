#!/bin/bash
# Makes the guest images that the tests boot, once for each version of this folder, and prints the directory that they
# are in. usage: build.sh [tiny|tiny-amd64|debian]...   (default: tiny debian)
#
# The directory's name is the hash of these files, so an image is never older than the script that made it. An image is
# built aside and renamed when it is whole; two builders wait for each other. $VIRTLET_CACHE may be deleted at any time.
# Cold on two cores: tiny 10 s, debian 1 min, and Debian packages are downloaded.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/guests
KVER=${KVER:-6.1.0-56} # Debian 12's kernel ABI
hash=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | { cat; echo "$KVER"; } | sha256sum | cut -c1-16)
out=$cache/$hash
mkdir -p "$out" "$cache/debs"

missing=
for image in "${@:-tiny debian}"; do
	for one in $image; do [ -e "$out/$one.qcow2" ] || missing="$missing $one"; done
done
if [ -n "$missing" ]; then
	exec 9>"$cache/lock"
	flock 9
	# left behind by a builder that was killed; nobody else is building now
	rm -rf "$cache"/building.*
	for one in $missing; do
		[ ! -e "$out/$one.qcow2" ] || continue # another builder made it meanwhile
		tmp=$(mktemp -d "$cache/building.XXXXXX")
		export KVER G=$tmp DEBS=$cache/debs
		case $one in
		tiny) ./build-tiny.sh cloud ;;
		tiny-amd64) ./build-tiny.sh amd64 ;;
		debian) ./build-debian.sh ;;
		*) echo "build.sh: no image \`$one\`: tiny, tiny-amd64 or debian" >&2; exit 64 ;;
		esac >&2 9>&-
		# the image last: where it is, all of it is
		find "$tmp/out" -type f ! -name '*.qcow2' -exec mv -t "$out" {} +
		mv -t "$out" "$tmp"/out/*.qcow2
		rm -rf "$tmp"
	done
fi
echo "$out"
