#!/bin/bash
# What:     cloud-init 25.1.4 (Debian 13) and 26.2 (Debian testing), renderer eni, network-config version 2 of a NIC with an address of IPv4
#           and a resolver of IPv6, which it reaches by what DHCPv6 brings; and a search domain
# Expected: `dns-nameservers` and `dns-search` below the NIC: resolv.conf, where ifupdown's hook takes them, knows no families.
# Seen:     25.1.4 has both lines. 26.2 leaves out each resolver that is of another family than the address, and if none is left the search
#           domains with it, without a word; the part of IPv6 by DHCP gets neither. Without a resolver the search domains are written, and
#           the other renderers write both. A resolver of IPv6 that stands at no NIC (`type: nameserver` of version 1, `services` of
#           OpenStack's network_data.json) is nowhere, on a NIC of IPv6 as well: its place is `lo`, which is of IPv4.
# So:       a seed for guests with ifupdown names a resolver at a NIC that has an address of its family, which is not from DHCP.
source "$(dirname "$0")/lib.sh"

cloud_init
cloud_init_testing
# lines FOLDER RENDERER DISTRIBUTION NAMESERVERS: what speaks of the resolver and the domain
lines() {
	echo 'version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, set-name: eth0, dhcp6: true, addresses: [192.0.2.5/24], nameservers: {'"$4"'}}' >"$tmp/config.yaml"
	net_convert "$1" "$2" "$3"
	(grep -rhE '^ *(dns-nameservers|dns-search|DNS1?|Domains|DOMAIN)[ =]' "$tmp/tree" || true) | sed 's/^ *//' | LC_ALL=C sort -u | xargs
}
both='addresses: ["2001:db8::53"], search: [example.org]'
expect "25.1.4" "dns-nameservers 2001:db8::53 dns-search example.org" "$(lines debian13 eni debian "$both")"
expect "26.2" "" "$(lines testing eni debian "$both")"
expect "26.2, a resolver of each family" "dns-nameservers 192.0.2.53 dns-search example.org" \
	"$(lines testing eni debian 'addresses: ["2001:db8::53", 192.0.2.53], search: [example.org]')"
expect "26.2, no resolver" "dns-search example.org" "$(lines testing eni debian 'search: [example.org]')"
expect "26.2, networkd" "DNS=2001:db8::53 Domains=example.org" "$(lines testing networkd debian "$both")"
expect "26.2, sysconfig" "DNS1=2001:db8::53 DOMAIN=example.org" "$(lines testing sysconfig centos "$both")"
# below FOLDER: under which line a resolver of IPv6 at no NIC stands, where the NIC has IPv6
below() {
	echo 'version: 1
config:
- {type: physical, name: eth0, mac_address: "02:00:00:00:00:01", subnets: [{type: static6, address: "2001:db8::5/64"}]}
- {type: nameserver, address: ["2001:db8::53"]}' >"$tmp/config.yaml"
	net_convert "$1" eni debian
	awk '/^iface/ { at = $2 } /dns-nameservers/ { print at, $1, $2 }' "$tmp"/tree/etc/network/interfaces.d/*
}
expect "25.1.4, at no NIC" "lo dns-nameservers 2001:db8::53" "$(below debian13)"
expect "26.2, at no NIC" "" "$(below testing)"
