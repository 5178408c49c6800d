#!/bin/bash
# Makes the container image that deploy/daemonset.yaml runs, and that manifest with the image's name in it. Called by `make image`.
#
# usage: image.sh DIST OUT      DIST has the programs, OUT gets virtlet-install.tar and daemonset.yaml
#
# The image is what the tarball has, at /payload, and one static program that puts it on a host; nothing of a distribution. It is an
# archive as `docker save` writes it, which `ctr images import`, `docker load` and `skopeo copy docker-archive:` take. IMAGE is
# its name (default: virtlet-install with the version as its tag, which is on no registry). The same programs at the same commit make
# the same bytes.
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
[[ $IMAGE =~ ^[a-z0-9][a-z0-9._/:-]*:[A-Za-z0-9._-]+$ ]] || { echo "image.sh: IMAGE=$IMAGE: a name with a tag is wanted, without @" >&2; exit 64; }

mkdir -p "$work/root/payload" "$work/root/host"
tar -xJf "$tarball" -C "$work/root/payload"
install -m 755 "$DIST/virtlet-install" "$work/root/"
pack "$work/layer.tar" "$work/root" .
cat >"$work/config.json" <<END
{"architecture": "amd64", "os": "linux", "created": "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)",
"config": {"Entrypoint": ["/virtlet-install"], "Cmd": ["install"], "WorkingDir": "/"}, "history": [],
"rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)"]}}
END
echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$IMAGE\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
pack "$OUT/virtlet-install.tar" "$work" manifest.json config.json layer.tar
sed "s|image: virtlet-install:VERSION|image: $IMAGE|" deploy/daemonset.yaml >"$OUT/daemonset.yaml"
echo "$IMAGE"
