/* blk_file_int.h — a request inside the file layer; inside blk_file*.c only.
 * Not here: the contract (blk_file.h).
 * Threads:  a request is its queue's; what is marked atomic or GUARDED_BY is for all.
 * Memory:   struct file_io lies in the request.
 * Errors:   as blk_file.h. */
#pragma once
#include "base/macro.h"
#include "blk/blk_file.h"
#include "blk/blk_int.h"
#include "blk/blk_lock.h"
#include <pthread.h>

#define FILE_FULL_RETRY_NS UINT64_C(1000000000)

enum file_step {
    STEP_WHOLE, /* the request as it is, one call */
    STEP_READ,  /* part of it into the bounce buffer */
    STEP_WRITE, /* part of it from the bounce buffer */
    STEP_PUNCH, /* pages of DISCARD and ZEROES */
    STEP_SYNC,
};

struct req_queue {
    struct blk_req *head, **tail;
};

struct file {
    struct blk_layer layer; /* first */
    struct blk_file_opts o;
    unsigned off_align, mem_align;  /* of O_DIRECT; 1 = any */
    bool is_direct, is_locking;     /* locking: writes can be smaller than what is written */
    bool is_faulted;                /* atomic */
    bool cannot_punch, cannot_zero; /* atomic: the file system said so */
    struct blk_lock lock;
    uint64_t n_flushes, n_syncs; /* atomic */
    pthread_mutex_t sync_lock;
    bool is_syncing;                 /* GUARDED_BY(sync_lock) */
    struct req_queue waiting, under; /* GUARDED_BY(sync_lock): for the next sync; this one */
    uint64_t sync_start_ns;          /* of who leads */
    uint64_t sync_ns;                /* atomic: what the last sync took */
};

struct file_io {
    struct blk_io io; /* first */
    struct file *f;
    uint64_t pos; /* bytes that are done */
    uint32_t n;   /* bytes of this call */
    uint8_t step;
    bool is_locked, is_alone, is_part;
    struct blk_lock_wait wait;
};
_Static_assert(sizeof(struct file_io) <= sizeof(((struct blk_req *)0)->state), "state is full");

static inline struct file_io *file_io(struct blk_req *r)
{
    return (struct file_io *)(void *)r->state;
}
static inline struct blk_req *file_req(struct blk_io *io)
{
    return CONTAINER_OF((uint64_t *)(void *)io, struct blk_req, state);
}
static inline bool file_waits_when_full(const struct file *f)
{
    return __atomic_load_n(&f->o.is_full_waited_for, __ATOMIC_RELAXED);
}
static inline bool file_has_fault(const struct file *f)
{
    return __atomic_load_n(&f->is_faulted, __ATOMIC_RELAXED);
}

/* blk_file.c */
void file_issue(struct blk_req *r);        /* the call of this step */
void file_over(struct blk_req *r, int rc); /* gives back what it holds; FUA goes on to a sync */
/* An error of the kernel: tries again when that helps (then true), else the answer. */
bool file_is_retried(struct blk_req *r, int res, int *ret_rc);
void file_fault(struct file *f, int errnum);
/* blk_file_sub.c */
void file_sub(struct blk_req *r); /* goes on from 'pos' in parts */
void file_sub_done(struct blk_req *r, int res);
/* blk_file_sync.c */
void file_sync(struct blk_req *r);
void file_sync_done(struct blk_req *r, int res);
/* blk_file_sim.c */
void file_sim(struct file *f, struct blk_req *r);
