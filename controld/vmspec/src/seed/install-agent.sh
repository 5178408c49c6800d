#!/bin/sh
# cloud-init runs this once for each instance, as vendor-data. It installs virtlet's agent, which lies beside it on the seed.
set -eu
seed=$(mktemp -d)
mount -o ro "$(blkid -L SEED_LABEL)" "$seed"
mkdir -p /usr/local/sbin
# Under another name first: an agent of the image's own may run.
cp "$seed/virtlet-agent" /usr/local/sbin/virtlet-agent.new
chmod 755 /usr/local/sbin/virtlet-agent.new
mv /usr/local/sbin/virtlet-agent.new /usr/local/sbin/virtlet-agent
umount "$seed"
rmdir "$seed"
if [ ! -d /run/systemd/system ]; then
	echo "no systemd here: start /usr/local/sbin/virtlet-agent at boot, and again when it ends" >&2
	exit 1
fi
cat >/etc/systemd/system/virtlet-agent.service <<'UNIT'
[Unit]
Description=Starts commands for virtlet
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/sbin/virtlet-agent
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable virtlet-agent.service
systemctl restart --no-block virtlet-agent.service
