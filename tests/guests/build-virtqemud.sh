#!/bin/bash
# build-virtqemud.sh - adds what Debian's packages of libvirt leave out: virtqemud, the daemon for QEMU alone, with its
# units and its AppArmor profile. It is compiled from the packages' own source. That is the daemon's frame only: the rest
# is in the library and the driver, which the packages have.
#
# usage: build-virtqemud.sh ROOT SOURCE
#   ROOT     a root file system with libvirt
#   SOURCE   libvirt_VERSION.orig.tar.xz, of the same version
. "$(dirname "$0")/lib.sh"
need gcc perl python3 strip xz
ROOT=$1
S=$WORK/virtqemud/source H=$WORK/virtqemud/generated
rm -rf "$WORK/virtqemud"; mkdir -p "$S" "$H"/{admin,libvirt,remote,rpc}
$NICE tar -xJf "$2" -C "$S" --strip-components=1 --wildcards '*/config.h' '*/include' '*/scripts' '*/src'

# What its own build asks the machine for, as far as it matters here.
version=$(basename "$2" | cut -d_ -f2 | sed 's/\.orig.*//')
number=$(IFS=.; printf '%d%03d%03d' $version)
cat >"$H/meson-config.h" <<C
#define _GNU_SOURCE 1
#define PACKAGE "libvirt"
#define PACKAGE_NAME PACKAGE
#define PACKAGE_VERSION "$version"
#define VERSION PACKAGE_VERSION
#define LIBVIRT_VERSION_NUMBER $number
#define GLIB_VERSION_MIN_REQUIRED GLIB_VERSION_2_66
#define GLIB_VERSION_MAX_ALLOWED GLIB_VERSION_2_66
#define SIZEOF_LONG 8
#define WITH_GETEGID 1
#define WITH_GETEUID 1
#define WITH_GETGID 1
#define WITH_GETUID 1
C
cat >"$H/configmake.h" <<'C'
#define LIBDIR "/usr/lib/x86_64-linux-gnu"
#define LOCALEDIR "/usr/share/locale"
#define LOCALSTATEDIR "/var"
#define RUNSTATEDIR "/run"
#define SYSCONFDIR "/etc"
C
sed "s/@LIBVIRT_VERSION_NUMBER@/$number/" "$S/include/libvirt/libvirt-common.h.in" >"$H/libvirt/libvirt-common.h"

protocol() { # DIRECTORY NAME
	local x=$S/src/$1/$2.x
	python3 "$S/scripts/rpcgen/main.py" --mode=header "$x" "$H/$1/$2.h"
	python3 "$S/scripts/rpcgen/main.py" --mode=source --header="$2.h" "$x" "$H/$1/$2.c"
}
calls() { # MODE NAME DIRECTORY OUT
	perl "$S/src/rpc/gendispatch.pl" "--mode=$1" "$2" "${2^^}" "$S/src/$3/$2_protocol.x" >"$H/$4"
}
for name in remote qemu lxc; do
	protocol remote ${name}_protocol
	calls server $name remote ${name}_daemon_dispatch_stubs.h
	calls aclheader $name remote "viraccessapicheck${name#remote}.h"
done
protocol admin admin_protocol
calls server admin admin admin_server_dispatch_stubs.h
for name in virnet virkeepalive; do protocol rpc ${name}protocol; done

# Of these the headers alone: it is linked with the libraries that it will run with.
glib=$(unpack_deb libglib2.0-dev) tirpc=$(unpack_deb libtirpc-dev) xml=$(unpack_deb libxml2-dev)
sed -i '/#define LIBXML_ICU_ENABLED/d' "$xml/usr/include/libxml2/libxml/xmlversion.h" # one more package of headers
LIBS=$ROOT/usr/lib/x86_64-linux-gnu
$NICE gcc -std=gnu99 -O1 -w -o "$ROOT/usr/sbin/virtqemud" -DDAEMON_NAME='"virtqemud"' -DMODULE_NAME='"qemu"' \
	-I"$H" -I"$H"/{admin,remote,rpc} -I"$S" -I"$S/include" -I"$S"/src{,/access,/admin,/conf,/hypervisor,/remote,/rpc,/util} \
	-I"$glib"/usr/include/{glib-2.0,gio-unix-2.0} -I"$glib/usr/lib/x86_64-linux-gnu/glib-2.0/include" \
	-I"$tirpc/usr/include/tirpc" -I"$xml/usr/include/libxml2" \
	"$S"/src/remote/remote_daemon{,_config,_dispatch,_stream}.c "$S"/src/admin/admin_server{,_dispatch}.c \
	"$H"/remote/{remote,qemu,lxc}_protocol.c "$H/admin/admin_protocol.c" \
	-Wl,--allow-shlib-undefined "$LIBS"/libvirt{,-lxc,-qemu}.so.0 "$LIBS"/lib{glib,gobject,gio}-2.0.so.0 "$LIBS/libtirpc.so.3"
strip "$ROOT/usr/sbin/virtqemud"

unit() { # NAME TEMPLATE MORE...
	python3 "$S/scripts/merge-systemd-units.py" "${@:2}" |
		sed 's/@name@/QEMU/; s/@service@/virtqemud/g; s/@SERVICE@/VIRTQEMUD/g; s/@sockprefix@/virtqemud/; s/@sockmode@/0600/
			s|@runstatedir@|/run|; s|@sbindir@|/usr/sbin|; s|@initconfdir@|/etc/default|' >"$ROOT/usr/lib/systemd/system/$1"
}
unit virtqemud.service "$S"/src/{virtd.service.in,qemu/virtqemud.service.extra.in} \
	"$S"/src/virtd.service.{limitnofile,tasksmax,limitmemlock}.extra.in
for socket in '' -ro -admin; do
	unit virtqemud$socket.socket "$S"/src/{virtd$socket.socket.in,qemu/virtqemud.socket.extra.in}
done
sed 's|@sbindir@|/usr/sbin|; s|@libexecdir@|/usr/lib/libvirt|' "$S/src/security/apparmor/usr.sbin.virtqemud.in" \
	>"$ROOT/etc/apparmor.d/usr.sbin.virtqemud"
