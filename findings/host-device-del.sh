#!/bin/bash
# What:     CNI plugin host-device (github.com/containernetworking/plugins) 1.9.1 and 1.10.0, command DEL
# Expected: DEL gives the link back to the node, by another name if a new link (a hot-plugged card, a VF made anew) has its old name by
#           now: the specification wants DEL to end well and to be repeated until it does.
# Seen:     code 999, "file exists", each time. The link stays in the pod's namespace for as long as the other link has the name; once
#           that is gone, the same DEL succeeds.
# So:       a runtime that removes the namespace after some failed DELs leaves it to the kernel what becomes of the link.
source "$(dirname "$0")/lib.sh"

netns node pod
for version in 1.9.1 1.10.0; do cni_plugins $version main/host-device; done

links() { ip -n "$netns-$1" -o link show type veth | sed 's/^[0-9]*: \([^@:]*\).*/\1/' | sort | xargs; }
for version in 1.9.1 1.10.0; do
	conf='{"cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "nic0"'
	ip -n "$netns-node" link add nic0 type veth peer name wire
	result=$(cni ADD pod $version host-device <<<"$conf}")
	expect "$version: the link is in the pod" eth0 "$(links pod)"

	ip -n "$netns-node" link add nic0 type veth peer name wire2
	for try in first second; do
		out=$(cni DEL pod $version host-device <<<"$conf, \"prevResult\": $result}") && fail "$version: DEL succeeds though nic0 is taken"
		expect "$version: the $try DEL" '{ "code": 999, "msg": "failed to move \"nic0\" to hostNS: file exists" }' "$(tr -s ' \n\t' ' ' <<<"$out" | sed 's/ $//')"
		expect "$version: the link is still in the pod" eth0 "$(links pod)"
	done

	ip -n "$netns-node" link del wire2
	expect "$version: DEL once the name is free" "" "$(cni DEL pod $version host-device <<<"$conf, \"prevResult\": $result}")"
	expect "$version: the link is back" "nic0 wire" "$(links node)"
	ip -n "$netns-node" link del wire
done
