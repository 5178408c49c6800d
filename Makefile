# The only build interface. Everything that is made outside this clone lives in $(CACHE), under the hash of what it was
# made from: deleting it only costs time. Tests and the demo need root, on a Debian 12 machine.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help

export VIRTLET_CACHE ?= $(HOME)/.cache/virtlet-rs
export CARGO_TARGET_DIR ?= $(VIRTLET_CACHE)/target
# Where insta finds the snapshots; the clone that a test was built in may be another one.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER ?= env INSTA_WORKSPACE_ROOT=$(CURDIR)
# Warnings are `make lint`'s; a flag here would build everything twice.
CARGO := cargo
# Of the programs under test: `release` is what is shipped, `dev` is built in a minute after a change. The bed is `dev`.
PROFILE ?= release
IMAGE ?=
OPERATOR_IMAGE ?=
OUT = $(CARGO_TARGET_DIR)/$(PROFILE:dev=debug)
DIST = target/$(if $(filter dev,$(PROFILE)),dev,dist)
SHIPPED := tapmanager controld virtletctl
# Besides those of these packages' names: a CNI plugin, of tapmanager's package.
PLUGINS := virtlet-sriov
# Of package `operator`: runs in a cluster, and is in no package for nodes. A release has it without libraries, for an image of its own.
OPERATOR := virtlet-operator
# Without libraries: two start where libvirt expects other programs, the third in any guest, the last in an image of its own.
STATIC := vmwrapper fswrapper virtlet-agent virtlet-install
# Any unit test among what is built makes cargo ask all libraries for the features that unit tests need. So programs, bed and
# unit tests share one build of each library.
DEV := $(CARGO) build --locked --test units
BED := target/bed/bed
# What `--version` has behind the release: the commit of a clone, and `-dirty` if it was changed. Programs alone read it, in their `main`,
# so another commit builds no library anew. There is no date in a program.
ifeq ($(origin VIRTLET_COMMIT),undefined)
VIRTLET_COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
endif
export VIRTLET_COMMIT
# The page of `virtletctl vnc --browser`, which is built in; the same wherever virtletctl is built, or that would be done anew by turns.
# Without npm: `VIRTLET_WEB=`, and the program has no page.
VIRTLET_WEB ?= $(VIRTLET_CACHE)/web/$(shell cat controld/virtletctl/web/{fetch.sh,packages.txt} | sha256sum | cut -c 1-16)
export VIRTLET_WEB := $(VIRTLET_WEB)
LINTERS := $(VIRTLET_CACHE)/linters/$(shell sha256sum .ci/linters.txt | cut -c 1-16)
GNU := x86_64-unknown-linux-gnu

own = .ci/takeover.sh $(CARGO_TARGET_DIR);
# Nobody replaces a program between its build and its copy.
locked = mkdir -p $(VIRTLET_CACHE); exec 8>$(VIRTLET_CACHE)/build.lock; flock 8; $(own)
# $(call bed,WORDS): the test bed's program, with guests and peers
bed = tests/host/inotify.sh; guests=$$(tests/guests/build.sh $(GUESTS)); peers=$$(tests/peers/build.sh $(PEERS)); \
	VIRTLET_GUESTS=$$guests VIRTLET_PEERS=$$peers VIRTLET_DIST=$(CURDIR)/$(DIST) $(BED) $(1)

# libFuzzer on stable Rust: LLVM's own pass puts the counters in. All checked arithmetic is on (profile `fuzz`).
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing
# Seconds for each target, and which.
TIME ?= 60
TARGETS ?=

.PHONY: help setup host room proto build notices deb tarball image release bed demo test units test-unit test-root test-net test-node test-sriov test-iommufd test-installed test-vm test-restart test-soak test-cri test-kubelet test-proxy test-image test-mapping test-objects test-seed test-release soak fuzz lint lint-shipped bench

help: ## this list
	@grep -E '^[a-z -]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

setup: host $(VIRTLET_WEB) ## what is missing on this machine: packages, what npm has, guest images, crictl, kubelet, CNI plugins
	@tests/guests/build.sh
	@tests/peers/build.sh

host:
	@tests/host/install.sh

ifneq ($(VIRTLET_WEB),)
$(VIRTLET_WEB):
	@controld/virtletctl/web/fetch.sh >/dev/null
endif

# What all of `make test` leaves behind from an empty cache, and what its cases have in /tmp at the most.
room:
	@tests/host/room.sh $(CARGO_TARGET_DIR)=$(if $(filter 0,$(CARGO_INCREMENTAL)),10,16) $(VIRTLET_CACHE)/guests=3 $(VIRTLET_CACHE)/peers=2 /tmp=2

proto: ## code of the .proto files, after one of them has changed, and whether the CRI wire is as it was
	cd proto/generate && $(CARGO) run --locked --quiet && $(CARGO) test --locked --quiet

# What is linked is what cargo says by these files.
target/NOTICES: LICENSE Cargo.lock rust-toolchain.toml $(wildcard Cargo.toml */Cargo.toml */*/Cargo.toml deploy/linked/*.py) controld/virtletctl/web/packages.txt | $(VIRTLET_WEB)
	@mkdir -p target; deploy/linked/notices.py >$@.new; mv $@.new $@
notices: target/NOTICES ## what is linked into the programs, whose it is and under which licences, into target/NOTICES

build: host target/NOTICES ## programs into target/dist, stripped, their symbols beside them; PROFILE=dev: quicker, into target/dev
	@$(locked) \
	$(if $(filter dev,$(PROFILE)),$(DEV) $(SHIPPED:%=--bin %) $(PLUGINS:%=--bin %) --bin $(OPERATOR),$(CARGO) build --locked --release $(SHIPPED:%=-p %)); \
	$(if $(filter dev,$(PROFILE)),,RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --release --target $(GNU) -p operator;) \
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --locked --profile shim --target $(GNU) -p vmwrapper -p fswrapper -p agent -p installer; \
	mkdir -p $(DIST); \
	for built in $(SHIPPED:%=$(OUT)/%) $(PLUGINS:%=$(OUT)/%) $(if $(filter dev,$(PROFILE)),$(OUT),$(CARGO_TARGET_DIR)/$(GNU)/release)/$(OPERATOR) $(STATIC:%=$(CARGO_TARGET_DIR)/$(GNU)/shim/%); do \
		program=$(DIST)/$${built##*/}; \
		objcopy --only-keep-debug $$built $$program.debug; \
		objcopy --strip-all --add-gnu-debuglink=$$program.debug $$built $$program.new; \
		mv $$program.new $$program; \
	done; \
	install -m 644 target/NOTICES $(DIST)/NOTICES
	@ls -l $(DIST)

deb: build ## Debian packages of them into target/deb; with PROFILE=dev, too
	@rm -rf target/deb
	@deploy/deb/build.sh $(DIST) target/deb

tarball: build ## what the packages have, for nodes without dpkg, into target/tarball; with PROFILE=dev, too
	@rm -rf target/tarball
	@deploy/tarball.sh $(DIST) target/tarball

image: build ## container images: one that puts them on nodes, with its DaemonSet, and the operator's, into target/image; IMAGE=NAME:TAG OPERATOR_IMAGE=NAME:TAG
	@rm -rf target/image
	@IMAGE='$(IMAGE)' OPERATOR_IMAGE='$(OPERATOR_IMAGE)' deploy/image.sh $(DIST) target/image

# Not `target/release`, which is cargo's wherever it builds into the clone.
release: build ## packages, tarball, image, manifests, alert rules, SBOM and checksums, into target/artifacts; IMAGE=NAME:TAG OPERATOR_IMAGE=NAME:TAG VERSION=1.2.3
	@rm -rf target/artifacts
	@IMAGE='$(IMAGE)' OPERATOR_IMAGE='$(OPERATOR_IMAGE)' deploy/release.sh $(DIST) target/artifacts

bed: build
	@$(locked) \
	$(DEV) --bin bed; \
	install -D -t $(dir $(BED)) $(CARGO_TARGET_DIR)/debug/bed; \
	.ci/takeover.sh $(CARGO_TARGET_DIR) built

demo: GUESTS := tiny
demo: PEERS := cni
# One tree of libraries, not two.
demo: PROFILE := dev
demo: bed ## boots the tiny guest through the CRI socket, shows it, and shows that nothing is left
	@$(call bed,demo)

# What is tested is built as what is worked on: a release build takes three times as long, and shows nothing that this does not.
test: PROFILE := dev
# From an empty cache guests and peers take half as long to build as all else takes. They are built beside compilers and unit tests, and
# with what these leave of the processors; and the tier `net`, which needs few of them, does not wait for the rest.
# Unit tests mostly wait, for programs of others above all: what the bed lacks is built meanwhile, and where nothing is, the bed runs.
# Of what tests draw at random they draw the same here each time; `make test-unit` and `make fuzz` draw anew.
test: export PROPTEST_RNG_SEED := 1
test: room host ## unit tests, then every tier of the bed, but for what `make test-release` has
	@tests/host/inotify.sh; mkdir -p target; tests/peers/build.sh cni clients >/dev/null; \
	set -m; trap 'kill -- $$(jobs -p | sed s/^/-/) 2>/dev/null || :' EXIT; \
	nice -n 19 tests/guests/build.sh >/dev/null 2>target/guests.log & guests=$$!; \
	nice -n 19 tests/peers/build.sh >/dev/null 2>target/peers.log & peers=$$!; \
	$(MAKE) --no-print-directory units; \
	$(MAKE) --no-print-directory test-unit test-root >target/units.log 2>&1 & units=$$!; \
	nice -n 10 $(MAKE) --no-print-directory PROFILE=$(PROFILE) bed; \
	units_passed() { wait $$units || { cat target/units.log; exit 1; }; grep '^test result' target/units.log; }; \
	building() { jobs -rp | grep -qx -e $$guests -e $$peers; }; \
	if building; then \
		units_passed; units=; \
		$(MAKE) --no-print-directory PROFILE=$(PROFILE) test-net; others='--skip net::'; \
		for file in report.json junit.xml; do mv target/bed/$$file target/bed/net-$$file; done; \
		! building || echo 'guests and peers are still being built: target/guests.log, target/peers.log'; \
	fi; \
	wait $$guests || { cat target/guests.log; exit 1; }; wait $$peers || { cat target/peers.log; exit 1; }; \
	$(call bed,$${others-}); \
	[ -z "$$units" ] || units_passed

fuzz: host ## runs every fuzz target for TIME=60 seconds; TARGETS='dhcp4 spdy' is less
	@$(locked) \
	RUSTFLAGS='$(FUZZ_FLAGS)' $(CARGO) build --locked --profile fuzz --target $(GNU) -p fuzz --features libfuzzer; \
	install -D -t target/fuzz $(CARGO_TARGET_DIR)/$(GNU)/fuzz/fuzz
	@fuzz/run.sh target/fuzz/fuzz $(TIME) target/fuzz/out $(TARGETS)

# Unit tests, all of tapmanager, that make network namespaces, give files to other users or start CNI plugins, by how their
# names begin. `test-root` fails if one of these names no test.
ROOT_TESTS := $(addprefix addressing::tests::,clients flood) cni::tests::real confinement::tests daemon::access::tests \
	daemon::service::tests::only_vmwrapper_as_qemus handoff::tests::no_thread_waits_in net::tests \
	pod::sysctl::tests::settings_are ra::tests::clients $(addprefix rpc::tests::,an_over_long_packet sockets_are_private) \
	spawner::allowed::tests::what_others_can_write sys::netns::tests sys::netns_pool::tests vf::host::tests \
	plugin::kernel::tests
# No comment has code that is run.
UNITS := --locked --workspace --lib --bins --tests
units: host $(VIRTLET_WEB)
	@$(own) $(CARGO) test $(UNITS) --no-run
test-unit: host $(VIRTLET_WEB) ## unit tests that need neither root nor programs of others
	@$(own) set -x; $(CARGO) test $(UNITS) -- $(ROOT_TESTS:%=--skip=%)

# One at a time: a program that one test starts holds the taps of all others until it executes, and a tap that is held is
# neither opened again nor removed.
# Where a newer release of a DHCP client is a peer, it is tried as well.
test-root: host $(VIRTLET_WEB) ## the other unit tests, which need root and CNI plugins
	@$(own) export VIRTLET_PEERS=$$(tests/peers/build.sh cni clients); \
	listed=$$($(CARGO) test --locked --workspace --lib -- --list $(ROOT_TESTS)); \
	for name in $(ROOT_TESTS); do \
		grep -q "^$$name.*: test$$" <<<"$$listed" || \
			{ echo "make: no unit test begins with \`$$name\`; put its new name into ROOT_TESTS of the Makefile" >&2; exit 1; }; \
	done; \
	set -x; \
	$(CARGO) test --locked --workspace --lib -- --test-threads 1 $(ROOT_TESTS); \
	for suite in $$(cat tests/peers/clients/suites); do \
		$$VIRTLET_PEERS/clients/over.sh $$suite $(CARGO) test --locked --workspace --lib -- --test-threads 1 dhcpcd networkd; \
	done

test-net test-image test-mapping test-objects test-seed: GUESTS := tiny
test-seed: PEERS := cloud-init
test-image: PEERS := python
test-proxy: PEERS := kubelet apiserver controllers kube-proxy metrics containerd cri
test-proxy: GUESTS := tiny
test-mapping: PEERS := apiserver
test-objects: PEERS := apiserver controllers kubelet metrics
test-net test-node: PEERS := cni
test-node: GUESTS := tiny node
test-sriov test-iommufd: PEERS := cni
test-sriov: GUESTS := tiny-vf node
test-iommufd: GUESTS := tiny-vf node-new
test-installed: GUESTS := tiny installed installed-13
test-installed: PEERS := kubelet apiserver controllers
test-net test-node test-sriov test-iommufd test-installed test-vm test-restart test-soak test-cri test-kubelet test-proxy test-image test-mapping test-objects test-seed: bed ## one tier of the bed; CASE=part of a name for less
	@$(call bed,--include-ignored $(@:test-%=%)::$(CASE))

test-release: bed ## the cases that `make test` leaves out, as each takes minutes; before a release
	@$(call bed,--ignored)

soak: GUESTS := tiny
soak: PEERS := cni
soak: bed ## a thousand pods, 16 at a time, while each daemon is killed again and again; some five minutes
	@$(call bed,soak)

# By an optimised bed: its client's time is in what it measures.
bench: BED := target/bench/bed
bench: GUESTS := tiny node
bench: PEERS := apiserver cni containerd controllers cri kubelet virtiofsd
bench: build ## measures, prints a table, writes target/bench/report.json; BENCH=--strict fails on a miss, BENCH=GROUP is less
	@$(locked) \
	$(CARGO) build --locked --release -p tests; \
	install -D -t $(dir $(BED)) $(CARGO_TARGET_DIR)/release/bed
	@gcc -O2 -static -s -o target/bench/cshim tests/bench/cshim.c
	@gcc -O2 -static -s -o target/bench/chandoff tests/bench/chandoff.c
	@gcc -O2 -static -s -o target/bench/netfloor tests/bench/netfloor.c
	@gcc -O2 -static -s -o target/bench/vffloor tests/bench/vffloor.c
	@gcc -O2 -static -nostdlib -s -o target/bench/nop tests/bench/nop.c
	@gcc -O2 -static -s -o target/bench/pause tests/bench/pause.c
	@$(call bed,bench $(BENCH))

lint: host $(VIRTLET_WEB) $(LINTERS) ## format, clippy, who may use whom, paths in documents, lean shims, licences, alert rules, spelling
	$(CARGO) fmt --all --check
	@$(own)
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) run --locked --quiet --bin layers
	@for shim in vmwrapper fswrapper; do \
		! $(CARGO) tree --locked -p $$shim -e normal --prefix none | grep -E '^(tokio|tonic|prost)' || { echo "$$shim is not lean: see the crates above" >&2; exit 1; }; \
	done
	@! $(CARGO) tree --locked -i aws-lc-rs 2>/dev/null || { echo 'TLS is ring here, not aws-lc-rs' >&2; exit 1; }
	$(LINTERS)/bin/cargo-deny --all-features --config .deny.toml check bans licenses sources
	@promtool=$$(tests/peers/build.sh promtool)/promtool; set -x; $$promtool check rules deploy/alerts.yaml; $$promtool test rules tests/alerts/*.yaml
	$(LINTERS)/bin/typos --config .typos.toml

# With features of their own, libraries are checked once more: minutes, for code that is left over now and then.
lint-shipped: host $(VIRTLET_WEB) ## clippy of programs as they are shipped, without what is compiled for the fuzzer alone; before a release
	@$(own)
	$(CARGO) clippy --locked $(SHIPPED:%=-p %) -p operator -- -D warnings

$(LINTERS):
	rm -rf $@.new
	/usr/bin/python3 -m venv $@.new
	$@.new/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r .ci/linters.txt
	mv $@.new $@
