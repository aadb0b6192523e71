/*
 * Address handles of EFA by their numbers, which requests have: a number is good until the last handle
 * of its address is destroyed, also beside handles in the same chain of the device, and is not that of
 * another address as long as there is one.
 */
#include <infiniband/efadv.h>
#include <stdbool.h>
#include <time.h>

#include "side.h"

enum {
	CHAINS = 256, /* of the device, by the number */
	NUMBERS = 0xfff0,
	QKEY = 0x1111,
	GRH = 40, /* before a datagram */
};

/* A handle as libefa has it, of which a request takes the number. */
struct handle { struct ibv_ah ah; uint16_t number; };

static struct side side;

static void make_datagrams(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	CHECK(list && list[0]);
	CHECK(s->ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(s->pd = ibv_alloc_pd(s->ctx));
	CHECK(s->cq = ibv_create_cq(s->ctx, 64, NULL, NULL, 0));
	CHECK(s->memory = aligned_alloc(4096, 4096));
	memset(s->memory, 0, 4096);
	CHECK(s->mr = ibv_reg_mr(s->pd, s->memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	init.send_cq = init.recv_cq = s->cq;
	CHECK(s->qp = ibv_create_qp(s->pd, &init));
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(s->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	CHECK(!ibv_query_gid(s->ctx, 1, 0, &s->self.gid));
}

/* Address 0 is the device's own; at the others there is nothing, so that datagrams to them vanish. */
static struct ibv_ah *handle_to(uint32_t address)
{
	struct ibv_ah_attr a = { .is_global = 1, .grh.dgid = side.self.gid, .port_num = 1 };
	struct ibv_ah *ah;

	for (int i = 0; address && i < 4; i++)
		a.grh.dgid.raw[8 + i] ^= address >> 8 * i;
	CHECK(ah = ibv_create_ah(side.pd, &a));
	return ah;
}

static uint16_t number_of(struct ibv_ah *ah)
{
	struct efadv_ah_attr a = {};

	CHECK(!efadv_query_ah(ah, &a, sizeof(a)));
	CHECK(((struct handle *)ah)->number == a.ahn);
	return a.ahn;
}

static void drop(struct ibv_ah *ah) { CHECK(!ibv_destroy_ah(ah)); }

static struct ibv_wc next(void)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 10;
	int n;

	while (!(n = ibv_poll_cq(side.cq, 1, &wc)))
		CHECK(time(NULL) < end);
	CHECK(n == 1);
	return wc;
}

enum result { REFUSED, VANISHED, ARRIVED };

/* Posts a datagram to a number as a program does that goes on using a handle. */
static enum result send_to(uint16_t number)
{
	struct handle h = { { .context = side.ctx, .pd = side.pd }, number };
	struct ibv_sge sge = { (uintptr_t)side.memory, 8, side.mr->lkey }, room = { (uintptr_t)side.memory + 1024, GRH + 8, side.mr->lkey };
	struct ibv_send_wr *bad, w = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { &h.ah, side.qp->qp_num, QKEY } };
	struct ibv_recv_wr *worse, r = { .wr_id = 2, .sg_list = &room, .num_sge = 1 };
	static bool posted;
	bool arrived = false;
	struct ibv_wc sent = {}, wc;

	if (!posted)
		CHECK(!ibv_post_recv(side.qp, &r, &worse));
	posted = true;
	CHECK(!ibv_post_send(side.qp, &w, &bad));
	do {
		wc = next();
		if (wc.wr_id == 1)
			sent = wc;
		else
			arrived = true;
	} while (!sent.wr_id);
	if (!arrived && ibv_poll_cq(side.cq, 1, &wc) == 1) /* the device completes both at once */
		arrived = true;
	if (arrived)
		posted = false;
	CHECK(sent.status == IBV_WC_SUCCESS || !arrived);
	return arrived ? ARRIVED : sent.status == IBV_WC_SUCCESS ? VANISHED : REFUSED;
}

/* Destroyed handles of one chain, the newest, the oldest and one between first, and those that are left. */
static void one_chain(void)
{
	static const int orders[][4] = { { 3, 2, 1, 0 }, { 0, 1, 2, 3 }, { 1, 2, 0, 3 }, { 2, 0, 3, 1 } };
	struct ibv_ah *ah, *kept[4];
	uint16_t numbers[4];
	int n;

	for (size_t o = 0; o < sizeof(orders) / sizeof(*orders); o++) {
		n = 0;
		for (uint32_t address = 1; n < 4; address++) {
			ah = handle_to(address);
			if (n && (number_of(ah) - numbers[0]) % CHAINS) {
				drop(ah);
				continue;
			}
			kept[n] = ah;
			numbers[n++] = number_of(ah);
		}
		for (int i = 0; i < 4; i++) {
			drop(kept[orders[o][i]]);
			for (int k = 0; k < 4; k++)
				CHECK(send_to(numbers[orders[o][k]]) == (k <= i ? REFUSED : VANISHED));
		}
	}
}

/* Handles of one address have one number, until the last one is destroyed. */
static void one_address(void)
{
	struct ibv_ah *first = handle_to(0), *second = handle_to(0);
	uint16_t number = number_of(first);

	CHECK(number_of(second) == number);
	CHECK(send_to(number) == ARRIVED);
	drop(first);
	CHECK(send_to(number) == ARRIVED);
	first = handle_to(0);
	CHECK(number_of(first) == number);
	drop(second);
	CHECK(send_to(number) == ARRIVED);
	drop(first);
	CHECK(send_to(number) == REFUSED);
	first = handle_to(0);
	CHECK(number_of(first) != number && send_to(number_of(first)) == ARRIVED);
	CHECK(send_to(number) == REFUSED);
	drop(first);
}

/* All numbers are given out again, that of a destroyed handle to another address, and that of no other one. */
static void numbers_again(void)
{
	struct ibv_ah *kept = handle_to(0), *gone = handle_to(1), *ah;
	uint16_t number = number_of(gone), other;
	uint32_t address = 2, begin = address;

	drop(gone);
	for (other = number + 1; other != number && address - begin < 2 * NUMBERS; address++) {
		ah = handle_to(address);
		other = number_of(ah);
		CHECK(other != number_of(kept));
		if (other == number)
			CHECK(send_to(other) == VANISHED);
		drop(ah);
	}
	CHECK(other == number && send_to(number) == REFUSED);
	CHECK(send_to(number_of(kept)) == ARRIVED);
	drop(kept);
}

int main(void)
{
	make_datagrams(&side);
	one_chain();
	one_address();
	numbers_again();
	CHECK(!ibv_destroy_qp(side.qp));
	CHECK(!ibv_dereg_mr(side.mr));
	CHECK(!ibv_destroy_cq(side.cq));
	CHECK(!ibv_dealloc_pd(side.pd));
	CHECK(!ibv_close_device(side.ctx));
	free(side.memory);
	return 0;
}
