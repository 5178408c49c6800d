#!/bin/bash
# What:     three DHCP clients have leases of an hour: udhcpc of BusyBox 1.35.0 and ISC's dhclient 4.4.3-P1 (Debian 12), dhcpcd 10.1.0 (Debian 13).
#           The NIC's carrier goes away and comes back a second later, when the server (udhcpd of BusyBox) has addresses of another network
# Expected: each asks for its address anew, as RFC 2131, section 3.7, says that they should after a disconnection. The server refuses the old
#           address, and they have a new one in a few seconds.
# Seen:     dhcpcd does. udhcpc and dhclient have an address of the network that is gone fifteen seconds later; they next ask when half of
#           their lease is over (section 4.4.5), and the server that they ask then is gone as well.
# So:       a VM that is moved or cloned is reached by link down and link up only if its guest has such a client as dhcpcd. Guests of Alpine, and
#           of Debian up to 12 with ifupdown, have one of the other two; there somebody in the guest has to tell it: SIGUSR2 and then SIGUSR1 to
#           udhcpc, another start to dhclient, which has no signal for it.
source "$(dirname "$0")/lib.sh"

netns router host
debian debian12 bookworm isc-dhcp-client=4.4.3-P1-2 busybox-static=1:1.35.0-4+deb12u1+b1
debian debian13 trixie dhcpcd-base=1:10.1.0-11+deb13u5 libc6=2.41-12+deb13u5 libssl3t64=3.5.9-1~deb13u1

# What the clients run to set addresses. dhcpcd does that itself.
cat >"$tmp/udhcpc-script" <<'SH'
#!/bin/sh
case $1 in
deconfig) ip -4 addr flush dev "$interface" ;;
bound | renew) ip addr replace "$ip/$mask" dev "$interface" ;;
esac
SH
cat >"$tmp/dhclient-script" <<'SH'
#!/bin/sh
case $reason in
PREINIT | EXPIRE | FAIL | RELEASE | STOP) ip -4 addr flush dev "$interface" ;;
BOUND | RENEW | REBIND | REBOOT) ip addr replace "$new_ip_address/24" dev "$interface" ;;
esac
SH
chmod +x "$tmp"/*-script

# serve NETWORK: a DHCP server with addresses of that network, and of no other
server=
serve() {
	[ -z "$server" ] || { kill "$server" && wait "$server" || true; }
	printf '%s\n' 'interface r0' "start $1.100" "end $1.200" 'opt subnet 255.255.255.0' 'opt lease 3600' "lease_file $tmp/leases-$1" \
		"pidfile $tmp/udhcpd.pid" >"$tmp/udhcpd.conf"
	touch "$tmp/leases-$1"
	ip netns exec "$netns-router" "$tmp/debian12/bin/busybox" udhcpd -f "$tmp/udhcpd.conf" >"$tmp/out" 2>&1 &
	server=$!
}
# network_of_host: the networks of which the host has addresses
network_of_host() { ip -n "$netns-host" -4 -o addr show dev eth0 | awk '{ split($4, a, "."); print a[1] "." a[2] "." a[3] }' | xargs; }
# until_there NETWORK: waits for it, fifteen seconds at most, and prints what there is then
until_there() {
	local tries
	for tries in $(seq 150); do
		[ "$(network_of_host)" != "$1" ] || break
		read -rt 0.1 <> <(:) || true
	done
	network_of_host
}
# life COMMAND...: of which network a client has an address, and of which when the carrier was away
life() {
	ip -n "$netns-host" link add eth0 type veth peer name r0 netns "$netns-router"
	ip -n "$netns-router" addr add 192.0.2.1/24 dev r0
	ip -n "$netns-router" addr add 198.51.100.1/24 dev r0
	ip -n "$netns-router" link set r0 up
	ip -n "$netns-host" link set eth0 up
	serve 192.0.2
	ip netns exec "$netns-host" "$@" >"$tmp/client" 2>&1 &
	echo "at first: $(until_there 192.0.2)"
	ip -n "$netns-router" link set r0 down
	serve 198.51.100
	read -rt 1 <> <(:) || true
	ip -n "$netns-router" link set r0 up
	echo "after the carrier was away: $(until_there 198.51.100)"
	ip netns pids "$netns-host" | xargs -r kill 2>/dev/null || true
	kill "$server" 2>/dev/null || true
	wait || true
	server=
	ip -n "$netns-host" link del eth0
}

stays="at first: 192.0.2
after the carrier was away: 192.0.2"
life "$tmp/debian12/bin/busybox" udhcpc -f -i eth0 -s "$tmp/udhcpc-script" >"$tmp/said"
expect "udhcpc 1.35.0" "$stays" "$(cat "$tmp/said")"
life "$tmp/debian12/sbin/dhclient" -d -4 -sf "$tmp/dhclient-script" -lf "$tmp/dhclient.leases" -pf "$tmp/dhclient.pid" -cf /dev/null eth0 >"$tmp/said"
expect "dhclient 4.4.3-P1" "$stays" "$(cat "$tmp/said")"
# Its files are where nothing of the machine's is, and a read-only /sys says that there is no udev.
life unshare --mount --propagation private sh -c 'mount -t overlay overlay -o "lowerdir=$0/usr:/usr" /usr && mount -t tmpfs tmpfs /run &&
	mount -t tmpfs tmpfs /var/lib && mount -o remount,bind,ro /sys && exec dhcpcd --nobackground --noarp --ipv4only --script /bin/true eth0' \
	"$tmp/debian13" >"$tmp/said"
expect "dhcpcd 10.1.0" "at first: 192.0.2
after the carrier was away: 198.51.100" "$(cat "$tmp/said")"
