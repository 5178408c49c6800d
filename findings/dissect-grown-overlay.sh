#!/bin/bash
# What:     dissect.hypervisor 3.21 (PyPI), QCow2, an overlay that is larger than its backing image: what each VM has whose disk was
#           grown beyond the image that it came from
# Expected: what lies behind the end of the backing image reads as zeros, as QEMU has it, or an error is raised.
# Seen:     it is left out. The whole disk of 16 MiB over 8 MiB reads as 8 MiB and 64 KiB, and what the overlay has at 12 MiB comes right
#           behind the backing image's end, at 8 MiB. Nothing is raised. The same bytes by a seek to them are right.
# So:       a copy made by reading such a stream has a file system whose parts are in wrong places.
source "$(dirname "$0")/lib.sh"

need qemu-img "apt-get install qemu-utils"
python_with dissect.hypervisor==3.21 dissect.util==3.24 dissect.cstruct==4.7
qemu() { timeout 60 "$@" >"$tmp/out"; }
qemu qemu-img create -q -f qcow2 "$tmp/base.qcow2" 8M
qemu qemu-io -f qcow2 -c "write -P 0x41 0 8M" "$tmp/base.qcow2"
qemu qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 "$tmp/disk.qcow2" 16M
qemu qemu-io -f qcow2 -c "write -P 0x42 12M 64k" "$tmp/disk.qcow2"
qemu qemu-img convert -f qcow2 -O raw "$tmp/disk.qcow2" "$tmp/disk.raw"

cat >"$tmp/read.py" <<'PY'
import sys
from pathlib import Path

from dissect.hypervisor.disk.qcow2 import QCow2

raw = Path(sys.argv[1]).read_bytes()
disk = QCow2(Path(sys.argv[2]))
whole = disk.open().read()
print("QEMU:", len(raw), raw.find(b"B"))
print("whole:", disk.size, len(whole), whole.find(b"B"))
stream = disk.open()
stream.seek(12 << 20)
print("seek:", stream.read(65536) == b"B" * 65536)
PY
expect "size and place of the overlay's data" "QEMU: 16777216 12582912
whole: 16777216 8454144 8388608
seek: True" "$(timeout 60 "$python" "$tmp/read.py" "$tmp/disk.raw" "$tmp/disk.qcow2")"
