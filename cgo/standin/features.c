//go:build linux && cgo

/*
 * The stand-in's features that rxe lacks. Each refuses what rdma-core or the
 * kernel refuses, named at the rule.
 */
#include "queues.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define note recorder_note
#define refuse recorder_refused

static uint8_t lag_port;

/* _mlx5dv_modify_qp_udp_sport in providers/mlx5/mlx5.c: RC and UC in RTS alone. */
static int udp_sport(struct ibv_qp *qp, uint16_t port)
{
	note("mlx5dv_modify_qp_udp_sport port=%u\n", port);
	if ((qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) || qp->state != IBV_QPS_RTS)
		return EOPNOTSUPP;
	return refuse("mlx5dv_modify_qp_udp_sport");
}

/* modify_qp_lag_port there: in RTS alone. */
static int set_lag_port(struct ibv_qp *qp, uint8_t port)
{
	note("mlx5dv_modify_qp_lag_port port=%u\n", port);
	if (qp->qp_type != IBV_QPT_RAW_PACKET && qp->state != IBV_QPS_RTS)
		return EOPNOTSUPP;
	if (refuse("mlx5dv_modify_qp_lag_port"))
		return errno;
	lag_port = port;
	return 0;
}

/* The first port is down: the second one has its packets. */
static int query_lag_port(struct ibv_qp *qp, uint8_t *port, uint8_t *active)
{
	(void)qp;
	note("mlx5dv_query_qp_lag_port\n");
	if (refuse("mlx5dv_query_qp_lag_port"))
		return errno;
	*port = lag_port;
	*active = 2;
	return 0;
}

/*
 * One queue pair at a time. The options that are set are what the peer offers;
 * with the next change of state the device takes those of them that it has
 * (mlx5_query_ece and mlx5_modify_qp in providers/mlx5/verbs.c).
 */
static uint32_t ece_has, ece_set, ece_taken;

static int query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	note("ibv_query_ece\n");
	if (refuse("ibv_query_ece"))
		return errno;
	*ece = (struct ibv_ece){ .vendor_id = 0x15b3, .options = ece_taken };
	return 0;
}

/* ibv_set_ece in libibverbs/verbs.c, mlx5_set_ece. */
static int set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	note("ibv_set_ece vendor=%#x options=%#x\n", ece->vendor_id, ece->options);
	if (!ece->vendor_id)
		return EOPNOTSUPP;
	if (ece->comp_mask || ece->vendor_id != 0x15b3)
		return EINVAL;
	if (refuse("ibv_set_ece"))
		return errno;
	ece_set = ece->options;
	ece_taken = 0;
	return 0;
}

void standin_ece_modified(void)
{
	if (ece_set)
		ece_taken = ece_set & ece_has;
	ece_set = 0;
}

struct fake_dm {
	struct ibv_dm dm;
	uint64_t length;
	int regions;
	unsigned char bytes[];
};

static struct fake_dm *dm_of(struct ibv_dm *dm) { return (struct fake_dm *)((char *)dm - offsetof(struct fake_dm, dm)); }

/* mlx5_access_dm in providers/mlx5/verbs.c. */
static int dm_access(struct fake_dm *f, uint64_t offset, size_t length)
{
	if (offset + length > f->length)
		return EFAULT;
	return length & 3 || offset & 3 ? EINVAL : 0;
}

static int to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	int err = dm_access(dm_of(dm), offset, length);

	note("memcpy_to_dm offset=%lu length=%zu\n", (unsigned long)offset, length);
	if (!err)
		memcpy(dm_of(dm)->bytes + offset, from, length);
	return err;
}

static int from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	int err = dm_access(dm_of(dm), offset, length);

	note("memcpy_from_dm offset=%lu length=%zu\n", (unsigned long)offset, length);
	if (!err)
		memcpy(to, dm_of(dm)->bytes + offset, length);
	return err;
}

/*
 * alloc_dm_memic there: EINVAL for more than the device has; and
 * mlx5_cmd_alloc_memic of the kernel, for an alignment that it has not.
 */
static struct ibv_dm *alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *a)
{
	struct fake_dm *f;

	note("ibv_alloc_dm length=%zu log_align=%u mask=%u\n", a->length, a->log_align_req, a->comp_mask);
	if (refuse("ibv_alloc_dm"))
		return NULL;
	if (a->comp_mask || a->length > 1 << 17 || a->log_align_req > 12) {
		errno = EINVAL;
		return NULL;
	}
	f = calloc(1, sizeof(*f) + a->length);
	f->length = a->length;
	f->dm = (struct ibv_dm){ .context = ctx, .memcpy_to_dm = to_dm, .memcpy_from_dm = from_dm };
	return &f->dm;
}

/* uverbs_free_dm of the kernel: not while it is registered. */
static int free_dm(struct ibv_dm *dm)
{
	note("ibv_free_dm\n");
	if (dm_of(dm)->regions)
		return EBUSY;
	free(dm_of(dm));
	return 0;
}

struct fake_mr {
	struct ibv_mr mr;
	struct fake_dm *dm;
};

/*
 * MLX5_DM_ALLOWED_ACCESS in providers/mlx5/verbs.c, and DM_MR_REG of the kernel
 * (uverbs_std_types_mr.c), which wants addresses that begin with 0.
 */
static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access)
{
	const unsigned int allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
	struct fake_dm *d = dm_of(dm);
	struct fake_mr *f;

	note("ibv_reg_dm_mr offset=%lu length=%zu access=%#x\n", (unsigned long)offset, length, access);
	if (access & ~allowed || !(access & IBV_ACCESS_ZERO_BASED) || offset > d->length || length > d->length - offset) {
		errno = EINVAL;
		return NULL;
	}
	if (refuse("ibv_reg_dm_mr"))
		return NULL;
	f = calloc(1, sizeof(*f));
	f->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .length = length, .lkey = 3, .rkey = 4, .handle = STANDIN_OF_DM };
	f->dm = d;
	d->regions++;
	return &f->mr;
}

void standin_dm_deregistered(struct ibv_mr *mr)
{
	if (mr->handle == STANDIN_OF_DM)
		((struct fake_mr *)mr)->dm->regions--;
}

/* mlx5_alloc_null_mr there: it has a local key alone. */
static struct ibv_mr *null_mr(struct ibv_pd *pd)
{
	struct ibv_mr *mr;

	note("ibv_alloc_null_mr\n");
	if (refuse("ibv_alloc_null_mr"))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	*mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .length = SIZE_MAX, .lkey = 0x700 };
	return mr;
}

static void hex(const char *name, const void *at, size_t n)
{
	note(" %s=", name);
	for (size_t i = 0; i < n; i++)
		note("%02x", ((const unsigned char *)at)[i]);
}

/*
 * Reads the headers of a rule as ib_spec_to_kern_spec in libibverbs/cmd.c does,
 * and wants of them what ib_uverbs_ex_create_flow and mlx5_ib_create_flow of the
 * kernel want: types of queue pairs, a port that is there, no header twice, and
 * the order of packets. Headers are as long as they are and lie one behind the
 * other, aligned or not.
 */
__attribute__((no_sanitize("alignment"))) static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *a)
{
	char *at = (char *)(a + 1);
	struct ibv_flow *f;
	unsigned last = 0;
	int bad = qp->qp_type != IBV_QPT_UD && qp->qp_type != IBV_QPT_RAW_PACKET;

	note("ibv_create_flow type=%u priority=%u port=%u flags=%u specs=%u\n", a->type, a->priority, a->port, a->flags, a->num_of_specs);
	for (int i = 0; i < a->num_of_specs; i++) {
		struct ibv_flow_spec *s = (struct ibv_flow_spec *)at;

		switch (s->hdr.type) {
		case IBV_FLOW_SPEC_ETH:
			note("  eth");
			bad |= s->hdr.size != sizeof(s->eth);
			hex("val", &s->eth.val, sizeof(s->eth.val));
			hex("mask", &s->eth.mask, sizeof(s->eth.mask));
			break;
		case IBV_FLOW_SPEC_IPV4:
			note("  ipv4");
			bad |= s->hdr.size != sizeof(s->ipv4);
			hex("val", &s->ipv4.val, sizeof(s->ipv4.val));
			hex("mask", &s->ipv4.mask, sizeof(s->ipv4.mask));
			break;
		case IBV_FLOW_SPEC_IPV6:
			note("  ipv6");
			bad |= s->hdr.size != sizeof(s->ipv6);
			hex("val", &s->ipv6.val, 32);
			hex("mask", &s->ipv6.mask, 32);
			break;
		case IBV_FLOW_SPEC_TCP:
		case IBV_FLOW_SPEC_UDP:
			note(s->hdr.type == IBV_FLOW_SPEC_TCP ? "  tcp" : "  udp");
			bad |= s->hdr.size != sizeof(s->tcp_udp);
			hex("val", &s->tcp_udp.val, sizeof(s->tcp_udp.val));
			hex("mask", &s->tcp_udp.mask, sizeof(s->tcp_udp.mask));
			break;
		default:
			bad = 1;
		}
		note("\n");
		bad |= s->hdr.type >> 4 <= last;
		last = s->hdr.type >> 4;
		at += s->hdr.size;
	}
	bad |= at != (char *)a + a->size;
	bad |= a->port != 1;
	bad |= a->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP && a->type != IBV_FLOW_ATTR_NORMAL;
	if (bad) {
		note("  WRONG RULE\n");
		errno = EINVAL;
		return NULL;
	}
	if (refuse("ibv_create_flow"))
		return NULL;
	f = calloc(1, sizeof(*f));
	f->context = qp->context;
	return f;
}

static int destroy_flow(struct ibv_flow *f)
{
	note("ibv_destroy_flow\n");
	free(f);
	return 0;
}

/* create_cq in providers/mlx5/verbs.c knows both flags, that of EFA below only the first. */
static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a)
{
	note("ibv_create_cq_ex fields=%#lx mask=%#x flags=%#x\n", (unsigned long)a->wc_flags, a->comp_mask, a->flags);
	return refuse("ibv_create_cq_ex") ? NULL : standin_create_cq_ex(ctx, a, 0);
}

/* efadv_create_cq and create_cq in providers/efa/verbs.c. */
static struct ibv_cq_ex *efa_create_cq(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a, struct efadv_cq_init_attr *e, uint32_t size)
{
	note("efadv_create_cq fields=%#lx mask=%#x flags=%#x efa=%#lx\n", (unsigned long)a->wc_flags, a->comp_mask, a->flags, (unsigned long)e->wc_flags);
	if (size < offsetof(struct efadv_cq_init_attr, wc_flags) + sizeof(e->wc_flags) || e->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	if (e->wc_flags & ~(uint64_t)EFADV_WC_EX_WITH_SGID || a->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS ||
	    a->flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return standin_create_cq_ex(ctx, a, 1);
}

static int efa_query_ah(struct ibv_ah *ah, struct efadv_ah_attr *a, uint32_t size)
{
	(void)size;
	a->ahn = ah->handle;
	return 0;
}

void standin_features(struct gv_driver *d)
{
	d->mlx5_udp_sport = udp_sport;
	d->mlx5_set_lag_port = set_lag_port;
	d->mlx5_lag_port = query_lag_port;
	lag_port = 1;
	d->alloc_dm = alloc_dm;
	d->free_dm = free_dm;
	d->reg_dm_mr = reg_dm_mr;
	d->alloc_null_mr = null_mr;
	d->create_flow = create_flow;
	d->destroy_flow = destroy_flow;
	d->create_cq_ex = create_cq_ex;
	d->efa_create_cq = efa_create_cq;
	d->efa_cq = standin_efa_cq;
	d->efa_query_ah = efa_query_ah;
	d->query_ece = query_ece;
	d->set_ece = set_ece;
	ece_has = ece_taken = 0x30000006;
	ece_set = 0;
}
