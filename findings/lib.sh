# shellcheck shell=bash
# What the entries share: a folder that is gone at the end, pinned packages in it, and a comparison that fails.
set -euo pipefail
[ -n "${BOUNDED-}" ] || BOUNDED=1 exec timeout -k 10 600 bash "$0" "$@" # no entry takes longer, whatever it starts
tmp=$(mktemp -d)
spaces=()
clean() {
	local space
	trap - ERR
	jobs -p | xargs -r kill 2>/dev/null || true
	for space in "${spaces[@]}"; do ip netns del "$space"; done
	rm -rf "$tmp"
}
trap clean EXIT
set -E
trap 'echo "${0##*/}: line $LINENO failed: $BASH_COMMAND" >&2; cat "$tmp/out" >&2 2>/dev/null || true' ERR

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# need TOOL FIX: the host has TOOL, or the entry ends with what to do
need() { command -v "$1" >/dev/null || fail "\`$1\` is missing: $2"; }

# netns NAME...: new network namespaces, whose names here are finding-PID-NAME: for `inside`, or as $netns-NAME
netns=finding-$$
netns() {
	local name
	[ "$(id -u)" = 0 ] || fail "needs root, as it makes network namespaces"
	need ip "apt-get install iproute2"
	for name; do
		ip netns add "$netns-$name"
		spaces+=("$netns-$name")
		ip -n "$netns-$name" link set lo up
	done
}

# inside NAME COMMAND...: in the network namespace of that name, for a minute at most
inside() {
	local name=$1
	shift
	timeout 60 ip netns exec "$netns-$name" "$@"
}

# cni COMMAND NAME VERSION PLUGIN: calls a CNI plugin in the namespace `node` for the pod whose namespace is NAME; its configuration is on
# standard input, and the other plugins that it calls are in the same folder
cni() {
	CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/$netns-$2 CNI_PATH=$tmp/cni-$3 inside node "$tmp/cni-$3/$4"
}

# cni_plugins VERSION PLUGIN...: plugins of github.com/containernetworking/plugins, such as main/bridge, in $tmp/cni-VERSION
cni_plugins() {
	local version=$1 plugin
	shift
	need go "install Go 1.26 or later"
	for plugin; do
		GOBIN=$tmp/cni-$version go install "github.com/containernetworking/plugins/plugins/$plugin@v$version"
	done
}

# go_build OUT MODULE@VERSION...: the Go program on standard input, built with these modules, in $tmp/OUT
go_build() {
	local out=$1 module
	shift
	need go "install Go 1.26 or later"
	mkdir "$tmp/$out.d"
	cat >"$tmp/$out.d/main.go"
	(
		cd "$tmp/$out.d"
		{
			printf 'module finding\n\ngo 1.26.0\n\n'
			for module; do echo "require ${module/@/ }"; done
		} >go.mod
		go mod tidy >tidy.log 2>&1 || fail "go.mod cannot be completed: $(tail -3 tidy.log)"
		go build -o "../$out" .
	)
}

# python_with PACKAGE==VERSION...: $python, which has these
python_with() {
	need python3 "apt-get install python3-venv"
	python3 -m venv "$tmp/venv" || fail "\`python3 -m venv\` failed: apt-get install python3-venv"
	python=$tmp/venv/bin/python
	"$python" -m pip install -q --disable-pip-version-check "$@"
}

# debian FOLDER SUITE PACKAGE=VERSION...: unpacks packages of a suite of Debian into $tmp/FOLDER; nothing is installed, and apt's lists stay
# as they are. The mirror is the one that apt goes to already.
debian() {
	local apt=$tmp/apt-$2 out=$tmp/$1 suite=$2 mirror deb options
	shift 2
	need apt-get "run this on Debian 12 or later"
	options=(-qq -o Dir::State::Lists="$apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$apt/cache"
		-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root)
	if [ ! -d "$apt" ]; then
		mirror=$(apt-get indextargets --format "\$(REPO_URI)" "Created-By: Packages" "Origin: Debian" "Component: main" |
			grep -v security | head -1)
		[ -n "$mirror" ] || fail "apt knows no Debian mirror: add one to its sources, then apt-get update"
		mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
		apt-get "${options[@]}" update
	fi
	(cd "$apt/debs" && apt-get "${options[@]}" download "$@") ||
		fail "$suite no longer has $*: see what its next version does and pin that"
	for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$out"; done
	rm "$apt"/debs/*.deb
}

# cloud_init: that of Debian 12 in $tmp/debian12 and that of Debian 13 in $tmp/debian13, and what they import
cloud_init() {
	debian debian12 bookworm cloud-init=22.4.2-1+deb12u4
	debian debian13 trixie cloud-init=25.1.4-1+deb13u1
	python_with configobj==5.0.9 Jinja2==3.1.6 jsonpatch==1.33 jsonpointer==3.0.0 oauthlib==3.3.1 PyYAML==6.0.3 requests==2.32.5
}

# cloud_init_testing: after `cloud_init`, that of Debian's testing in $tmp/testing
cloud_init_testing() {
	debian testing forky cloud-init=26.2-1
}

# net_convert debian12|debian13|testing RENDERER DISTRIBUTION: what this renderer makes of $tmp/config.yaml, in a new $tmp/tree; what cloud-init says is
# in $tmp/out
net_convert() {
	rm -rf "$tmp/tree"
	mkdir "$tmp/tree"
	PYTHONPATH=$tmp/$1/usr/lib/python3/dist-packages timeout 60 "$python" -c 'import sys
from cloudinit.cmd.devel import net_convert
net_convert.handle_args("net-convert", net_convert.get_parser().parse_args(sys.argv[1:]))' \
		-p "$tmp/config.yaml" -k yaml -d "$tmp/tree" -O "$2" -D "$3" >"$tmp/out" 2>&1
}

# all debian12|debian13|testing: what the function `render` of an entry says of each of the five renderers, on one line each
all() {
	local renderer
	for renderer in "eni debian" "sysconfig centos" "netplan ubuntu" "networkd debian" "network-manager fedora"; do
		# shellcheck disable=SC2086 # two words
		echo "${renderer% *}: $(render "$1" $renderer)"
	done
}

# expect WHAT WANTED GOT
expect() {
	if [ "$2" = "$3" ]; then
		echo "as recorded: $1"
	else
		printf '%s: this has changed: %s\n--- recorded\n%s\n--- now\n%s\n' "${0##*/}" "$1" "$2" "$3" >&2
		exit 1
	fi
}
