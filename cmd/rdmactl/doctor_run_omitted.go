package main

// notInSelfTest are the features that a self-test cannot try, and why.
var notInSelfTest = map[string]string{
	"device removed while in use": "it would take the device away from its other users",
}
