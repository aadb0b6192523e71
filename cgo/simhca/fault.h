#ifndef SIMHCA_FAULT_H
#define SIMHCA_FAULT_H

#include <stdint.h>

/*
 * Faults by choice, for the program that devices are simulated for; errnos.
 *
 * simhca_fail: after so many requests of a queue pair the next one ends with a
 * status (enum ibv_wc_status) and is not executed.
 * simhca_break: a queue pair breaks by itself, as by an error of the device.
 * simhca_hold: the requests of a queue pair wait for so many microseconds.
 * simhca_remove: the device is gone.
 * simhca_awaited: whether others wait for the process of that number, if it is stopped now (fabric.c).
 */
int simhca_fail(const char *device, uint32_t qpn, uint32_t after, int status);
int simhca_break(const char *device, uint32_t qpn);
int simhca_hold(const char *device, uint32_t qpn, uint64_t us);
int simhca_remove(const char *device);
int simhca_awaited(int pid);

/* Returns for how long, in ns, threads that polled have been devices since the last call. They are timed if it is on. */
uint64_t simhca_time(int on);

#endif
