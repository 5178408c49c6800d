#!/bin/bash
# Builds the real clients and plugins that the tests use, from their published Go modules, once for each version of this
# folder, and prints the directory that they are in: crictl, critest, kubelet, kube-apiserver with etcd, the rest of a control
# plane with kubectl, the CNI plugins in cni/, containerd for the benches, and, from PyPI, Glance, Keystone and the tools of
# Simple Streams in python/.
# usage: build.sh [cri|cni|kubelet|apiserver|controllers|python|containerd]...   (default: all that tests need; containerd is
#        for benches)
#
# The directory's name is the hash of these files. A program is built aside and renamed when it is whole; two builders
# wait for each other. Cold on two cores: cri 2 min, cni 10 s, kubelet 4 min, apiserver 3 min, controllers 2 min, python
# 1 min, and 1.5 GB of Go's own caches.
set -euo pipefail
cd "$(dirname "$0")"
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/peers
hash=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
out=$cache/$hash
mkdir -p "$out/cni"
export GOFLAGS=-mod=mod

last() { # PART: what is moved into place last: a program, or a directory with all in it
	case $1 in
	cri) echo critest ;;
	cni) echo cni/vrf ;;
	kubelet) echo kubelet ;;
	apiserver) echo kube-apiserver ;;
	controllers) echo kubectl ;;
	python) echo python ;;
	containerd) echo containerd ;;
	*) echo "build.sh: no part \`$1\`: cri, cni, kubelet, apiserver, controllers, python or containerd" >&2; exit 64 ;;
	esac
}
build() { # PART
	# go rewrites go.mod and go.sum when it feels like it: never those of the clone
	cp -r cri-tools cni kubernetes etcd containerd "$tmp/"
	mkdir -p "$tmp/out/cni"
	case $1 in
	cri)
		(cd "$tmp/cri-tools" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/" sigs.k8s.io/cri-tools/cmd/crictl)
		(cd "$tmp/cri-tools" && go test -c -trimpath -ldflags='-s -w' -o "$tmp/out/critest" sigs.k8s.io/cri-tools/cmd/critest)
		;;
	cni) # newer than Debian's: spec 1.1
		(cd "$tmp/cni" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/cni/" github.com/containernetworking/plugins/plugins/{main,meta,ipam}/...)
		;;
	kubelet) (cd "$tmp/kubernetes" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/" k8s.io/kubernetes/cmd/kubelet) ;;
	apiserver)
		(cd "$tmp/etcd" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/etcd" go.etcd.io/etcd/server/v3)
		(cd "$tmp/kubernetes" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/" k8s.io/kubernetes/cmd/kube-apiserver)
		;;
	controllers)
		(cd "$tmp/kubernetes" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/" \
			k8s.io/kubernetes/cmd/{kube-controller-manager,kube-scheduler,kubectl})
		;;
	python) python/build.sh "$tmp/out/python" ;;
	containerd) # the newer of the two that benches run beside ours; runc is Debian's
		(cd "$tmp/containerd" && go build -trimpath -ldflags='-s -w' -o "$tmp/out/" \
			github.com/containerd/containerd/v2/cmd/{containerd-shim-runc-v2,ctr,containerd})
		;;
	esac
}

missing=
for part in "${@:-cri cni kubelet apiserver controllers python}"; do
	for one in $part; do
		program=$(last "$one")
		[ -e "$out/$program" ] || missing="$missing $one"
	done
done
if [ -n "$missing" ]; then
	exec 9>"$cache/lock"
	flock 9
	rm -rf "$cache"/building.* # left behind by a builder that was killed
	for one in $missing; do
		program=$(last "$one")
		[ ! -e "$out/$program" ] || continue # another builder made it meanwhile
		tmp=$(mktemp -d "$cache/building.XXXXXX")
		build "$one" >&2 9>&-
		(cd "$tmp/out" && find . -path "./$program" -prune -o -type f -exec mv {} "$out/{}" \;)
		mv "$tmp/out/$program" "$out/$program"
		rm -rf "$tmp"
	done
fi
echo "$out"
