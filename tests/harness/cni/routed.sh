#!/bin/bash
# A CNI plugin as those of clouds: a veth with addresses of one, whose way out is a gateway that answers neither ARP nor
# neighbour solicitations. The pod knows its MAC address as a permanent neighbour (AWS VPC CNI; Azure's in transparent
# mode), the node has a route to each address. `addresses` are the pod's, `gateways` that of each; `onward` are routes in
# the words of ip(8), after them.
set -euo pipefail
conf=$(cat)
each() { jq -r "$1" <<<"$conf"; }
outer=rt$(cksum <<<"$CNI_CONTAINERID" | cut -d' ' -f1)
inside() { nsenter --net="$CNI_NETNS" "$@"; }

case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD)
	ip link add "$outer" type veth peer name inner
	ip link set inner netns "$CNI_NETNS" name "$CNI_IFNAME"
	ip link set "$outer" up
	mac=$(jq -r '.[0].address' <<<"$(ip -j link show dev "$outer")")
	inside ip link set "$CNI_IFNAME" up
	while read -r address; do
		ip route replace "$address" dev "$outer"
		case $address in *:*) nodad=nodad ;; *) nodad= ;; esac
		inside ip addr add "$address" dev "$CNI_IFNAME" $nodad
	done < <(each '.addresses[]')
	while read -r gateway; do
		case $gateway in fe80:*) ;; *) inside ip route add "$gateway" dev "$CNI_IFNAME" scope link ;; esac
		inside ip neigh replace "$gateway" lladdr "$mac" dev "$CNI_IFNAME" nud permanent
	done < <(each '.gateways[]')
	while read -r route; do
		# shellcheck disable=SC2086 # words
		inside ip route add ${route//LINK/$CNI_IFNAME}
	done < <(each '.onward[]')
	jq --arg link "$CNI_IFNAME" --arg netns "$CNI_NETNS" '{cniVersion: "1.0.0",
		interfaces: [{name: $link, sandbox: $netns}],
		ips: [.addresses[] | {address: ., interface: 0}]}' <<<"$conf"
	;;
CHECK) ip link show dev "$outer" >/dev/null ;;
DEL) ! ip link show dev "$outer" >/dev/null 2>&1 || ip link del "$outer" ;;
esac
