#!/bin/bash
# Runs every target, as many at a time as there are processors, and fails if one finds a fault; the input that shows it
# is left in OUT. usage: run.sh PROGRAM SECONDS OUT [TARGET]...
#
# What a run finds of interest is kept in $VIRTLET_CACHE/fuzz for the next run; the corpora of the clone are read only.
set -euo pipefail
program=$(realpath "$1") seconds=$2 out=$(realpath -m "$3")
shift 3
here=$(cd "$(dirname "$0")" && pwd)
found=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/fuzz
mkdir -p "$out"

one() { # TARGET
	mkdir -p "$found/$1"
	# A frame, a message and a result are bounded by who reads them; longer inputs show nothing more.
	if FUZZ_TARGET=$1 "$program" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
		-rss_limit_mb=1024 -artifact_prefix="$out/$1-" "$found/$1" "$here/corpus/$1" >"$out/$1.log" 2>&1; then
		echo "fuzz $1: $(grep -a '^Done' "$out/$1.log")"
	else
		echo "fuzz $1: FAILED; the input is $(ls -t "$out/$1-"* | head -n 1)"
		grep -a -B2 -A6 -m1 'panicked\|ERROR' "$out/$1.log" || tail -n 20 "$out/$1.log"
		return 1
	fi
}
export -f one
export program seconds out found here
[ $# -gt 0 ] || set -- $(ls "$here/corpus")
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'one {}'
