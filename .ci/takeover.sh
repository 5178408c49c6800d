#!/bin/bash
# takeover.sh TARGET [built]: makes the sources of this clone ready for a target directory that other clones build in, too; with `built`,
# notes what was just built there.
#
# cargo knows our crates by their place in the workspace, so it takes what another clone built for this one's if that is newer than
# this one's sources. Those of a clone that comes in turn are all new. So each file that is as in the clone that built there last gets
# the age that it has there, and cargo builds what differs, as it would there. Where that clone is gone, the note counts, unless
# something was compiled after it.
set -euo pipefail
target=$1
note=$target/.sources
sources() { find . \( -path ./target -o -path ./.git \) -prune -o -type f -printf "$1"; }
if [ "${2-}" = built ]; then
	paste -d ' ' <(sources '%p\0' | xargs -0 sha256sum | cut -d ' ' -f 1) <(sources '%T@ %p\n') >"$note.new"
	mv "$note.new" "$note"
	exit
fi
last=$(cat "$target/.clone" 2>/dev/null) || last=
[ "$last" != "$PWD" ] || exit 0
mkdir -p "$target"
declare -A sums ages
if [ -n "$last" ] && [ ! -d "$last" ] && [ -f "$note" ] &&
	[ -z "$(find "$target" -name invoked.timestamp -newer "$note" -print -quit)" ]; then
	while read -r sum age path; do
		sums[$path]=$sum ages[$path]=$age
	done <"$note"
fi
# What has the place of its crate in it. cargo does not see that this changes.
placed='env!("CARGO_MANIFEST_DIR")'
while read -r sum file; do
	if [[ $file = *.rs ]] && grep -qF "$placed" "$file"; then
		touch "$file"
	elif [ -n "$last" ] && cmp -s "$last/$file" "$file"; then
		touch -r "$last/$file" "$file"
	elif [ "${sums[$file]-}" = "$sum" ]; then
		touch -d "@${ages[$file]}" "$file"
	else
		touch "$file"
	fi
done < <(sources '%p\0' | xargs -0 sha256sum)
echo "$PWD" >"$target/.clone"
