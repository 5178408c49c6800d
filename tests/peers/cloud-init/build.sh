#!/bin/bash
# Unpacks cloud-init as Debian's suites in `suites` have it into DIR/SUITE, and what it imports from PyPI into DIR/lib. DIR/SUITE.version says
# which version it is: the first is our Debian guest's, the last that of Debian's newest release.
# usage: build.sh DIR
#
# Cold: 20 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
python=/usr/bin/python3 # Debian's, whatever else is in PATH: PyYAML is built for its version

mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
$python -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "$here/requirements.txt" --target "$out/lib"

while read -r suite; do
	"$here/../debian.sh" "$suite" "$tmp/$suite" cloud-init | cut -d ' ' -f 2 >"$out/$suite.version"
	mv "$tmp/$suite/usr/lib/python3/dist-packages" "$out/$suite"
done <"$here/suites"
cp "$here"/*.py "$out/"
