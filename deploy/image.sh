#!/bin/bash
# Makes the container image that deploy/daemonset.yaml and deploy/reporter.yaml run, and these manifests with the image's name in them; and that
# of the operator, if the operator needs no libraries, which those of PROFILE=dev do. Called by `make image`.
#
# usage: image.sh DIST OUT      DIST has the programs, OUT gets virtlet-install.tar, daemonset.yaml, reporter.yaml and virtlet-operator.tar
#
# The first image is what the tarball has, at /payload, and one static program that puts it on a host; the second is one static program; nothing
# of a distribution. Each is an archive as `docker save` writes it, which `ctr images import`, `docker load` and
# `skopeo copy docker-archive:` take. IMAGE and OPERATOR_IMAGE are their names (default: virtlet-install and virtlet-operator with the version as
# their tag, which are on no registry). The same programs at the same commit make the same bytes.
. "$(dirname "$0")/begin.sh"

pack() { # ARCHIVE DIRECTORY NAME...
	tar --create --file="$1" --directory="$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=u+rwX,go+rX,go-w --format=gnu "${@:3}"
}

tarball=$(LEVEL=0 deploy/tarball.sh "$DIST" "$work")
version=$(basename "$tarball" -x86_64.tar.xz)
# What a tag may have.
version=$(tr '~+' '--' <<<"${version#virtlet-}")
IMAGE=${IMAGE:-virtlet-install:$version}
OPERATOR_IMAGE=${OPERATOR_IMAGE:-virtlet-operator:$version}
for name in "$IMAGE" "$OPERATOR_IMAGE"; do
	[[ $name =~ ^[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9._-]+$ ]] || { echo "image.sh: $name: a name with a tag is wanted, without @" >&2; exit 64; }
done

archive() { # NAME ROOT PROGRAM WORDS: an image of one layer
	pack "$work/layer.tar" "$2" .
	cat >"$work/config.json" <<-END
	{"architecture": "amd64", "os": "linux", "created": "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)",
	"config": {"Entrypoint": ["$3"], "Cmd": ["$4"], "WorkingDir": "/"$5}, "history": [],
	"rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)"]}}
	END
	echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$1\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
	pack "$OUT/${3#/}.tar" "$work" manifest.json config.json layer.tar
	echo "$1"
}

mkdir -p "$work/root/payload" "$work/root/host" "$work/operator"
tar -xJf "$tarball" -C "$work/root/payload"
install -m 755 "$DIST/virtlet-install" "$work/root/"
archive "$IMAGE" "$work/root" /virtlet-install install ''
for manifest in daemonset reporter; do
	sed "s|image: virtlet-install:VERSION|image: $IMAGE|" "deploy/$manifest.yaml" >"$OUT/$manifest.yaml"
done
if ! readelf --program-headers "$DIST/virtlet-operator" | grep -q INTERP; then
	install -m 755 "$DIST/virtlet-operator" "$work/operator/"
	# The PATH by which the Deployment finds it.
	archive "$OPERATOR_IMAGE" "$work/operator" /virtlet-operator run ', "Env": ["PATH=/"], "User": "65532:65532"'
fi
