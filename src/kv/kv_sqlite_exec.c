#include "kv/kv_sqlite_int.h"

#include "base/rand.h"

#include <errno.h>

#define REV_OF(id)   ((id) >> 8)
#define ID_OF(rev)   ((rev) << 8)
#define LAST_ID(rev) ((rev) << 8 | 0xff)

static int find(struct kv_sqlite *k, struct str key, uint64_t *ret_id, uint64_t *ret_create,
                struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_FIND, err);
    if (!st) {
        return -EIO;
    }
    db_bind_str(st, 1, key);
    int r = db_step(&k->w, st, err);
    *ret_id = r == 1 ? db_col_u64(st, 0) : 0;
    *ret_create = r == 1 ? db_col_u64(st, 1) : 0;
    sqlite3_reset(st);
    return r;
}

static int run_id(struct kv_sqlite *k, enum db_stmt which, uint64_t id, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, which, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, id);
    return db_step(&k->w, st, err);
}

static int put_ver(struct kv_sqlite *k, uint64_t id, struct str key, const struct str *value,
                   uint64_t create_rev, uint64_t lease, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_PUT_VER, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, id);
    db_bind_str(st, 2, key);
    if (value) {
        db_bind_str(st, 3, *value);
    }
    db_bind_u64(st, 4, create_rev);
    db_bind_u64(st, 5, lease);
    db_bind_u64(st, 6, time_wall_ns() / NS_PER_MS);
    int r = db_step(&k->w, st, err);
    if (r == 0) {
        k->m.n_history++;
        k->m.history_size += key.n + (value ? value->n : 0);
    }
    return r;
}

static int put_item(struct kv_sqlite *k, uint64_t id, struct str key, uint64_t create_rev,
                    uint64_t lease, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_PUT_ITEM, err);
    if (!st) {
        return -EIO;
    }
    db_bind_str(st, 1, key);
    db_bind_u64(st, 2, id);
    db_bind_u64(st, 3, create_rev);
    db_bind_u64(st, 4, lease);
    return db_step(&k->w, st, err);
}

/* A version that history no longer needs goes when it is replaced; the others wait for
 * compaction. */
static int drop_old(struct kv_sqlite *k, uint64_t old_id, struct err *err)
{
    return old_id && REV_OF(old_id) <= k->m.compact_rev ? run_id(k, DB_DEL_VER, old_id, err)
                                                        : 0;
}

static int put(struct kv_sqlite *k, uint64_t id, struct str key, struct str value,
               uint64_t lease, struct err *err)
{
    uint64_t old_id = 0, create_rev = 0;
    int r = find(k, key, &old_id, &create_rev, err);
    if (r < 0) {
        return r;
    }
    create_rev = old_id ? create_rev : REV_OF(id);
    r = put_ver(k, id, key, &value, create_rev, lease, err);
    if (r == 0) {
        r = put_item(k, id, key, create_rev, lease, err);
    }
    return r < 0 ? r : drop_old(k, old_id, err);
}

/* 1 = it was there, 0 = it was not. */
static int delete (struct kv_sqlite *k, uint64_t id, struct str key, struct err *err)
{
    uint64_t old_id = 0, create_rev = 0;
    int r = find(k, key, &old_id, &create_rev, err);
    if (r <= 0) {
        return r;
    }
    r = put_ver(k, id, key, NULL, create_rev, 0, err);
    if (r < 0) {
        return r;
    }
    sqlite3_stmt *st = db_stmt(&k->w, DB_DEL_ITEM, err);
    if (!st) {
        return -EIO;
    }
    db_bind_str(st, 1, key);
    r = db_step(&k->w, st, err);
    if (r == 0) {
        r = drop_old(k, old_id, err);
    }
    return r < 0 ? r : 1;
}

static int compare(struct kv_sqlite *k, const struct kv_cmp *cmp, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t id = 0, create_rev = 0;
        int r = find(k, cmp[i].key, &id, &create_rev, err);
        if (r < 0) {
            return r;
        }
        if (REV_OF(id) != cmp[i].mod_rev) {
            return fail(err, -EAGAIN, "TxnConflict", "%.*s: is at revision %llu, expected %llu",
                        STR_ARG(cmp[i].key), (unsigned long long)REV_OF(id),
                        (unsigned long long)cmp[i].mod_rev);
        }
    }
    return 0;
}

static int check_lease(struct kv_sqlite *k, uint64_t lease, struct err *err)
{
    int r = run_id(k, DB_LEASE_FIND, lease, err);
    if (r == 0) {
        return fail(err, -ENOENT, "LeaseNotFound", "lease %016llx: it ended",
                    (unsigned long long)lease);
    }
    return r < 0 ? r : 0;
}

static int exec_txn(struct kv_sqlite *k, struct job *job, struct err *err)
{
    int r = compare(k, job->cmp, job->n_cmp, err);
    if (r < 0) {
        return r;
    }
    uint64_t rev = k->m.last_rev + 1;
    uint64_t n = 0;
    for (size_t i = 0; i < job->n_op; i++) {
        const struct kv_op *op = &job->op[i];
        uint64_t id = ID_OF(rev) | n;
        if (op->type == KV_PUT) {
            r = op->lease ? check_lease(k, op->lease, err) : 0;
            r = r < 0 ? r : put(k, id, op->key, op->value, op->lease, err);
            n++;
        } else {
            r = delete (k, id, op->key, err);
            n += r == 1;
        }
        if (r < 0) {
            return r;
        }
    }
    if (n) {
        k->m.last_rev = rev;
    }
    job->rev = k->m.last_rev;
    return 0;
}

static int exec_grant(struct kv_sqlite *k, struct job *job, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_LEASE_COUNT, err);
    int r = st ? db_step(&k->w, st, err) : -EIO;
    if (r < 0) {
        return r;
    }
    uint64_t n = db_col_u64(st, 0);
    sqlite3_reset(st);
    if (n >= MAX_LEASES) {
        return fail(err, -E2BIG, "TooManyLeases", "%llu leases: no more are possible",
                    (unsigned long long)n);
    }
    st = db_stmt(&k->w, DB_LEASE_PUT, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, job->lease);
    db_bind_u64(st, 2, job->ttl_s);
    return db_step(&k->w, st, err);
}

/* One page of keys that hang on the lease. */
static int delete_leased(struct kv_sqlite *k, uint64_t lease, size_t *ret_n, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(KV_MAX_OPS * (KV_MAX_KEY + 32));
    struct str key[KV_MAX_OPS];
    size_t n = 0;
    sqlite3_stmt *st = db_stmt(&k->w, DB_LEASE_KEYS, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, lease);
    int r = 0;
    while (n < KV_MAX_OPS && (r = db_step(&k->w, st, err)) == 1) {
        key[n] = arena_str_dup(a, db_col_str(st, 0));
        if (!key[n].p) {
            r = fail(err, -ENOMEM, "OutOfMemory", "no memory to end a lease");
            break;
        }
        n++;
    }
    sqlite3_reset(st);
    if (r < 0) {
        return r;
    }
    uint64_t rev = k->m.last_rev + 1;
    for (size_t i = 0; i < n; i++) {
        r = delete (k, ID_OF(rev) | i, key[i], err);
        if (r < 0) {
            return r;
        }
    }
    k->m.last_rev = n ? rev : k->m.last_rev;
    *ret_n = n;
    return 0;
}

static int exec_revoke(struct kv_sqlite *k, struct job *job, struct err *err)
{
    int r = check_lease(k, job->lease, err);
    if (r < 0) {
        return r;
    }
    size_t n = KV_MAX_OPS;
    while (n == KV_MAX_OPS) {
        r = delete_leased(k, job->lease, &n, err);
        if (r < 0) {
            return r;
        }
    }
    return run_id(k, DB_LEASE_DEL, job->lease, err);
}

static int exec_compact(struct kv_sqlite *k, struct job *job, struct err *err)
{
    if (job->keep < k->m.n_history) {
        sqlite3_stmt *st = db_stmt(&k->w, DB_HISTORY_NTH, err);
        if (!st) {
            return -EIO;
        }
        /* The newest event that goes: its whole revision goes. */
        db_bind_u64(st, 1, LAST_ID(k->m.compact_rev));
        db_bind_u64(st, 2, k->m.n_history - job->keep - 1);
        int r = db_step(&k->w, st, err);
        if (r < 0) {
            return r;
        }
        if (r == 1) {
            k->m.compact_to = MAX(k->m.compact_to, db_col_u64(st, 0));
            sqlite3_reset(st);
        }
    }
    while (k->m.compact_rev < k->m.compact_to) {
        int r = kvs_compact_step(k, 4096, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int clear(struct kv_sqlite *k, struct err *err)
{
    static const char text[] = "DELETE FROM ver;DELETE FROM item;DELETE FROM lease";
    int rc = sqlite3_exec(k->w.h, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_error(&k->w, rc, err);
}

static int exec_replace(struct kv_sqlite *k, struct job *job, struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_ANY, err);
    int r = st ? db_step(&k->w, st, err) : -EIO;
    if (r < 0) {
        return r;
    }
    sqlite3_reset(st);
    if (r == 1 && !job->is_forced) {
        return fail(err, -EEXIST, "StoreNotEmpty", "%s: the store is not empty", k->path);
    }
    r = clear(k, err);
    uint64_t rev = k->m.last_rev + 1;
    struct kv_item item = {0};
    for (uint64_t n = 0; r == 0; n++) {
        r = job->next_fn(job->next_ctx, &item, err);
        if (r <= 0) {
            break;
        }
        if (n == KV_MAX_OPS) {
            n = 0;
            rev++;
        }
        if (item.key.n == 0 || item.key.n > KV_MAX_KEY || item.value.n > KV_MAX_VALUE) {
            return fail(err, -E2BIG, "TooLarge", "%.*s: key or value outside the limits",
                        STR_ARG(item.key));
        }
        r = put(k, ID_OF(rev) | n, item.key, item.value, 0, err);
    }
    if (r < 0) {
        return r;
    }
    /* All versions are as old as history: whoever watched gets a RESET. */
    k->m.last_rev = k->m.compact_rev = k->m.compact_to = job->rev = rev;
    k->m.n_history = k->m.history_size = 0;
    r = run_id(k, DB_SET_COMPACT, rev, err);
    return r < 0 ? r : 0;
}

int kvs_exec(struct kv_sqlite *k, struct job *job, struct err *err)
{
    switch (job->type) {
    case JOB_TXN: return exec_txn(k, job, err);
    case JOB_GRANT: return exec_grant(k, job, err);
    case JOB_REVOKE: return exec_revoke(k, job, err);
    case JOB_COMPACT: return exec_compact(k, job, err);
    case JOB_REPLACE: return exec_replace(k, job, err);
    }
    return -EINVAL;
}

struct old_row {
    uint64_t id, size;
    bool is_dead;
};

static int load_old(struct kv_sqlite *k, struct old_row *row, size_t max, size_t *ret_n,
                    struct err *err)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_OLD, err);
    if (!st) {
        return -EIO;
    }
    db_bind_u64(st, 1, LAST_ID(k->m.compact_rev));
    db_bind_u64(st, 2, ID_OF(k->m.compact_to + 1));
    int r = 0;
    size_t n = 0;
    while (n < max && (r = db_step(&k->w, st, err)) == 1) {
        row[n++] = (struct old_row){.id = db_col_u64(st, 0),
                                    .is_dead = db_col_u64(st, 1) != 0,
                                    .size = db_col_u64(st, 2)};
    }
    sqlite3_reset(st);
    *ret_n = n;
    return r < 0 ? r : 0;
}

int kvs_compact_step(struct kv_sqlite *k, size_t n_rows, struct err *err)
{
    /* A revision holds up to KV_MAX_OPS rows, so this many rows reach at least one end of a
     * revision. */
    n_rows = MAX(n_rows, 2 * KV_MAX_OPS);
    AUTO_FREE struct old_row *row = calloc(n_rows, sizeof(*row));
    if (!row) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory to compact");
    }
    size_t n = 0;
    int r = load_old(k, row, n_rows, &n, err);
    if (r < 0) {
        return r;
    }
    uint64_t to = k->m.compact_to;
    if (n == n_rows) { /* the last revision may go on: leave it */
        to = REV_OF(row[n - 1].id) - 1;
        while (n && REV_OF(row[n - 1].id) > to) {
            n--;
        }
    }
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size += row[i].size;
        r = row[i].is_dead ? run_id(k, DB_DEL_VER, row[i].id, err) : 0;
        if (r < 0) {
            return r;
        }
    }
    r = run_id(k, DB_SET_COMPACT, to, err);
    if (r < 0) {
        return r;
    }
    k->m.compact_rev = to;
    k->m.n_history -= MIN(n, k->m.n_history);
    k->m.history_size -= MIN(size, k->m.history_size);
    return 0;
}

/* The newest revision whose time is before 'limit_ms'. The first event decides whether it is
 * worth looking. */
static uint64_t last_older_than(struct kv_sqlite *k, uint64_t limit_ms)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_HISTORY_OLDER, NULL);
    uint64_t rev = 0;
    if (!st) {
        return 0;
    }
    db_bind_u64(st, 1, LAST_ID(k->m.compact_rev));
    while (db_step(&k->w, st, NULL) == 1 && db_col_u64(st, 0) < limit_ms) {
        rev = db_col_u64(st, 1);
    }
    sqlite3_reset(st);
    return rev;
}

static uint64_t nth_revision(struct kv_sqlite *k, uint64_t n)
{
    sqlite3_stmt *st = db_stmt(&k->w, DB_HISTORY_NTH, NULL);
    uint64_t rev = 0;
    if (!st) {
        return 0;
    }
    db_bind_u64(st, 1, LAST_ID(k->m.compact_rev));
    db_bind_u64(st, 2, n);
    if (db_step(&k->w, st, NULL) == 1) {
        rev = db_col_u64(st, 0);
    }
    sqlite3_reset(st);
    return rev;
}

void kvs_compact_policy(struct kv_sqlite *k, bool is_age_due)
{
    if (k->m.compact_to > k->m.compact_rev) {
        return; /* on the way */
    }
    uint64_t to = 0;
    if (k->m.n_history > HISTORY_MAX ||
        (k->m.history_size > HISTORY_MAX_SIZE && k->m.n_history > 1)) {
        to = nth_revision(k, k->m.n_history / 2);
    } else if (is_age_due) {
        uint64_t now_ms = time_wall_ns() / NS_PER_MS;
        to = now_ms > HISTORY_MAX_MS ? last_older_than(k, now_ms - HISTORY_MAX_MS) : 0;
    }
    k->m.compact_to = MAX(k->m.compact_to, to);
}
