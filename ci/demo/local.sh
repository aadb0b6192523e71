#!/bin/sh
# The demo's two hosts are processes of this machine, on its RDMA device, or with the argument
# "simulated" on simulated ones (docs/simhca.md), where the host of the servers has an address of
# its own: so many demos may run at once.
set -u
at=127.0.0.1 preload=
if [ "${1-}" = simulated ]; then
	at=127.77.$(($$ / 250 % 250)).$((1 + $$ % 250))
	export SIMHCA=mlx5@demo-$$
	preload="LD_PRELOAD=$PWD/build/simhca.so"
fi
env $preload ${preload:+SIMHCA_ADDRESS=$at} build/demo server ${preload:+$at} &
server=$!
env $preload build/demo client $at
status=$?
[ $status = 0 ] || kill $server
wait $server || [ $status != 0 ] || status=1
if [ "$preload" ] && [ $status = 0 ]; then
	net=127.78.$(($$ / 60 % 250)) first=$(($$ % 60 * 4 + 1))
	env $preload build/demo cluster $net.$first $net.$((first + 1)) $net.$((first + 2))
	status=$?
fi
exit $status
