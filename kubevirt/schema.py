#!/usr/bin/env python3
"""Compares the table of fields with KubeVirt's own types: which fields of these the table does not have, and the other way round.

usage: schema.py DIR    DIR is staging/src/kubevirt.io/api/core/v1 of a checkout of KubeVirt. Exits with 1 if a field is missing.

The table is read from the snapshot of its test. Below a field that is refused nothing is compared.
"""
import pathlib
import re
import sys

SNAPSHOT = pathlib.Path(__file__).parent / "src/table/snapshots/kubevirt__table__tests__what_becomes_of_each_field.snap"
KINDS = {
    "VirtualMachine spec": "VirtualMachineSpec",
    "VirtualMachineInstanceReplicaSet spec": "VirtualMachineInstanceReplicaSetSpec",
    "VirtualMachineInstancePreset spec": "VirtualMachineInstancePresetSpec",
}
# Types of Kubernetes' own that are inlined there.
FOREIGN = {
    "LocalObjectReference": [("name", "string")],
    "PersistentVolumeClaimVolumeSource": [("claimName", "string"), ("readOnly", "bool")],
}


def types(directory):
    """Fields of each struct, as JSON has them; an inlined one has no name."""
    source = "".join((directory / name).read_text() for name in ("schema.go", "types.go"))
    found = {}
    for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", source, re.S | re.M):
        fields = re.findall(r'^\s*(?:\w+\s+)?(\S+)\s+`json:"([^",]*)', body, re.M)
        found[name] = [(field, kind) for kind, field in fields]
    return found


def table():
    lines = SNAPSHOT.read_text().split("---\n", 2)[2].splitlines()
    return dict((line.strip().split("\t") + [""])[:2] for line in lines)


def fields_of(known, kind):
    name = kind.lstrip("*[]")
    if name in known:
        return known[name]
    # KubeVirt's own type of that name says more than the one that it inlines.
    return FOREIGN.get(name.split(".")[-1], [])


def walk(known, rows, kind, path, seen):
    for field, inner in fields_of(known, kind):
        if not field:
            walk(known, rows, inner, path, seen)
            continue
        at = f"{path}.{field}"
        seen.add(at)
        if at in rows and not rows[at].startswith("not supported"):
            walk(known, rows, inner, at + ("[]" if "[]" in inner else ""), seen)


def main(directory):
    known, rows, seen = types(pathlib.Path(directory)), table(), set()
    walk(known, rows, "VirtualMachineInstanceSpec", "spec", seen)
    for place, kind in KINDS.items():
        seen |= {f"{place}.{field}" for field, _ in known[kind] if field not in ("template", "domain")}
    missing = sorted(seen - rows.keys())
    print(f"{len(seen)} fields there, {len(rows)} here")
    for field in missing:
        print(f"not here: {field}")
    for field in sorted(rows.keys() - seen):
        print(f"not there: {field}")
    return 1 if missing else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
