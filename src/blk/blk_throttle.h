/* blk_throttle.h — IOPS and bytes per second of a volume as its type allows, with bursts.
 * Not here: which type allows what (model/volume_type.h).
 * Threads:  one bucket shared by all queues of a volume; lock-free on the way through.
 * Memory:   takes 'below'.
 * Errors:   none of its own. Requests with BLK_INNER pass.
 * Source:   EBS user guide, "Amazon EBS volume types": gp3 baseline and provisioned, io1/io2
 *           provisioned, gp2 3 IOPS/GiB with I/O credits (5.4 million, 3,000 burst), st1 and sc1
 *           throughput credits; an I/O of up to 256 KiB (SSD) or 1 MiB (HDD) counts as one. */
#pragma once
#include "blk/blk.h"

struct blk_limits { /* 0 = not limited */
    uint64_t iops, burst_iops,
        credits; /* credits: I/Os above the baseline that a full bucket has */
    uint64_t bytes_per_s, burst_bytes_per_s, byte_credits;
    uint64_t io_size; /* bytes that count as one I/O; 0 = 256 KiB */
};

/* A bucket as virtual time: 'tat_ns' is when all that was let through so far is paid for at the
 * bucket's rate. A request goes when that is at most tau_ns ahead of the clock, and each takes its
 * place in line when it comes: nobody is overtaken by later ones, nobody tries twice. */
struct blk_bucket {
    uint64_t tat_ns;
    uint64_t ns_per_unit; /* 44.20 fixed point; 0 = not limited */
    uint64_t tau_ns;      /* what may be saved up: credits, or a moment */
};
/* 'rate' units a second, 'saved' units at most saved up (0: a moment's). Full at first. */
void blk_bucket_set(struct blk_bucket *b, uint64_t rate, uint64_t saved, uint64_t now_ns);
/* Takes 'n' units; returns when the request may go (<= now_ns: at once). */
uint64_t blk_bucket_take(struct blk_bucket *b, uint64_t n, uint64_t now_ns);

MUST_CHECK int blk_throttle_new(struct blk_layer *below, const struct blk_limits *lim,
                                struct blk_layer **ret, struct err *err);
void blk_throttle_set(struct blk_layer *l, const struct blk_limits *lim); /* any thread */
/* Any thread: for good nobody waits, and who does goes on within a moment: the volume closes. */
void blk_throttle_give_up(struct blk_layer *l);
