#!/bin/bash
# What:     libqcow-python 20260703 (PyPI) on a qcow2 that `qemu-img convert -c` writes
# Expected: an image that the library opens without a word reads as QEMU reads it.
# Seen:     compressed clusters that lie at an odd byte of the file read as zeros, about every second one; the rest is right, and nothing
#           is raised. In qcow2 version 3, bit 0 of an L2 entry says "reads as zeros" for standard clusters alone; in the entry
#           of a compressed cluster it is the lowest bit of its offset. The same content in version 2 (compat=0.10), which has no
#           such bit, reads right.
# So:       a test image of one compressed cluster proves nothing: the first one begins on a cluster's border, which is even.
source "$(dirname "$0")/lib.sh"

need qemu-img "apt-get install qemu-utils"
python_with libqcow-python==20260703
# 16 clusters of 64 KiB that differ from each other and compress to different lengths
"$python" -c 'import sys
for i in range(16):
    sys.stdout.buffer.write((b"cluster %d " % i * 8192)[:65536 - 1000 * i] + bytes(1000 * i))' >"$tmp/raw"
cat >"$tmp/compare.py" <<'PY'
import struct
import sys

import pyqcow

want, blob = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read()
image = pyqcow.file()
image.open(sys.argv[2])
(l1,) = struct.unpack(">Q", blob[40:48])
(l2,) = struct.unpack(">Q", blob[l1 : l1 + 8])
l2 &= (1 << 56) - 512
verdicts = set()
for i in range(16):
    (entry,) = struct.unpack(">Q", blob[l2 + 8 * i : l2 + 8 * i + 8])
    assert entry >> 62 == 1, "not a compressed cluster"
    got = image.read_buffer_at_offset(65536, 65536 * i)
    verdict = "right" if got == want[65536 * i :][:65536] else "zeros" if not any(got) else "something else"
    verdicts.add(("odd" if entry & 1 else "even", verdict))
print(*[" ".join(v) for v in sorted(verdicts)], sep=", ")
PY
for compat in 1.1 0.10; do
	timeout 60 qemu-img convert -f raw -c -O qcow2 -o compat=$compat "$tmp/raw" "$tmp/$compat.qcow2"
	timeout 60 qemu-img compare -q -f raw -F qcow2 "$tmp/raw" "$tmp/$compat.qcow2" || fail "qemu-img does not read what it wrote"
done
expect "version 3, by the offset of the cluster" "even right, odd zeros" "$(timeout 60 "$python" "$tmp/compare.py" "$tmp/raw" "$tmp/1.1.qcow2")"
expect "version 2, by the offset of the cluster" "even right, odd right" "$(timeout 60 "$python" "$tmp/compare.py" "$tmp/raw" "$tmp/0.10.qcow2")"
