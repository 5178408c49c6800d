# How a script begins that packs built programs: deb/build.sh, tarball.sh, image.sh and release.sh source this, with their words DIST and
# OUT. The same programs at the same commit are to make the same bytes, so the locale and the time of all files are fixed:
# SOURCE_DATE_EPOCH, by default of the commit. VERSION is that of all that is packed (default: the workspace's, and the commit's time, so
# that a later commit is an upgrade; of a changed tree, the present time as well). It leaves the script in the repository's root, with
# `$work`, a directory that goes with the script.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C
DIST=$(cd "$1" && pwd)
mkdir -p "$2"
OUT=$(cd "$2" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
if [ -z "${VERSION:-}" ]; then
	VERSION=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)
	[ -z "$(git status --porcelain --untracked-files=no)" ] || VERSION+=+changed$(date -u +%Y%m%d%H%M%S)
fi
export VERSION

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
