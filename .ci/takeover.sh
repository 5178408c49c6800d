#!/bin/bash
# takeover.sh TARGET: makes the sources of this clone ready for a target directory that other clones build in, too.
#
# cargo knows our crates by their place in the workspace, so it takes what another clone built for this one's if that is newer than
# this one's sources. Those of a clone that comes in turn are all new. So each file that is as in the clone that built there last gets
# the age that it has there, and cargo builds what differs, as it would there.
set -euo pipefail
target=$1
last=$(cat "$target/.clone" 2>/dev/null) || last=
[ "$last" != "$PWD" ] || exit 0
mkdir -p "$target"
# What has the place of its crate in it. cargo does not see that this changes.
placed='env!("CARGO_MANIFEST_DIR")'
find . \( -path ./target -o -path ./.git \) -prune -o -type f -print0 | while IFS= read -r -d '' file; do
	if [ -n "$last" ] && cmp -s "$last/$file" "$file" && ! { [[ $file = *.rs ]] && grep -qF "$placed" "$file"; }; then
		touch -r "$last/$file" "$file"
	else
		touch "$file"
	fi
done
echo "$PWD" >"$target/.clone"
