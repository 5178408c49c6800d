#!/bin/bash
# What:     k8s.io/mount-utils 0.37.2, by which kubelet and CSI drivers look at mounts, on a mount point with a space in its name, which a
#           subPath or the path of a local volume may have
# Expected: it answers for "/x/my disk" as for "/x/disk": the kernel writes the space as \040 in its lists, which any reader undoes
#           (github.com/moby/sys/mountinfo 0.7.2 of containerd and runc does).
# Seen:     it does not. IsMountPoint says true for both. List and ParseMountInfo have the path with \040 in it. GetMountRefs finds no other
#           mount of the same file system and GetDeviceNameFromMount no device, neither with an error.
# So:       "no other mount" of this module is no proof for such a path; a driver keeps spaces out of the paths that it chooses.
source "$(dirname "$0")/lib.sh"

[ "$(id -u)" = 0 ] || fail "needs root, as it mounts in a mount namespace of its own"
need unshare "apt-get install util-linux"
go_build mounts k8s.io/mount-utils@v0.37.2 github.com/moby/sys/mountinfo@v0.7.2 <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"k8s.io/mount-utils"
)

// The folder is taken out of what is printed.
func main() {
	folder, path := os.Args[1], os.Args[1]+"/"+os.Args[2]
	mounter := mount.New("")
	is, err := mounter.IsMountPoint(path)
	fmt.Println("IsMountPoint", is, err)
	list, err := mounter.List()
	for _, entry := range list {
		if strings.HasPrefix(entry.Path, folder) {
			fmt.Printf("List %s %v\n", entry.Path[len(folder):], err)
		}
	}
	parsed, err := mount.ParseMountInfo("/proc/self/mountinfo")
	for _, entry := range parsed {
		if strings.HasPrefix(entry.MountPoint, folder) {
			fmt.Printf("ParseMountInfo %s %v\n", entry.MountPoint[len(folder):], err)
		}
	}
	refs, err := mounter.GetMountRefs(path)
	fmt.Println("GetMountRefs", len(refs), err)
	device, _, err := mount.GetDeviceNameFromMount(mounter, path)
	fmt.Printf("GetDeviceNameFromMount %q %v\n", device, err)
	others, err := mountinfo.GetMounts(mountinfo.PrefixFilter(folder))
	for _, entry := range others {
		fmt.Printf("moby %s %v\n", entry.Mountpoint[len(folder):], err)
	}
}
GO
# look NAME OTHER: a tmpfs at NAME and a bind mount of it at OTHER
look() {
	local folder
	folder=$(mktemp -d -p "$tmp")
	mkdir "$folder/$1" "$folder/$2"
	# shellcheck disable=SC2016 # the inner shell's own arguments
	timeout 60 unshare --mount --propagation private bash -euc '
		mount -t tmpfs -o size=64k finding "$1/$2"
		mount --bind "$1/$2" "$1/$3"
		"$4" "$1" "$2"' look "$folder" "$1" "$2" "$tmp/mounts"
}
expect "without a space" "IsMountPoint true <nil>
List /disk <nil>
List /other <nil>
ParseMountInfo /disk <nil>
ParseMountInfo /other <nil>
GetMountRefs 1 <nil>
GetDeviceNameFromMount \"finding\" <nil>
moby /disk <nil>
moby /other <nil>" "$(look disk other)"
expect "with a space" 'IsMountPoint true <nil>
List /my\040disk <nil>
List /other <nil>
ParseMountInfo /my\040disk <nil>
ParseMountInfo /other <nil>
GetMountRefs 0 <nil>
GetDeviceNameFromMount "" <nil>
moby /my disk <nil>
moby /other <nil>' "$(look "my disk" other)"
