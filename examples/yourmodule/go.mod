// A module of its own, to copy: it tests its RDMA code in the lab and on simulated devices.
// docs/testing.md explains it, and has the commands by which a copy gets a version of goverbs.
module example.com/yourmodule

go 1.26.0

require github.com/goverbs/goverbs v0.0.0

require (
	github.com/Mellanox/rdmamap v1.2.0 // indirect
	github.com/florianl/go-tc v0.4.5-0.20240822175159-7926c32f7299 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/josharian/native v1.1.0 // indirect
	github.com/jsimonetti/rtnetlink/v2 v2.0.2 // indirect
	github.com/mdlayher/netlink v1.11.2 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/goverbs/goverbs => ../..
