#!/bin/sh
# Event script of ISC's dhclient -6 in a guest of the bed: the address, and nothing else. Routes are the kernel's affair.
set -e
case $reason in
BOUND6 | REBIND6 | RENEW6) ip -6 addr replace "$new_ip6_address/$new_ip6_prefixlen" dev "$interface" ;;
esac
