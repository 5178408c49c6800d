#!/bin/bash
# A CNI plugin that delegates as Multus does: the first of `delegates` makes CNI_IFNAME, the others net1, net2...; the
# result of ADD is the first one's alone, and those of all are left in `cniDir`, in the form of libcni's cache.
set -euo pipefail
conf=$(cat)
field() { jq -r "$1" <<<"$conf"; }
dir=$(field .cniDir)
mkdir -p "$dir/results"
count=$(field '.delegates | length')

link() { [ "$1" = 0 ] && echo "$CNI_IFNAME" || echo "net$1"; }
entry() { echo "$dir/results/$(field ".delegates[$1].name")-$CNI_CONTAINERID-$(link "$1")"; }
delegate() { # PLACE [PREVIOUS RESULT]
	local with
	with=$(jq --argjson version "$(field '.cniVersion | tojson')" --argjson previous "${2:-null}" ".delegates[$1]
		| .cniVersion = \$version | if \$previous then .prevResult = \$previous else . end" <<<"$conf")
	CNI_IFNAME=$(link "$1") "$CNI_PATH/$(field ".delegates[$1].type")" <<<"$with"
}

case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}' ;;
ADD)
	for place in $(seq 0 $((count - 1))); do
		result=$(delegate "$place") || { echo "$result"; exit 1; }
		[ "$place" != 0 ] || first=$result
		jq -n --argjson result "$result" --arg link "$(link "$place")" --arg id "$CNI_CONTAINERID" --arg netns "$CNI_NETNS" \
			--arg network "$(field ".delegates[$place].name")" '{kind: "cniCacheV1", containerId: $id, config: "e30=",
			ifName: $link, networkName: $network, netns: $netns, result: $result}' >"$(entry "$place")"
	done
	jq '[.delegates | to_entries[] | {Conf: .value, ConfList: {name: "", plugins: null}, Name: "", Bytes: "e30=",
		ifnameRequest: (if .key == 0 then "" else "net\(.key)" end)}]' <<<"$conf" >"$dir/$CNI_CONTAINERID"
	echo "$first"
	;;
CHECK) for place in $(seq 0 $((count - 1))); do delegate "$place" "$(jq .result "$(entry "$place")")"; done ;;
DEL)
	for place in $(seq $((count - 1)) -1 0); do
		previous=null
		[ ! -e "$(entry "$place")" ] || previous=$(jq .result "$(entry "$place")")
		delegate "$place" "$previous"
		rm -f "$(entry "$place")"
	done
	rm -f "$dir/$CNI_CONTAINERID"
	;;
esac
