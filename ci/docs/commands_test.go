package docs

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/etcd"
)

// elsewhere says of commands that are not executed here why not.
var elsewhere = map[string]string{
	"make setup":              "the first step of all others",
	"make test":               "what this test is a part of",
	"make compat":             "downloads what it runs: ci/compat has tests of its own",
	"make mutate":             "minutes: ci/mutate has tests of its own",
	"make torture":            "hours: make test, for longer",
	"make torture MINUTES=30": "half an hour: ci/runtests has tests of its own",
	"make demo CLUSTER=1":     "minutes, and many beside other jobs: ci/demo has tests of its parts, and the job simulated-demo the same scenes",
	"make soak":               "hours: make test's device tests, again and again",
	"make bench SUITE=verbs":  "an hour: ci/bench has tests of its own",
	"go run golang.org/x/perf/cmd/benchstat@latest -col /side build/bench/verbs.txt":              "needs the network and a benchmark's result",
	"apt install gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers rdma-core iproute2": "a part of what make setup installs",
	"git clone https://github.com/goverbs/goverbs && cd goverbs":                                  "this is it",
	"rdmactl features mlx5_0":                                                   "of rdmactl, features and doctor -run are executed on rxe",
	"rdmactl doctor -run mlx5_0":                                                "as above",
	"rdmabench read_lat -d mlx5_0 -s 64":                                        "as above, as build/rdmabench",
	"rdmabench read_lat -d mlx5_0 -s 64 10.0.0.1":                               "as above",
	"SIMHCA=mlx5:latereads:torn,mlx5:latereads:torn go test -tags simhca ./...": "in the module of a user; make simulated has such devices",
	"rdmactl doctor":                                                            "needs the path of go install; that of build/rdmactl is executed",
	"SIMHCA=mlx5 LD_PRELOAD=build/simhca.so UCX_MEM_MMAP_HOOK_MODE=none ucx_perftest -l -d mlx5_0:1 -x ud_verbs -t am_lat": "make simulated-ucx runs it",
	"SIMHCA=mlx5@test LD_PRELOAD=build/simhca.so ib_read_lat":                                                              "make simulated-fabric runs it",
	"SIMHCA=mlx5@test LD_PRELOAD=build/simhca.so ib_read_lat 127.0.0.1":                                                    "make simulated-fabric runs it",
	"build/rdmactl sim test 127.0.0.1 127.0.0.7 delay=1ms rate=1Gbit":                                                      "rdmactl's TestSim has such commands, and TestFabricLoss their effect",
	"build/rdmactl sim test '*' '*' loss=10%":                                                                              "as above",
	"build/rdmactl sim test 127.0.0.7 127.0.0.1 cut":                                                                       "as above",
	"build/rdmactl sim test clear":                                                                                         "as above",
	"SIMHCA=mlx5 LD_PRELOAD=build/simhca.so ibv_devinfo":                                                                   "make simulated tries the devices on the host",
	"useradd --system rdmacached":                                                                                          "changes the host; rdmacached's TestUnit has systemd check the unit",
	"install build/rdmacached /usr/local/bin":                                                                              "changes the host",
	"install -m 644 cmd/rdmacached/rdmacached.service /etc/systemd/system":                                                 "changes the host",
	"systemctl enable --now rdmacached":                                                                                    "guests do not run systemd",
	"make simhca":                                                                                                          "make simulated tries the devices on the host",
	"SIMHCA=mlx5@quic,mlx5@quic go test -tags simhca -bench QUIC":                                                          "the job integrations has its tests",
	"kubectl get nodes -o custom-columns=NAME:.metadata.name,HCA:.status.allocatable.rdma/hca_shared_devices_a":            "no Kubernetes here: the job kubernetes tests the files",
	"kubectl apply -f deploy/kubernetes/namespace.yaml":                                                                    "as above",
	"kubectl -n rdmacached create secret generic rdmacached --from-literal=key=$(openssl rand -hex 16)":                    "as above",
	"kubectl apply -k deploy/kubernetes":                                                                                   "as above",
	"kubectl -n rdmacached rollout status statefulset/rdmacached":                                                          "as above",
	"kubectl -n rdmacached logs rdmacached-0":                                                                              "as above",
	"kubectl -n rdmacached scale statefulset/rdmacached --replicas=4":                                                      "as above",
	"kubectl drain HOST --ignore-daemonsets --delete-emptydir-data":                                                        "as above",
	"go test ./cmd/rdmactl -run TestDevicesPage -update":                                                                   "it changes the page: its test reads what it writes",
	"RDMA_DEVICE=mlx5_0 make test":                                                                                         "needs a device that is no guest's",

	`go test ./srd/internal/engine -run 'Permutation|LargeIncast|LongIncast|HundredThousandPeers' -large build/large -v -timeout 40m`: "many minutes: make test runs smaller ones",
}

// act executes commands of the documents together: as they are, or by a script
// that differs from them in names of devices, addresses and folders, and in what it
// starts in the background.
type act struct {
	name     string
	commands []string
	script   string   // if not the commands themselves
	want     []string // in what it prints
	long     bool     // it compiles for minutes: not with -short
}

// In scripts $rxelab is the launcher, $etcd that program, $proxy a module proxy that has goverbs, $tmp a folder for
// the test, and the working folder the module's root.
var acts = []act{
	{
		name:     "demo",
		commands: []string{"make demo"},
		want:     []string{"WRITE and READ back", "server 2 is back", "by RDMA: "},
	},
	{
		name: "fan-out",
		commands: []string{
			"make build/rxelab && go build -o build/dc-fanout ./examples/dc-fanout",
			`build/rxelab -topo hosts=3 -all -- sh -c 'case $LAB_HOST in 0) build/dc-fanout 10.77.0.2 10.77.0.3;; *) build/dc-fanout serve 150;; esac'`,
		},
		want: []string{"300 targets"},
	},
	{
		name:     "lab",
		commands: []string{"make lab"},
		script: `echo 'ls /sys/class/infiniband' | make lab
			make lab CMD='ibv_devinfo'`,
		want: []string{"rxe0", "hca_id:\trxe1"},
	},
	{
		name:     "one device test",
		commands: []string{`go test -exec "$PWD/build/rxelab -debian 13" -run TestAtomics ./verbs`},
		script:   `go test -exec "$rxelab -debian 13" -run TestAtomics ./verbs`,
		want:     []string{"ok  \t"},
	},
	{
		name: "tests of a module",
		commands: []string{
			"cd examples/yourmodule && export GOWORK=off",
			"go test ./...",
			"SIMHCA=mlx5@yours,mlx5@yours go test -tags simhca ./...",
		},
		// The job yourmodule runs it on simulated devices, and the lab of another module in a guest.
		script: `cd examples/yourmodule && export GOWORK=off
			go test -count=1 ./...`,
		want: []string{"ok  \texample.com/yourmodule"},
	},
	{
		name: "integrations",
		commands: []string{
			"cd examples/integrations && export GOWORK=off",
			"go test -exec 'rxelab -kernel 6.12 -clock instructions' -run '^$' -bench 'HTTP|GRPC' -benchtime 50ms -count 9",
		},
		script: `cd examples/integrations && export GOWORK=off
			go test -count=1 -v -exec "$rxelab -kernel 6.12" -bench 'HTTP|GRPC' -benchtime 1x`,
		want: []string{"--- PASS: TestHTTP", "--- PASS: TestGRPC", "--- PASS: TestDialRefused", "--- PASS: TestQUIC", "BenchmarkGRPC/262144/stream"},
	},
	// The module of a user has a copy of an example. Modules come from folders alone: this one from its
	// proxy, the others from the go command's cache. -trimpath makes what is compiled the same in each run.
	{
		name: "install",
		commands: []string{
			"go get github.com/goverbs/goverbs/verbs@latest",
			"go install github.com/goverbs/goverbs/cmd/...@latest",
			"go mod edit -dropreplace github.com/goverbs/goverbs -droprequire github.com/goverbs/goverbs",
			"go get github.com/goverbs/goverbs@latest",
		},
		script: `export GOPROXY=file://$proxy,file://$(go env GOMODCACHE)/cache/download
			export GOMODCACHE=$tmp/modules GOSUMDB=off GOWORK=off GOFLAGS='-modcacherw -trimpath' GOBIN=$tmp/installed
			mkdir $tmp/user && cp examples/read/main.go $tmp/user && cp -r examples/yourmodule $tmp && cd $tmp/user
			go mod init example.com/user
			go get github.com/goverbs/goverbs/verbs@latest
			go build
			go version -m user
			go install github.com/goverbs/goverbs/cmd/...@latest
			for program in $tmp/installed/*; do $program -version; done
			cd $tmp/yourmodule
			go mod edit -dropreplace github.com/goverbs/goverbs -droprequire github.com/goverbs/goverbs
			go get github.com/goverbs/goverbs@latest
			go test ./...`,
		want: []string{"dep\tgithub.com/goverbs/goverbs\tv0.1.0", "rdmabench v0.1.0, go1.", "rdmacached v0.1.0, go1.", "rdmactl v0.1.0, go1.", "ok  \texample.com/yourmodule"},
		long: true,
	},
	// A shell, and one command, are the lab's above.
	{
		name: "the lab of another module",
		commands: []string{
			"CGO_ENABLED=0 go install github.com/goverbs/goverbs/ci/rxelab@latest",
			"rxelab -- ibv_devinfo",
			"rxelab -kernel 6.12 -topo hosts=2 -all -- ./program",
			"rxelab",
			"go test -exec rxelab ./...",
		},
		script: `CGO_ENABLED=0 GOBIN=$tmp/bin go install ./ci/rxelab
			export PATH=$tmp/bin:$PATH
			export GOWORK=off goverbs=$PWD
			cp -r examples/yourmodule $tmp/other && cd $tmp/other
			go mod edit -replace github.com/goverbs/goverbs=$goverbs
			printf '#!/bin/sh\necho this is host $LAB_HOST\n' > program && chmod +x program
			rxelab -kernel 6.12 -topo hosts=2 -all -- ./program
			go test -exec rxelab -count=1 -v ./...`,
		want: []string{"this is host 0", "this is host 1", "--- PASS: TestBoard", "ok  \texample.com/yourmodule"},
	},
	// In one guest, one after the other: what is in use on hardware, and a cache.
	{
		name: "hardware and cache",
		commands: []string{
			"go build -o build/rdmactl ./cmd/rdmactl",
			"go build -o build/rdmabench ./cmd/rdmabench",
			"build/rdmactl devices",
			"build/rdmactl path 10.0.0.2",
			"build/rdmactl doctor",
			"build/rdmactl doctor -run mlx5_0",
			"build/rdmactl -json doctor -run mlx5_0 > report.json",
			"build/rdmabench read_lat -d mlx5_0 -s 64",
			"build/rdmabench read_lat -d mlx5_0 -s 64 -json 10.0.0.1",
			"go build -o build/rdmacached ./cmd/rdmacached",
			"build/rdmacached -config rdmacached.json",
			"build/rdmacached proxy -server 10.77.0.2:7481 -listen 127.0.0.1:11211",
			"build/rdmactl cache 10.77.0.2:9481",
		},
		// The configuration is the document's.
		script: `go build -o build/rdmactl ./cmd/rdmactl
			go build -o build/rdmabench ./cmd/rdmabench
			go build -o build/rdmacached ./cmd/rdmacached
			sed -n '/^[` + "`" + `]*json$/,/^[` + "`" + `]*$/p' docs/cache.md | sed 1d | sed '$d' > $tmp/rdmacached.json
			$rxelab -- bash -e -c '
				build/rdmactl devices
				build/rdmactl path 10.77.0.2
				build/rdmactl doctor || echo doctor found something
				build/rdmactl doctor -run rxe0
				(cd $(mktemp -d)
				$OLDPWD/build/rdmactl -json doctor -run rxe0 > report.json
				grep -c works report.json)
				build/rdmabench read_lat -d rxe1 -s 64 &
				build/rdmabench read_lat -d rxe0 -s 64 -json 10.77.0.2
				wait
				build/rdmacached -config '$tmp'/rdmacached.json &
				server=$!
				until exec 3<>/dev/tcp/10.77.0.2/11211; do sleep 0.1; done
				printf "set colour 0 0 4\r\nblue\r\nget colour\r\nquit\r\n" >&3
				cat <&3
				build/rdmactl cache 10.77.0.2:9481
				build/rdmacached proxy -server 10.77.0.2:7481 -from 10.77.0.1 &
				until exec 3<>/dev/tcp/127.0.0.1/11211; do sleep 0.1; done
				printf "append colour 0 0 3\r\nish\r\nget colour\r\nquit\r\n" >&3
				cat <&3
				kill $server $!
				wait'`,
		want: []string{"rdma mtu", "works", `"test":"read_lat"`, "STORED", "VALUE colour 0 4\nblue\nEND", "10.77.0.2:7481  serving", "VALUE colour 0 7\nblueish\nEND"},
	},
	{
		name: "cluster",
		commands: []string{
			"etcd --data-dir build/etcd",
			"make simhca && go build -o build/ ./cmd/rdmacached ./cmd/rdmactl",
			"SIMHCA=mlx5@trial SIMHCA_ADDRESS=127.0.0.11 LD_PRELOAD=build/simhca.so build/rdmacached -config build/a.json",
			"SIMHCA=mlx5@trial SIMHCA_ADDRESS=127.0.0.12 LD_PRELOAD=build/simhca.so build/rdmacached -config build/b.json",
			"SIMHCA=mlx5@trial SIMHCA_ADDRESS=127.0.0.13 LD_PRELOAD=build/simhca.so build/rdmacached -config build/c.json",
			"build/rdmactl cache 127.0.0.11:9481 127.0.0.12:9481 127.0.0.13:9481",
			"build/rdmacached drain -config build/a.json b",
			"build/rdmacached undrain -config build/a.json b",
		},
		// The configuration is the document's, with another port of etcd.
		script: `make simhca && go build -o build/ ./cmd/rdmacached ./cmd/rdmactl
			trap 'kill $servers; wait $servers; kill $store; wait' EXIT # servers without etcd wait for it
			$etcd --data-dir $tmp/etcd --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 --listen-peer-urls http://127.0.0.1:23800 2> $tmp/etcd.log &
			store=$!
			sed -n '/^[` + "`" + `]*json$/,/^[` + "`" + `]*$/p' docs/cluster.md | sed '1d; $d; s/:2379/:23790/' > $tmp/a.json
			sed 's/127.0.0.11/127.0.0.12/g; s/"a"/"b"/' $tmp/a.json > $tmp/b.json
			sed 's/127.0.0.11/127.0.0.13/g; s/"a"/"c"/' $tmp/a.json > $tmp/c.json
			for i in a:11 b:12 c:13; do
				SIMHCA=mlx5@trial-$$ SIMHCA_ADDRESS=127.0.0.${i#*:} LD_PRELOAD=build/simhca.so build/rdmacached -config $tmp/${i%:*}.json &
				servers="$servers $!"
				# The first one has a shard more, which the others leave it.
				until build/rdmactl cache 127.0.0.11:9481 | grep 'prod *a *127.0.0.11:7481.* member'; do sleep 0.5; done
			done
			show() { build/rdmactl cache 127.0.0.11:9481 127.0.0.12:9481 127.0.0.13:9481; }
			until show | grep 'prod *c *127.0.0.13:7481.* 341 *member'; do sleep 0.5; done
			build/rdmacached drain -config $tmp/a.json b
			show
			build/rdmacached undrain -config $tmp/a.json b
			show`,
		want: []string{"b has 0 shards", "draining", "b has 341 shards"},
	},
	{
		name:     "report",
		commands: []string{"make report"},
		script: `for device in mlx5 efa; do
				make report SIM=$device # fails if something is WRONG
				grep -c '"result": "works"' build/report.json
			done`,
		want: []string{"build/report.json: "},
	},
}

// Each takes a virtual machine or more: ten seconds a time.
func TestCommandsRun(t *testing.T) {
	rxelab := os.Getenv("RXELAB")
	if rxelab == "" {
		t.Skip("boots virtual machines: set RXELAB to a built rxelab, as make test does")
	}
	tmp := t.TempDir()
	server, err := etcd.Path(t.Context())
	require.NoError(t, err)
	var proxy string
	if !testing.Short() {
		proxy = moduleProxy(t)
	}
	for _, a := range acts {
		t.Run(a.name, func(t *testing.T) {
			if a.long && testing.Short() {
				t.Skip("compiles for minutes: make torture runs it")
			}
			// None takes a minute, on most machines; one that hangs is to say where.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, "sh", "-e", "-c", cmp.Or(a.script, strings.Join(a.commands, "\n")))
			c.Dir = root
			c.Env = append(os.Environ(), "rxelab="+rxelab, "etcd="+server, "proxy="+proxy, "tmp="+tmp, "MAKEFLAGS=")
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) } // the lab passes it on
			c.WaitDelay = 20 * time.Second
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			require.NoError(t, c.Run(), "%s", &out)
			for _, w := range a.want {
				require.Contains(t, strings.ReplaceAll(out.String(), "\r", ""), w)
			}
		})
	}
}
