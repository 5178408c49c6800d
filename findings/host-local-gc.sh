#!/bin/bash
# What:     CNI plugin host-local (github.com/containernetworking/plugins) 1.9.1 and 1.10.0, command GC
# Expected: both say that they know CNI 1.1, which has GC, and exit with 0. So the address of an attachment that the runtime no longer
#           lists as valid is free afterwards.
# Seen:     1.9.1 frees nothing, whatever is listed. 1.10.0 frees by `cni.dev/valid-attachments`, the key of CNI's specification.
#           `cni.dev/attachments`, which libcni 1.3 sends beside it, is no list for 1.10.0: with that alone it frees all addresses, those
#           in use too, as it does without any list.
# So:       with host-local before 1.10.0 each lost DEL costs an address for good, though GC succeeds.
source "$(dirname "$0")/lib.sh"

netns node
for version in 1.9.1 1.10.0; do cni_plugins $version ipam/host-local; done

# left VERSION KEY: the addresses that are taken after two ADDs and a GC that lists the first of them under KEY
left() {
	local data=$tmp/$1-${2//\//-} valid=
	conf() {
		echo '{"cniVersion": "1.1.0", "name": "net", "type": "bridge"'"$valid"', "ipam": {"type": "host-local",
			"dataDir": "'"$data"'", "ranges": [[{"subnet": "192.0.2.0/24"}]]}}'
	}
	conf | cni ADD kept "$1" host-local >"$tmp/out"
	conf | cni ADD gone "$1" host-local >"$tmp/out"
	[ "$2" = none ] || valid=', "'$2'": [{"containerID": "kept", "ifname": "eth0"}]'
	conf | cni GC kept "$1" host-local || fail "GC of $1 failed"
	find "$data/net" -name '192.*' -printf '%f\n' | sort | xargs
}

for key in cni.dev/valid-attachments cni.dev/attachments none; do
	expect "1.9.1 keeps both after a GC with $key" "192.0.2.2 192.0.2.3" "$(left 1.9.1 $key)"
done
expect "1.10.0 goes by cni.dev/valid-attachments" 192.0.2.2 "$(left 1.10.0 cni.dev/valid-attachments)"
expect "1.10.0 frees all with cni.dev/attachments alone" "" "$(left 1.10.0 cni.dev/attachments)"
expect "1.10.0 frees all without a list" "" "$(left 1.10.0 none)"
