module github.com/goverbs/goverbs

go 1.26.0

require (
	github.com/jsimonetti/rtnetlink/v2 v2.0.2
	github.com/mdlayher/netlink v1.11.2
	github.com/stretchr/testify v1.12.1
	github.com/ulikunitz/xz v0.5.17
	golang.org/x/sys v0.49.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.53.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/term v0.47.0 // indirect
)
