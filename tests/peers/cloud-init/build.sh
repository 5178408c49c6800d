#!/bin/bash
# Unpacks cloud-init as Debian's suites in `suites` have it into DIR/SUITE, from the mirror that the machine uses already, and
# what it imports from PyPI into DIR/lib. DIR/SUITE.version says which version it is: the first is our Debian guest's, the last that of
# Debian's newest release.
# usage: build.sh DIR
#
# Nothing of it is installed, and apt's own lists stay as they are. Cold: 20 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
python=/usr/bin/python3 # Debian's, whatever else is in PATH: PyYAML is built for its version
mirror=$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Codename: bookworm" | head -1)

mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
$python -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "$here/requirements.txt" --target "$out/lib"

while read -r suite; do
	apt=$tmp/$suite
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
	options=(-qq -o Dir::State::Lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache"
		-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Check-Date=false
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update
	(cd "$apt/debs" && apt-get "${options[@]}" download cloud-init)
	dpkg-deb -x "$apt"/debs/cloud-init_*.deb "$apt/tree"
	mv "$apt/tree/usr/lib/python3/dist-packages" "$out/$suite"
	dpkg-deb -f "$apt"/debs/cloud-init_*.deb Version >"$out/$suite.version"
done <"$here/suites"
cp "$here"/*.py "$out/"
