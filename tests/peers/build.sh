#!/bin/bash
# Builds the real clients, plugins and servers that the tests use, from their published Go modules, once for each version of this
# folder, and prints the directory that they are in: crictl, critest, kubelet with kubeadm and the kubelet of the release before, the CRI
# that kubelet speaks as cri-api.txt, kube-apiserver with etcd, the rest of a control plane with kubectl, kube-proxy, metrics-server, the CNI
# plugins in cni/, containerd; from PyPI, Glance, Keystone and the tools of Simple Streams in python/; from suites of Debian, the
# cloud-init of each in cloud-init/, newer DHCP clients in clients/; promtool for `make lint`, from Debian's package; and from its crate virtiofsd, which Debian 12 has no
# package of.
# usage: build.sh [cri|cri-api|cni|kubelet|apiserver|controllers|kube-proxy|metrics|python|cloud-init|clients|virtiofsd|containerd|promtool]...   (default: all
#        that tests need; promtool is for `make lint`)
#
# The directory's name is the hash of these files. A part is built aside, kept under the hash of its own recipe and sources, and
# linked from there: a change of one part builds that one. Two builders wait for each other. Cold on two cores: cri 2 min, cri-api 30 s,
# cni 10 s, kubelet 9 min, apiserver 3 min, controllers 2 min, kube-proxy 1 min after those, metrics 1 min, python 1 min, cloud-init 20 s, clients 10 s, virtiofsd 90 s, promtool 10 s, and
# 2 GB of Go's own caches.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
cache=${VIRTLET_CACHE:-$HOME/.cache/virtlet-rs}/peers
hash=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
out=$cache/$hash
mkdir -p "$out/cni"
export GOFLAGS=-mod=mod
# A fifth of the compiler's time is its collector's.
export GOGC=400

last() { # PART: what is moved into place last: a program, or a directory with all in it
	case $1 in
	cri) echo critest ;;
	cni) echo cni/vrf ;;
	kubelet) echo kubelet ;;
	cri-api) echo cri-api.txt ;;
	apiserver) echo kube-apiserver ;;
	controllers) echo kubectl ;;
	kube-proxy) echo kube-proxy ;;
	metrics) echo metrics-server ;;
	python) echo python ;;
	cloud-init) echo cloud-init ;;
	clients) echo clients ;;
	virtiofsd) echo virtiofsd ;;
	containerd) echo containerd ;;
	promtool) echo promtool ;;
	*) echo "build.sh: no part \`$1\`: cri, cri-api, cni, kubelet, apiserver, controllers, kube-proxy, metrics, python, cloud-init, clients, virtiofsd, containerd or promtool" >&2; exit 64 ;;
	esac
}
# Each PART's recipe runs in a copy of this folder: go rewrites go.mod and go.sum when it feels like it. It reads only what is
# named in `sources`.
# Nobody debugs these: without what a debugger reads they are compiled in five sixths of the time. Kubernetes is not inlined either, in
# two thirds of it: benches run it on both of their sides.
lean=-gcflags=all=-dwarf=false
leaner='-gcflags=all=-dwarf=false -l'
go_build() { # FLAG FOLDER PACKAGE...
	(cd "$2" && go build -trimpath "$1" -ldflags='-s -w' -o "$tmp/out/" "${@:3}")
}
build_cri() {
	go_build "$lean" cri-tools sigs.k8s.io/cri-tools/cmd/crictl
	(cd cri-tools && go test -c -trimpath "$lean" -ldflags='-s -w' -o "$tmp/out/critest" sigs.k8s.io/cri-tools/cmd/critest)
}
build_cni() { # newer than Debian's: spec 1.1
	(cd cni && go build -trimpath "$lean" -ldflags='-s -w' -o "$tmp/out/cni/" github.com/containernetworking/plugins/plugins/{main,meta,ipam}/...)
}
build_kubelet() { # and that of the release before; each says which it is: kubeadm asks kubelet, and goes by its own
	local one from version
	for one in kubernetes/kubeadm kubernetes/kubelet kubernetes-before/kubelet; do
		from=${one%/*}
		version=$(sed -n 's/^require k8s.io\/kubernetes //p' "$from/go.mod")
		(cd "$from" && go build -trimpath "$leaner" -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" \
			-o "$tmp/out/${one#*/}${from#kubernetes}" "k8s.io/kubernetes/cmd/${one#*/}")
	done
}
build_cri-api() { # by the modules of kubelet: what it prints is what kubelet speaks
	cp kubernetes/go.* cri-api/
	(cd cri-api && go run -trimpath "$leaner" . >"$tmp/out/cri-api.txt")
}
build_apiserver() {
	(cd etcd && go build -trimpath "$leaner" -ldflags='-s -w' -o "$tmp/out/etcd" go.etcd.io/etcd/server/v3)
	go_build "$leaner" kubernetes k8s.io/kubernetes/cmd/kube-apiserver
}
build_controllers() {
	go_build "$leaner" kubernetes k8s.io/kubernetes/cmd/{kube-controller-manager,kube-scheduler,kubectl}
}
build_kube-proxy() { # for an image, so it is linked statically: by the linker alone, as without cgo all would be compiled anew
	local version
	cat kube-proxy/go.sum >>kubernetes/go.sum
	version=$(sed -n 's/^require k8s.io\/kubernetes //p' kubernetes/go.mod)
	(cd kubernetes && go build -trimpath "$leaner" -o "$tmp/out/" \
		-ldflags="-s -w -linkmode=external -extldflags=-static -X k8s.io/component-base/version.gitVersion=$version" \
		k8s.io/kubernetes/cmd/kube-proxy)
}
build_metrics() {
	go_build "$leaner" metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server
}
build_python() {
	python/build.sh "$tmp/out/python"
}
build_cloud-init() {
	cloud-init/build.sh "$tmp/out/cloud-init"
}
build_clients() {
	clients/build.sh "$tmp/out/clients"
}
build_virtiofsd() { # by the compiler of this clone, and none of its flags
	local built=$PWD version
	version=$(cat virtiofsd/version)
	(cd "$here" && env -u RUSTFLAGS CARGO_PROFILE_RELEASE_STRIP=true cargo install virtiofsd --locked --version "$version" \
		--quiet --no-track --target-dir "$built/target" --root "$built/installed")
	mv installed/bin/virtiofsd out/
}
build_containerd() { # the newer of the two that benches run beside ours; runc is Debian's
	go_build "$lean" containerd github.com/containerd/containerd/v2/cmd/{containerd-shim-runc-v2,ctr,containerd}
}
build_promtool() { # Debian's: built here it would bring clients of each cloud that Prometheus looks for targets in
	apt-get update -qq
	apt-get download -qq -o APT::Sandbox::User=root "$(cat promtool/package)"
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
	mv usr/bin/promtool out/
}
sources() { # PART
	case $1 in
	cri) echo cri-tools ;;
	kubelet) echo kubernetes kubernetes-before ;;
	cri-api) echo cri-api kubernetes ;;
	controllers) echo kubernetes ;;
	kube-proxy) echo kubernetes kube-proxy ;;
	apiserver) echo kubernetes etcd ;;
	metrics) echo metrics-server ;;
	cloud-init | clients) echo "$1" debian.sh ;;
	*) echo "$1" ;;
	esac
}
part() { # PART: where it is kept
	# shellcheck disable=SC2046
	echo "$cache/parts/$1-$({
		declare -f "build_$1" go_build
		echo "$lean" "$leaner"
		find $(sources "$1") -type f -print0 | sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-16)"
}

missing=
for part in "${@:-cri cri-api cni kubelet apiserver controllers kube-proxy metrics python cloud-init clients virtiofsd containerd}"; do
	for one in $part; do
		program=$(last "$one")
		[ -e "$out/$program" ] || missing="$missing $one"
	done
done
if [ -n "$missing" ]; then
	exec 9>"$cache/lock"
	flock 9
	rm -rf "$cache"/building.* # left behind by a builder that was killed
	mkdir -p "$cache/parts"
	for one in $missing; do
		program=$(last "$one")
		[ ! -e "$out/$program" ] || continue # another builder made it meanwhile
		tmp=$(mktemp -d "$cache/building.XXXXXX")
		part=$(part "$one")
		if [ ! -d "$part" ]; then
			mkdir -p "$tmp/out/cni"
			# shellcheck disable=SC2046
			cp -r $(sources "$one") "$tmp/"
			(cd "$tmp" && "build_$one") >&2 9>&-
			mv "$tmp/out" "$part"
		fi
		cp -al "$part" "$tmp/linked"
		(cd "$tmp/linked" && find . -path "./$program" -prune -o -type f -exec mv {} "$out/{}" \;)
		mv "$tmp/linked/$program" "$out/$program"
		rm -rf "$tmp"
	done
fi
echo "$out"
