package main

// notInSelfTest are the features that a self-test cannot try, and why.
var notInSelfTest = map[string]string{
	"device removed while in use": "it would take the device away from its other users",

	"UDP source port": "only mlx5 has it, and nothing at the device tells that it was followed",
	"LAG port":        "only mlx5 has it, on ports that are bonded",
	"flow label":      "what it does shows on the wire only",
	"flow steering":   "a rule may take packets away from other programs of this machine",
	"sender of a datagram without route header": "only EFA has it",
}
