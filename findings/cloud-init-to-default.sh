#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12), 25.1.4 (Debian 13) and 26.2 (Debian testing), network-config version 2 with `to: default`, netplan's
#           word for the default route, which its release 0.103 has made the way to say what `gateway4` and `gateway6` said
# Expected: each renderer writes a default route: cloud-init's documents say that version 2 is netplan's format.
# Seen:     netplan's renderer writes it. eni, sysconfig, networkd and NetworkManager end with "Address default is not a valid ip address"
#           before they write any file, so no NIC has a network. 26.2 writes the route in all five.
# So:       what is for any guest says `0.0.0.0/0` and `::/0`.
source "$(dirname "$0")/lib.sh"

cloud_init
cloud_init_testing

echo 'version: 2
ethernets:
  eth0:
    match: {macaddress: "02:00:00:00:00:01"}
    set-name: eth0
    addresses: [192.0.2.5/24]
    routes: [{to: default, via: 192.0.2.1}]' >"$tmp/config.yaml"
# render DEBIAN RENDERER DISTRIBUTION: what came of it
render() {
	if net_convert "$@"; then
		grep -rhoE 'to: default|route add default|GATEWAY=192.0.2.1|Destination=0.0.0.0/0|route1=0.0.0.0/0' "$tmp/tree"
	else
		echo "$(tail -1 "$tmp/out"), files: $(find "$tmp/tree" -type f | wc -l)"
	fi
}
for debian in debian12 debian13; do
	expect "$debian" "eni: ValueError: Address default is not a valid ip address, files: 0
sysconfig: ValueError: Address default is not a valid ip address, files: 0
netplan: to: default
networkd: ValueError: Address default is not a valid ip address, files: 0
network-manager: ValueError: Address default is not a valid ip address, files: 0" "$(all $debian)"
done
expect testing "eni: route add default
sysconfig: GATEWAY=192.0.2.1
netplan: to: default
networkd: Destination=0.0.0.0/0
network-manager: route1=0.0.0.0/0" "$(all testing)"
