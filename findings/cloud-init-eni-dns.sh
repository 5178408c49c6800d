#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12), 25.1.4 (Debian 13) and 26.2 (Debian testing), renderer eni, network-config version 2 of a NIC that
#           has its addresses by DHCP and its resolver and search domain from the configuration
# Expected: `dns-nameservers` and `dns-search` below that NIC, which is what resolvconf reads from ifupdown's file.
# Seen:     a line of Python below the NIC: dns {'nameservers': [...], 'search': [...]}. 22.4.2 has the right lines as well, below
#           `lo`; 25.1.4 has them nowhere. 26.2 has neither them nor that line. With a static address beside DHCP, the later two have them below
#           the static part.
# So:       the guest of such a seed has the resolver of its DHCP server alone, unless that tells the same one.
source "$(dirname "$0")/lib.sh"

cloud_init
cloud_init_testing
# lines DEBIAN [ADDRESS]: what speaks of the resolver, and below which line
lines() {
	echo 'version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eth0, dhcp4: true, '"${2:+addresses: [$2], }"'nameservers: {addresses: [192.0.2.53], search: [example.org]}}' >"$tmp/config.yaml"
	net_convert "$1" eni debian
	awk '/^iface/ { at = $2 " " $4 } / dns/ { sub(/^ */, ""); print at ": " $0 }' "$tmp"/tree/etc/network/interfaces.d/*
}
python_line="eth0 dhcp: dns {'nameservers': ['192.0.2.53'], 'search': ['example.org']}"
expect "debian12, DHCP" "lo loopback: dns-nameservers 192.0.2.53
lo loopback: dns-search example.org
$python_line" "$(lines debian12)"
expect "debian13, DHCP" "$python_line" "$(lines debian13)"
expect "testing, DHCP" "" "$(lines testing)"
expect "debian13, DHCP and a static address" "$python_line
eth0 static: dns-nameservers 192.0.2.53
eth0 static: dns-search example.org" "$(lines debian13 192.0.2.5/24)"
expect "testing, DHCP and a static address" "eth0 static: dns-nameservers 192.0.2.53
eth0 static: dns-search example.org" "$(lines testing 192.0.2.5/24)"
