//go:build simhca && linux && cgo

/* $SIMHCA: which devices there are. */
#include "sim.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct sim_device sim_devices[SIM_DEVICES];
int sim_ndevices;
int sim_tracing;

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

static bool add_device(char *spec)
{
	static const struct sim_model *const models[] = { &sim_mlx5, &sim_efa };
	struct sim_device *d = &sim_devices[sim_ndevices];
	char *rest, *word = strtok_r(spec, ":", &rest);
	int same = 0;

	if (!word || sim_ndevices == SIM_DEVICES)
		return false;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++)
		if (!strcmp(models[i]->name, word))
			d->model = models[i];
	if (!d->model)
		return false;
	for (int i = 0; i < sim_ndevices; i++)
		same += sim_devices[i].model == d->model;
	d->number = sim_ndevices;
	snprintf(d->name, sizeof(d->name), "%s_%d", d->model->name, same);
	while ((word = strtok_r(NULL, ":", &rest)))
		if (!d->model->option(d, word))
			return false;
	d->model->init(d);
	sim_ndevices++;
	return true;
}

/* Tells whether there is anything to simulate. */
bool sim_configure(void)
{
	const char *list = getenv("SIMHCA"), *trace = getenv("SIMHCA_TRACE");
	char copy[256], *rest, *spec;

	if (!list || !*list)
		return false;
	sim_tracing = trace ? atoi(trace) : 0;
	snprintf(copy, sizeof(copy), "%s", list);
	for (spec = strtok_r(copy, " ,", &rest); spec; spec = strtok_r(NULL, " ,", &rest)) {
		if (!add_device(spec)) {
			sim_print("no such device or option in SIMHCA=%s", list);
			abort();
		}
	}
	return sim_ndevices > 0;
}
