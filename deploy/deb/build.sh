#!/bin/bash
# Makes the Debian packages `virtlet` and `virtletctl` of built programs. Called by `make deb`.
#
# usage: build.sh DIST OUT      DIST has the programs, OUT gets the packages
#
# The same programs at the same commit make the same bytes: names are sorted and owners fixed by dpkg-deb, and ../begin.sh has times and
# VERSION. COMPRESS is dpkg-deb's choice (default: xz, which takes a minute).
#
# Why not cargo-deb: it packs what one crate builds, with cargo's own profiles. These packages have programs of five crates, two
# of which are built another way, and all that is above them here is lists of files.
. "$(dirname "$0")/../begin.sh"
COMPRESS=${COMPRESS:-xz}
umask 022

put() { # MODE FILE PATH-IN-PACKAGE
	install -D -m "$1" "$2" "$root$3"
}
manual() { # PROGRAM: its man pages and completions, by itself
	"$DIST/$1" manual "$root"
}
# The packages of the libraries that the programs were linked with, and their least versions. dpkg-shlibdeps wants a source
# package around it.
libraries() { # PROGRAM...
	mkdir -p "$work/source/debian"
	printf 'Source: virtlet\n\nPackage: virtlet\nArchitecture: amd64\n' >"$work/source/debian/control"
	(cd "$work/source" && dpkg-shlibdeps -O "${@/#/-e$DIST/}" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}
pack() { # NAME LIBRARIES
	local name=$1 source=deploy/deb/$1 script
	put 644 deploy/deb/copyright "/usr/share/doc/$name/copyright"
	gzip -9n <"$DIST/NOTICES" >"$work/NOTICES.gz"
	put 644 "$work/NOTICES.gz" "/usr/share/doc/$name/NOTICES.gz"
	find "$root/usr/share/man" -type f -exec gzip -9n {} +
	mkdir -p "$root/DEBIAN"
	sed -e "s/@VERSION@/$VERSION/; s/@LIBRARIES@/$2/; s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" "$source/control" >"$root/DEBIAN/control"
	for script in preinst postinst prerm postrm; do
		[ ! -e "$source/$script" ] || sed -e "s/@VERSION@/$VERSION/; s/@FORMATS@/${FORMATS:-}/" "$source/$script" >"$root/DEBIAN/$script"
		[ ! -e "$root/DEBIAN/$script" ] || chmod 755 "$root/DEBIAN/$script"
	done
	(cd "$root" && find etc -type f 2>/dev/null | sort | sed 's|^|/|') >"$work/conffiles" || true
	[ ! -s "$work/conffiles" ] || install -m 644 "$work/conffiles" "$root/DEBIAN/conffiles"
	(cd "$root" && find usr -type f | sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
	# One thread: how many there are would show in the bytes.
	dpkg-deb --root-owner-group --threads-max=1 -Z"$COMPRESS" --build "$root" "$OUT/${name}_${VERSION}_amd64.deb" >&2
	echo "$OUT/${name}_${VERSION}_amd64.deb"
}

root=$work/virtlet
put 755 "$DIST/controld" /usr/sbin/controld
put 755 "$DIST/tapmanager" /usr/sbin/tapmanager
# libvirtd starts vmwrapper to learn what the emulator has, and fswrapper as virtiofsd, and Debian's AppArmor profile lets it start
# what is in /usr/sbin, as the administrator's. The links are where our programs, and libvirt's records of running VMs, have them.
put 755 "$DIST/virtlet-agent" /usr/lib/virtlet/virtlet-agent
for wrapper in vmwrapper fswrapper; do
	put 755 "$DIST/$wrapper" /usr/sbin/$wrapper
	ln -s ../../sbin/$wrapper "$root/usr/lib/virtlet/$wrapper"
done
# With Debian's plugins, where tapmanager looks by itself: no package has anything in /opt, and what is in /opt/cni/bin is the
# cluster's, which may replace it.
put 755 "$DIST/virtlet-sriov" /usr/lib/cni/virtlet-sriov
put 644 deploy/controld.service /usr/lib/systemd/system/controld.service
put 644 deploy/tapmanager.service /usr/lib/systemd/system/tapmanager.service
put 644 deploy/apparmor/virtlet /etc/apparmor.d/abstractions/libvirt-qemu.d/virtlet
put 644 deploy/images.d/catalogue.yaml /usr/share/virtlet/images.d/catalogue.yaml
for file in deploy/etc/*.toml; do put 644 "$file" "/etc/virtlet/${file##*/}"; done
# Not the DaemonSet, which is for nodes without packages.
for file in deploy/{10-virtlet.conflist,admission-policy.yaml,crd-*.yaml,exec-roles.yaml,handlers.toml,rbac-*.yaml,runtimeclass.yaml,runtimeclasses.yaml,grafana-dashboard.json,alerts.yaml}; do
	put 644 "$file" "/usr/share/doc/virtlet/examples/${file##*/}"
done
for file in deploy/selinux/*; do
	put "$(if [ -x "$file" ]; then echo 755; else echo 644; fi)" "$file" "/usr/share/doc/virtlet/examples/selinux/${file##*/}"
done
manual controld
manual tapmanager
# What its preinst compares with what the programs write that it would replace.
FORMATS=$({ "$DIST/controld" formats; "$DIST/tapmanager" formats; } | paste -sd' ')
pack virtlet "$(libraries controld tapmanager virtlet-sriov)"

root=$work/virtletctl
put 755 "$DIST/virtletctl" /usr/bin/virtletctl
# As kubectl finds a plugin, and what completes its words.
for name in kubectl-virtlet kubectl_complete-virtlet; do ln -s virtletctl "$root/usr/bin/$name"; done
manual virtletctl
pack virtletctl "$(libraries virtletctl)"
