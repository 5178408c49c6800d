#!/bin/bash
# What:     dhcpcd 10.1.0 (Debian 13) and 10.5.2 (Debian testing) start on a link where the kernel has taken a router advertisement already, as
#           it does of itself once a link is up; then the router says by a lifetime of 0 that it is none any more
# Expected: dhcpcd takes over, as it stops the kernel from taking more of them (`accept_ra` 0): one default route, its own, and none in the end.
# Seen:     with 10.1.0 so. With 10.5.2 the kernel's default route stays beside dhcpcd's, and when the router has withdrawn, dhcpcd removes its
#           own and the guest goes on by the kernel's, to nobody, until that has lapsed: up to half an hour with usual routers.
# So:       who starts dhcpcd of that release on a link that is up turns `accept_ra` off before the link is up, or flushes what is there.
source "$(dirname "$0")/lib.sh"

need python3 "apt-get install python3"
netns router host
debian 10.1.0 trixie dhcpcd-base=1:10.1.0-11+deb13u5 libc6=2.41-12+deb13u5 libssl3t64=3.5.9-1~deb13u1
debian 10.5.2 forky dhcpcd-base=1:10.5.2-6 libc6=2.43-7

cat >"$tmp/router.py" <<'PYTHON'
import os, socket, struct, sys, time
out = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 86400, 14400, 0) + socket.inet_pton(socket.AF_INET6, "2001:db8::")
while True:
    lifetime = 0 if os.path.exists(sys.argv[1]) else 1800
    router = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, lifetime, 0, 0)
    out.sendto(router + prefix, ("ff02::1", 0, 0, socket.if_nametoindex("r0")))
    time.sleep(0.5)
PYTHON

# defaults: how many routes of each maker there are: the kernel's have 1024 as their metric, dhcpcd's have another
defaults() {
	ip -n "$netns-host" -6 route show default dev eth0 | awk '{ if (/ metric 1024 /) kernel++; else own++ } END { print "kernel: " kernel + 0 ", dhcpcd: " own + 0 }'
}
# until WANTED: waits for these, ten seconds at most, and prints what there is then
until_there() {
	local tries
	for tries in $(seq 100); do
		[ "$(defaults)" != "$1" ] || break
		read -rt 0.1 <> <(:) || true
	done
	defaults
}
# life VERSION: what there is before dhcpcd, with it, and after the router has withdrawn
life() {
	ip -n "$netns-host" link add eth0 type veth peer name r0 netns "$netns-router"
	inside router sh -c 'echo 0 >/proc/sys/net/ipv6/conf/r0/accept_dad; ip link set r0 up'
	ip -n "$netns-host" link set eth0 up
	inside router python3 "$tmp/router.py" "$tmp/withdrawn-$1" 2>/dev/null &
	echo "before: $(until_there 'kernel: 1, dhcpcd: 0')"
	# Its files are where nothing of the machine's is, and a read-only /sys says that there is no udev.
	inside host unshare --mount --propagation private sh -c 'mount -t overlay overlay -o "lowerdir=$0/usr:/usr" /usr && mount -t tmpfs tmpfs /run &&
		mount -t tmpfs tmpfs /var/lib && mount -o remount,bind,ro /sys && exec dhcpcd --nobackground --ipv6only --script /bin/true eth0' \
		"$tmp/$1" >"$tmp/out" 2>&1 &
	until_there 'kernel: 0, dhcpcd: 1' >"$tmp/with"
	[ "$1" = 10.1.0 ] || until_there 'kernel: 1, dhcpcd: 1' >"$tmp/with"
	echo "with dhcpcd: $(cat "$tmp/with")"
	touch "$tmp/withdrawn-$1"
	until_there 'kernel: 0, dhcpcd: 0' >"$tmp/with"
	echo "withdrawn: $(cat "$tmp/with")"
	jobs -p | xargs -r kill 2>/dev/null || true
	wait || true
	ip -n "$netns-host" link del eth0
}
life 10.1.0 >"$tmp/10.1.0.said"
expect "10.1.0" "before: kernel: 1, dhcpcd: 0
with dhcpcd: kernel: 0, dhcpcd: 1
withdrawn: kernel: 0, dhcpcd: 0" "$(cat "$tmp/10.1.0.said")"
life 10.5.2 >"$tmp/10.5.2.said"
expect "10.5.2" "before: kernel: 1, dhcpcd: 0
with dhcpcd: kernel: 1, dhcpcd: 1
withdrawn: kernel: 1, dhcpcd: 0" "$(cat "$tmp/10.5.2.said")"
