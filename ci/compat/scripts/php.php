<?php
// PHP's Memcached (libmemcached), as a framework uses it.
$n = 0;
function ok($is, $name) {
	global $n;
	echo ($is ? '' : 'not '), 'ok ', ++$n, " - $name\n";
}
$m = new Memcached();
$m->addServer('127.0.0.1', (int) $argv[1]);
ok($m->set('a', 'blue') && $m->get('a') === 'blue', 'set and get');
ok($m->get('none') === false && $m->getResultCode() === Memcached::RES_NOTFOUND, 'a miss');
ok($m->set('array', ['x' => [1, 2.5, null]]) && $m->get('array') === ['x' => [1, 2.5, null]], 'values of any type');
ok($m->set('long', str_repeat('long', 100000)) && $m->get('long') === str_repeat('long', 100000), 'a long value, compressed');
ok($m->add('a', 1) === false && $m->getResultCode() === Memcached::RES_NOTSTORED, 'add of what is there');
ok($m->replace('b', 1) === false && $m->add('b', 1) && $m->replace('b', 2), 'add and replace');
ok($m->set('n', 5) && $m->increment('n', 3) === 8 && $m->decrement('n', 100) === 0, 'increment and decrement');
ok($m->increment('none') === false, 'increment of nothing');
$m->setOption(Memcached::OPT_COMPRESSION, false);
ok($m->set('s', 'b') && $m->append('s', 'c') && $m->prepend('s', 'a') && $m->get('s') === 'abc', 'append and prepend');
ok($m->setMulti(['m1' => 1, 'm2' => 'two']) && $m->getMulti(['m1', 'm2', 'none']) === ['m1' => 1, 'm2' => 'two'], 'many at once');
$got = $m->get('a', null, Memcached::GET_EXTENDED);
ok($m->cas($got['cas'], 'a', 'green') && !$m->cas($got['cas'], 'a', 'red') && $m->get('a') === 'green', 'compare and swap');
ok($m->touch('a', 100) && $m->get('a') === 'green', 'touch');
ok($m->set('short', 1, 1) && (sleep(3) === 0) && $m->get('short') === false, 'expiry');
ok($m->delete('a') && !$m->delete('a'), 'delete');
ok($m->getDelayed(['m1', 'm2'], true) && count($m->fetchAll()) === 2, 'getDelayed and fetchAll');
$version = $m->getVersion();
ok(is_array($version) && preg_match('/^\d+\.\d+\.\d+/', current($version)), 'getVersion');
$stats = $m->getStats();
ok(is_array($stats) && current($stats)['curr_items'] > 0, 'getStats');
ok(is_array($m->getAllKeys()), 'getAllKeys');
ok($m->flush() && $m->get('m1') === false, 'flush');
