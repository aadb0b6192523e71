//go:build simhca && linux && cgo

/*
 * Address handles. Each packet looks for two, so a protection domain finds its own by address and
 * by number.
 */
#include "efa.h"

int ef_alloc_pd(struct sim_ctx *c, struct sim_io *io)
{
	struct ef_pd *d = sim_add(c, SIM_PD, sizeof(*d));
	struct ib_uverbs_alloc_pd_resp r;
	struct efa_ibv_alloc_pd_resp u = {};

	if (!d)
		return ENOMEM;
	r.pd_handle = u.pdn = d->o.handle;
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

static struct ef_ah **at(struct sim_obj *pd, const uint8_t gid[16])
{
	uint32_t hash = 0;

	for (int i = 0; i < 16; i++)
		hash = hash * 31 + gid[i];
	return &((struct ef_pd *)pd)->at[hash % EF_CHAINS];
}

static struct ef_ah **of(struct sim_obj *pd, uint16_t number) { return &((struct ef_pd *)pd)->of[number % EF_CHAINS]; }

struct ef_ah *ef_ah_to(struct sim_obj *pd, const uint8_t gid[16])
{
	struct ef_ah *a = *at(pd, gid);

	while (a && memcmp(a->gid, gid, 16))
		a = a->next_at;
	return a;
}

struct ef_ah *ef_ah_of(struct sim_obj *pd, uint16_t number)
{
	struct ef_ah *a = *of(pd, number);

	while (a && a->number != number)
		a = a->next_of;
	return a;
}

/* The number of a new address, which no other address of the protection domain has; negative if it has all. */
static int32_t new_number(struct sim_obj *pd)
{
	static uint16_t last = EF_AH_NUMBERS - 1;

	for (int i = 0; i < EF_AH_NUMBERS; i++) {
		last = (last + 1) % EF_AH_NUMBERS;
		if (!ef_ah_of(pd, last))
			return last;
	}
	return -1;
}

int ef_create_ah(struct sim_ctx *c, struct sim_io *io)
{
	SIM_IN(ib_uverbs_create_ah, a);
	struct sim_obj *pd = sim_get(c, a.pd_handle, SIM_PD);
	struct ib_uverbs_create_ah_resp r = {};
	struct efa_ibv_create_ah_resp u = {};
	struct ef_ah *same, *h, **p;
	int32_t number;

	if (!pd || a.attr.port_num != 1 || !a.attr.is_global || a.attr.grh.sgid_index)
		return sim_refuse(EINVAL, "an address handle for port %u, GID index %u", a.attr.port_num, a.attr.grh.sgid_index);
	same = ef_ah_to(pd, a.attr.grh.dgid); /* an address has one number, however many handles */
	number = same ? same->number : new_number(pd);
	h = number < 0 ? NULL : sim_add(c, SIM_AH, sizeof(*h));
	if (!h)
		return ENOMEM;
	sim_hold(pd, &h->o);
	memcpy(h->gid, a.attr.grh.dgid, 16);
	h->number = number;
	p = at(pd, h->gid);
	h->next_at = *p;
	*p = h;
	p = of(pd, h->number);
	h->next_of = *p;
	*p = h;
	r.ah_handle = h->o.handle;
	u.efa_address_handle = h->number;
	SIM_OUT(r);
	SIM_DRIVER_OUT(u);
	return 0;
}

void ef_ah_forget(struct ef_ah *h)
{
	struct ef_ah **p = at(h->o.pd, h->gid);

	while (*p != h)
		p = &(*p)->next_at;
	*p = h->next_at;
	p = of(h->o.pd, h->number);
	while (*p != h)
		p = &(*p)->next_of;
	*p = h->next_of;
}
