#!/bin/bash
# What:     github.com/kdomanski/iso9660 v0.4.0, by which Go programs write cloud-init seeds, and pycdlib 1.22.0 (PyPI), which reads ISO 9660
# Expected: what one writes the other opens. At most the names would be changed: the writer knows neither Rock Ridge nor Joliet, and
#           `user-data` is no name of plain ISO 9660.
# Seen:     the names are kept as they are, "user-data;1". But the volume has no path table (size 0, block 0), which the standard
#           requires. pycdlib ends with IndexError; the module itself, which goes by directory records, reads its volume back.
# So:       that a guest or a tool finds the files does not show that a seed is sound: another tool may not open it.
source "$(dirname "$0")/lib.sh"

python_with pycdlib==1.22.0
go_build seed github.com/kdomanski/iso9660@v0.4.0 <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kdomanski/iso9660"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	writer, err := iso9660.NewWriter()
	check(err)
	defer writer.Cleanup()
	check(writer.AddFile(strings.NewReader("instance-id: vm\n"), "meta-data"))
	check(writer.AddFile(strings.NewReader("#cloud-config\n"), "user-data"))
	file, err := os.Create(os.Args[1])
	check(err)
	check(writer.WriteTo(file, "cidata"))
	image, err := iso9660.OpenImage(file)
	check(err)
	root, err := image.RootDir()
	check(err)
	children, err := root.GetChildren()
	check(err)
	for _, child := range children {
		fmt.Println(child.Name(), child.Size())
	}
}
GO
cat >"$tmp/read.py" <<'PY'
import struct
import sys

import pycdlib

volume = open(sys.argv[1], "rb").read()
descriptor = volume[16 * 2048 : 17 * 2048]
size, block = struct.unpack("<I", descriptor[132:136])[0], struct.unpack("<I", descriptor[140:144])[0]
print("path table: size", size, "block", block)
print("name on the volume:", b"user-data;1" in volume)
try:
    pycdlib.PyCdlib().open(sys.argv[1])
    print("pycdlib: opened")
except Exception as e:
    print("pycdlib:", type(e).__name__)
PY
expect "the library reads its volume back" "meta-data 16
user-data 14" "$(timeout 20 "$tmp/seed" "$tmp/seed.iso")"
expect "the volume, and pycdlib" "path table: size 0 block 0
name on the volume: True
pycdlib: IndexError" "$(timeout 20 "$python" "$tmp/read.py" "$tmp/seed.iso")"
