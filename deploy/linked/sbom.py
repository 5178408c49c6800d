#!/usr/bin/python3 -B
"""Prints what our programs are made of as a CycloneDX document, for scanners that look for known holes. Called by deploy/release.sh.

usage: sbom.py DIST VERSION      DIST has the programs

It is of SOURCE_DATE_EPOCH, and has the same bytes for the same programs: its serial number comes from what is in it.
"""

import hashlib
import json
import os
import sys
import uuid
from datetime import datetime, timezone
from pathlib import Path

import crates


def licences(expression: str) -> list[dict]:
    return [{"expression": expression}]


def library(crate: crates.Crate) -> dict:
    found = {
        "type": "library",
        "bom-ref": crate.purl,
        "name": crate.name,
        "version": crate.version,
        "scope": "required",
        "licenses": licences(crate.license),
        "purl": crate.purl,
    }
    if crate.authors:
        found["authors"] = [{"name": one} for one in crate.authors]
    if crate.checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository:
        found["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return found


def page_library(page: crates.Page) -> dict:
    return {
        "type": "library",
        "bom-ref": page.purl,
        "name": page.name,
        "version": page.version,
        "scope": "required",
        "licenses": licences(page.license),
        "purl": page.purl,
        "authors": [{"name": one} for one in page.authors],
        "hashes": [{"alg": "SHA-512", "content": page.checksum}],
        "externalReferences": [{"type": "vcs", "url": page.repository}],
    }


def main(dist: Path, version: str) -> None:
    all_crates, pages = crates.crates(), crates.pages()
    rust, glibc = f"pkg:generic/rust-std@{crates.rust()}", f"pkg:deb/debian/glibc@{crates.c_library().replace('+', '%2B')}"
    # Those that the Makefile builds with the C library in them.
    static = {"vmwrapper", "fswrapper", "virtlet-agent", "virtlet-install"}
    programs, depends = [], {crate.purl: crate.uses for crate in all_crates}
    ours = {name: crate for crate in all_crates if crate.is_ours for name in crate.programs}
    for name, crate in sorted(ours.items()):
        ref = f"program:{name}"
        programs.append(
            {
                "type": "application",
                "bom-ref": ref,
                "name": name,
                "version": version,
                "licenses": licences(crate.license),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256((dist / name).read_bytes()).hexdigest()}],
            }
        )
        depends[ref] = [crate.purl, rust] + ([glibc] if name in static else []) + ([page.purl for page in pages] if name == "virtletctl" else [])
    others = [
        {"type": "library", "bom-ref": rust, "name": "rust-std", "version": crates.rust(), "licenses": licences("MIT OR Apache-2.0"), "purl": rust},
        {
            "type": "library",
            "bom-ref": glibc,
            "name": "glibc",
            "version": crates.c_library(),
            "licenses": licences("LGPL-2.1-or-later"),
            "purl": glibc,
        },
    ]
    whole = f"pkg:generic/virtlet-rs@{version.replace('+', '%2B').replace('~', '%7E')}"
    depends[whole] = [program["bom-ref"] for program in programs]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": whole,
                "name": "virtlet-rs",
                "version": version,
                "licenses": licences("Apache-2.0"),
                "purl": whole,
            },
        },
        "components": programs + [library(crate) for crate in all_crates] + [page_library(page) for page in pages] + others,
        "dependencies": [{"ref": ref, "dependsOn": sorted(uses)} for ref, uses in sorted(depends.items())],
    }
    inside = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, inside).urn
    print(json.dumps(document, indent=1))


if len(sys.argv) != 3 or "SOURCE_DATE_EPOCH" not in os.environ:
    print(__doc__, file=sys.stderr)
    sys.exit(64)
main(Path(sys.argv[1]), sys.argv[2])
