#!/bin/bash
# Installs what the demo, the tests and the benches need on a Debian 12 machine, as root. Safe to run again: when
# nothing is missing it ends at once, without root and without asking apt.
#
# libvirt 11 and QEMU 10 come from the backports suite, which a fresh machine does not have enabled; it is taken from
# the mirror that the machine uses already, so no mirror is named here. Rust and Go are not installed by this script.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

sources=/etc/apt/sources.list.d
suite=bookworm-backports
least_libvirt=10

from_backports="qemu-system-x86 qemu-block-extra qemu-utils qemu-system-common seabios libvirt-daemon-system libvirt-clients libvirt-dev"
from_release="build-essential pkg-config iproute2 iptables nftables containernetworking-plugins
	mmdebstrap mtools syslinux syslinux-common xorriso fdisk e2fsprogs xfsprogs grub-pc-bin grub-common ovmf swtpm swtpm-tools kmod cpio
	zstd lz4 xz-utils binutils busybox-static isc-dhcp-client udhcpc dhcpcd-base systemd jq curl openssh-client procps util-linux strace
	guestfs-tools skopeo gpg gpg-agent python3-venv libcap-ng-dev libseccomp-dev chromium-headless-shell"
# Gets two packages for a page: one that is there already, of whatever package, does.
command -v npm >/dev/null || from_release="$from_release npm"
servers_of_tests="nginx docker-registry containerd runc"

missing() { # PACKAGE...: prints those that are not installed
	local package
	for package; do
		[ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
	done
}
have_libvirt() {
	dpkg --compare-versions "$(dpkg-query -Wf '${Version}' libvirt-daemon-system 2>/dev/null)" ge $least_libvirt
}
hold_servers() { # what is installed from now on, for the tests to start, does not start by itself
	local policy=/usr/sbin/policy-rc.d
	[ -e $policy ] && return
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	trap "rm -f $policy" EXIT
}
have_suite() { apt-cache policy | grep -q "n=$suite"; }
add_suite() {
	if [ -f $sources/debian.sources ]; then # the first stanza of the deb822 file, for another suite
		awk 'BEGIN { RS = ""; ORS = "\n" } NR == 1' $sources/debian.sources |
			sed "s/^Suites:.*/Suites: $suite/" >$sources/$suite.sources
	else
		sed -n "s/^\(deb .*\) bookworm main.*/\1 $suite main/p" /etc/apt/sources.list | head -n 1 >$sources/$suite.list
	fi
}

for tool in cargo go; do
	command -v $tool >/dev/null || { echo "install.sh: no \`$tool\`; install Rust >= 1.95 and Go >= 1.26 first" >&2; exit 69; }
done
# shellcheck disable=SC2086 # lists of words
absent=$(missing $from_backports $from_release $servers_of_tests | xargs)
have_libvirt || absent="$absent libvirt-daemon-system>=$least_libvirt"
[ -n "$absent" ] || exit 0
[ "$(id -u)" = 0 ] || { echo "install.sh: not installed: $absent; run \`make host\` as root" >&2; exit 77; }

apt-get update -q
have_suite || { add_suite; apt-get update -q; }
# shellcheck disable=SC2086
apt-get install -q -y --no-install-recommends -t $suite $from_backports
servers=$(missing $servers_of_tests)
[ -z "$servers" ] || hold_servers
# shellcheck disable=SC2086
apt-get install -q -y --no-install-recommends $from_release $servers_of_tests
# Nor at the next boot. Fails where no systemd is the machine's.
# shellcheck disable=SC2086
[ -z "$servers" ] || systemctl disable --quiet $servers 2>/dev/null || true
