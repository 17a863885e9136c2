/* vu_int.h — the connection of a frontend, shared by vu.c (socket, life) and vu_apply.c
 *          (messages).
 * Not here: rings at work (vu_queue.h).
 * Threads:  the main loop's.
 * Memory:   everything belongs to the struct vu.
 * Errors:   as vu.h. */
#pragma once
#include "blk/vu.h"
#include "blk/vu_mem.h"
#include "blk/vu_queue.h"

struct vu_vring {
    struct vu_queue *q;
    struct vu_vring_addr addr;
    bool has_addr, is_enabled, was_started; /* was_started: its queue knows where it is */
    uint16_t num, base;
    int kick_fd; /* >= 0: started */
};

struct vu {
    struct vu_opts o;
    struct vu_shared shared;
    uint64_t n_connects,
        told_size; /* the size the guest knows, as far as we know; 0 = not told */
    bool is_read_only;
    bool is_cutting; /* vu_cut() waits for rings to stop */
    void (*on_cut)(void *ctx);
    void *cut_ctx;
    uint64_t cut_size; /* the disk's last size; o.disk is NULL then */
    int wake_fd;
    struct loop_fd *listen_h, *fd_h, *wake_h;
    struct loop_timer *retry; /* of listening */
    struct vu_vring vrings[VU_MAX_QUEUES];

    /* Of the connection. */
    int fd; /* -1: none */
    uint64_t features, protocol;
    struct vu_mem mem;
    int backend_fd;
    struct {
        void *map;
        uint64_t map_len;
        uint8_t *p;
        struct vu_inflight_msg m;
    } inflight;
    struct vu_msg msg; /* being received, or waiting for rings to stop */
    size_t n_got;
    int fds[VU_MAX_FDS];
    size_t n_fds;
    bool is_waiting; /* the message waits for rings to stop: nothing is read */
    bool is_closing; /* the connection is gone: its rings are stopping */
    bool is_ending;  /* vu_stop() */
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

uint64_t vu_size(const struct vu *v); /* of the disk */
/* Rings that must not run while the message is applied, as a mask. */
unsigned vu_apply_stops(const struct vu *v, const struct vu_msg *m);
/* Does what v->msg says; its rings are stopped. Fills 'reply' (size > 0: send it, with *ret_fd
 * when that is >= 0: given). Negative: refused, the reason in err. */
MUST_CHECK int vu_apply(struct vu *v, struct vu_msg *reply, int *ret_fd, struct err *err);
/* Starts the rings that have everything they need. */
MUST_CHECK int vu_apply_start(struct vu *v, struct err *err);
/* Forgets the connection's memory, log, descriptors and rings, which are stopped. */
void vu_apply_reset(struct vu *v);
