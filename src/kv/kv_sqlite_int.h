/* kv_sqlite_int.h — inside of the sqlite back end: a writer thread, some readers, a
 *           dispatcher.
 * Not here: the connection (db.h).
 * Threads:  'w', 'm' belong to the writer; readers are borrowed under readers.mu; 'watch_db'
 *           belongs to the dispatcher. None of mu, readers.mu, watches.mu is taken while
 *           another is held.
 * Memory:   jobs belong to whoever waits for them (sync) or to themselves (async).
 * Errors:   as kv.h. */
#pragma once
#include "base/time.h"
#include "kv/db.h"
#include "kv/kv_int.h"

#define N_READERS        4
#define MAX_JOBS         4096u
#define MAX_JOBS_SIZE    (64u << 20)
#define MAX_BATCH        256u
#define MAX_LEASES       4096u
#define HISTORY_MAX      20000u      /* events; half of them go when there are more */
#define HISTORY_MAX_SIZE (64u << 20) /* bytes */
#define HISTORY_MAX_MS   (3600u * 1000u)
#define WAL_PAGES        1000 /* a checkpoint after as many */

enum job_type { JOB_TXN, JOB_GRANT, JOB_REVOKE, JOB_COMPACT, JOB_REPLACE };

struct job {
    struct job *next;
    enum job_type type;
    const struct kv_cmp *cmp;
    size_t n_cmp;
    const struct kv_op *op;
    size_t n_op, size;
    uint64_t lease; /* GRANT, REVOKE */
    uint32_t ttl_s;
    uint64_t keep;  /* COMPACT */
    bool is_forced; /* REPLACE */
    kv_next_fn next_fn;
    void *next_ctx;
    /* answer */
    int rc;
    uint64_t rev;
    struct err err;
    kv_txn_fn fn; /* async */
    void *ctx;
    bool is_done; /* sync, under mu */
    pthread_cond_t cv;
};

struct lease {
    uint64_t id, deadline_ns;
    uint32_t ttl_s;
};

/* What a transaction moves and a rollback takes back. */
struct marks {
    uint64_t last_rev, compact_rev, compact_to;
    uint64_t n_history, history_size; /* events after compact_rev */
};

struct kv_sqlite {
    struct kv kv;
    char *path;
    int lock_fd;

    pthread_mutex_t mu; /* jobs, leases, stats */
    pthread_cond_t work_cv;
    struct job *head, **tail;
    size_t n_jobs, jobs_size;
    bool is_closing;
    struct lease leases[MAX_LEASES];
    size_t n_leases;
    struct kv_stats stats; /* counters; filled further by stats() */

    pthread_t writer;
    struct db w; /* h NULL = to be opened again */
    struct marks m;
    uint64_t next_age_check_ns, retry_ns;
    int wal_pages, checkpoint_at;

    uint64_t rev; /* atomic: newest committed revision */

    struct {
        pthread_mutex_t mu;
        pthread_cond_t cv;
        struct db db[N_READERS];
        bool is_busy[N_READERS];
    } readers;

    struct watch_set watches;
    struct db watch_db;
};

static inline struct kv_sqlite *kvs(struct kv *kv)
{
    return (struct kv_sqlite *)(void *)kv; /* 'kv' is the first member */
}

/* kv_sqlite.c */
/* Reads the revision and compaction inside a read transaction. */
MUST_CHECK int kvs_read_revs(struct db *db, uint64_t *ret_rev, uint64_t *ret_compact,
                             struct err *err);
/* Appends items from a list statement that has been bound; shared with watches. */
MUST_CHECK int kvs_list(struct db *db, struct arena *a, struct str prefix, struct str after,
                        size_t limit, struct kv_list *ret, struct err *err);

/* kv_sqlite_write.c */
void *kvs_writer(void *arg);
MUST_CHECK int kvs_job(struct kv_sqlite *k, struct job *job, struct err *err); /* waits */
MUST_CHECK int kvs_load(struct kv_sqlite *k, struct err *err); /* revisions, leases, history */
int kvs_txn(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
            size_t n_op, uint64_t *ret_rev, struct err *err);
int kvs_txn_start(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
                  size_t n_op, kv_txn_fn fn, void *ctx, struct err *err);
int kvs_lease_grant(struct kv *kv, uint8_t tag, uint32_t ttl_s, uint64_t *ret, struct err *err);
int kvs_lease_keepalive(struct kv *kv, uint64_t lease, struct err *err);
int kvs_lease_revoke(struct kv *kv, uint64_t lease, struct err *err);
int kvs_compact(struct kv *kv, uint64_t keep, struct err *err);
int kvs_replace(struct kv *kv, bool is_forced, kv_next_fn next, void *ctx, struct err *err);

/* kv_sqlite_exec.c: what one job does inside the writer's transaction. */
MUST_CHECK int kvs_exec(struct kv_sqlite *k, struct job *job, struct err *err);
/* Drops up to 'n_rows' old versions on the way to compact_to. */
MUST_CHECK int kvs_compact_step(struct kv_sqlite *k, size_t n_rows, struct err *err);
/* Decides whether history is too long, too big or too old. */
void kvs_compact_policy(struct kv_sqlite *k, bool is_age_due);

/* kv_sqlite_watch.c */
void *kvs_dispatcher(void *arg);
