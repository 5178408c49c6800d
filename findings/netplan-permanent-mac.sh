#!/bin/bash
# What:     netplan of Debian 12 (0.106-2+deb12u1), what it makes for systemd-networkd of an Ethernet device that is matched by its MAC address, as
#           cloud-init writes it
# Expected: systemd's MACAddress=, which is the address that the NIC has.
# Seen:     PermanentMACAddress=, in the .network file and in the .link file: the address that the driver found when it began. `ip link set address` changes
#           the first and not the second.
# So:       a guest that goes on from a snapshot on another NIC, and has learned its new address by `ip link`, gets no network from a configuration that names
#           that address: networkd has no file for the NIC. The driver has to begin anew (unbind and bind in sysfs), which reads the device's address again.
source "$(dirname "$0")/lib.sh"

debian bookworm bookworm netplan.io=0.106-2+deb12u1 libnetplan0=0.106-2+deb12u1
mkdir -p "$tmp/root/etc/netplan"
cat >"$tmp/root/etc/netplan/50-cloud-init.yaml" <<'YAML'
network:
  version: 2
  ethernets:
    eth0:
      match: {macaddress: "02:00:00:00:00:01"}
      set-name: eth0
      dhcp4: true
YAML
chmod 600 "$tmp/root/etc/netplan/50-cloud-init.yaml"
LD_LIBRARY_PATH=$tmp/bookworm/usr/lib/x86_64-linux-gnu timeout 60 "$tmp/bookworm/usr/libexec/netplan/generate" --root-dir "$tmp/root"
matches=$(cd "$tmp/root/run/systemd/network" && grep -E '^[A-Za-z]*MACAddress=' -- *)
expect "matches" "10-netplan-eth0.link:PermanentMACAddress=02:00:00:00:00:01
10-netplan-eth0.network:PermanentMACAddress=02:00:00:00:00:01" "$matches"
