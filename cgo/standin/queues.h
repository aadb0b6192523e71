#ifndef GOVERBS_QUEUES_H
#define GOVERBS_QUEUES_H

#include "recorder.h"

/* Whose rules a queue pair follows. */
enum standin_rules { STANDIN_MLX5, STANDIN_EFA };

/* Writes down, as printf does. */
__attribute__((format(printf, 1, 2))) void recorder_note(const char *format, ...);

/* The errno that a call is to fail with, or 0. */
int recorder_refused(const char *call);

/* Where struct ibv_qp_ex has wr_flush, or 0. */
extern size_t standin_flush_at;

/* m is NULL for a queue pair that mlx5dv did not make. */
struct ibv_qp *standin_new_qp(struct ibv_qp_init_attr_ex *a, enum standin_rules rules, struct mlx5dv_qp_init_attr *m);
void standin_free_qp(struct ibv_qp *qp);
struct mlx5dv_qp_ex *standin_mlx5_ex(struct ibv_qp_ex *x);

/* A transition, and the state that the device tells. */
int standin_set_state(struct ibv_qp *qp, enum ibv_qp_state to);
enum ibv_qp_state standin_state(struct ibv_qp *qp);

struct ibv_cq *standin_create_cq(struct ibv_context *ctx, int depth, void *own, struct ibv_comp_channel *channel, int vector);
struct ibv_cq_ex *standin_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a, int sender);
struct efadv_cq *standin_efa_cq(struct ibv_cq_ex *x);
int standin_destroy_cq(struct ibv_cq *cq);
int standin_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int standin_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs);

/* Puts what only hardware has into the table (features.c). */
void standin_features(struct gv_driver *d);

/* The handle of a region of device memory, and what follows its deregistration. */
#define STANDIN_OF_DM 0xd3
void standin_dm_deregistered(struct ibv_mr *mr);

/* A change of state that succeeded: the options that were set take effect. */
void standin_ece_modified(void);

/* All queue pairs of an earlier recording are gone. */
void standin_forget(void);

#endif
