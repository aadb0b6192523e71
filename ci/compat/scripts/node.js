// npm's memcached.
const Memcached = require('memcached');
const m = new Memcached('127.0.0.1:' + process.argv[2], { retries: 0, timeout: 10000 });
let n = 0;
const ok = (is, name) => console.log(`${is ? '' : 'not '}ok ${++n} - ${name}`);
// An error that no callback gets ends the process otherwise.
process.on('uncaughtException', (e) => { ok(false, current); console.error(e); next(); });
const call = (f, ...args) => new Promise((done) => m[f](...args, (error, value) => done({ error, value })));
const tests = {
	'set and get': async () => (await call('set', 'a', 'blue', 100)).value === true && (await call('get', 'a')).value === 'blue',
	'a miss': async () => { const r = await call('get', 'none'); return !r.error && r.value === undefined; },
	'a structure': async () => (await call('set', 'o', { x: [1] }, 100)).value && (await call('get', 'o')).value.x[0] === 1,
	'a long value': async () => { const v = 'long'.repeat(100000); return (await call('set', 'l', v, 100)).value && (await call('get', 'l')).value === v; },
	'getMulti': async () => (await call('getMulti', ['a', 'o', 'none'])).value.a === 'blue',
	'gets and cas': async () => { const r = await call('gets', 'a'); return (await call('cas', 'a', 'green', r.value.cas, 100)).value && (await call('get', 'a')).value === 'green'; },
	'add of what is there': async () => (await call('add', 'a', 1, 100)).value !== true,
	'replace': async () => (await call('replace', 'a', 'red', 100)).value === true,
	'append and prepend': async () => (await call('append', 'a', '!')).value && (await call('prepend', 'a', '>')).value && (await call('get', 'a')).value === '>red!',
	'incr and decr': async () => (await call('set', 'n', 5, 100)).value && (await call('incr', 'n', 3)).value === 8 && (await call('decr', 'n', 100)).value === 0,
	'touch': async () => (await call('touch', 'a', 100)).value === true,
	'del': async () => (await call('del', 'a')).value === true && (await call('del', 'a')).value !== true,
	'version': async () => /^\d+\.\d+\.\d+/.test((await call('version')).value[0].version),
	'stats': async () => (await call('stats')).value[0].curr_items !== undefined,
	'settings': async () => (await call('settings')).value[0].maxconns !== undefined,
	'slabs': async () => !(await call('slabs')).error,
	'items': async () => !(await call('items')).error,
	'flush': async () => !(await call('flush')).error && (await call('get', 'n')).value === undefined,
};
let current;
const names = Object.keys(tests);
function next() {
	current = names.shift();
	if (current === undefined) {
		m.end();
		process.exit(0);
	}
	const name = current;
	setTimeout(() => { if (current === name) { ok(false, name + ' (no reply)'); next(); } }, 20000).unref();
	tests[name]().then((is) => { if (current === name) { ok(is, name); next(); } }, (e) => { if (current === name) { ok(false, name); console.error(e); next(); } });
}
next();
