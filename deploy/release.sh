#!/bin/bash
# Makes all that a release has into one folder: packages, tarball, image and the manifests for it, the plugin of kubectl's, alert rules, what the
# programs are made of, and the checksums of all that. Called by `make release`.
#
# usage: release.sh DIST OUT      DIST has the programs, OUT is empty or not there
#
# IMAGE is as for image.sh, COMPRESS as for deb/build.sh, LEVEL as for tarball.sh, URL as for krew.sh. The same programs at the same commit make the same bytes.
. "$(dirname "$0")/begin.sh"
[ -z "$(ls -A "$OUT")" ] || { echo "release.sh: \`$OUT\` is not empty, so its checksums would be of older files, too: remove it" >&2; exit 73; }

deploy/deb/build.sh "$DIST" "$OUT" >/dev/null
deploy/tarball.sh "$DIST" "$OUT" >/dev/null
deploy/image.sh "$DIST" "$OUT" >/dev/null
deploy/krew.sh "$DIST" "$OUT" >/dev/null
deploy/linked/sbom.py "$DIST" "$VERSION" >"$OUT/virtlet-$VERSION.cdx.json"
install -m 644 deploy/{admission-policy,alerts,kustomization,runtimeclass}.yaml LICENSE "$DIST/NOTICES" "$OUT/"
(cd "$OUT" && sha256sum -- * >"$work/SHA256SUMS")
install -m 644 "$work/SHA256SUMS" "$OUT/"
ls -l "$OUT"
