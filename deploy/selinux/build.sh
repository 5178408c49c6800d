#!/bin/bash
# Builds the SELinux module from source, and shows that the contexts of our files and the rules for VMs come out of it. Needs no
# SELinux on the host.
#
# usage: build.sh OUT      OUT gets virtlet.pp
#
# Debian: apt-get install selinux-policy-dev selinux-policy-default policycoreutils setools make
# Fedora: dnf install selinux-policy-devel selinux-policy-targeted setools-console make
set -euo pipefail
mkdir -p "$1"
OUT=$(cd "$1" && pwd)
cd "$(dirname "$0")"
POLICY=${POLICY:-$([ -d /etc/selinux/targeted ] && echo targeted || echo default)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp virtlet.te virtlet.fc "$work"
make -s -C "$work" -f /usr/share/selinux/devel/Makefile NAME="$POLICY" virtlet.pp >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
install -m 644 "$work/virtlet.pp" "$OUT/virtlet.pp"

# Into a copy of the distribution's policy: that of the host stays as it is.
root=$work/root
mkdir -p "$root/etc/selinux" "$root/var/lib/selinux"
cp -a "/etc/selinux/$POLICY" "$root/etc/selinux/"
cp -a /etc/selinux/semanage.conf "$root/etc/selinux/"
cp -a "/var/lib/selinux/$POLICY" "$root/var/lib/selinux/"
semodule -n -p "$root" -s "$POLICY" -i "$OUT/virtlet.pp"

contexts=$root/etc/selinux/$POLICY/contexts/files/file_contexts
is() { # PATH KIND TYPE
	found=$(matchpathcon -n -m "$2" -f "$contexts" "$1")
	[[ $found == *:"$3":* ]] || { echo "build.sh: $1 would have $found, not $3" >&2; exit 1; }
}
is /usr/sbin/controld file virtlet_exec_t
is /usr/sbin/tapmanager file virtlet_exec_t
is /usr/sbin/vmwrapper file qemu_exec_t
is /run/virtlet dir virtlet_runtime_t
is /run/virtlet/cri.sock socket virtlet_runtime_t
is /run/virtlet/control.sock socket virtlet_runtime_t
is /run/virtlet/handoff.sock socket virtlet_handoff_t
is /run/virtlet/seed/1.iso file virt_content_t
is /var/lib/virtlet/meta.redb file virtlet_var_lib_t
is /var/lib/virtlet/net/pods/1.json file virtlet_var_lib_t
is /var/lib/virtlet/volumes/uid/root.qcow2 file virt_image_t
is /var/lib/virtlet/images/blobs/1 file virt_content_t
is /var/lib/virtlet/nvram/1.fd file virt_image_t
is /var/lib/virtlet/console/1/serial.log file virt_log_t

policy=$(ls "$root/etc/selinux/$POLICY/policy/"policy.*)
rules() { # SOURCE TARGET CLASS PERMISSION
	sesearch -A -s "$1" -t "$2" -c "$3" -p "$4" "$policy"
}
may() {
	[ -n "$(rules "$@")" ] || { echo "build.sh: $1 may not $4 $2:$3" >&2; exit 1; }
}
may_not() {
	[ -z "$(rules "$@")" ] || { echo "build.sh: $1 may $4 $2:$3" >&2; exit 1; }
}
# What a daemon makes has the type that its path has.
made() { # PATH KIND CLASS
	local type rules
	type=$(type_of "$1" "$2")
	rules=$(sesearch -T -s virtlet_t -t "$(type_of "${1%/*}" dir)" -c "$3" "$policy")
	grep -q ":$3 $type \"\?${1##*/}\"\?;" <<<"$rules" ||
		{ echo "build.sh: virtlet_t would not make $1 as $type" >&2; exit 1; }
}
type_of() { # PATH KIND
	matchpathcon -n -m "$2" -f "$contexts" "$1" | cut -d: -f3
}
for dir in /run/virtlet /run/virtlet/seed /var/lib/virtlet /var/lib/virtlet/{volumes,nvram,images,console}; do
	made "$dir" dir dir
done
made /run/virtlet/handoff.sock socket sock_file
may svirt_t qemu_exec_t file entrypoint
may svirt_t qemu_exec_t file execute_no_trans
may svirt_t virtlet_handoff_t sock_file write
may svirt_t virtlet_t unix_stream_socket connectto
may svirt_t virtlet_t fd use
may svirt_t tun_tap_device_t chr_file ioctl
may virtd_t virt_image_t file relabelfrom
may svirt_t virt_content_t file read
may virtd_t qemu_exec_t file execute_no_trans
may init_t virtlet_exec_t file execute
may_not svirt_t virtlet_runtime_t sock_file write
may_not svirt_t virtlet_var_lib_t file read
echo "$OUT/virtlet.pp"
