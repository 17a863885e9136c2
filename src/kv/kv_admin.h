/* kv_admin.h — the further doors of a back end that holds the data: for spx-state.
 * Not here: what services use (kv.h). kv_open_remote() answers -ENOSYS to all of these.
 * Threads:  any; kv_txn_fn is called on the writer's thread and must not block.
 * Memory:   as kv.h.
 * Errors:   as kv.h. */
#pragma once
#include "kv/kv.h"

/* kv_txn() without waiting: 'cmp', 'op' and their bytes must live until fn is called, once.
 * -EBUSY "SlowDown": fn is not called. */
typedef void (*kv_txn_fn)(void *ctx, int rc, uint64_t rev, const struct err *err);
MUST_CHECK int kv_txn_start(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp,
                            const struct kv_op *op, size_t n_op, kv_txn_fn fn, void *ctx,
                            struct err *err);

/* Who holds a lease can be read from its number: kv_lease_tag() of it is 'tag' (1..127). */
MUST_CHECK int kv_lease_grant_tagged(struct kv *kv, uint8_t tag, uint32_t ttl_s,
                                     uint64_t *ret_lease, struct err *err);
uint8_t kv_lease_tag(uint64_t lease);

/* Flow control. After a pause (also from inside the call-back) at most one page of events more
 * arrives, then none until the resume. A paused watch costs no memory; when history is
 * compacted meanwhile it gets a RESET. */
void kv_watch_pause(struct kv_watch *w);
void kv_watch_resume(struct kv_watch *w);

struct kv_stats {
    uint64_t rev, compact_rev; /* history begins after compact_rev */
    uint64_t n_history;        /* events kept */
    uint64_t history_size;     /* bytes of them */
    uint64_t n_txns,
        n_commits; /* since start: transactions asked for, commits (fsyncs) that carried them */
    uint64_t n_conflicts;
    uint64_t n_failures; /* batches that the disk refused */
    uint64_t n_reopens;
    uint64_t n_leases, n_watches;
    uint64_t file_size, wal_size;
    bool is_failing; /* the last write failed; writing is tried again with each transaction */
    char reason[200];
};
MUST_CHECK int kv_stats(struct kv *kv, struct kv_stats *ret);

/* Forgets history but for the newest 'keep' events (0 = all of it). Watches further behind get
 * a RESET. */
MUST_CHECK int kv_compact(struct kv *kv, uint64_t keep, struct err *err);

/* A frozen picture of the store for dumps. Close it soon: the write-ahead log cannot shrink
 * while it is open. */
struct kv_snapshot;
MUST_CHECK int kv_snapshot_open(struct kv *kv, struct kv_snapshot **ret, struct err *err);
/* As kv_list() over all keys. */
MUST_CHECK int kv_snapshot_list(struct kv_snapshot *s, struct arena *a, struct str after,
                                struct kv_list *ret, struct err *err);
void kv_snapshot_close(struct kv_snapshot *s);
DEFINE_CLEANUP(struct kv_snapshot *, kv_snapshot_close);

/* Replaces the whole content in one step by what 'next' gives (1 = an item: key and value are
 * used; 0 = end; negative = stop and change nothing). -EEXIST "StoreNotEmpty" unless is_forced.
 * All watches get a RESET, leases end. */
typedef int (*kv_next_fn)(void *ctx, struct kv_item *ret, struct err *err);
MUST_CHECK int kv_replace(struct kv *kv, bool is_forced, kv_next_fn next, void *ctx,
                          struct err *err);
