#!/bin/bash
# What:     cloud-init 22.4.2 (Debian 12), 25.1.4 (Debian 13) and 26.2 (Debian testing), network-config version 2 with a route in a table of
#           its own and a `routing-policy` that sends a source address there, as a second network of a VM has it
# Expected: a renderer writes both, or warns and leaves both out.
# Seen:     eni, sysconfig, networkd and NetworkManager write the route without its table and leave the policy out; no warning, exit
#           code 0. In the guest the route is one of the main table, for traffic of any source. Only netplan, which gets the text as it is,
#           has the table and the policy; in 26.2 networkd has both as well.
# So:       a seed with policy routing is for guests with netplan, or with networkd and a new cloud-init; elsewhere it is not less than asked
#           for but something else.
source "$(dirname "$0")/lib.sh"

cloud_init
cloud_init_testing
cat >"$tmp/config.yaml" <<'YAML'
version: 2
ethernets:
  eth1:
    match: {macaddress: "02:00:00:00:00:02"}
    set-name: eth1
    addresses: [192.0.2.5/24]
    routes: [{to: 198.51.100.0/24, via: 192.0.2.1, table: 177}]
    routing-policy: [{from: 192.0.2.5/32, table: 177}]
YAML
# route DEBIAN RENDERER DISTRIBUTION: whether the files have the route, and how often they speak of the table
route() {
	net_convert "$@"
	grep -qi warn "$tmp/out" && echo "a warning"
	grep -rqF 198.51.100.0 "$tmp/tree" && echo "route"
	echo "table: $( (grep -rhow 177 "$tmp/tree" || true) | wc -l)"
}
for debian in debian12 debian13 testing; do
	for renderer in "eni debian" "sysconfig centos" "networkd debian" "network-manager fedora"; do
		tables=0
		[ "$debian, ${renderer% *}" != "testing, networkd" ] || tables=2
		# shellcheck disable=SC2086 # two words
		expect "$debian, ${renderer% *}" "route table: $tables" "$(route $debian $renderer | xargs)"
	done
	expect "$debian, netplan" "route table: 2" "$(route $debian netplan ubuntu | xargs)"
done
