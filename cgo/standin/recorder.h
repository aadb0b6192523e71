#ifndef GOVERBS_RECORDER_H
#define GOVERBS_RECORDER_H

#include <stdint.h>
#include "../driver.h"
#include "../extended.h"

/*
 * Puts functions into the table that only write down how they were called; 0 if
 * they are there already. flush_at is the offset of wr_flush in struct ibv_qp_ex,
 * 0 where the headers have no such field.
 */
int recorder_install(uintptr_t table, size_t flush_at);

/* Gives the table back as it was. */
void recorder_remove(uintptr_t table);

/*
 * What happens at a queue pair, named by its number: a completion of a send, or
 * of a receive, or another state that a query tells. 0 if there is no such
 * queue pair or no room.
 */
int recorder_complete(uint32_t qpn, struct ibv_wc wc);
int recorder_receive_from(uint32_t qpn, struct ibv_wc wc, const void *gid);
int recorder_set_state(uint32_t qpn, uint32_t state);

/* The next call of that name fails. */
void recorder_refuse(const char *call, int err);

/* A context without anything in it, which only the functions above see. */
uintptr_t recorder_context(void);

/* What was written down since the last call. */
const char *recorder_take(void);

#endif
