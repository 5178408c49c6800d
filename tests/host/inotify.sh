#!/bin/bash
# Raises how many instances of inotify root may have, for the test bed: ten cases at a time, whole clusters among them, take more than the kernel's
# 128 (inotify(7)). It lasts until the next boot; when there are enough it ends at once, without root.
set -euo pipefail

most=/proc/sys/fs/inotify/max_user_instances
least=512
[ "$(cat $most)" -lt $least ] || exit 0
{ [ -w $most ] && echo $least >$most; } ||
	{ echo "inotify.sh: \`$most\` is less than $least, and cannot be raised here; set it as root, on the machine that this container is on if it is one" >&2; exit 77; }
