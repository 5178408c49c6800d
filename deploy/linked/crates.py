"""What is in the programs that we ship: crates, by the word of cargo, Rust's standard library, and npm's packages of a page.

notices.py and sbom.py beside this ask it. It reads Cargo.lock and the sources that cargo and web/fetch.sh have unpacked, and needs nothing but
Python's own library. Procedural macros, and what build scripts and tests use, is in no program.
"""

import base64
import html
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"
# Packages of the programs in the Makefile's SHIPPED, STATIC and OPERATOR.
SHIPPED = ["agent", "controld", "fswrapper", "installer", "operator", "tapmanager", "virtletctl", "vmwrapper"]
# The page of virtletctl. `VIRTLET_WEB` names where its packages are; without that, programs are built without a page.
PAGES = ROOT / "controld/virtletctl/web/packages.txt"
# Crates of the standard library that are there for other systems than Linux.
FOREIGN = ("dlmalloc", "fortanix", "hermit", "moto-rt", "r-efi", "vex-sdk", "wasi", "windows", "wit-bindgen")


@dataclass
class Crate:
    """A package of cargo's that a program is linked with."""

    name: str
    version: str
    # An SPDX expression.
    license: str
    authors: list[str]
    repository: str
    # None for our own.
    checksum: str | None
    folder: Path
    # Names of its programs.
    programs: list[str]
    # `pkg:` URLs of what it is linked with by itself.
    uses: list[str] = field(default_factory=list)

    @property
    def is_ours(self) -> bool:
        return self.checksum is None

    @property
    def purl(self) -> str:
        return f"pkg:cargo/{self.name}@{self.version.replace('+', '%2B')}"


def fail(why: str) -> None:
    """Ends the program with a line on standard error."""
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(70)


def asked(*words: str) -> str:
    """What a program of the compiler's prints."""
    try:
        return subprocess.run(words, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout
    except (OSError, subprocess.CalledProcessError) as why:
        fail(f"`{' '.join(words[:2])}` failed: {why}")


def crates() -> list[Crate]:
    """All of them, ours too, by name and version."""
    chosen = [word for name in SHIPPED for word in ("-p", name)]
    tree = asked("cargo", "tree", "--locked", "--target", TARGET, "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}", *chosen)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    known = json.loads(asked("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET))
    sums = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in sums}

    packages = {one["id"]: one for one in known["packages"] if (one["name"], f"v{one['version']}") in linked}
    found = {
        id: Crate(
            name=one["name"],
            version=one["version"],
            license=re.sub(r"\s*/\s*", " OR ", one["license"] or ""),
            authors=one["authors"],
            repository=one["repository"] or "",
            checksum=sums[one["name"], one["version"]],
            folder=Path(one["manifest_path"]).parent,
            programs=sorted(target["name"] for target in one["targets"] if "bin" in target["kind"]),
        )
        for id, one in packages.items()
    }
    if len(found) != len(linked):
        fail(f"cargo's tree has {len(linked)} packages, its metadata {len(found)} of them")
    for node in known["resolve"]["nodes"]:
        if node["id"] in found:
            is_linked = [one["pkg"] for one in node["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])]
            found[node["id"]].uses = sorted(found[id].purl for id in is_linked if id in found)
    return sorted(found.values(), key=lambda crate: (crate.name, crate.version))


@dataclass
class Page:
    """A package of npm's, of which files are in virtletctl as they are."""

    name: str
    version: str
    license: str
    authors: list[str]
    repository: str
    # SHA-512 of the package, in hexadecimal digits.
    checksum: str
    texts: list[str]

    @property
    def purl(self) -> str:
        return f"pkg:npm/{self.name.replace('@', '%40')}@{self.version}"


def pages() -> list[Page]:
    """All of them, by name; none if programs are built without a page."""
    web = os.environ.get("VIRTLET_WEB")
    if not web:
        return []
    found = []
    for line in PAGES.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, version, integrity, folder, *files = line.split()
        folder = Path(web) / folder
        said = json.loads((folder / "package.json").read_text())
        if (said["name"], said["version"]) != (name, version):
            fail(f"`{folder}` has {said['name']} {said['version']}, not {name} {version}")
        repository = said["repository"]
        texts = [(folder / one).read_text() for one in files if "LICENSE" in one or one == "AUTHORS"]
        found.append(
            Page(
                name=name,
                version=version,
                # noVNC has pako in it.
                license=f"{said['license']} AND MIT" if "vendor/pako/LICENSE" in files else said["license"],
                authors=[one["name"] if isinstance(one, dict) else one for one in [said.get("author", f"The authors of {name}")]],
                repository=repository if isinstance(repository, str) else repository["url"].removeprefix("git+"),
                checksum=base64.b64decode(integrity.removeprefix("sha512-")).hex(),
                texts=texts,
            )
        )
    return sorted(found, key=lambda page: page.name)


@dataclass
class Standard:
    """Rust's standard library, or a crate that it is made of."""

    name: str
    license: str
    owners: list[str]
    texts: list[str]


def rust() -> str:
    """The compiler's version."""
    return asked("rustc", "--version").split()[1]


def standard_library() -> list[Standard]:
    """Itself first, then its crates, as the compiler's own page on it has them."""
    page = Path(asked("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.is_file():
        fail(f"no `{page}`; a compiler that rustup installed has it")
    own, *parts = re.split(r"<h3>[^\w]*", page.read_text())
    plain = lambda pattern, text: [html.unescape(one).strip() for one in re.findall(pattern, text, re.DOTALL)]
    owners = sorted(set(plain(r"<b>Copyright:</b>(.*?)</p>", own)))
    found = [Standard(f"std-{rust()}", "MIT OR Apache-2.0", owners, [])]
    for part in parts:
        name = plain(r"^(.*?)</h3>", part)[0]
        if not name.startswith(FOREIGN):
            licence = plain(r"<b>License:</b>(.*?)</p>", part)
            found.append(Standard(name, licence[0], plain(r"<b>Authors:</b>(.*?)</p>", part), plain(r"<pre>(.*?)</pre>", part)))
    if len(found) < 5:
        fail(f"`{page}` is not as it was in Rust 1.95: no crates found in it")
    return found


def c_library() -> str:
    """The version of the build host's C library, which static programs have in them."""
    environment = {**os.environ, "LC_ALL": "C"}
    said = subprocess.run(["dpkg-query", "-W", "-f", "${source:Version}", "libc6-dev"], env=environment, text=True, stdout=subprocess.PIPE)
    if said.returncode != 0:
        fail("dpkg knows no libc6-dev, whose version is to be told: build on Debian")
    return said.stdout
