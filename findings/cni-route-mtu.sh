#!/bin/bash
# What:     CNI plugins bridge and ptp with host-local (github.com/containernetworking/plugins) 1.9.1 and 1.10.0, a route with `mtu`,
#           `advmss` and `priority`, which routes have since CNI 1.1
# Expected: what the result of ADD says of a route is what the kernel has; else ADD fails, or CHECK does.
# Seen:     the result repeats mtu, advmss and priority. The kernel's route has the priority ("metric 50") and neither mtu nor
#           advmss. CHECK succeeds.
# So:       who makes a guest's routes from the result and who copies them from the pod's namespace make different ones.
source "$(dirname "$0")/lib.sh"

netns node pod
need python3 "apt-get install python3"
for version in 1.9.1 1.10.0; do cni_plugins $version main/bridge main/ptp ipam/host-local; done

for version in 1.9.1 1.10.0; do
	for plugin in bridge ptp; do
		# conf [PREVIOUS-RESULT]
		conf() {
			echo '{"cniVersion": "1.1.0", "name": "net", "type": "'$plugin'", "bridge": "br0", "ipam": {"type": "host-local",
				"dataDir": "'"$tmp/$version-$plugin"'", "ranges": [[{"subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}]],
				"routes": [{"dst": "198.51.100.0/24", "gw": "192.0.2.1", "mtu": 1300, "advmss": 1200, "priority": 50}]}'"${1:+, \"prevResult\": $1}"'}'
		}
		result=$(conf | cni ADD pod $version $plugin)
		expect "$version: the route in the result of $plugin" \
			'[{"advmss": 1200, "dst": "198.51.100.0/24", "gw": "192.0.2.1", "mtu": 1300, "priority": 50}]' \
			"$(python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["routes"], sort_keys=True))' <<<"$result")"
		expect "$version: the route in the kernel after $plugin" "198.51.100.0/24 via 192.0.2.1 dev eth0 metric 50" \
			"$(ip -n "$netns-pod" route show 198.51.100.0/24 | xargs)"
		expect "$version: CHECK of $plugin" "" "$(conf "$result" | cni CHECK pod $version $plugin)"
		conf "$result" | cni DEL pod $version $plugin
	done
done
