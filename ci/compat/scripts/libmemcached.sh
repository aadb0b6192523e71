# The programs of libmemcached-tools.
server=--servers=127.0.0.1:$1
n=0
# check NAME COMMAND...
check() {
	name=$1
	shift
	n=$((n + 1))
	if "$@" >out 2>&1 && ! grep -q 'FAILURE\|ERROR\|failed: [1-9]' out; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		cat out >&2
	fi
}
mkdir -p libmemcached && cd libmemcached || exit 1
echo blue >colour
head -c 300000 /dev/urandom >long
check memccp memccp "$server" colour long
check memccat sh -c "memccat $server colour | grep -qx blue"
check 'memccat of a long value' sh -c "memccat $server --file=copy long && cmp -s long copy"
check memcexist memcexist "$server" colour
check 'memcexist of nothing' sh -c "! memcexist $server none"
check memctouch memctouch "$server" --expire=100 colour
check memcping memcping "$server"
check memcstat sh -c "memcstat $server | tee /dev/stderr | grep -q curr_items"
check memcdump memcdump "$server"
check memcrm sh -c "memcrm $server colour && ! memcexist $server colour"
check memcflush sh -c "memcflush $server && ! memcexist $server long"
check memcslap memcslap "$server" --concurrency=4 --execute-number=500 --test=get
check memcaslap timeout 60 memcaslap -s "127.0.0.1:$1" -T 2 -c 8 -x 20000 -v 0.1
