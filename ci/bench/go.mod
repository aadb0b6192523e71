// The benchmarks are a module of their own, so that plots, Redis and statistics stay out of the
// build list of goverbs' users, and actionlint, which ci/lint.sh runs.
module github.com/goverbs/goverbs/ci/bench

go 1.26.0

require (
	github.com/goverbs/goverbs v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
	gonum.org/v1/plot v0.17.0
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect; for gonum/plot
	codeberg.org/go-latex/latex v0.2.0 // indirect; for gonum/plot
	codeberg.org/go-pdf/fpdf v0.11.1 // indirect; for gonum/plot
	git.sr.ht/~sbinet/gg v0.7.0 // indirect; for gonum/plot
	github.com/Mellanox/rdmamap v1.2.0 // indirect; for goverbs
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect; for x/perf
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect; for gonum/plot
	github.com/bmatcuk/doublestar/v4 v4.10.0 // indirect; for actionlint
	github.com/cespare/xxhash/v2 v2.3.0 // indirect; for redis
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect; for actionlint
	github.com/dchest/siphash v1.2.3 // indirect; for goverbs
	github.com/fatih/color v1.19.0 // indirect; for actionlint
	github.com/florianl/go-tc v0.4.5-0.20240822175159-7926c32f7299 // indirect; for goverbs
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect; for gonum/plot
	github.com/google/go-cmp v0.7.0 // indirect; for goverbs
	github.com/josharian/native v1.1.0 // indirect; for goverbs
	github.com/jsimonetti/rtnetlink/v2 v2.0.2 // indirect; for goverbs
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect; for goverbs
	github.com/mattn/go-colorable v0.1.14 // indirect; for actionlint
	github.com/mattn/go-isatty v0.0.20 // indirect; for actionlint
	github.com/mattn/go-runewidth v0.0.21 // indirect; for actionlint
	github.com/mattn/go-shellwords v1.0.12 // indirect; for actionlint
	github.com/maypok86/otter/v2 v2.4.0 // indirect; for goverbs
	github.com/mdlayher/netlink v1.11.2 // indirect; for goverbs
	github.com/mdlayher/socket v0.6.0 // indirect; for goverbs
	github.com/rhysd/actionlint v1.7.12 // indirect; for the tool actionlint
	github.com/robfig/cron/v3 v3.0.1 // indirect; for actionlint
	github.com/vishvananda/netlink v1.3.1 // indirect; for goverbs
	github.com/vishvananda/netns v0.0.5 // indirect; for goverbs
	github.com/zeebo/xxh3 v1.1.0 // for goverbs
	go.uber.org/atomic v1.12.0 // indirect; for redis
	go.yaml.in/yaml/v3 v3.0.5 // indirect; for testify
	go.yaml.in/yaml/v4 v4.0.0-rc.3 // indirect; for actionlint
	golang.org/x/image v0.46.0 // indirect; for gonum/plot
	golang.org/x/net v0.61.0 // indirect; for goverbs
	golang.org/x/text v0.43.0 // indirect; for gonum/plot
)

replace github.com/goverbs/goverbs => ../..

tool github.com/rhysd/actionlint/cmd/actionlint
