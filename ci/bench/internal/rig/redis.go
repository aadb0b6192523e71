package rig

import "os/exec"

// Redis is the command of a Redis server that keeps nothing on disk. Debian's redis-tools
// has the program under the name of a tool that is the same program, which goes by the name that
// it is called by.
func Redis(addr, port string) (*exec.Cmd, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("redis-check-rdb")
	}
	if err != nil {
		return nil, err
	}
	if err := Warm(program); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--bind", addr, "--port", port, "--save", "", "--appendonly", "no", "--protected-mode", "no", "--loglevel", "warning")
	cmd.Args[0] = "redis-server"
	return cmd, nil
}
