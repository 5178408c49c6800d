# How a script begins that packs built programs: deb/build.sh, tarball.sh and image.sh source this, with their words DIST and OUT. The
# same programs at the same commit are to make the same bytes, so the locale and the time of all files are fixed: SOURCE_DATE_EPOCH,
# by default of the commit. It leaves the script in the repository's root, with `$work`, a directory that goes with the script.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C
DIST=$(cd "$1" && pwd)
mkdir -p "$2"
OUT=$(cd "$2" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
