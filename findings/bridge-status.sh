#!/bin/bash
# What:     CNI plugin bridge with the IPAM plugins dhcp and host-local (github.com/containernetworking/plugins) 1.9.1 and 1.10.0, command
#           STATUS
# Expected: STATUS fails where the next ADD must fail. CNI's specification asks for an error where a daemon that the plugin needs is not
#           there and where its addresses are used up, and bridge does ask its IPAM plugin.
# Seen:     STATUS succeeds without a word. ADD fails: dhcp does not reach its daemon, host-local has no address left.
# So:       a runtime that makes a node Ready by STATUS has a Ready node on which no pod starts.
source "$(dirname "$0")/lib.sh"

netns node one two three
for version in 1.9.1 1.10.0; do cni_plugins $version main/bridge ipam/dhcp ipam/host-local; done

conf() { echo '{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": '"$1"'}'; }
# message: that of the error, without the paths and numbers of this run
message() { python3 -c 'import json, sys; print(json.load(sys.stdin)["msg"].split(": ")[0])'; }
need python3 "apt-get install python3"

for version in 1.9.1 1.10.0; do
	ipam='{"type": "dhcp", "daemonSocketPath": "'$tmp'/none.sock"}'
	expect "$version: STATUS with dhcp, no daemon" "" "$(conf "$ipam" | cni STATUS three $version bridge)"
	out=$(conf "$ipam" | cni ADD three $version bridge) && fail "$version: ADD succeeds without the daemon of dhcp"
	expect "$version: ADD with dhcp, no daemon" "error dialing DHCP daemon" "$(message <<<"$out")"

	ipam='{"type": "host-local", "dataDir": "'$tmp/$version'",
		"ranges": [[{"subnet": "192.0.2.0/24", "rangeStart": "192.0.2.2", "rangeEnd": "192.0.2.2"}]]}'
	conf "$ipam" | cni ADD one $version bridge >"$tmp/out"
	expect "$version: STATUS with host-local, no address left" "" "$(conf "$ipam" | cni STATUS two $version bridge)"
	out=$(conf "$ipam" | cni ADD two $version bridge) && fail "$version: ADD succeeds without an address"
	expect "$version: ADD with host-local, no address left" "failed to allocate for range 0" "$(message <<<"$out")"
	# a failed ADD leaves links, and without its daemon dhcp fails DEL as well
	ip -n "$netns-two" link del eth0 2>/dev/null || true
	ip -n "$netns-three" link del eth0
	conf "$ipam" | cni DEL one $version bridge
done
