package debian

// HostMirror is for tests that need to know whether there is a network.
var HostMirror = hostMirror
