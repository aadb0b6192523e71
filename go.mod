module github.com/goverbs/goverbs

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/Mellanox/rdmamap v1.2.0
	github.com/ProtonMail/go-crypto v1.5.2
	github.com/anishathalye/porcupine v1.3.1
	github.com/coreos/go-systemd/v22 v22.7.0
	github.com/dchest/siphash v1.2.3
	github.com/florianl/go-tc v0.4.5-0.20240822175159-7926c32f7299 // the version that u-root requires
	github.com/jsimonetti/rtnetlink/v2 v2.0.2
	github.com/klauspost/compress v1.20.3
	github.com/maypok86/otter/v2 v2.4.0
	github.com/mdlayher/netlink v1.11.2
	github.com/prometheus/client_golang v1.25.0
	github.com/safchain/ethtool v0.7.0
	github.com/stretchr/testify v1.12.1
	github.com/u-root/u-root v0.16.0
	github.com/ulikunitz/xz v0.5.17
	github.com/zeebo/xxh3 v1.1.0
	go.etcd.io/etcd/client/v3 v3.7.3
	go.uber.org/zap v1.27.1
	golang.org/x/mod v0.41.0
	golang.org/x/net v0.61.0
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	golang.org/x/tools v0.51.0
	google.golang.org/grpc v1.83.2
)

require (
	github.com/BurntSushi/toml v1.4.1-0.20240526193622-a339e1f7089c // indirect; for staticcheck
	github.com/beorn7/perks v1.0.1 // indirect; for prometheus
	github.com/cespare/xxhash/v2 v2.3.0 // indirect; for prometheus
	github.com/cloudflare/circl v1.6.3 // indirect; for ProtonMail/go-crypto
	github.com/coreos/go-semver v0.3.1 // indirect; for etcd
	github.com/dustin/go-humanize v1.0.1 // indirect; for u-root
	github.com/golang/protobuf v1.5.4 // indirect; for etcd
	github.com/google/go-cmp v0.7.0 // indirect; for mdlayher/netlink
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.29.0 // indirect; for etcd
	github.com/josharian/native v1.1.0 // indirect; for florianl/go-tc
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect; for zeebo/xxh3
	github.com/mdlayher/socket v0.6.0 // indirect; for mdlayher/netlink
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect; for prometheus
	github.com/pierrec/lz4/v4 v4.1.22 // indirect; for u-root/uio
	github.com/prometheus/client_model v0.6.3 // indirect; for prometheus
	github.com/prometheus/common v0.72.0 // indirect; for prometheus
	github.com/prometheus/procfs v0.22.0 // indirect; for prometheus
	github.com/u-root/uio v0.0.0-20240224005618-d2acac8f3701 // indirect; for u-root
	github.com/vishvananda/netlink v1.3.1 // indirect; for Mellanox/rdmamap
	github.com/vishvananda/netns v0.0.5 // indirect; for Mellanox/rdmamap
	go.etcd.io/etcd/api/v3 v3.7.3 // indirect; for etcd
	go.etcd.io/etcd/client/pkg/v3 v3.7.3 // indirect; for etcd
	go.uber.org/multierr v1.11.0 // indirect; for zap
	go.yaml.in/yaml/v3 v3.0.5 // indirect; for testify
	golang.org/x/crypto v0.58.0 // indirect; for ProtonMail/go-crypto
	golang.org/x/exp v0.0.0-20260824195058-e88cd73687aa // indirect; for tests of florianl/go-tc
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect; for staticcheck
	golang.org/x/text v0.43.0 // indirect; for etcd
	google.golang.org/genproto/googleapis/api v0.0.0-20260803160001-6ac0973c030d // indirect; for etcd
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260803160001-6ac0973c030d // indirect; for etcd
	google.golang.org/protobuf v1.36.12 // indirect; for prometheus
	honnef.co/go/tools v0.8.2 // indirect; for the tool staticcheck
)

tool honnef.co/go/tools/cmd/staticcheck
