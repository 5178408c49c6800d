#!/bin/bash
# What:     a qcow2 with subclusters (extended_l2=on, in the format's specification and in QEMU since 5.2 of 2020) and three packages of
#           PyPI: oslo.utils 10.2.0, by which OpenStack vets uploads, dissect.hypervisor 3.21 and libqcow-python 20260703
# Expected: six years on, the feature has a name for those who inspect images; who has no code for it says so at open.
# Seen:     oslo.utils knows all features below this one: the image has "unknown features" and does not pass. libqcow refuses
#           it at open, in so many words. dissect.hypervisor has code for subclusters, opens the image, tells its size, and ends with a
#           ValueError on the first allocated cluster, of an image all of whose clusters are written in full.
# So:       extended L2 entries are for overlays on a node. An image that travels has none.
source "$(dirname "$0")/lib.sh"

need qemu-img "apt-get install qemu-utils"
python_with oslo.utils==10.2.0 dissect.hypervisor==3.21 dissect.util==3.24 dissect.cstruct==4.7 libqcow-python==20260703 cryptography==50.0.2
for extended in off on; do
	timeout 60 qemu-img create -q -f qcow2 -o extended_l2=$extended "$tmp/$extended.qcow2" 1M
	timeout 60 qemu-io -f qcow2 -c "write -P 0x41 0 1M" "$tmp/$extended.qcow2" >"$tmp/out"
done

cat >"$tmp/read.py" <<'PY'
import logging
import sys
from pathlib import Path

import pyqcow
from dissect.hypervisor.disk.qcow2 import QCow2
from oslo_utils.imageutils import format_inspector

logging.disable(logging.CRITICAL)  # oslo.utils logs what it also raises
want = b"A" * (1 << 20)


def outcome(name, action):
    try:
        print(name, action())
    except Exception as e:
        words = str(e)
        print(name, type(e).__name__, next((w for w in ["unknown_features", "unsupported incompatible features"] if w in words), ""))


def libqcow():
    image = pyqcow.file()
    image.open(sys.argv[1])
    return image.read_buffer(1 << 20) == want


outcome("oslo.utils:", lambda: format_inspector.detect_file_format(sys.argv[1]).safety_check())
outcome("libqcow:", libqcow)
outcome("dissect, size:", lambda: QCow2(Path(sys.argv[1])).size)
outcome("dissect, content:", lambda: QCow2(Path(sys.argv[1])).open().read(1 << 20) == want)
PY
expect "without subclusters" "oslo.utils: None
libqcow: True
dissect, size: 1048576
dissect, content: True" "$(timeout 60 "$python" "$tmp/read.py" "$tmp/off.qcow2")"
expect "with subclusters" "oslo.utils: SafetyCheckFailed unknown_features
libqcow: OSError unsupported incompatible features
dissect, size: 1048576
dissect, content: ValueError" "$(timeout 60 "$python" "$tmp/read.py" "$tmp/on.qcow2" | sed 's/ $//')"
