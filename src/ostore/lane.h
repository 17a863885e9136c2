/* lane.h — one thread per drive, so that a drive that does not answer stops nobody else.
 * Not here: what is done on a drive (olog.h, drive.h).
 * Threads:  any thread posts and waits; jobs of a lane run one after the other, in order.
 * Memory:   a job is counted: lane_post() takes a reference for the lane, the poster keeps its
 *           own. What a job uses must be owned by the job: it may run, or hang, long after its
 *           poster went away. lane_new() gives, lane_free() takes.
 * Errors:   lane_wait() answers what the job answered, -ETIMEDOUT when it did not, and -ECANCELED
 *           for jobs of a lane that was given up. */
#pragma once
#include "base/macro.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lane;
struct lane_job {
    int (*fn)(struct lane_job *j);
    void (*free)(struct lane_job *j); /* of the whole object, when the last reference goes */
    /* the rest is the lane's */
    atomic_uint refs;
    struct lane *lane;
    struct lane_job *next;
    int rc;
    bool is_done;
};

MUST_CHECK int lane_new(struct lane **ret);
/* Waits for what runs, unless the lane was given up: then its thread is left alone. */
void lane_free(struct lane *l); /* NULL is fine */

/* A job with one reference, the caller's. */
void lane_job_init(struct lane_job *j, int (*fn)(struct lane_job *),
                   void (*free_fn)(struct lane_job *));
void lane_job_unref(struct lane_job *j); /* NULL is fine */
void lane_post(struct lane *l, struct lane_job *j);
MUST_CHECK int lane_wait(struct lane_job *j, uint64_t deadline_mono_ns);
/* The thread hangs in a call: nobody waits for it any more. Jobs that wait in line never run. */
void lane_give_up(struct lane *l);
