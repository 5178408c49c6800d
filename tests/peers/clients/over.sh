#!/bin/bash
# Runs a command that has the clients of one of Debian's suites in the place of the machine's.
# usage: over.sh SUITE COMMAND...
set -euo pipefail
tree=$(cd "$(dirname "$0")" && pwd)/$1
shift
# shellcheck disable=SC2016 # for the inner shell
exec unshare --mount --propagation private sh -c 'mount -t overlay overlay -o "lowerdir=$0/usr:/usr" /usr && exec "$@"' "$tree" "$@"
