#!/bin/bash
# Fails if there is not enough free disk for what is going to be made. Whoever finds that out in the middle says something else:
# a compiler, or a test that could not write a file.
#
# usage: room.sh DIR=GIB...    DIR is going to hold so many GiB, of which it may hold some already; /tmp is anybody's, so what
#                              is there counts as others'. Directories of one file system have to fit together.
set -euo pipefail
declare -A wanted free names
for pair; do
	dir=${pair%=*} kib=$((${pair##*=} << 20))
	mkdir -p "$dir"
	[ "$dir" = /tmp ] || kib=$((kib - $(du -sk "$dir" | cut -f 1)))
	read -r disk avail < <(df -Pk "$dir" | awk 'NR == 2 { print $6, $4 }')
	[ $kib -gt 0 ] || continue
	wanted[$disk]=$((${wanted[$disk]:-0} + kib)) free[$disk]=$avail names[$disk]="${names[$disk]:-} $dir"
done
for disk in "${!wanted[@]}"; do
	[ "${free[$disk]}" -ge "${wanted[$disk]}" ] || {
		gib() { echo $((($1 + (1 << 20) - 1) >> 20)); }
		echo "room.sh: $(gib "${wanted[$disk]}") GiB more are needed in${names[$disk]}, and \`$disk\` has $((${free[$disk]} >> 20)):" \
			"make room, or set VIRTLET_CACHE or CARGO_TARGET_DIR to a directory of another disk" >&2
		exit 74
	}
done
