# What a fresh Debian 12 or 13 machine needs, the tests, the demo, the
# benchmarks and the lab. Everything installs what it misses, as root or with
# sudo; without either it says what to install.

# The go command is looked for when it is used: setup may just have got it.
# Distributions may keep it from fetching the version that go.mod asks for.
export GOTOOLCHAIN ?= auto
GO       = $(or $(shell sh ci/find-go.sh),go)
SUITE   ?= verbs
DEBIANS ?= 12 13
LAB     := build/rxelab

# A machine with an RDMA device of its own runs everything on that, without a
# virtual machine.
DEVICE  := $(or $(RDMA_DEVICE),$(firstword $(notdir $(wildcard /sys/class/infiniband/*))))

PACKAGES := gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers rdma-core rdmacm-utils ibverbs-utils perftest iproute2 kmod \
	ca-certificates memcached $(if $(DEVICE),,qemu-system-x86 xz-utils)

.PHONY: all setup lint unit simhca simulated simulated-tests simulated-newer sanitized headers device test mutate torture demo bench lab clean

all: $(LAB)
	$(GO) build ./...

setup:
	@sh ci/setup.sh $(PACKAGES)

# One static program is launcher and init process of the guests.
$(LAB): setup
	@CGO_ENABLED=0 $(GO) build -o $@ ./ci/rxelab

lint: setup
	@list=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && [ -z "$$list" ] || { echo "gofmt these files: $$list"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	GOOS=darwin $(GO) vet ./cgo ./verbs/... ./dc ./srd ./lockoffload ./pacer/... ./cache/... ./ci/lab ./cmd/...

# lint has vetted everything; each way of building would be vetted again.
# A hang is told after half an hour: the slowest package takes minutes on a slow machine.
TEST = $(GO) test -vet=off -timeout=30m

# The long versions of the tests are the same tests with a longer time.
SHORT ?= -short

unit: setup
	$(TEST) -race $(SHORT) ./...
	CGO_ENABLED=0 $(TEST) $(SHORT) ./cgo/... ./verbs/... ./dc ./srd ./lockoffload ./pacer ./cache

# Devices of mlx5 and EFA simulated below the unchanged libmlx5 and libefa, to be
# preloaded by any program: docs/simhca.md.
simhca: setup build/simhca.so

build/simhca.so: $(wildcard cgo/simhca/*.c cgo/simhca/*.h)
	@mkdir -p build
	gcc -D_GNU_SOURCE -O2 -g -Wall -fno-strict-aliasing -fPIC -shared -o $@ $(filter %.c,$^) -ldl -lpthread

# The device tests of verbs run on them too. Left out are those of
#   what is not simulated: device memory, the kernel's limit of locked memory, and
#   programs of rdma-core, which have nothing linked into them (Pingpong);
#   what mlx5 does otherwise than rxe: the kernel's driver drains no send queue
#   (DrainState), libmlx5 throws away completions at RESET (MessageAfterReset,
#   RequesterComesAndGoes), and a queue pair whose completion queue overran is in
#   error at once (ReceiverBrokenQueue);
#   many seconds of load that does not depend on the device.
NOT_SIMULATED := MemoryOfDevice|MemlockLimit|Pingpong|DrainState|MessageAfterReset|RequesterComesAndGoes|ReceiverBrokenQueue|ForMany|NotAllocate|UnderPressure|Fuzz

# And those of dc, by DCI and DCT, and by RC queue pairs. Left out are those that
# need a network that loses packets, and those that wait for seconds.
DC_NOT_SIMULATED := NotAllocate|NoHardware|Loss|RandomPosts|FallsSilent|StalledTarget|DeadTargets|FirstContactWithDead|UnreachableHosts

# lockoffload's run where READs come late and WRITEs in parts. Left out are those that
# need a network that loses packets, those that wait for leases of seconds, and those
# that need no device, which have run elsewhere.
LATE := mlx5:latereads:torn,mlx5:latereads:torn
LOCK_NOT_SIMULATED := OnADeadWire|FullQueue|BadWire|OneRoundTrip|UnderLoss|GivenUpReads|RoomHeeds|ArrivesLate|OnHosts|OfTheDead|WithoutALease|ForgetsClient|ServerBefore|DeadHolder|LateWrite|Unsigned|Stray|ServerHeals|BesideTrouble|PlacesOfThoseThatLeave|Goodbye|RunsOut|NotAllocate|Histories|Variants|AgentSimulated|SwapSimulated|AMillion|AllocatesNothing|AllocateNothing|TheBusy|^TestCounter$$|Fuzz

comma := ,

# As $SIMHCA has them: what the tests of the simulation itself run on besides.
OTHER_SIMULATED := efa efa:reverse efa:random efa:nowrite mlx5:ib,mlx5:ib $(LATE)

# srd by its engine, on mlx5, and by what it has instead on EFA: all in the worst order,
# and in the others what depends on the order.
SRD_ORDERS := efa efa:reverse

INSTRUMENTED_SIMULATION ?= -race
SIMULATED_SKIP ?= $(NOT_SIMULATED)
SIMULATE = cd $(1) && GORACE=atexit_sleep_ms=0 SIMHCA=$(2) $(WITH) ../build/simulated/$(1).test -test.short -test.timeout=5m

# Tests mostly wait: two programs at a time.
SIMULATED = $(MAKE) --no-print-directory -j 2 -O

simulated: simulated-tests
	@$(SIMULATED) simulated-verbs simulated-dc simulated-srd simulated-pacer simulated-cache $(SRD_ORDERS:%=simulated-srd-on-%) simulated-lockoffload $(OTHER_SIMULATED:%=simulated-on-%) $(if $(filter 12-race,$(HOST_DEBIAN)$(INSTRUMENTED_SIMULATION)),simulated-on-newer) \
		simulated-preloaded simulated-pyverbs

simulated-tests: setup
	@mkdir -p build/simulated
	$(TEST) -c $(INSTRUMENTED_SIMULATION) -tags simhca -o build/simulated/ ./verbs ./dc ./lockoffload ./srd ./pacer ./cache

# All of it with the libraries of Debian 13, rdma-core 56, on a host that is Debian 12;
# and what make simulated has of that. The programs are the same.
NEWER = with="$$($(GO) run ./ci/headers -with trixie/amd64)" &&

simulated-newer: simulated-tests
	@$(NEWER) $(SIMULATED) WITH="$$with" simulated-verbs simulated-dc simulated-srd simulated-pacer simulated-cache simulated-lockoffload $(OTHER_SIMULATED:%=simulated-on-%)

simulated-on-newer:
	@$(NEWER) $(MAKE) --no-print-directory WITH="$$with" simulated-on-mlx5$(comma)mlx5 simulated-on-efa

simulated-verbs:
	$(call SIMULATE,verbs,mlx5$(comma)mlx5) -test.skip '$(SIMULATED_SKIP)'
	$(call SIMULATE,verbs,mlx5:ipv4) -test.run 'TestSimulated.*MTU'

simulated-dc:
	$(call SIMULATE,dc,mlx5$(comma)mlx5) -test.skip '$(DC_NOT_SIMULATED)'

# Hits through an initiator are all that a device without addresses can have of it.
simulated-cache:
	$(call SIMULATE,cache,mlx5$(comma)mlx5) -test.run TestSimulated

simulated-lockoffload:
	$(call SIMULATE,lockoffload,$(LATE)) -test.skip '$(LOCK_NOT_SIMULATED)'

simulated-srd:
	$(call SIMULATE,srd,efa:random)
	$(call SIMULATE,srd,mlx5$(comma)mlx5)

simulated-srd-on-%:
	$(call SIMULATE,srd,$*) -test.run 'Lengths|Faults|Incast'

# Left out is what must not allocate: the sanitizers do.
simulated-pacer:
	$(call SIMULATE,pacer,mlx5$(comma)mlx5) -test.skip NotAllocate

simulated-on-%:
	$(call SIMULATE,verbs,$*) -test.run Simulated -test.skip Programs
	$(call SIMULATE,dc,$*) -test.run Simulated

# By LD_PRELOAD: programs that know nothing of it, one of which forks; and nothing
# without the variable.
simulated-preloaded: build/simhca.so
	gcc -D_GNU_SOURCE -O2 -Wall -o build/simulated/fork cgo/simhca/testdata/fork.c -libverbs
	SIMHCA=mlx5 LD_PRELOAD=build/simhca.so timeout 30 build/simulated/fork
	SIMHCA=mlx5,efa LD_PRELOAD=build/simhca.so ibv_devinfo | grep -c 'hca_id:.*\(mlx5_0\|efa_0\)' | grep -qx 2
	! LD_PRELOAD=build/simhca.so ibv_devices 2>&1 | grep -q 'mlx5_0\|efa_0'
	! SIMHCA=mlx5 LD_PRELOAD=build/simhca.so sh -c 'SIMHCA= exec env' | grep SYSFS_PATH

# rdma-core's own tests, with the rdma-core and the Python of Debian 12 and of 13.
simulated-pyverbs:
	$(GO) run ./ci/pyverbs

# The same with all C code under the address sanitizer and that for undefined
# behaviour. Under them Go allocates more.
sanitized:
	CGO_CFLAGS="-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined" CGO_LDFLAGS=-fsanitize=undefined ASAN_OPTIONS=detect_leaks=0 \
		$(MAKE) simulated INSTRUMENTED_SIMULATION=-asan SIMULATED_SKIP='$(NOT_SIMULATED)|AllocatesNothing|^TestMasked$$$$'

# Every rdma-core that is supported besides the host's, and arm64.
headers: setup
	@sh ci/setup.sh gcc-aarch64-linux-gnu
	$(GO) run ./ci/headers

INSTRUMENTED_TESTS := ./verbs ./verbs/rdmacm ./verbs/stream
DEVICE_TESTS := ./verbs/netpath ./dc ./srd ./lockoffload ./ci/lab ./cmd/rdmactl
# What the kernel makes no difference to runs on the newer one.
ONCE_TESTS := ./pacer ./cache ./cmd/rdmabench ./cmd/rdmacached
EXAMPLES := ./examples/...
HOSTS_TESTS := ./dc ./examples/dc-fanout

# go test reads quotes in -exec: the path may have spaces in it.
LAUNCH = "$(CURDIR)/$(LAB)"
EXEC = -exec '$(LAUNCH) -debian $* $(1)'

# Guests are pairs of kernel and userland: Debian 12 has Linux 6.1 and rdma-core
# 44, Debian 13 has 6.12 and 56. Tests built on a newer system than the guest's
# are built with the guest's C library.
HOST_DEBIAN := $(shell . /etc/os-release 2>/dev/null && [ "$$ID" = debian ] && echo $$VERSION_ID)
RELEASE_12 := bookworm
RELEASE_13 := trixie
FOR = $(if $(filter $(HOST_DEBIAN),12 $*),,env=$$($(GO) run ./ci/headers -env $(RELEASE_$*)/amd64) && eval "export $$env" &&)

ifeq ($(DEVICE),)
device: $(LAB) $(DEBIANS:%=device-%)
	$(TEST) -count=1 -p 1 $(SHORT) -run TestHosts -exec '$(LAUNCH) -topo hosts=3' $(HOSTS_TESTS)
	$(TEST) -count=1 -exec '$(LAUNCH) -clock instructions' -run 'Show|Repeats' ./ci/bench
	$(TEST) -count=1 -exec '$(LAUNCH) -kernel 6.12 -clock instructions' -run 'OnOneCPU|OnOneBusyCPU' ./verbs
	$(TEST) -count=1 -exec '$(LAUNCH)' -run 'Baselines|Killed' ./ci/bench/lockoffload
	RXELAB="$(CURDIR)/$(LAB)" $(TEST) -count=1 -parallel 2 ./ci/rxelab ./ci/docs

# verbs and the packages in it run under instrumentation: the race detector on the
# newer kernel, the checks of pointers that cross into C on the older one.
INSTRUMENTED_12 = GOEXPERIMENT=cgocheck2 $(TEST) -gcflags=all=-d=checkptr
INSTRUMENTED_13 = $(TEST) -race

# Examples mostly wait: two guests at a time.
ONCE_13 = $(FOR) $(TEST) -count=1 -p 1 $(SHORT) $(call EXEC) $(ONCE_TESTS) && $(TEST) -count=1 -p 2 $(SHORT) $(call EXEC) $(EXAMPLES)

# Hosts that are killed: how it ends does not depend on the kernel.
HOSTS_13 = $(FOR) $(TEST) -count=1 -p 1 $(SHORT) $(call EXEC,-topo hosts=3) -run OnHosts ./lockoffload $(if $(filter -short,$(SHORT)),,./cache)

device-%: $(LAB)
	$(FOR) $(TEST) -count=1 -p 1 $(SHORT) $(call EXEC) $(DEVICE_TESTS)
	$(FOR) env $(INSTRUMENTED_$*) -count=1 -p 1 $(SHORT) $(call EXEC) $(INSTRUMENTED_TESTS)
	$(FOR) $(TEST) -count=1 $(SHORT) $(call EXEC,-topo ecmp) ./ci/lab
	$(FOR) $(TEST) -count=1 $(SHORT) $(call EXEC,-topo ecmp) -run TestPaths ./srd
	$(FOR) $(TEST) -count=1 $(SHORT) $(call EXEC,-topo hosts=2) ./ci/lab
	$(ONCE_$*)
	$(HOSTS_$*)
else
device: setup
	$(TEST) -count=1 -p 1 $(SHORT) $(INSTRUMENTED_TESTS) $(DEVICE_TESTS) $(ONCE_TESTS) $(EXAMPLES)
endif

test: lint unit simulated headers device

# Changes that tests must catch are tried on copies, one by one.
mutate: setup
	$(GO) run ./ci/mutate $(MUTATIONS)

torture:
	RXELAB_BOOTS=200 $(MAKE) unit device SHORT=-timeout=2h

# Two hosts, one of which serves its memory to the other, and then a cache.
demo: $(LAB)
	@$(GO) build -o build/demo ./examples/demo
ifeq ($(DEVICE),)
	$(LAB) -topo hosts=2 -all -- "$(CURDIR)/build/demo"
else
	@build/demo server & server=$$!; sleep 1; build/demo client 127.0.0.1; status=$$?; \
	[ $$status = 0 ] || kill $$server; wait $$server || [ $$status != 0 ] || status=1; exit $$status
endif

# What lockoffload's locks stand beside. redis-tools has the server's program;
# redis-server would start a service as well.
ifneq ($(findstring lockoffload,$(SUITE)),)
bench: PACKAGES += redis-tools
endif

# What srd stands beside: fi_pingpong.
ifneq ($(findstring srd,$(SUITE)),)
bench: PACKAGES += libfabric-bin
endif

bench: $(LAB)
	GO='$(GO)' SUITE='$(SUITE)' KERNEL='$(KERNEL)' sh ci/bench.sh

# The command goes by the environment, with whatever quotes and dollars are in it.
override export CMD := $(value CMD)
lab: $(LAB)
	@if [ -n "$$CMD" ]; then $(LAB) $(LABFLAGS) -- sh -c "$$CMD"; else $(LAB) $(LABFLAGS); fi

clean:
	rm -rf build
