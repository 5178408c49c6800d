#!/bin/bash
# fetch.sh: gets the packages of packages.txt from npm, takes of them what the page needs and their licences, and prints the
# directory that these are in. VIRTLET_WEB is to name it where virtletctl is built; the Makefile sees to that.
#
# The directory's name is the hash of these two files. It is made aside and moved into place; two that make it wait for each other. Which
# registry npm asks is the user's matter: what comes has to be what packages.txt says.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/web
out=$cache/$(cat fetch.sh packages.txt | sha256sum | cut -c 1-16)

fetch() { # NAME VERSION INTEGRITY FOLDER FILE...
	local name=$1 version=$2 integrity=$3 folder=$4 package expected
	mkdir "$tmp/npm" "$tmp/out/$folder"
	(cd "$tmp/npm" && npm pack --silent --ignore-scripts --no-update-notifier "$name@$version" >/dev/null)
	package=$(echo "$tmp"/npm/*.tgz)
	expected=$(base64 -d <<<"${integrity#sha512-}" | od -An -v -tx1 | tr -d ' \n')
	sha512sum --check --status <<<"$expected  $package" || {
		echo "fetch.sh: $name@$version is not the package that packages.txt names: its SHA-512 is another" >&2
		exit 65
	}
	tar -xzf "$package" --no-same-owner --no-same-permissions --strip-components=1 -C "$tmp/out/$folder" "${@:5}"
	rm -r "$tmp/npm"
}

if [ ! -d "$out" ]; then
	command -v npm >/dev/null || {
		echo "fetch.sh: no \`npm\`, which gets the page of \`virtletctl vnc --browser\`: install it, or build without that page by \`make VIRTLET_WEB= build\`" >&2
		exit 69
	}
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	rm -rf "$cache"/building.* # left behind by one that was killed
	if [ ! -d "$out" ]; then   # another has made it meanwhile
		tmp=$(mktemp -d "$cache/building.XXXXXX")
		mkdir "$tmp/out"
		while read -r name version integrity folder files; do
			# shellcheck disable=SC2086,SC2046 # words; a package has all in a folder of this name
			fetch "$name" "$version" "$integrity" "$folder" $(printf 'package/%s ' $files)
		done < <(grep -v '^#' packages.txt)
		mv -T "$tmp/out" "$out"
		rm -r "$tmp"
	fi
fi
echo "$out"
