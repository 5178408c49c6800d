#!/bin/bash
# What:     libvirt.org/go/libvirtxml v1.12008.0: a domain read and written again
# Expected: libvirt's own Go module keeps what libvirt's schema has, as "0" is no special value in XML.
# Seen:     numbers that it keeps as plain integers are left out when they are 0. A clock that starts with the epoch (start='0') has no
#           start any more, which libvirt's schema refuses; a default route of a NIC (prefix='0') has no prefix, which the schema
#           takes, as it then means another network. start='1' and prefix='8' stay.
# So:       a program that changes one thing of a domain by reading, changing and defining it can lose others.
source "$(dirname "$0")/lib.sh"

need virt-xml-validate "apt-get install libvirt-clients"
go_build again libvirt.org/go/libvirtxml@v1.12008.0 <<'GO'
package main

import (
	"fmt"
	"io"
	"os"

	"libvirt.org/go/libvirtxml"
)

func main() {
	in, _ := io.ReadAll(os.Stdin)
	domain := &libvirtxml.Domain{}
	if err := domain.Unmarshal(string(in)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	out, err := domain.Marshal()
	fmt.Println(out, err)
}
GO
# domain START PREFIX
domain() {
	echo "<domain type='lxc'><name>vm</name><memory>65536</memory><os><type>exe</type><init>/init</init></os>
<clock offset='absolute' start='$1'/><devices><interface type='network'><source network='n'/>
<route family='ipv4' address='0.0.0.0' prefix='$2' gateway='192.0.2.1'/></interface></devices></domain>"
}
again() { timeout 20 "$tmp/again" | sed 's/<nil>//'; }
valid() { cat >"$tmp/domain.xml"; timeout 60 virt-xml-validate "$tmp/domain.xml" domain >"$tmp/verdict" 2>&1 && echo valid || echo "not valid"; }
lines() { grep -oE '<(clock|route) [^>]*>'; }
expect "the schema takes the domain" valid "$(domain 0 0 | valid)"
expect "zeros, read and written" '<clock offset="absolute">
<route family="ipv4" address="0.0.0.0" gateway="192.0.2.1">' "$(domain 0 0 | again | lines)"
expect "other numbers, read and written" '<clock offset="absolute" start="1">
<route family="ipv4" address="0.0.0.0" prefix="8" gateway="192.0.2.1">' "$(domain 1 8 | again | lines)"
expect "the schema takes it again with other numbers" valid "$(domain 1 8 | again | valid)"
expect "the schema takes it again with zeros" "not valid" "$(domain 0 8 | again | valid)"
