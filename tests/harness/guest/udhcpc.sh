#!/bin/sh
# Event script of busybox's udhcpc in a guest of the bed: address, MTU and routes as the lease says (option 121 replaces
# option 3, RFC 3442), and the lease itself into $LEASE. Names and resolvers stay in that file.
set -e
case $1 in
deconfig) ip -4 addr flush dev "$interface" ;;
bound | renew)
	[ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
	ip addr replace "$ip/$mask" dev "$interface"
	if [ -n "$staticroutes" ]; then
		# shellcheck disable=SC2086 # pairs of words
		set -- $staticroutes
		while [ $# -ge 2 ]; do
			if [ "$2" = 0.0.0.0 ]; then
				ip route replace "$1" dev "$interface"
			else
				ip route replace "$1" via "$2" dev "$interface"
			fi
			shift 2
		done
	elif [ -n "$router" ]; then
		ip route replace default via "${router%% *}" dev "$interface"
	fi
	set | grep -E '^(ip|mask|router|dns|search|hostname|mtu|staticroutes|serverid|lease)=' >"$LEASE"
	;;
esac
