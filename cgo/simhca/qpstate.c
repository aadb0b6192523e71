//go:build simhca && linux && cgo

/*
 * Which attributes a change of a queue pair's state needs and may have: section
 * 11.2.5.2 of the InfiniBand specification, as strict as the kernel is.
 */
#include "sim.h"

struct rule { int from, to; uint32_t need[3], may[3]; }; /* RC, UC, UD */

#define ALT IBV_QP_ALT_PATH
#define CUR IBV_QP_CUR_STATE
#define KEY IBV_QP_QKEY
#define MIG IBV_QP_PATH_MIG_STATE
#define RIGHTS IBV_QP_ACCESS_FLAGS
#define RNR IBV_QP_MIN_RNR_TIMER
#define PKEY IBV_QP_PKEY_INDEX
#define PORT IBV_QP_PORT
#define WAY (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define TRIES (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static const struct rule rules[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, { PKEY | PORT | RIGHTS, PKEY | PORT | RIGHTS, PKEY | PORT | KEY } },
	{ IBV_QPS_INIT, IBV_QPS_INIT, {}, { PKEY | PORT | RIGHTS, PKEY | PORT | RIGHTS, PKEY | PORT | KEY } },
	{ IBV_QPS_INIT, IBV_QPS_RTR, { WAY | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, WAY }, { ALT | RIGHTS | PKEY, ALT | RIGHTS | PKEY, PKEY | KEY } },
	{ IBV_QPS_RTR, IBV_QPS_RTS, { TRIES | IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN },
	  { CUR | ALT | RIGHTS | RNR | MIG, CUR | ALT | RIGHTS | MIG, CUR | KEY } },
	{ IBV_QPS_RTS, IBV_QPS_RTS, {}, { CUR | RIGHTS | ALT | MIG | RNR, CUR | RIGHTS | ALT | MIG, CUR | KEY } },
	{ IBV_QPS_RTS, IBV_QPS_SQD, {}, { IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY } },
	{ IBV_QPS_SQD, IBV_QPS_RTS, {}, { CUR | RIGHTS | ALT | MIG | RNR, CUR | RIGHTS | ALT | MIG, CUR | KEY } },
	{ IBV_QPS_SQD, IBV_QPS_SQD, {}, { PORT | IBV_QP_AV | TRIES | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | RIGHTS | PKEY | RNR | MIG,
	  IBV_QP_AV | ALT | RIGHTS | PKEY | MIG, PKEY | KEY } },
	{ IBV_QPS_SQE, IBV_QPS_RTS, {}, { CUR | RIGHTS | RNR, CUR | RIGHTS, CUR | KEY } },
};

bool sim_qp_may(enum ibv_qp_type type, int from, int to, uint32_t mask)
{
	int t = type == IBV_QPT_RC ? 0 : type == IBV_QPT_UC ? 1 : 2;

	if (to == IBV_QPS_RESET)
		return mask == IBV_QP_STATE;
	if (to == IBV_QPS_ERR)
		return from != IBV_QPS_RESET && !(mask & ~(IBV_QP_STATE | CUR));
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
		const struct rule *r = &rules[i];

		if (r->from == from && r->to == to)
			return (mask & r->need[t]) == r->need[t] && !(mask & ~(IBV_QP_STATE | r->need[t] | r->may[t]));
	}
	return false;
}
