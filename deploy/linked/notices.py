#!/usr/bin/python3 -B
"""Prints the notices of what is linked into our programs: whose it is, under which licences, and the texts of these.

Called by `make build`; the packages, the tarball and the image carry what it prints. A crate whose package has no text of its licence
gets the standard one. It fails on a crate for which there is none: then `standard` below wants one more.

Why not cargo-about: each build host would have to compile it first, and the standard library and the C library are none of its matter.
"""

import re
from pathlib import Path

import crates

# How files are called that have a licence or a notice in them.
NAMES = re.compile(r"(un)?licen[cs]e|copying|notice|copyright", re.IGNORECASE)
CODE = {".rs", ".py", ".sh", ".yml", ".toml"}
# Not of what is linked: a crate's own tests, and texts of licences that C sources beside it offer as another choice, or have for scripts.
LEFT_OUT = {
    "liblzma-sys": ["xz/COPYING.GPLv2", "xz/COPYING.GPLv3", "xz/COPYING.LGPLv2.1"],
    "zstd-sys": ["zstd/COPYING"],
}
COMMON = Path("/usr/share/common-licenses")
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use,
copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom
the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
BSD = """Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following
disclaimer.

2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
disclaimer in the documentation and/or other materials provided with the distribution.

3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
derived from this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE."""
HEAD = """virtlet-rs is licensed under the Apache License, version 2.0, whose text is below. Its programs are linked with what follows here:
each part with its version, its licence as its authors put it, and who they are. Where a licence is a choice (`OR`), all of its
texts are here. `make notices` of the sources prints this.

virtletctl has files of npm's packages in it, whose names here begin with `@`, for `vnc --browser`: as they are, in their source form and with the
notices that are in them. Each of these packages is also to be had from npm by its name and version.

vmwrapper, fswrapper, virtlet-agent and virtlet-install have the GNU C Library of their build host in them, which is under the GNU
Lesser General Public License, version 2.1 or later; virt-sys is under that licence, too. Whoever wants these programs with another
version of either builds them anew from the sources of virtlet-rs. The other programs use libvirt and the C library of the node.
"""
RULE = "=" * 100


def standard(crate: crates.Crate) -> list[str]:
    """The texts of a crate that brings none."""
    offered = set(re.split(r"[()\s]+|OR", crate.license))
    holders = ", ".join(one.split(" <")[0] for one in crate.authors) or f"the authors of {crate.name}"
    if "AND" not in offered:
        if "Apache-2.0" in offered:
            return [(crates.ROOT / "LICENSE").read_text()]
        if "MIT" in offered:
            return [f"Copyright (c) {holders}\n\n{MIT}"]
        if "BSD-3-Clause" in offered:
            return [f"Copyright (c) {holders}\n\n{BSD}"]
        if "LGPL-2.1" in offered:
            return [(COMMON / "LGPL-2.1").read_text()]
    crates.fail(f"`{crate.name}` {crate.version} has no text of its licence `{crate.license}`: add it to `standard` in {__file__}")


def texts(crate: crates.Crate) -> list[str]:
    """What the crate says of its licences, in all of its files that have such names."""
    found = []
    for path in sorted(crate.folder.rglob("*")):
        place = path.relative_to(crate.folder)
        is_code = path.suffix in CODE or place.parts[0] in (".github", "tests")
        if path.is_file() and NAMES.match(path.name) and not is_code and str(place) not in LEFT_OUT.get(crate.name, []):
            found.append(path.read_text(errors="replace"))
    return found or standard(crate)


def main() -> None:
    parts = []
    said: dict[str, tuple[str, list[str]]] = {}

    def add(name: str, licence: str, owners: list[str], all_texts: list[str]) -> None:
        parts.append(f"{name}  [{licence}]  {', '.join(owners)}".rstrip())
        for text in all_texts:
            # One text in many layouts is one.
            said.setdefault(" ".join(text.split()), (text, []))[1].append(name)

    ours, lesser = (crates.ROOT / "LICENSE").read_text(), (COMMON / "LGPL-2.1").read_text()
    add("virtlet-rs", "Apache-2.0", ["the authors of virtlet-rs"], [ours])
    for crate in crates.crates():
        if not crate.is_ours:
            add(f"{crate.name} {crate.version}", crate.license, crate.authors, texts(crate))
    for page in crates.pages():
        add(f"{page.name} {page.version}", page.license, page.authors, page.texts)
    own, *others = crates.standard_library()
    add(own.name, own.license, own.owners, [ours, f"Copyright (c) The Rust Project Developers\n\n{MIT}"])
    for part in others:
        add(f"{part.name} (of std)", part.license, part.owners, part.texts)
    add("GNU C Library", "LGPL-2.1-or-later", ["Free Software Foundation, Inc.", "and others"], [lesser])

    print(HEAD)
    print("\n".join(parts))
    for text, names in said.values():
        print(f"\n{RULE}\n{', '.join(dict.fromkeys(names))}\n{RULE}\n\n{text.strip()}")


main()
