#!/bin/bash
# Makes the guest images that the tests boot, once for each version of what they are made from, and prints the directory that they
# are in. usage: build.sh [tiny|tiny-vf|tiny-amd64|debian|node|node-new|installed|installed-13]...
# (default: all but tiny-amd64)
#
# The directory's name is the hash of these files, so an image is never older than the script that made it. An image is
# built aside, kept under the hash of its own sources, and linked from there: a change of one builds that one. Two builders wait for each
# other. $VIRTLET_CACHE may be deleted at any time.
# Cold on two cores: tiny 10 s, tiny-vf and node-new 40 s, debian 1 min, node 30 s, installed and installed-13 1 min each;
# and Debian packages are downloaded: three quarters of a gigabyte, most of it kernels and their source.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/guests
export KVER=${KVER:-6.1.0-56} # Debian 12's kernel ABI
export KVER_NEW=${KVER_NEW:-6.12.117+deb12}
hash_of() { # FILE OR FOLDER...
	find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | { cat; echo "$KVER $KVER_NEW"; } | sha256sum | cut -c1-16
}
out=$cache/$(hash_of .)
mkdir -p "$out" "$cache/debs" "$cache/parts"

last() { # IMAGE: the file or folder by which it is known to be there
	case $1 in
	tiny | tiny-vf | tiny-amd64 | debian) echo "$1.qcow2" ;;
	node | node-new | installed | installed-13) echo "$1" ;;
	*) echo "build.sh: no image \`$1\`: tiny, tiny-vf, tiny-amd64, debian, node, node-new, installed or installed-13" >&2; exit 64 ;;
	esac
}
recipe() { # IMAGE
	case $1 in
	tiny) echo ./build-tiny.sh cloud ;;
	tiny-vf) echo ./build-tiny.sh vf ;;
	tiny-amd64) echo ./build-tiny.sh amd64 ;;
	debian) echo ./build-debian.sh ;;
	node | node-new) echo "./build-node.sh $1" ;;
	installed | installed-13) echo "./build-installed.sh $1" ;;
	esac
}
sources() { # IMAGE: all that its recipe reads
	case $1 in
	tiny*) echo lib.sh build-tiny.sh tiny-root ;;
	debian) echo lib.sh build-debian.sh ;;
	node) echo lib.sh build-node.sh node-root ;;
	node-new) echo lib.sh build-node.sh build-iommufd.sh node-root ;;
	installed) echo lib.sh build-installed.sh installed-root ;;
	installed-13) echo lib.sh build-installed.sh build-virtqemud.sh installed-root ;;
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
		# shellcheck disable=SC2046
		part=$one-$(hash_of $(sources "$one"))
		if [ ! -d "$cache/parts/$part" ]; then
			tmp=$(mktemp -d "$cache/building.XXXXXX")
			# shellcheck disable=SC2046
			G=$tmp DEBS=$cache/debs $(recipe "$one") >&2 9>&-
			mv "$tmp/out" "$cache/parts/$part"
			rm -rf "$tmp"
		fi
		# What an image is known by comes last.
		for made in $(cd "$cache/parts/$part" && find . -mindepth 1 -maxdepth 1 ! -name "$file") "$file"; do
			ln -sfn "../parts/$part/${made#./}" "$out/${made#./}"
		done
	done
fi
echo "$out"
