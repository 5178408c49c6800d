#!/bin/bash
# Installs Glance, Keystone and the tools of Simple Streams from PyPI into DIR/lib, and makes what both services begin
# with: empty databases, Keystone's keys, its administrator `admin` with password `secret`.
# usage: build.sh DIR
#
# `--target` rather than a virtual environment: it may be moved, and so built aside. Cold: 1 min.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$1
python=/usr/bin/python3 # Debian's, whatever else is in PATH: the libraries are of its version

mkdir -p "$out/seed"
$python -m venv "$out/venv"
"$out/venv/bin/pip" install -q --disable-pip-version-check --no-deps -r "$here/requirements.txt" --target "$out/lib"
rm -rf "$out/venv"
cp "$here/serve.py" "$out/"

export PYTHONPATH=$out/lib PYTHONWARNINGS=ignore
cat >"$out/seed/keystone.conf" <<END
[database]
connection = sqlite:///$out/seed/keystone.sqlite
[fernet_tokens]
key_repository = $out/seed/fernet
[credential]
key_repository = $out/seed/credential
END
cat >"$out/seed/glance.conf" <<END
[database]
connection = sqlite:///$out/seed/glance.sqlite
END
keystone="$python $out/lib/bin/keystone-manage --config-file $out/seed/keystone.conf"
databases() {
	$keystone db_sync
	$keystone fernet_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
	$keystone credential_setup --keystone-user "$(id -un)" --keystone-group "$(id -gn)"
	$keystone bootstrap --bootstrap-password secret
	$python "$out/lib/bin/glance-manage" --config-file "$out/seed/glance.conf" db_sync
}
# Each of a hundred migrations is worth a line to them.
set -E
trap 'cat "$out/log" >&2' ERR
databases >"$out/log" 2>&1
rm "$out/seed/"*.conf "$out/log"
