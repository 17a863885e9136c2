#include "kv/kv_sqlite_int.h"

#include "base/rand.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

static int on_wal(void *ctx, sqlite3 *h, const char *name, int n_pages)
{
    struct kv_sqlite *k = ctx;
    (void)h;
    (void)name;
    k->wal_pages = n_pages;
    return SQLITE_OK;
}

static int load_leases(struct kv_sqlite *k, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_LEASES, err);
    if (!st) {
        return -EIO;
    }
    int r = 0;
    uint64_t now = time_mono_ns();
    k->n_leases = 0;
    while (k->n_leases < MAX_LEASES && (r = db_step(&k->w, st, err)) == 1) {
        uint32_t ttl = (uint32_t)MIN(db_col_u64(st, 1), (uint64_t)KV_MAX_TTL_S);
        k->leases[k->n_leases++] = (struct lease){
            .id = db_col_u64(st, 0), .ttl_s = ttl, .deadline_ns = now + ttl * NS_PER_S};
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int load_marks(struct kv_sqlite *k, struct err *err)
{
    struct marks m = {0};
    int r = kvs_read_revs(&k->w, &m.last_rev, &m.compact_rev, err);
    sqlite3_stmt *st = r < 0 ? NULL : db_stmt(&k->w, DB_HISTORY, err);
    if (!st) {
        return r < 0 ? r : -EIO;
    }
    db_bind_u64(st, 1, m.compact_rev << 8 | 0xff);
    r = db_step(&k->w, st, err);
    if (r == 1) {
        m.n_history = db_col_u64(st, 0);
        m.history_size = db_col_u64(st, 1);
        m.compact_to = m.compact_rev;
        k->m = m;
        sqlite3_reset(st);
    }
    return r < 0 ? r : 0;
}

int kvs_load(struct kv_sqlite *k, struct err *err)
{
    sqlite3_wal_hook(k->w.h, on_wal, k);
    k->wal_pages = k->checkpoint_at = WAL_PAGES; /* whatever log was left is worked in soon */
    int r = load_marks(k, err);
    if (r == 0) {
        r = load_leases(k, err);
    }
    __atomic_store_n(&k->rev, k->m.last_rev, __ATOMIC_SEQ_CST);
    return r;
}

/* After a failure of the disk: a fresh connection that trusts nothing of the old one. Leases
 * stay as they are. */
static int reopen(struct kv_sqlite *k, struct err *err)
{
    int r = db_refresh_wal(k->path, err);
    if (r == 0) {
        r = db_open(k->path, &k->w, err);
    }
    if (r < 0) {
        return r;
    }
    sqlite3_wal_hook(k->w.h, on_wal, k);
    k->checkpoint_at = WAL_PAGES;
    r = load_marks(k, err);
    if (r < 0) {
        db_close(&k->w);
        return r;
    }
    pthread_mutex_lock(&k->mu);
    k->stats.n_reopens++;
    pthread_mutex_unlock(&k->mu);
    return 0;
}

static bool is_disk_error(int rc)
{
    return rc == -EIO || rc == -ENOSPC || rc == -EBUSY || rc == -ENOMEM;
}

/* Runs one job; what it did is undone when it says no (a conflict), while the batch goes on. */
static int run_job(struct kv_sqlite *k, struct job *job, struct err *err)
{
    struct marks before = k->m;
    int r = db_run(&k->w, DB_SAVE, err);
    if (r < 0) {
        return r;
    }
    err_clear(&job->err);
    job->rc = kvs_exec(k, job, &job->err);
    if (is_disk_error(job->rc)) {
        *err = job->err;
        return job->rc;
    }
    if (job->rc < 0) {
        k->m = before;
        r = db_run(&k->w, DB_ROLLBACK_TO, err);
    }
    return r < 0 ? r : db_run(&k->w, DB_RELEASE, err);
}

static int run_jobs(struct kv_sqlite *k, struct job **job, size_t n, struct err *err)
{
    int r = k->w.h ? 0 : reopen(k, err);
    if (r == 0) {
        r = db_run(&k->w, DB_BEGIN_WRITE, err);
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = run_job(k, job[i], err);
    }
    if (r == 0 && k->m.compact_to > k->m.compact_rev) {
        /* Rides in the same commit; more of it when nobody waits. */
        r = kvs_compact_step(k, n ? 256 : 2048, err);
    }
    return r;
}

static void note_result(struct kv_sqlite *k, size_t n_jobs, const struct err *err)
{
    pthread_mutex_lock(&k->mu);
    k->stats.n_txns += n_jobs;
    k->stats.is_failing = err->code != 0;
    if (err->code) {
        k->stats.n_failures++;
        snprintf(k->stats.reason, sizeof(k->stats.reason), "%.199s", err->msg);
    } else {
        k->stats.n_commits++;
        k->stats.compact_rev = k->m.compact_rev;
        k->stats.n_history = k->m.n_history;
        k->stats.history_size = k->m.history_size;
    }
    pthread_mutex_unlock(&k->mu);
}

static void fail_all(struct job **job, size_t n, int rc, const struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        job[i]->rc = rc;
        job[i]->err = *err;
    }
}

static void lease_remove(struct kv_sqlite *k, uint64_t id)
{
    for (size_t i = 0; i < k->n_leases; i++) {
        if (k->leases[i].id == id) {
            k->leases[i] = k->leases[--k->n_leases];
            return;
        }
    }
}

/* Leases in memory follow what has been committed. */
static void apply_leases(struct kv_sqlite *k, struct job **job, size_t n)
{
    uint64_t now = time_mono_ns();
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < n; i++) {
        const struct job *j = job[i];
        if (j->type == JOB_REVOKE && (j->rc == 0 || j->rc == -ENOENT)) {
            lease_remove(k, j->lease);
        } else if (j->rc == 0 && j->type == JOB_GRANT) {
            assert(k->n_leases < MAX_LEASES); /* only this thread adds, after it looked */
            k->leases[k->n_leases++] = (struct lease){
                .id = j->lease, .ttl_s = j->ttl_s, .deadline_ns = now + j->ttl_s * NS_PER_S};
        } else if (j->rc == 0 && j->type == JOB_REPLACE) {
            k->n_leases = 0;
        }
        k->stats.n_conflicts += j->rc == -EAGAIN;
    }
    pthread_mutex_unlock(&k->mu);
}

static void publish(struct kv_sqlite *k)
{
    if (k->m.last_rev == __atomic_load_n(&k->rev, __ATOMIC_SEQ_CST)) {
        return;
    }
    __atomic_store_n(&k->rev, k->m.last_rev, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&k->watches.mu);
    pthread_cond_broadcast(&k->watches.cv);
    pthread_mutex_unlock(&k->watches.mu);
}

/* One sqlite transaction, one sync, for all jobs; each has its own answer in it. */
static void run_batch(struct kv_sqlite *k, struct job **job, size_t n)
{
    struct err err = ERR_INIT;
    struct marks before = k->m;
    int r = run_jobs(k, job, n, &err);
    if (r == 0) {
        r = db_run(&k->w, DB_COMMIT, &err);
        if (r < 0 && r != -ENOSPC) {
            /* The log may hold all of it although the sync failed: a crash now could bring it
             * back. */
            struct err why = err;
            err_clear(&err);
            r = fail(&err, -ECONNRESET, "Interrupted", "the commit failed half-way: %.300s",
                     why.msg);
        }
    }
    if (r == 0) {
        note_result(k, n, &err);
        apply_leases(k, job, n);
        publish(k);
        return;
    }
    db_end(&k->w);
    k->m = before;
    if (r != -ENOSPC && r != -ENOMEM) {
        db_close(&k->w);
    }
    note_result(k, n, &err);
    if (n > 1 && r != -ECONNRESET) {
        /* A small transaction may still fit where a large one did not. */
        for (size_t i = 0; i < n; i++) {
            run_batch(k, &job[i], 1);
        }
        return;
    }
    fail_all(job, n, r, &err);
}

static void answer(struct kv_sqlite *k, struct job *job)
{
    if (job->fn) {
        job->fn(job->ctx, job->rc, job->rev, &job->err);
        free(job);
        return;
    }
    pthread_mutex_lock(&k->mu);
    job->is_done = true;
    pthread_cond_signal(&job->cv);
    pthread_mutex_unlock(&k->mu);
}

/* With mu held. Work on the whole store goes alone: it is long and cannot be tried twice. */
static size_t take_jobs(struct kv_sqlite *k, struct job *job[MAX_BATCH])
{
    size_t n = 0;
    while (k->head && n < MAX_BATCH) {
        struct job *j = k->head;
        bool is_alone = j->type == JOB_REPLACE || j->type == JOB_COMPACT;
        if (is_alone && n) {
            break;
        }
        k->head = j->next;
        if (!k->head) {
            k->tail = &k->head;
        }
        k->n_jobs--;
        k->jobs_size -= j->size;
        job[n++] = j;
        if (is_alone) {
            break;
        }
    }
    return n;
}

/* With mu held: when the writer has to look again although nobody asks. */
static uint64_t next_wake(const struct kv_sqlite *k)
{
    uint64_t t = k->m.n_history ? k->next_age_check_ns : UINT64_MAX / 2;
    for (size_t i = 0; i < k->n_leases; i++) {
        t = MIN(t, MAX(k->leases[i].deadline_ns, k->retry_ns));
    }
    return k->m.compact_to > k->m.compact_rev ? k->retry_ns : t;
}

static void end_leases(struct kv_sqlite *k, uint64_t now)
{
    enum { N = 32 };
    AUTO_FREE struct job *jobs = calloc(N, sizeof(*jobs));
    struct job *job[N];
    size_t n = 0;
    if (!jobs) {
        return;
    }
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->n_leases && n < N; i++) {
        if (k->leases[i].deadline_ns <= now) {
            jobs[n].type = JOB_REVOKE;
            jobs[n].lease = k->leases[i].id;
            job[n] = &jobs[n];
            n++;
        }
    }
    pthread_mutex_unlock(&k->mu);
    if (n == 0) {
        return;
    }
    run_batch(k, job, n);
    for (size_t i = 0; i < n; i++) {
        if (job[i]->rc < 0 && job[i]->rc != -ENOENT) {
            k->retry_ns = now + NS_PER_S;
        }
    }
}

/* Nobody waits for this: the log is safe already. */
static void checkpoint(struct kv_sqlite *k)
{
    if (!k->w.h || k->wal_pages < k->checkpoint_at) {
        return;
    }
    int n_log = 0, n_done = 0;
    int rc =
        sqlite3_wal_checkpoint_v2(k->w.h, NULL, SQLITE_CHECKPOINT_PASSIVE, &n_log, &n_done);
    if (rc == SQLITE_OK && n_done >= n_log) {
        k->wal_pages = 0;
        k->checkpoint_at = WAL_PAGES;
        return;
    }
    k->checkpoint_at =
        k->wal_pages + WAL_PAGES; /* a reader is in the way, or the disk is full */
    if (rc != SQLITE_OK && rc != SQLITE_BUSY) {
        struct err err = ERR_INIT;
        int r = db_error(&k->w, rc, &err);
        note_result(k, 0, &err);
        if (r == -EIO) {
            db_close(&k->w);
        }
    }
}

static void housekeeping(struct kv_sqlite *k, bool is_idle)
{
    uint64_t now = time_mono_ns();
    if (now >= k->retry_ns) {
        end_leases(k, now);
    }
    bool is_age_due = now >= k->next_age_check_ns;
    if (is_age_due) {
        k->next_age_check_ns = now + 60 * NS_PER_S;
    }
    if (k->w.h) {
        kvs_compact_policy(k, is_age_due);
    }
    if (is_idle && k->m.compact_to > k->m.compact_rev && now >= k->retry_ns) {
        uint64_t was = k->m.compact_rev;
        run_batch(k, NULL, 0);
        if (k->m.compact_rev == was) {
            k->retry_ns = now + NS_PER_S;
        }
    }
    checkpoint(k);
}

void *kvs_writer(void *arg)
{
    struct kv_sqlite *k = arg;
    struct job *job[MAX_BATCH];
    pthread_setname_np(pthread_self(), "kv-writer");
    for (;;) {
        pthread_mutex_lock(&k->mu);
        while (!k->head && !k->is_closing && time_mono_ns() < next_wake(k)) {
            cond_wait_until(&k->work_cv, &k->mu, next_wake(k));
        }
        size_t n = take_jobs(k, job);
        bool is_end = n == 0 && k->is_closing;
        pthread_mutex_unlock(&k->mu);
        if (is_end) {
            return NULL;
        }
        if (n) {
            run_batch(k, job, n);
            for (size_t i = 0; i < n; i++) {
                answer(k, job[i]);
            }
        }
        housekeeping(k, n == 0);
    }
}

static int submit(struct kv_sqlite *k, struct job *job, struct err *err)
{
    pthread_mutex_lock(&k->mu);
    if (k->n_jobs >= MAX_JOBS || k->jobs_size + job->size > MAX_JOBS_SIZE) {
        pthread_mutex_unlock(&k->mu);
        return fail(err, -EBUSY, "SlowDown", "too many transactions wait for the disk");
    }
    job->next = NULL;
    *k->tail = job;
    k->tail = &job->next;
    k->n_jobs++;
    k->jobs_size += job->size;
    pthread_cond_signal(&k->work_cv);
    pthread_mutex_unlock(&k->mu);
    return 0;
}

int kvs_job(struct kv_sqlite *k, struct job *job, struct err *err)
{
    pthread_cond_init(&job->cv, NULL);
    int r = submit(k, job, err);
    if (r == 0) {
        pthread_mutex_lock(&k->mu);
        while (!job->is_done) {
            pthread_cond_wait(&job->cv, &k->mu);
        }
        pthread_mutex_unlock(&k->mu);
        r = job->rc;
        if (r < 0 && err && err->code == 0) {
            *err = job->err;
        }
    }
    pthread_cond_destroy(&job->cv);
    return r;
}

static void init_txn(struct job *job, const struct kv_cmp *cmp, size_t n_cmp,
                     const struct kv_op *op, size_t n_op)
{
    *job = (struct job){.type = JOB_TXN, .cmp = cmp, .n_cmp = n_cmp, .op = op, .n_op = n_op};
    for (size_t i = 0; i < n_op; i++) {
        job->size += op[i].key.n + op[i].value.n;
    }
}

int kvs_txn(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
            size_t n_op, uint64_t *ret_rev, struct err *err)
{
    struct job job;
    init_txn(&job, cmp, n_cmp, op, n_op);
    int r = kvs_job(kvs(kv), &job, err);
    *ret_rev = job.rev;
    return r;
}

int kvs_txn_start(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
                  size_t n_op, kv_txn_fn fn, void *ctx, struct err *err)
{
    struct job *job = malloc(sizeof(*job));
    if (!job) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a transaction");
    }
    init_txn(job, cmp, n_cmp, op, n_op);
    job->fn = fn;
    job->ctx = ctx;
    int r = submit(kvs(kv), job, err);
    if (r < 0) {
        free(job);
    }
    return r;
}

int kvs_lease_grant(struct kv *kv, uint8_t tag, uint32_t ttl_s, uint64_t *ret, struct err *err)
{
    uint64_t id = 0;
    while (id == 0) {
        id = rand_u64() >> 8; /* not to be guessed */
    }
    struct job job = {.type = JOB_GRANT, .lease = (uint64_t)tag << 56 | id, .ttl_s = ttl_s};
    int r = kvs_job(kvs(kv), &job, err);
    if (r == 0) {
        *ret = job.lease;
    }
    return r;
}

int kvs_lease_keepalive(struct kv *kv, uint64_t lease, struct err *err)
{
    struct kv_sqlite *k = kvs(kv);
    uint64_t now = time_mono_ns();
    bool is_alive = false;
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->n_leases && !is_alive; i++) {
        struct lease *l = &k->leases[i];
        if (l->id == lease && l->deadline_ns > now) { /* one whose time is up is not revived */
            l->deadline_ns = now + l->ttl_s * NS_PER_S;
            is_alive = true;
        }
    }
    pthread_mutex_unlock(&k->mu);
    return is_alive ? 0
                    : fail(err, -ENOENT, "LeaseNotFound", "lease %016llx: it ended",
                           (unsigned long long)lease);
}

int kvs_lease_revoke(struct kv *kv, uint64_t lease, struct err *err)
{
    struct job job = {.type = JOB_REVOKE, .lease = lease};
    return kvs_job(kvs(kv), &job, err);
}

int kvs_compact(struct kv *kv, uint64_t keep, struct err *err)
{
    struct job job = {.type = JOB_COMPACT, .keep = keep};
    return kvs_job(kvs(kv), &job, err);
}

int kvs_replace(struct kv *kv, bool is_forced, kv_next_fn next, void *ctx, struct err *err)
{
    struct job job = {
        .type = JOB_REPLACE, .is_forced = is_forced, .next_fn = next, .next_ctx = ctx};
    return kvs_job(kvs(kv), &job, err);
}
