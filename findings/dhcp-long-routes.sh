#!/bin/bash
# What:     DHCP option 121 of more than 255 bytes, written by github.com/insomniacslk/dhcp (commit c76316d4aa82) and read by scapy 2.8.0
# Expected: a client or tool joins the pieces of a long option before it looks into them, as RFC 3396 wants and as the writer itself does.
# Seen:     the writer cuts at byte 255, in the midst of the 32nd route. scapy reads each piece by itself and stops at the first: that and
#           all that follows, down to the end mark, are one lump of bytes, so none of 33 routes is seen, and no later option. Pieces that end
#           with a whole route, 248 bytes, are two options of 31 and 2 routes for it, and are the same 33 routes for the writer.
# So:       a server that ends each piece with a whole route is understood by both kinds of reader.
source "$(dirname "$0")/lib.sh"

python_with scapy==2.8.0
go_build dhcp github.com/insomniacslk/dhcp@v0.0.0-20260719225207-c76316d4aa82 <<'GO'
package main

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Without an argument: the options of a message with 33 routes. With options as an argument: how many routes they have.
func main() {
	if len(os.Args) > 1 {
		data, _ := hex.DecodeString(os.Args[1])
		message, _ := dhcpv4.New()
		read, err := dhcpv4.FromBytes(append(message.ToBytes()[:240], data...))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(read.ClasslessStaticRoute()), "routes")
		return
	}
	var routes []*dhcpv4.Route
	for i := range 33 {
		to := &net.IPNet{IP: net.IPv4(198, 18, byte(i), 0).To4(), Mask: net.CIDRMask(24, 32)}
		routes = append(routes, &dhcpv4.Route{Dest: to, Router: net.IPv4(192, 0, 2, 1)})
	}
	message, _ := dhcpv4.New(dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(routes...)))
	fmt.Println(hex.EncodeToString(message.ToBytes()[240:]))
}
GO
cat >"$tmp/options.py" <<'PY'
import sys

from scapy.layers.dhcp import DHCP

if sys.argv[2:]:  # the same routes in pieces of so many bytes
    routes = b"".join(bytes([24, 198, 18, i, 192, 0, 2, 1]) for i in range(33))
    size = int(sys.argv[2])
    pieces = [routes[i : i + size] for i in range(0, len(routes), size)]
    print((b"".join(bytes([121, len(piece)]) + piece for piece in pieces) + b"\xff").hex())
    sys.exit()
for option in DHCP(bytes.fromhex(sys.argv[1])).options:
    if isinstance(option, bytes):
        print("undecoded:", len(option), "of", len(sys.argv[1]) // 2, "bytes")
    elif option[0] == "classless_static_routes":
        print(len(option[1]), "routes")
PY
scapy() { HOME=$tmp timeout 60 "$python" "$tmp/options.py" "$@"; }
cut=$(timeout 20 "$tmp/dhcp")
whole=$(scapy - 248)
expect "the writer cuts as this does" "$cut" "$(scapy - 255)"
expect "scapy, cut at byte 255" "undecoded: 269 of 269 bytes" "$(scapy "$cut")"
expect "scapy, cut behind a route" "31 routes
2 routes" "$(scapy "$whole")"
expect "the writer as reader, cut at byte 255" "33 routes" "$(timeout 20 "$tmp/dhcp" "$cut")"
expect "the writer as reader, cut behind a route" "33 routes" "$(timeout 20 "$tmp/dhcp" "$whole")"
