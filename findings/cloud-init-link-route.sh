#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12) and 25.1.4 (Debian 13), network-config version 2 with a route that has `scope: link` and no `via`,
#           as netplan, whose format this is, allows: the way to a gateway outside of the NIC's subnet
# Expected: each renderer writes the NICs' files, with this route or, where it cannot say it, without.
# Seen:     netplan, networkd and NetworkManager write them. eni (Debian) and sysconfig (Red Hat) end with KeyError 'gateway' before they
#           write any file: the second NIC, which only wants DHCP, has no network either.
# So:       a seed for any guest says `on-link: true` on the route through the gateway instead, of which all five make files.
source "$(dirname "$0")/lib.sh"

debian debian12 bookworm cloud-init=22.4.2-1+deb12u4
debian debian13 trixie cloud-init=25.1.4-1+deb13u1
python_with configobj==5.0.9 Jinja2==3.1.6 jsonpatch==1.33 jsonpointer==3.0.0 oauthlib==3.3.1 PyYAML==6.0.3 requests==2.32.5

# config ROUTES
config() {
	echo 'version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eth0, addresses: [192.0.2.5/32], routes: ['"$1"']}
  eth1: {match: {macaddress: "02:00:00:00:00:02"}, set-name: eth1, dhcp4: true}'
}
# render DEBIAN RENDERER DISTRIBUTION: which NICs the written files speak of, or the error
render() {
	rm -rf "$tmp/out"
	mkdir "$tmp/out"
	PYTHONPATH=$tmp/$1/usr/lib/python3/dist-packages timeout 60 "$python" -c 'import sys
from cloudinit.cmd.devel import net_convert
net_convert.handle_args("net-convert", net_convert.get_parser().parse_args(sys.argv[1:]))' \
		-p "$tmp/config.yaml" -k yaml -d "$tmp/out" -O "$2" -D "$3" >"$tmp/log" 2>&1 || true
	if [ -z "$(find "$tmp/out" -type f)" ]; then
		echo "no file: $(tail -1 "$tmp/log")"
	else
		grep -rhoE '\beth[01]\b' "$tmp/out" | sort -u | xargs
	fi
}
# all DEBIAN: the five renderers, on one line each
all() {
	local renderer
	for renderer in "eni debian" "sysconfig centos" "netplan ubuntu" "networkd debian" "network-manager fedora"; do
		# shellcheck disable=SC2086 # two words
		echo "${renderer% *}: $(render "$1" $renderer)"
	done
}
for debian in debian12 debian13; do
	config '{to: 198.51.100.1/32, scope: link}, {to: 0.0.0.0/0, via: 198.51.100.1}' >"$tmp/config.yaml"
	expect "$debian, a route without via" "eni: no file: KeyError: 'gateway'
sysconfig: no file: KeyError: 'gateway'
netplan: eth0 eth1
networkd: eth0 eth1
network-manager: eth0 eth1" "$(all $debian)"
	config '{to: 0.0.0.0/0, via: 198.51.100.1, on-link: true}' >"$tmp/config.yaml"
	expect "$debian, on-link" "eni: eth0 eth1
sysconfig: eth0 eth1
netplan: eth0 eth1
networkd: eth0 eth1
network-manager: eth0 eth1" "$(all $debian)"
done
