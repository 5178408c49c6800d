#!/bin/bash
# Makes the archive of which krew installs `kubectl virtlet`, and the manifest that names its checksum. Called by release.sh.
#
# usage: krew.sh DIST OUT      DIST has the programs, OUT gets virtletctl-VERSION-x86_64.tar.gz and krew.yaml
#
# URL is where the archive is to be downloaded from (default: a place that is none: with `--archive` krew does not ask it). LEVEL is as
# for tarball.sh. The same programs at the same commit make the same bytes.
. "$(dirname "$0")/begin.sh"
URL=${URL:-https://example.com/virtlet}
[[ $URL =~ ^https://[A-Za-z0-9._/:~-]+$ ]] || { echo "krew.sh: $URL: a URL that begins with https:// is wanted" >&2; exit 64; }

# krew takes three numbers and what may follow them by semver.org alone.
numbers=${VERSION%%[-+~]*} rest=${VERSION#"${VERSION%%[-+~]*}"}
while [[ $numbers != *.*.* ]]; do numbers+=.0; done
version=v$numbers${rest/#\~/-}

mkdir "$work/plugin"
install -m 755 "$DIST/virtletctl" "$work/plugin/"
install -m 644 LICENSE "$DIST/NOTICES" "$work/plugin/"
archive=virtletctl-$VERSION-x86_64.tar.gz
level=${LEVEL:-6}
tar --create --directory="$work/plugin" --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
	virtletctl LICENSE NOTICES | gzip -n -"$((level > 0 ? level : 1))" >"$OUT/$archive"
sum=$(sha256sum <"$OUT/$archive" | cut -d' ' -f1)
sed -e "s|@VERSION@|$version|; s|@URL@|${URL%/}|; s|@ARCHIVE@|${archive//+/%2B}|; s|@SHA256@|$sum|" deploy/krew.yaml >"$OUT/krew.yaml"
chmod 644 "$OUT/krew.yaml" "$OUT/$archive"
echo "$OUT/$archive"
