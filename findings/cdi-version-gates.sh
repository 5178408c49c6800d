#!/bin/bash
# What:     tags.cncf.io/container-device-interface 1.1.2, by which containerd, CRI-O and podman read CDI specs
# Expected: `cdiVersion` says for whom a spec was written. A reader that knows all fields in it takes it, as one does with unknown fields of
#           a newer minor version.
# Seen:     the version is held against what is used, both ways. A spec of 1.2.0 that uses nothing new is refused, so a driver that
#           writes its newest version cuts itself off from older runtimes. A spec of 0.3.0 is refused for a `hostPath` (0.5.0), and even for
#           a device whose name begins with a digit (0.5.0), as a PCI address or an index does; names like 0000:3b:02.1 need no more.
# So:       a device plugin writes the lowest version that has what it uses; who reads specs himself refuses the same ones, or a
#           pod starts on one runtime and not on the next.
source "$(dirname "$0")/lib.sh"

go_build cdi tags.cncf.io/container-device-interface@v1.1.2 <<'GO'
package main

import (
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	if _, err := cdi.ReadSpec(os.Args[1], 0); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("taken")
}
GO

# verdict VERSION DEVICE EDITS
verdict() {
	echo '{"cdiVersion": "'"$1"'", "kind": "vendor.example/vf", "devices": [{"name": "'"$2"'", "containerEdits": '"$3"'}]}' >"$tmp/spec.json"
	timeout 20 "$tmp/cdi" "$tmp/spec.json"
}
env='{"env": ["A=1"]}'
node='{"deviceNodes": [{"path": "/dev/vfio/5", "hostPath": "/dev/null"}]}'
expect "1.1.0" taken "$(verdict 1.1.0 vf "$env")"
expect "1.2.0 with nothing new" 'invalid CDI Spec: invalid version "1.2.0"' "$(verdict 1.2.0 vf "$env")"
expect "0.5.0 with hostPath" taken "$(verdict 0.5.0 vf "$node")"
expect "0.3.0 with hostPath" "invalid CDI Spec: the spec version must be at least v0.5.0" "$(verdict 0.3.0 vf "$node")"
expect "0.3.0, device vf0" taken "$(verdict 0.3.0 vf0 "$env")"
expect "0.3.0, device 0" "invalid CDI Spec: the spec version must be at least v0.5.0" "$(verdict 0.3.0 0 "$env")"
expect "0.5.0, device 0000:3b:02.1" taken "$(verdict 0.5.0 0000:3b:02.1 "$env")"
