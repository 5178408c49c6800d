#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12) and 25.1.4 (Debian 13), network-config version 2 with a route that has `scope: link` and no `via`,
#           as netplan, whose format this is, allows: the way to a gateway outside of the NIC's subnet
# Expected: each renderer writes the NICs' files, with this route or, where it cannot say it, without.
# Seen:     netplan, networkd and NetworkManager write them. eni (Debian) and sysconfig (Red Hat) end with KeyError 'gateway' before they
#           write any file: the second NIC, which only wants DHCP, has no network either.
# So:       a seed for any guest says `on-link: true` on the route through the gateway instead, of which all five make files.
source "$(dirname "$0")/lib.sh"

cloud_init

# config ROUTES
config() {
	echo 'version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eth0, addresses: [192.0.2.5/32], routes: ['"$1"']}
  eth1: {match: {macaddress: "02:00:00:00:00:02"}, set-name: eth1, dhcp4: true}'
}
# render DEBIAN RENDERER DISTRIBUTION: which NICs the written files speak of, or the error
render() {
	net_convert "$@" || true
	if [ -z "$(find "$tmp/tree" -type f)" ]; then
		echo "no file: $(tail -1 "$tmp/out")"
	else
		grep -rhoE '\beth[01]\b' "$tmp/tree" | sort -u | xargs
	fi
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
