#!/bin/bash
# Makes the guest images that the tests boot, once for each version of this folder, and prints the directory that they
# are in. usage: build.sh [tiny|tiny-vf|tiny-amd64|debian|node|node-new|installed|installed-13]...
# (default: all but tiny-amd64)
#
# The directory's name is the hash of these files, so an image is never older than the script that made it. An image is
# built aside and renamed when it is whole; two builders wait for each other. $VIRTLET_CACHE may be deleted at any time.
# Cold on two cores: tiny 10 s, tiny-vf and node-new 40 s, debian 1 min, node 30 s, installed and installed-13 1 min each;
# and Debian packages are downloaded: three quarters of a gigabyte, most of it kernels and their source.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/guests
KVER=${KVER:-6.1.0-56} # Debian 12's kernel ABI
KVER_NEW=${KVER_NEW:-6.12.117+deb12}
hash=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | { cat; echo "$KVER $KVER_NEW"; } | sha256sum | cut -c1-16)
out=$cache/$hash
mkdir -p "$out" "$cache/debs"

last() { # IMAGE: what is moved into place last, so that where it is, all of the image is
	case $1 in
	tiny | tiny-vf | tiny-amd64 | debian) echo "$1.qcow2" ;;
	node | node-new | installed | installed-13) echo "$1" ;;
	*) echo "build.sh: no image \`$1\`: tiny, tiny-vf, tiny-amd64, debian, node, node-new, installed or installed-13" >&2; exit 64 ;;
	esac
}

missing=
for image in "${@:-tiny tiny-vf debian node node-new installed installed-13}"; do
	for one in $image; do
		file=$(last "$one")
		[ -e "$out/$file" ] || missing="$missing $one"
	done
done
if [ -n "$missing" ]; then
	exec 9>"$cache/lock"
	flock 9
	# left behind by a builder that was killed; nobody else is building now
	rm -rf "$cache"/building.*
	for one in $missing; do
		file=$(last "$one")
		[ ! -e "$out/$file" ] || continue # another builder made it meanwhile
		tmp=$(mktemp -d "$cache/building.XXXXXX")
		export KVER KVER_NEW G=$tmp DEBS=$cache/debs
		case $one in
		tiny) ./build-tiny.sh cloud ;;
		tiny-vf) ./build-tiny.sh vf ;;
		tiny-amd64) ./build-tiny.sh amd64 ;;
		debian) ./build-debian.sh ;;
		node | node-new) ./build-node.sh "$one" ;;
		installed | installed-13) ./build-installed.sh "$one" ;;
		esac >&2 9>&-
		find "$tmp/out" -mindepth 1 -maxdepth 1 ! -name "$file" -exec mv -t "$out" {} +
		mv "$tmp/out/$file" "$out/$file"
		rm -rf "$tmp"
	done
fi
echo "$out"
