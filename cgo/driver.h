/*
 * The calls of provider libraries, found at run time: a program that never
 * asks for them needs neither library. Tests put their own functions here.
 */
#ifndef GOVERBS_DRIVER_H
#define GOVERBS_DRIVER_H

#include <stdbool.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>

struct gv_driver {
	bool (*mlx5_is_supported)(struct ibv_device *device);
	int (*mlx5_query_device)(struct ibv_context *ctx, struct mlx5dv_context *attrs);
	struct ibv_qp *(*mlx5_create_qp)(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr,
					 struct mlx5dv_qp_init_attr *mlx5_attr);
	struct mlx5dv_qp_ex *(*mlx5_qp_ex)(struct ibv_qp_ex *qp);
	int (*mlx5_stream_reset)(struct ibv_qp *qp, uint16_t stream);
	int (*mlx5_init_obj)(struct mlx5dv_obj *obj, uint64_t type);
	int (*efa_query_device)(struct ibv_context *ctx, struct efadv_device_attr *attr, uint32_t size);
	struct ibv_qp *(*efa_create_qp_ex)(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr,
					   struct efadv_qp_init_attr *efa_attr, uint32_t size);
	struct ibv_qp_ex *(*to_ex)(struct ibv_qp *qp);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
	/* What else of libibverbs the driver's queue pairs go through. */
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
	/* And what they stand on. */
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, unsigned access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int depth, void *own, struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	int (*destroy_srq)(struct ibv_srq *srq);
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
	int (*destroy_ah)(struct ibv_ah *ah);
	int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);
	/* The path of a queue pair's packets. */
	int (*mlx5_udp_sport)(struct ibv_qp *qp, uint16_t port);
	int (*mlx5_set_lag_port)(struct ibv_qp *qp, uint8_t port);
	int (*mlx5_lag_port)(struct ibv_qp *qp, uint8_t *port, uint8_t *active);
	int (*query_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
	int (*set_ece)(struct ibv_qp *qp, struct ibv_ece *ece);
	/* Memory of the device, and none. */
	struct ibv_dm *(*alloc_dm)(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr);
	int (*free_dm)(struct ibv_dm *dm);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
	struct ibv_flow *(*create_flow)(struct ibv_qp *qp, struct ibv_flow_attr *attr);
	int (*destroy_flow)(struct ibv_flow *flow);
	/* Extended completion queues, and those of EFA that tell a datagram's sender. */
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
	struct ibv_cq_ex *(*efa_create_cq)(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr,
					   struct efadv_cq_init_attr *efa_attr, uint32_t size);
	struct efadv_cq *(*efa_cq)(struct ibv_cq_ex *cq);
	int (*efa_query_ah)(struct ibv_ah *ah, struct efadv_ah_attr *attr, uint32_t size);
	/* Completion events. */
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
};

/* The table in use; entries are NULL where a provider's library is missing. */
struct gv_driver *gv_driver(void);

/* What a queue pair is made from, as Go says it. */
struct gv_qp_init {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	uint32_t type;
	int sig_all;
	uint64_t send_ops;
	int driver; /* Driver in types.go */
	uint64_t dc_key;
	uint8_t log_streams, log_errored;
	int raw_wqe;
	int rxe;
	struct gv_cq *sends; /* of send_cq, or NULL */
};

/* Makes a queue pair and tells how it is posted to (GV_POST_PLAIN in extended.h). */
struct ibv_qp *gv_create_qp(struct gv_qp_init *init, uintptr_t *how);

#endif
