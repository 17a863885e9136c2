/* lifecycle.h — the lifecycle rules of buckets, and the worker that does what they say.
 * Not here: which rule asks for what at a given time (aws/s3_lifecycle.h).
 * Threads:  the worker has a ticker's thread of its own; the rest has no state.
 * Memory:   lifecycle_start() gives, lifecycle_stop() takes.
 * Errors:   of the worker: logged, and tried again at its next turn.
 *
 * The worker keeps nothing: after a restart it looks at everything once. A bucket is walked after
 * each midnight (UTC), which is when rules fall due, and when its rules changed. What it deletes it
 * names by the record it has seen: a version that was put meanwhile is not touched. */
#pragma once
#include "aws/s3_lifecycle.h"
#include "predastore/s3.h"

/* The rules of a bucket as the pure parts want them; false: none. Borrows from 'in'. */
MUST_CHECK int lifecycle_convert(struct arena *a,
                                 const struct s3_bucket_lifecycle_configuration *in,
                                 struct s3_life *ret, struct err *err);
/* 1: there are rules, 0: none. */
MUST_CHECK int lifecycle_rules(struct arena *a, const struct obucket *b, struct s3_life *ret,
                               struct err *err);
/* x-amz-abort-date and x-amz-abort-rule-id of an upload of c's key; left alone when no rule says
 * so. */
void lifecycle_abort_date(const struct s3_call *c, uint64_t begun_ns, struct opt_time *ret_date,
                          struct str *ret_rule);

struct lifecycle;
struct lifecycle_opts {
    struct ostore *store;
    uint64_t (*now_ns)(void *ctx); /* NULL: the wall clock */
    void *now_ctx;
    uint64_t every_ns; /* of looking whether something is due; 0 = 5 minutes */
    bool is_eager;     /* no pauses between pages: tests */
};
struct lifecycle_stats {
    uint64_t n_turns, n_walks, n_seen;
    uint64_t n_expired, n_versions, n_markers, n_uploads, n_failed;
};
struct lifecycle *lifecycle_start(const struct lifecycle_opts *o);
/* Ends the turn under way at its next page. NULL is fine. */
void lifecycle_stop(struct lifecycle *l);
/* One turn on the caller's thread, with a worker that was made with every_ns = UINT64_MAX (it has
 * no thread): tests. */
void lifecycle_turn(struct lifecycle *l);
void lifecycle_stats(struct lifecycle *l, struct lifecycle_stats *ret);
