/* blk_world.h — one queue, one stack, requests made and waited for; for *_test.c of this room only.
 * Not here: anything a service links.
 * Threads:  the thread that made the world.
 * Memory:   world_*() work on a struct of the test.
 * Errors:   answers of requests as they are; everything else ends the test. */
#pragma once
#include "base/test.h"
#include "blk/blk.h"
#include <string.h>
#include <sys/uio.h>

struct world {
    struct blk_queue *q;
    struct blk_layer *top;
};

struct world_io { /* a request and its answer */
    struct blk_req *r;
    struct iovec iov[4];
    int rc;
    bool is_done;
};

static inline void world_done(struct blk_req *r, int rc)
{
    struct world_io *io = r->ctx;
    assert_false(io->is_done);
    io->rc = rc;
    io->is_done = true;
    blk_req_put(r);
}

static inline void world_queue(struct world *w, const struct blk_queue_opts *o)
{
    static const struct blk_queue_opts none;
    struct err err = ERR_INIT;
    if (blk_queue_new(o ? o : &none, &w->q, &err)) {
        fail_msg("%s", err.msg);
    }
}

static inline void world_start(struct world *w, struct world_io *io, enum blk_op op,
                               unsigned flags, uint64_t off, void *p, uint64_t len)
{
    memset(io, 0, sizeof(*io));
    io->r = blk_req_get(w->q);
    assert_non_null(io->r);
    io->iov[0] = (struct iovec){p, len};
    io->r->op = op;
    io->r->flags = flags;
    io->r->off = off;
    io->r->len = len;
    io->r->iov = io->iov;
    io->r->n_iov = p ? 1 : 0;
    io->r->done = world_done;
    io->r->ctx = io;
    blk_submit(w->top, io->r);
}

static inline int world_wait(struct world *w, struct world_io *io)
{
    while (!io->is_done) {
        assert_true(blk_queue_run(w->q, UINT64_C(20000000000)) > 0);
    }
    return io->rc;
}

static inline int world_io(struct world *w, enum blk_op op, unsigned flags, uint64_t off,
                           void *p, uint64_t len)
{
    struct world_io io;
    world_start(w, &io, op, flags, off, p, len);
    return world_wait(w, &io);
}

static inline void world_done_all(struct world *w)
{
    while (blk_queue_run(w->q, 0) > 0) {}
    blk_stack_free(w->top);
    blk_queue_free(w->q);
}
