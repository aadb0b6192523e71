//go:build simhca && linux && cgo

/* $SIMHCA: which devices there are. */
#include "sim.h"
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int sim_tracing;
uint32_t sim_address = INADDR_LOOPBACK;

void sim_print(const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(stderr, "simhca: %s\n", line);
}

uint64_t sim_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* All devices of a process are in one fabric, or in none. */
static bool in_fabric(const char *name)
{
	static char all[80];

	if (sim_self->ndevices) {
		if (!strcmp(all, name ? name : ""))
			return true;
		sim_print("devices in different fabrics");
		abort();
	}
	snprintf(all, sizeof(all), "%s", name ? name : "");
	return !name || sim_fabric_join(name);
}

static bool add_device(char *spec)
{
	static const struct sim_model *const models[] = { &sim_mlx5, &sim_efa };
	struct sim_device *d = &sim_self->devices[sim_self->ndevices];
	char *rest, *word = strtok_r(spec, ":", &rest);
	int same = 0;

	if (!word || sim_self->ndevices == SIM_DEVICES)
		return false;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		if (!strcmp(models[i]->name, word))
			d->model = models[i];
	if (!d->model)
		return false;
	for (int i = 0; i < sim_self->ndevices; i++)
		same += sim_self->devices[i].model == d->model;
	d->node = sim_self;
	d->number = sim_self->ndevices;
	d->id = sim_self->slot * SIM_DEVICES + d->number;
	snprintf(d->name, sizeof(d->name), "%s_%d", d->model->name, same);
	while ((word = strtok_r(NULL, ":", &rest)))
		if (!d->model->option(d, word))
			return false;
	d->model->init(d);
	sim_self->ndevices++;
	return true;
}

/* $SIMHCA_ADDRESS: that of the first device, and those behind it of the others. */
static void take_address(void)
{
	const char *text = getenv("SIMHCA_ADDRESS");
	struct in_addr a;

	if (!text || !*text)
		return;
	if (inet_pton(AF_INET, text, &a) != 1 || ntohl(a.s_addr) < INADDR_LOOPBACK || ntohl(a.s_addr) > INADDR_LOOPBACK + 0xfffffd - SIM_DEVICES) {
		sim_print("SIMHCA_ADDRESS=%s is none from 127.0.0.1 to 127.255.255.246", text);
		abort();
	}
	sim_address = ntohl(a.s_addr);
}

/* Tells whether there is anything to simulate. */
bool sim_configure(void)
{
	const char *list = getenv("SIMHCA"), *trace = getenv("SIMHCA_TRACE");
	char copy[256], *rest, *spec, *fabric;

	if (!list || !*list)
		return false;
	sim_tracing = trace ? atoi(trace) : 0;
	take_address();
	snprintf(copy, sizeof(copy), "%s", list);
	for (spec = strtok_r(copy, " ,", &rest); spec; spec = strtok_r(NULL, " ,", &rest)) {
		fabric = strchr(spec, '@');
		if (fabric)
			*fabric++ = 0;
		if (!in_fabric(fabric))
			return false;
		if (!add_device(spec) || (fabric && !sim_self->devices[sim_self->ndevices - 1].model->arrive)) {
			sim_print("no such device or option in SIMHCA=%s", list);
			abort();
		}
	}
	return sim_self->ndevices > 0;
}
