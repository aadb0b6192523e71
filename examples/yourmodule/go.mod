// A module of its own, to copy: it tests its RDMA code in the lab and on simulated devices.
// docs/testing.md explains it. Leave out the replace directive.
module example.com/yourmodule

go 1.26.0

require github.com/goverbs/goverbs v0.0.0

replace github.com/goverbs/goverbs => ../..
