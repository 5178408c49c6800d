#!/bin/bash
# Unpacks packages of one of Debian's suites into DIR, from the mirror that the machine uses already, and prints which versions they are,
# a line each. For the recipes of parts.
# usage: debian.sh SUITE DIR PACKAGE...
#
# Nothing of it is installed, and apt's own lists stay as they are.
set -euo pipefail
suite=$1 out=$2
shift 2
mirror=$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Codename: bookworm" | head -1)
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$out" "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
options=(-qq -o Dir::State::Lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache"
	-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Check-Date=false
	-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd "$apt/debs" && apt-get "${options[@]}" download "$@")
for deb in "$apt"/debs/*.deb; do
	dpkg-deb -x "$deb" "$out"
	dpkg-deb -f "$deb" Package Version | sed 's/^[^:]*: //' | xargs
done
