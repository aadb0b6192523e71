package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// options are what the command line says.
type options struct {
	long, sanitize, newer bool
	device                string
	slots, soak, busy     int
	torture               time.Duration
	seed                  uint64 // of the first round of torture; 0: any
}

// Guests are pairs of kernel and userland: Debian 12 has Linux 6.1 and rdma-core 44,
// Debian 13 has 6.12 and 56.
const oldest, newest = "12", "13"

// Device tests that guests leave out, except in the long run.
//
// ownLoad are of load on our own locks and queues, and ownTimes wait for leases and other times of our
// own: no kernel changes these, and they run on simulated devices. Besides, the older guest leaves out
// more of the load, which runs on the newer one, and ownView: what does not look at the kernel, or
// sees the same of both.
const (
	ownLoad = "HandOffIsFair|UnderPressure|ForMany|WithoutASlot|ReusedHandle|ContextEndsAnywhere|CallsOnAQueuePairThatComesAndGoes|" +
		"CloseUnderLoad|CloseBeside|TriedAfterClose|ManyLargeMessages"
	ownTimes = "Leases|Strays|OfTheDead|OfADeadClient|DeadHolder|ForgetsClient|ServerBefore|PlacesOfThose|ServerHeals|BesideTrouble|" +
		"Goodbye|EndedSessionIs|AgentIsFoundAgain|AgentThatFails"
	ownView = "^TestHostChanges$|KeyIsOnePeers|WrongAccessKey|SendToItself|" +
		"^TestDoctorFinds|^TestCtlLists$|JSONBefore|OfAServerThatHangs"
	notNewer = ownLoad + "|" + ownTimes
	// Of cache, what follows from its own messages and records.
	ownCache = "ClusterWithAServerThatHangs|ClusterOutlives|WhileTheServerIsStopped|FlushAllThrough|NearCache|WarmRestart|" +
		"^TestWritersReadersEvictors$|TakesOverAGreeting|SetMulti|QuietClient|HostileClients|BucketsUnderChanges|LateClient|" +
		"SnapshotAndDeltas|RevokedTenant|EndsInTheMiddle|LongValuesUnderChanges|^TestExpiry$|GapMeans"
	notOlder = notNewer + "|" + ownView + "|RandomPosts|DeadTargets|ComesAndGoes|ComeAndGo|UseAndClose|NotAllocate|AllocatesNothing"
)

var codenames = map[string]string{oldest: "bookworm", newest: "trixie"}

// The device tests. Those of the base packages that cannot run on simulated devices, where
// everything is instrumented, run instrumented on the newer kernel. Where the kernel makes no
// difference tests run on the newer one alone.
// ci/lab comes last in its guest: it leaves a thousand addresses there, which slow down
// lookups and rxe.
var (
	basePackages     = words("./verbs ./verbs/rdmacm ./verbs/stream")
	hostPackages     = words("./verbs/netpath ./cmd/rdmactl")
	systemPackages   = words("./srd ./lockoffload ./dc ./ci/lab")
	cachePackages    = words("./pacer ./cache ./cmd/rdmabench ./cmd/rdmacached")
	examplePackages  = words("./examples/ask ./examples/counter ./examples/dc-fanout ./ci/demo ./examples/kv ./examples/paced ./examples/read ./examples/stream")
	simulatedPackage = words("./verbs ./dc ./lockoffload ./srd ./pacer ./cache ./cache/cluster ./ci/bench/native " + fabricPackages)
)

func words(s string) []string { return strings.Fields(s) }

// plan returns all jobs, each behind those that it needs.
func (r *runner) plan() ([]*job, error) {
	raced, machines, err := r.units()
	if err != nil {
		return nil, err
	}
	jobs := []*job{
		{name: "launcher", first: true, env: words("CGO_ENABLED=0"), command: []string{r.goCmd, "build", "-o", "build/", "./ci/rxelab", "cmd/test2json"}},
	}
	if r.o.device == "" {
		jobs = append(jobs, r.builds()...)
	}
	jobs = append(jobs,
		&job{name: "vet", command: []string{r.goCmd, "vet", "./...", "./ci/bench/..."}},
		&job{name: "build-simulated", first: true, command: r.compile(r.simulated(), simulatedPackage), env: r.simulated().env},
	)
	if r.o.device == "" {
		jobs = append(jobs, r.guests()...)
	} else {
		jobs = append(jobs,
			&job{name: "device", slots: r.o.slots, tests: &tests{goTest: words("-count=1 -p=1"), packages: join(basePackages, hostPackages, systemPackages, cachePackages, examplePackages)}},
			&job{name: "report", slots: r.o.slots, command: words("make --no-print-directory report RDMA_DEVICE=" + r.o.device)})
	}
	jobs = append(jobs, r.simulations()...)
	for _, m := range modules { // instrumented as the programs on simulated devices, they share what these are built from
		name := path.Base(m)
		jobs = append(jobs, &job{name: name, slots: 1, needs: words("build-simulated"), command: []string{"sh", "-c", "cd " + m + " && sh ../../.github/actions/simulated/test.sh"},
			env: []string{"GO=" + r.goCmd, "GOWORK=off", fmt.Sprintf("DEVICES=mlx5@%s-%d,mlx5@%[1]s-%[2]d", name, os.Getpid()), "GOEXPERIMENT=cgocheck2", "FLAGS=-race -count=1"}})
	}
	return append(jobs,
		&job{name: "unit", tests: &tests{goTest: words("-race"), env: words("GOEXPERIMENT=cgocheck2"), packages: raced}},
		&job{name: "unit-machines", tests: &tests{packages: machines}},
		&job{name: "unit-without-cgo", tests: &tests{env: words("CGO_ENABLED=0"), packages: words("./cgo/... ./verbs ./verbs/rdmacm")}},
		&job{name: "lint", command: words("sh ci/lint.sh"), env: []string{"GO=" + r.goCmd}},
		&job{name: "kubernetes", command: []string{r.goCmd, "-C", kubernetes, "test", "-count=1", "./..."}, env: words("GOWORK=off")},
		&job{name: "headers", command: []string{r.goCmd, "run", "./ci/headers"}},
		&job{name: "pyverbs", command: []string{r.goCmd, "run", "./ci/pyverbs"}},
	), nil
}

// builds are the programs that guests run. The clock and topologies need no others.
func (r *runner) builds() []*job {
	devices := join(hostPackages, basePackages, systemPackages)
	jobs := []*job{
		{name: "build-" + newest, first: true, command: r.compile(r.plain(newest), devices), env: r.plain(newest).env},
		{name: "build-cache", first: true, command: r.compile(r.upper(), join(cachePackages, examplePackages)), env: r.upper().env},
		{name: "build-race", first: true, command: r.compile(r.raced(newest), basePackages), env: r.raced(newest).env},
		{name: "build-bench", first: true, command: r.compile(benches, words("./ci/bench ./ci/bench/lockoffload"))},
	}
	if r.plain(oldest).name != r.plain(newest).name {
		jobs = append(jobs, &job{name: "build-" + oldest, first: true, command: r.compile(r.plain(oldest), devices), env: r.plain(oldest).env})
	}
	return jobs
}

// guests are the tests in virtual machines, the longest first.
func (r *runner) guests() []*job {
	in := func(name, lab, need string, f flavor, packages []string, args ...string) *job {
		return &job{name: name, slots: 1, needs: []string{"launcher", need}, tests: &tests{lab: strings.Fields(lab), programs: f, packages: packages, args: args}}
	}
	older, newer := r.plain(oldest), r.plain(newest)
	need := "build-" + newest
	needOlder := need
	if older.name != newer.name {
		needOlder = "build-" + oldest
	}
	less, load, verbs := []string{"-test.skip=" + notOlder}, []string{"-test.skip=" + notNewer}, "./verbs -test.skip="+onRxe+"|"+ownLoad
	caches := slices.Clone(cachePackages)
	caches[slices.Index(caches, "./cache")] += " -test.skip=" + ownCache
	if r.o.long {
		less, load, verbs, caches = nil, nil, "./verbs", cachePackages
	}
	ecmp := []string{"./ci/lab", "./srd -test.run=TestPaths"}
	jobs := []*job{
		in("guest-12-systems", "-debian 12", needOlder, older, systemPackages, less...),
		in("guest-13-systems", "-debian 13", need, newer, systemPackages, load...),
		in("guest-13-cache", "-debian 13", "build-cache", r.upper(), join(caches, examplePackages)),
		in("guest-12-base", "-debian 12", needOlder, older, join(hostPackages, basePackages), less...),
		in("guest-13-base", "-debian 13", need, newer, join(hostPackages, []string{verbs})),
		in("guest-13-race", "-debian 13", "build-race", r.raced(newest), []string{"./verbs -test.run=" + onRxe, "./verbs/rdmacm", "./verbs/stream"}),
		in("guest-12-ecmp", "-debian 12 -topo ecmp", needOlder, older, ecmp),
		in("guest-13-ecmp", "-debian 13 -topo ecmp", need, newer, ecmp),
		in("guest-12-hosts", "-debian 12 -topo hosts=3", needOlder, older, []string{"./ci/lab", "./dc -test.run=TestHosts", "./verbs -test.run=OnHosts"}),
		in("guest-13-hosts", "-debian 13 -topo hosts=3", need, newer, []string{"./ci/lab", "./lockoffload -test.run=OnHosts", "./verbs -test.run=OnHosts"}),
		in("guest-clock", "-clock instructions", "build-bench", benches, words("./ci/bench"), "-test.run=Show|Repeats"),
		in("guest-one-cpu", "-kernel 6.12 -clock instructions", need, newer, words("./verbs"), "-test.run=OnOneCPU|OnOneBusyCPU"),
		in("guest-baselines", "", "build-bench", benches, words("./ci/bench/lockoffload"), "-test.run=Baselines|Killed"),
	}
	if r.o.long {
		jobs = append(jobs, in("guest-13-cache-hosts", "-debian 13 -topo hosts=3", "build-cache", r.upper(), words("./cache ./examples/dc-fanout"), "-test.run=OnHosts|TestHosts"))
	}
	for _, j := range jobs {
		if strings.Contains(j.name, "hosts") {
			j.slots = 2
		}
	}
	// The tests of the launcher, and the commands of the documents, boot guests of their own.
	own := &job{name: "guests-of-tests", slots: 1, needs: words("launcher build-bench"), tests: &tests{
		goTest: words("-count=1 -p=1 -parallel=2"), env: []string{"RXELAB=" + r.root + "/build/rxelab"}, packages: words("./ci/rxelab ./ci/docs")}}
	return append([]*job{own}, jobs...)
}

func join(lists ...[]string) (out []string) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// limit returns how long the tests of a package may take before they are stopped as hanging.
func (o *options) limit() time.Duration {
	if o.long || o.soak > 0 {
		return 2 * time.Hour
	}
	return 20 * time.Minute
}
