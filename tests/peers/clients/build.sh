#!/bin/bash
# Unpacks the DHCP clients of each of Debian's suites in `suites`, with what they link and this machine may have an older release of, into
# DIR/SUITE. Laid over /usr they stand in the place of the machine's: `over.sh` runs a command that sees it so.
# usage: build.sh DIR
#
# Cold: 10 s.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
while read -r suite; do
	"$here/../debian.sh" "$suite" "$out/$suite" dhcpcd-base libc6 libcap2 libssl3t64 libsystemd-shared systemd >"$out/$suite.versions"
	find "$out/$suite" -mindepth 1 -maxdepth 1 ! -name usr -exec rm -rf {} +
	rm -rf "$out/$suite"/usr/share
	echo "clients of $suite: $(grep -E '^(dhcpcd-base|systemd) ' "$out/$suite.versions" | xargs)" >&2
done <"$here/suites"
cp "$here/over.sh" "$out/"
