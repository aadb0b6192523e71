//go:build simhca && linux && cgo

/*
 * Impairments of the ways between devices of a fabric, as a text file has them beside the
 * fabric's own, NAME.impair. A line is a rule:
 *
 *	FROM TO [delay=TIME] [loss=PERCENT%] [rate=BITS] [cut]
 *
 * FROM and TO are addresses of devices, or *; the first rule for a way holds. The file is looked
 * at every few milliseconds.
 */
#include "fabric.h"
#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVERY = 5000000 /* ns */ };

bool sim_impaired;

static struct sim_rule rules[SIM_RULES];
static int nrules;
static uint64_t state; /* of the dice; 0: they are not seeded */
static char path[160];
static struct stat seen;

void sim_impair_by(const char *file) { snprintf(path, sizeof(path), "%s.impair", file); }

static uint64_t dice(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull;
}

static void seed(void)
{
	const char *text = getenv("SIMHCA_SEED");

	if (state)
		return;
	state = text ? strtoull(text, NULL, 0) : sim_now() ^ (uint64_t)getpid() << 40;
	sim_print("losses of packets: SIMHCA_SEED=%llu repeats them", (unsigned long long)state);
	state = state * 2 + 1;
}

/* A number of one of the units, or -1. */
static double number(const char *text, const char *const *units, const double *factors)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || !(n >= 0) || !isfinite(n))
		return -1;
	for (int i = 0; units[i]; i++)
		if (!strcmp(end, units[i]))
			return n * factors[i];
	return -1;
}

static bool address(const char *text, uint32_t *a)
{
	struct in_addr in;

	*a = 0;
	if (!strcmp(text, "*"))
		return true;
	if (inet_pton(AF_INET, text, &in) != 1)
		return false;
	*a = ntohl(in.s_addr);
	return true;
}

/* Takes what a rule does; false: it is none. */
static bool effect(struct sim_rule *r, const char *word)
{
	static const char *const times[] = { "ns", "us", "ms", "s", NULL }, *const percent[] = { "%", NULL }, *const rates[] = { "bit", "kbit", "Mbit", "Gbit", NULL };
	static const double ns[] = { 1, 1e3, 1e6, 1e9 }, hundredth[] = { 0.01 }, bits[] = { 1, 1e3, 1e6, 1e9 };
	double n = -1;

	if (!strncmp(word, "delay=", 6)) {
		n = number(word + 6, times, ns);
		r->delay = n;
	} else if (!strncmp(word, "loss=", 5)) {
		n = number(word + 5, percent, hundredth);
		r->loss = n;
		return n >= 0 && n <= 1;
	} else if (!strncmp(word, "rate=", 5)) {
		n = number(word + 5, rates, bits);
		r->rate = n;
		return n >= 1;
	} else if (!strcmp(word, "cut")) {
		n = r->loss = 1;
	}
	return n >= 0 && n < 1e15;
}

/* Takes a line; false: it is no rule. Empty ones are none, and allowed. */
static bool rule(char *line, struct sim_rule *r, bool *empty)
{
	char *rest, *from = strtok_r(line, " \t\r\n", &rest), *to, *word;

	*r = (struct sim_rule){};
	*empty = !from || *from == '#';
	if (*empty)
		return true;
	to = strtok_r(NULL, " \t\r\n", &rest);
	if (!to || !address(from, &r->from) || !address(to, &r->to))
		return false;
	while ((word = strtok_r(NULL, " \t\r\n", &rest)))
		if (!effect(r, word))
			return false;
	return true;
}

/* Reads the file. One with a mistake changes nothing. */
static void load(void)
{
	static struct sim_rule next[SIM_RULES];
	FILE *f = fopen(path, "re");
	char line[256], copy[256];
	bool empty, loses = false;
	int n = 0;

	for (int at = 1; f && fgets(line, sizeof(line), f); at++) {
		snprintf(copy, sizeof(copy), "%s", line);
		if (n == SIM_RULES || !rule(line, &next[n], &empty)) {
			copy[strcspn(copy, "\n")] = 0;
			sim_print("%s, line %d: %s: %s", path, at, n == SIM_RULES ? "too many rules" : "no rule", copy);
			fclose(f);
			return;
		}
		loses |= !empty && next[n].loss > 0;
		n += !empty;
	}
	if (f)
		fclose(f);
	if (loses)
		seed();
	for (int i = 0; i < n; i++)
		if (memcmp(&rules[i], &next[i], sizeof(*rules)))
			__atomic_store_n(&sim_fabric->busy[i], 0, __ATOMIC_RELAXED);
	memcpy(rules, next, n * sizeof(*rules));
	nrules = n;
	sim_impaired = n;
}

/* Looks whether the file has changed. */
void sim_impair_look(void)
{
	static uint64_t last;
	uint64_t now = sim_now();
	struct stat st = {};

	if (!sim_fabric || now - last < EVERY)
		return;
	last = now;
	if (stat(path, &st))
		memset(&st, 0, sizeof(st));
	if (st.st_ino == seen.st_ino && st.st_size == seen.st_size && !memcmp(&st.st_mtim, &seen.st_mtim, sizeof(st.st_mtim)))
		return;
	seen = st;
	load();
}

/* The rule of a way, or NULL. */
const struct sim_rule *sim_rule_of(uint32_t from, uint32_t to)
{
	for (int i = 0; i < nrules; i++)
		if ((!rules[i].from || rules[i].from == from) && (!rules[i].to || rules[i].to == to))
			return &rules[i];
	return NULL;
}

/* Tells whether a packet is lost. */
bool sim_lost(const struct sim_rule *r) { return r && r->loss > 0 && dice() >> 11 < r->loss * (1ull << 53); }

/* When so many bytes that are sent now have arrived. */
uint64_t sim_arrival(const struct sim_rule *r, uint64_t now, uint64_t bytes)
{
	uint64_t *busy, was, start;

	if (!r)
		return now;
	if (!r->rate)
		return now + r->delay;
	busy = &sim_fabric->busy[r - rules];
	was = __atomic_load_n(busy, __ATOMIC_RELAXED);
	do
		start = was > now ? was : now;
	while (!__atomic_compare_exchange_n(busy, &was, start + (uint64_t)(bytes * 8e9 / r->rate), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return start + (uint64_t)(bytes * 8e9 / r->rate) + r->delay;
}
