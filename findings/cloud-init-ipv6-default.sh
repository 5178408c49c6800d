#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12) and 25.1.4 (Debian 13), network-config version 2 with a default route of IPv6, written `::/0`, beside
#           a route to a network
# Expected: each renderer writes a default route.
# Seen:     22.4.2 makes `::/64` of it in eni, sysconfig, networkd and NetworkManager, without a word, so the guest reaches its own networks
#           alone. The other route keeps its length. 25.1.4 writes the default route; netplan's file has it with both.
# So:       a seed for guests that may have the older one says a default route of IPv6 by `gateway6`, which all of them write, though netplan
#           calls it deprecated.
source "$(dirname "$0")/lib.sh"

cloud_init

# config LINE...: the file, whose NIC has these lines besides
config() {
	echo 'version: 2
ethernets:
  eth0:
    match: {macaddress: "02:00:00:00:00:01"}
    set-name: eth0
    addresses: ["2001:db8:1::5/64"]'
	printf '    %s\n' "$@"
}
# render DEBIAN RENDERER DISTRIBUTION: the destinations that the written files have
render() {
	net_convert "$@"
	grep -rhE '^[^#]*(route|Destination|GW=|via|to:)' "$tmp/tree" | grep -v pre-down | grep -oE 'default|DEFAULTGW|::/[0-9]+|2001:db8:9::/48' |
		sed 's/DEFAULTGW/default/' | LC_ALL=C sort -u | xargs
}
config 'routes: [{to: "::/0", via: "2001:db8:1::1"}, {to: "2001:db8:9::/48", via: "2001:db8:1::1"}]' >"$tmp/config.yaml"
expect "22.4.2" "eni: 2001:db8:9::/48 ::/64
sysconfig: 2001:db8:9::/48 ::/64
netplan: 2001:db8:9::/48 ::/0
networkd: 2001:db8:9::/48 ::/64
network-manager: 2001:db8:9::/48 ::/64" "$(all debian12)"
expect "25.1.4" "eni: 2001:db8:9::/48 default
sysconfig: 2001:db8:9::/48 default
netplan: 2001:db8:9::/48 ::/0
networkd: 2001:db8:9::/48 ::/0
network-manager: 2001:db8:9::/48 ::/0" "$(all debian13)"
# told RENDERER DISTRIBUTION: whether the gateway is in what 22.4.2 writes
told() {
	net_convert debian12 "$@"
	grep -rhiE '^[^#]*(gateway|DEFAULTGW)' "$tmp/tree" | grep -c 2001:db8:1::1
}
config 'gateway6: "2001:db8:1::1"' >"$tmp/config.yaml"
expect "22.4.2, gateway6" "1 1 1 1" "$(told eni debian) $(told sysconfig centos) $(told networkd debian) $(told network-manager fedora)"
