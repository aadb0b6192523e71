# What a fresh Debian 12 or 13 machine needs, the tests, the demo, the
# benchmarks and the lab. Everything installs what it misses, as root or with
# sudo; without either it says what to install.

# The go command is looked for when it is used: setup may just have got it.
# Distributions may keep it from fetching the version that go.mod asks for.
export GOTOOLCHAIN ?= auto
GO       = $(or $(shell sh ci/find-go.sh),go)
SUITE   ?= verbs
LAB     := build/rxelab

# A machine with an RDMA device of its own runs everything on that, without a
# virtual machine.
DEVICE  := $(or $(RDMA_DEVICE),$(firstword $(notdir $(wildcard /sys/class/infiniband/*))))

PACKAGES := gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers rdma-core rdmacm-utils ibverbs-utils perftest iproute2 kmod \
	ca-certificates memcached $(if $(if $(CLUSTER),,$(DEVICE)),,qemu-system-x86 xz-utils)

# What is to be built: all, unless a target says otherwise.
MODULES :=

.PHONY: all setup lint unit simhca simulated simulated-newer simulated-preloaded simulated-fabric simulated-ucx sanitized headers device report test compat mutate torture soak demo bench lab deb sbom clean

all: $(LAB)
	$(GO) build ./...

setup:
	@MODULES='$(MODULES)' sh ci/setup.sh $(PACKAGES)

# One static program is launcher and init process of the guests.
$(LAB): setup
	@CGO_ENABLED=0 $(GO) build -o $@ ./ci/rxelab

# Tests by their names, as go run ./ci/runtests -list prints them: all of make test is one
# run, in which jobs that wait run beside others.
RUN = GO='$(GO)' $(GO) run ./ci/runtests $(if $(DEVICE),-device $(DEVICE)) $(RUNFLAGS)

test headers: PACKAGES += gcc-aarch64-linux-gnu

# UCX of Debian 13 does not run on the simulated devices: docs/simhca.md.
ifeq ($(shell . /etc/os-release && echo $$VERSION_ID),12)
test simulated simulated-ucx: PACKAGES += ucx-utils libfabric-bin
endif

test: setup
	@$(RUN)

lint: setup
	@$(RUN) -only 'lint|vet'

unit: setup
	@$(RUN) -only unit

# The device tests in virtual machines, or on this machine's device.
device: setup
	@$(RUN) -only 'guest|device'

# The self-test of this machine's device, as a report to be sent in (docs/devices.md). With SIM=mlx5
# or SIM=efa it is of a simulated device.
report: PACKAGES := gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers rdma-core iproute2 kmod ca-certificates
report: setup $(if $(SIM),build/simhca.so)
	@$(GO) build -o build/ ./cmd/rdmactl
	@$(if $(SIM),RDMA_DEVICE= SIMHCA=$(SIM) LD_PRELOAD=build/simhca.so) build/rdmactl -json doctor -run >build/report.json; status=$$?; \
	if [ -s build/report.json ]; then echo 'build/report.json: docs/devices.md says how to send it in'; else rm build/report.json; fi; exit $$status

# Those that run on devices of mlx5 and EFA simulated below the unchanged libmlx5 and
# libefa (docs/simhca.md).
simulated: setup
	@$(RUN) -only 'simulated|pyverbs'

# All of it with the libraries of Debian 13, rdma-core 56, on a host that is Debian 12.
simulated-newer: setup
	@$(RUN) -only simulated -newer

# The same with all C code under the address sanitizer and that for undefined behaviour.
sanitized: setup
	@$(RUN) -only simulated -sanitize

# Every rdma-core that is supported besides the host's, and arm64.
headers: setup
	@$(RUN) -only headers

# The same devices, to be preloaded by any program.
simhca: setup build/simhca.so

build/simhca.so: $(wildcard cgo/simhca/*.c cgo/simhca/*.h)
	@mkdir -p build
	gcc -D_GNU_SOURCE -O2 -g -Wall -fno-strict-aliasing -fPIC -shared -o $@ $(filter %.c,$^) -ldl -lpthread

# Programs that know nothing of it, one of which forks, and one that asks for the connection manager;
# and nothing without the variable.
simulated-preloaded: build/simhca.so
	@mkdir -p build/simulated
	gcc -D_GNU_SOURCE -O2 -Wall -o build/simulated/fork cgo/simhca/testdata/fork.c -libverbs
	SIMHCA=mlx5 LD_PRELOAD=build/simhca.so timeout 30 build/simulated/fork
	gcc -D_GNU_SOURCE -O2 -Wall -Wno-unused-function -o build/simulated/handles cgo/simhca/testdata/handles.c -libverbs -lefa
	SIMHCA=efa LD_PRELOAD=build/simhca.so timeout 60 build/simulated/handles
	SIMHCA=mlx5,efa LD_PRELOAD=build/simhca.so ibv_devinfo | grep -c 'hca_id:.*\(mlx5_0\|efa_0\)' | grep -qx 2
	SIMHCA=mlx5 LD_PRELOAD=build/simhca.so ib_read_lat -R 2>&1 | grep -q 'the connection manager (librdmacm) is not simulated'
	! LD_PRELOAD=build/simhca.so ibv_devices 2>&1 | grep -q 'mlx5_0\|efa_0'
	! SIMHCA=mlx5 LD_PRELOAD=build/simhca.so sh -c 'SIMHCA= exec env' | grep SYSFS_PATH

# Processes of one fabric: programs that stop and kill their peers, perftest, and folders that no
# fabric can have. With SANITIZE, options of gcc, the devices are linked into the programs, and nothing
# else runs.
simulated-fabric: build/simhca.so
	@mkdir -p build/simulated
	for program in fabric steps; do \
		gcc -D_GNU_SOURCE -O2 -g -Wall -fno-strict-aliasing $(SANITIZE) -o build/simulated/$$program cgo/simhca/testdata/$$program.c \
			$(if $(SANITIZE),-rdynamic $(wildcard cgo/simhca/*.c)) -libverbs -ldl -lpthread && \
		SIMHCA=mlx5@test-$$PPID $(if $(SANITIZE),ASAN_OPTIONS=detect_leaks=0,LD_PRELOAD=build/simhca.so) timeout 120 build/simulated/$$program || exit; \
	done
	$(if $(SANITIZE),,sh cgo/simhca/testdata/perftest.sh)
	$(if $(SANITIZE),,sh cgo/simhca/testdata/folder.sh)

# UCX and libfabric over them.
simulated-ucx: setup build/simhca.so
	sh cgo/simhca/testdata/ucx.sh

# Clients and suites of memcached against the gateway (ci/compat). They are downloaded, so this is
# no part of test.
compat: PACKAGES += perl libmemcached-tools libcache-memcached-perl php-cli php-memcached python3-pymemcache python3-pytest \
	$(if $(shell command -v npm),,nodejs npm)
compat: setup build/simhca.so
	$(GO) run ./ci/compat

# Changes of the state machines, which tests must see.
mutate: setup
	$(GO) run ./ci/mutate $(MUTATIONS)

# The same tests with a longer time; or, for MINUTES, fault tests in random order, of which SEED
# repeats a round.
torture: setup
	@RXELAB_BOOTS=200 $(RUN) $(if $(MINUTES),-torture $(MINUTES)m $(if $(SEED),-seed $(SEED)) -only 'guest-13|simulated',-long -only 'unit|guest|device|simulated-(programs|cluster|pacer)')

# The device tests, in guests of one kernel and on simulated devices, ten times beside six
# busy loops: what fails more than once is not chance.
SOAK ?= 10
soak: setup
	@$(RUN) -soak $(SOAK) -only 'guest-13|simulated'

# Two hosts, one of which serves its memory to the other, and then a cache. With SIM=1 they are
# processes on simulated devices, and a cluster of servers on an etcd follows. With CLUSTER=1 that
# cluster is on three hosts, which have nothing else to do: emulated, they take minutes.
demo: MODULES := ./ci/rxelab ./ci/demo $(if $(SIM)$(CLUSTER),./cmd/rdmacached)
demo: $(if $(SIM),setup build/simhca.so,$(LAB))
	@$(GO) build -o build/ ./ci/demo $(if $(SIM)$(CLUSTER),./cmd/rdmacached)
ifneq ($(SIM),)
	@sh ci/demo/local.sh simulated
else ifneq ($(CLUSTER),)
	@rm -rf build/disks
	ETCD=$$(build/demo etcd) && export ETCD && $(LAB) -topo hosts=3 -artifacts build/disks -- "$(CURDIR)/build/demo" cluster
else ifneq ($(DEVICE),)
	@sh ci/demo/local.sh
else
	$(LAB) -topo hosts=2 -all -- "$(CURDIR)/build/demo"
endif

# What lockoffload's locks stand beside. redis-tools has the server's program;
# redis-server would start a service as well.
ifneq ($(findstring lockoffload,$(SUITE)),)
bench: PACKAGES += redis-tools
endif

ifneq ($(findstring native,$(SUITE)),)
bench: PACKAGES += ucx-utils libfabric-bin
endif

# What srd stands beside: fi_pingpong.
ifneq ($(findstring srd,$(SUITE)),)
bench: PACKAGES += libfabric-bin
endif

bench: $(LAB) build/simhca.so
	GO='$(GO)' SUITE='$(SUITE)' KERNEL='$(KERNEL)' sh ci/bench.sh

# The command goes by the environment, with whatever quotes and dollars are in it.
override export CMD := $(value CMD)
lab: $(LAB)
	@if [ -n "$$CMD" ]; then $(LAB) $(LABFLAGS) -- sh -c "$$CMD"; else $(LAB) $(LABFLAGS); fi

# Debian packages of the commands, for this host's release.
deb: setup
	GO='$(GO)' sh deploy/deb.sh

# What the commands are built from, as CycloneDX.
sbom: setup
	GO='$(GO)' sh deploy/sbom.sh

clean:
	rm -rf build
