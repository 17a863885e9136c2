#include "kv/kv.h"

#include "kv/kv_sqlite_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Above this size the check at start would take too long; sqlite still notices damage when it
 * reads it. */
#define CHECK_MAX_SIZE (256 << 20)

int kvs_read_revs(struct db *db, uint64_t *ret_rev, uint64_t *ret_compact, struct err *err)
{
    static const enum db_stmt which[2] = {DB_REV, DB_COMPACT_REV};
    uint64_t v[2] = {0};
    for (int i = 0; i < 2; i++) {
        sqlite3_stmt *st = db_stmt(db, which[i], err);
        int r = st ? db_step(db, st, err) : -EIO;
        if (r < 0) {
            return r;
        }
        if (r == 0) {
            return fail(err, -EIO, "CorruptStore", "%s: a table is empty", db->path);
        }
        v[i] = db_col_u64(st, 0);
        sqlite3_reset(st);
    }
    *ret_rev = v[0];
    *ret_compact = v[1];
    return 0;
}

static int reader_take(struct kv_sqlite *k, struct db **ret, struct err *err)
{
    pthread_mutex_lock(&k->readers.mu);
    size_t i = 0;
    for (;;) {
        for (i = 0; i < N_READERS && k->readers.is_busy[i]; i++) {}
        if (i < N_READERS) {
            break;
        }
        pthread_cond_wait(&k->readers.cv, &k->readers.mu);
    }
    k->readers.is_busy[i] = true;
    pthread_mutex_unlock(&k->readers.mu);
    struct db *db = &k->readers.db[i];
    int r = db->h ? 0 : db_open(k->path, db, err);
    if (r == 0) {
        r = db_run(db, DB_BEGIN_READ, err);
    }
    *ret = db;
    return r;
}

static void reader_give(struct kv_sqlite *k, struct db *db, int rc)
{
    db_end(db);
    if (rc == -EIO) {
        db_close(db); /* the next reader opens it again */
    }
    pthread_mutex_lock(&k->readers.mu);
    k->readers.is_busy[db - k->readers.db] = false;
    pthread_cond_signal(&k->readers.cv);
    pthread_mutex_unlock(&k->readers.mu);
}

static int load_item(sqlite3_stmt *st, struct arena *a, struct kv_item *ret, struct err *err)
{
    struct kv_item item = {.key = arena_str_dup(a, db_col_str(st, 0)),
                           .value = arena_str_dup(a, db_col_str(st, 1)),
                           .create_rev = db_col_u64(st, 2),
                           .mod_rev = db_col_u64(st, 3),
                           .lease = db_col_u64(st, 4)};
    if (!item.key.p || !item.value.p) {
        return fail(err, -E2BIG, "TooLarge",
                    "the answer does not fit the memory of the request");
    }
    *ret = item;
    return 0;
}

static int do_get(struct db *db, struct arena *a, struct str key, struct kv_item *ret,
                  struct err *err)
{
    sqlite3_stmt *st = db_stmt(db, DB_GET, err);
    if (!st) {
        return -EIO;
    }
    db_bind_str(st, 1, key);
    int r = db_step(db, st, err);
    if (r == 0) {
        return fail(err, -ENOENT, "KeyNotFound", "%.*s: not there", STR_ARG(key));
    }
    return r < 0 ? r : load_item(st, a, ret, err);
}

static int kvs_get(struct kv *kv, struct arena *a, struct str key, struct kv_item *ret,
                   struct err *err)
{
    struct kv_sqlite *k = kvs(kv);
    struct db *db = NULL;
    int r = reader_take(k, &db, err);
    if (r == 0) {
        r = do_get(db, a, key, ret, err);
    }
    reader_give(k, db, r);
    return r;
}

/* The smallest key to look at: the prefix itself, or what comes right after 'after'. */
static size_t lower_bound(struct str prefix, struct str after, char buf[KV_MAX_KEY + 1])
{
    if (!after.p || str_cmp(after, prefix) < 0) {
        memcpy(buf, prefix.n ? prefix.p : "", prefix.n);
        return prefix.n;
    }
    memcpy(buf, after.n ? after.p : "", after.n);
    buf[after.n] = '\0';
    return after.n + 1;
}

int kvs_list(struct db *db, struct arena *a, struct str prefix, struct str after, size_t limit,
             struct kv_list *ret, struct err *err)
{
    struct kv_list list = {0};
    sqlite3_stmt *st = db_stmt(db, DB_LIST, err);
    if (!st) {
        return -EIO;
    }
    char from[KV_MAX_KEY + 1];
    db_bind_str(st, 1, str_n(from, lower_bound(prefix, after, from)));
    size_t cap = 0, size = 0;
    int r = 0;
    while ((r = db_step(db, st, err)) == 1) {
        if (!str_has_prefix(db_col_str(st, 0), prefix)) {
            r = 0;
            break;
        }
        if (list.n == limit || size >= KV_PAGE_SIZE) {
            list.has_more = true;
            r = 0;
            break;
        }
        if (list.n == cap) {
            size_t want = MIN(limit, cap ? cap * 2 : 16);
            struct kv_item *v = arena_array(a, want, sizeof(*v));
            if (!v) {
                r = fail(err, -E2BIG, "TooLarge",
                         "the answer does not fit the memory of the request");
                break;
            }
            if (list.n) {
                memcpy(v, list.v, list.n * sizeof(*v));
            }
            list.v = v;
            cap = want;
        }
        r = load_item(st, a, &list.v[list.n], err);
        if (r < 0) {
            break;
        }
        size += list.v[list.n].key.n + list.v[list.n].value.n;
        list.n++;
    }
    sqlite3_reset(st);
    if (r < 0) {
        return r;
    }
    uint64_t compact = 0;
    r = kvs_read_revs(db, &list.rev, &compact, err);
    if (r == 0) {
        *ret = list;
    }
    return r;
}

static int kvs_list_op(struct kv *kv, struct arena *a, struct str prefix, struct str after,
                       size_t limit, struct kv_list *ret, struct err *err)
{
    struct kv_sqlite *k = kvs(kv);
    struct db *db = NULL;
    int r = reader_take(k, &db, err);
    if (r == 0) {
        r = kvs_list(db, a, prefix, after, limit, ret, err);
    }
    reader_give(k, db, r);
    return r;
}

static uint64_t kvs_revision(struct kv *kv)
{
    return __atomic_load_n(&kvs(kv)->rev, __ATOMIC_SEQ_CST);
}

static int kvs_watch_start(struct kv *kv, struct kv_watch *w, struct err *err)
{
    (void)err;
    watch_set_add(&kvs(kv)->watches, w);
    return 0;
}

static void kvs_watch_stop(struct kv *kv, struct kv_watch *w)
{
    watch_set_stop(&kvs(kv)->watches, w);
}

static void kvs_watch_resume(struct kv *kv, struct kv_watch *w)
{
    (void)w;
    struct kv_sqlite *k = kvs(kv);
    pthread_mutex_lock(&k->watches.mu);
    pthread_cond_broadcast(&k->watches.cv);
    pthread_mutex_unlock(&k->watches.mu);
}

static uint64_t size_of(const char *path, const char *suffix)
{
    char p[4200];
    snprintf(p, sizeof(p), "%s%s", path, suffix);
    struct stat st;
    return stat(p, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void kvs_stats(struct kv *kv, struct kv_stats *ret)
{
    struct kv_sqlite *k = kvs(kv);
    pthread_mutex_lock(&k->mu);
    *ret = k->stats;
    ret->n_leases = k->n_leases;
    pthread_mutex_unlock(&k->mu);
    ret->rev = kvs_revision(kv);
    pthread_mutex_lock(&k->watches.mu);
    for (struct kv_watch *w = k->watches.head; w; w = w->next) {
        ret->n_watches++;
    }
    pthread_mutex_unlock(&k->watches.mu);
    ret->file_size = size_of(k->path, "");
    ret->wal_size = size_of(k->path, "-wal");
}

struct snapshot {
    struct kv_snapshot s;
    struct db db;
};

static int kvs_snapshot_open(struct kv *kv, struct kv_snapshot **ret, struct err *err)
{
    struct snapshot *s = calloc(1, sizeof(*s));
    if (!s) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a snapshot");
    }
    s->s.kv = kv;
    uint64_t rev = 0, compact = 0;
    int r = db_open(kvs(kv)->path, &s->db, err);
    if (r == 0) {
        r = db_run(&s->db, DB_BEGIN_READ, err);
    }
    if (r == 0) {
        r = kvs_read_revs(&s->db, &rev, &compact, err); /* the first read fixes the picture */
    }
    if (r < 0) {
        db_close(&s->db);
        free(s);
        return r;
    }
    *ret = &s->s;
    return 0;
}

static int kvs_snapshot_list(struct kv_snapshot *snap, struct arena *a, struct str after,
                             struct kv_list *ret, struct err *err)
{
    struct snapshot *s = CONTAINER_OF(snap, struct snapshot, s);
    return kvs_list(&s->db, a, STR(""), after, KV_LIST_MAX, ret, err);
}

static void kvs_snapshot_close(struct kv_snapshot *snap)
{
    struct snapshot *s = CONTAINER_OF(snap, struct snapshot, s);
    db_end(&s->db);
    db_close(&s->db);
    free(s);
}

static void kvs_free(struct kv_sqlite *k)
{
    db_close(&k->w);
    db_close(&k->watch_db);
    for (size_t i = 0; i < N_READERS; i++) {
        db_close(&k->readers.db[i]);
    }
    if (k->lock_fd >= 0) {
        close(k->lock_fd);
    }
    free(k->path);
    free(k);
}

static void kvs_close(struct kv *kv)
{
    struct kv_sqlite *k = kvs(kv);
    pthread_mutex_lock(&k->mu);
    k->is_closing = true;
    pthread_cond_signal(&k->work_cv);
    pthread_mutex_unlock(&k->mu);
    pthread_join(k->writer, NULL);
    watch_set_done(&k->watches);
    kvs_free(k);
}

static const struct kv_backend backend = {
    .close = kvs_close,
    .get = kvs_get,
    .list = kvs_list_op,
    .txn = kvs_txn,
    .revision = kvs_revision,
    .watch_start = kvs_watch_start,
    .watch_stop = kvs_watch_stop,
    .lease_grant = kvs_lease_grant,
    .lease_keepalive = kvs_lease_keepalive,
    .lease_revoke = kvs_lease_revoke,
    .txn_start = kvs_txn_start,
    .watch_resume = kvs_watch_resume,
    .stats = kvs_stats,
    .compact = kvs_compact,
    .snapshot_open = kvs_snapshot_open,
    .snapshot_list = kvs_snapshot_list,
    .snapshot_close = kvs_snapshot_close,
    .replace = kvs_replace,
};

/* Two processes on one file would hand out the same revisions. */
static int take_lock(struct kv_sqlite *k, struct err *err)
{
    char p[4200];
    if (snprintf(p, sizeof(p), "%s.lock", k->path) >= 4096) {
        return fail(err, -ENAMETOOLONG, "StoreFailed", "%s: the name is too long", k->path);
    }
    k->lock_fd = open(p, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (k->lock_fd < 0) {
        return fail(err, -errno, "StoreFailed", "%s: %m", p);
    }
    if (flock(k->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        return fail(err, -EBUSY, "StoreInUse", "%s: another process uses the store", k->path);
    }
    return 0;
}

static int open_file(struct kv_sqlite *k, struct err *err)
{
    struct stat st;
    if (stat(k->path, &st) < 0) {
        if (errno != ENOENT) {
            return fail(err, -errno, "StoreFailed", "%s: %m", k->path);
        }
        if (size_of(k->path, "-wal") > 0) {
            fail(err, -EIO, "CorruptStore", "%s: the file is gone, but its -wal is there",
                 k->path);
            err_hint(err,
                     "put the file back; or move the -wal away to begin with an empty store");
            return -EIO;
        }
        int r = db_create(k->path, err);
        if (r < 0) {
            return r;
        }
        st.st_size = 0;
    }
    int r = db_refresh_wal(k->path, err);
    if (r == 0) {
        r = db_open(k->path, &k->w, err);
    }
    if (r == 0 && st.st_size <= CHECK_MAX_SIZE) {
        r = db_check(&k->w, err);
    }
    return r < 0 ? r : kvs_load(k, err);
}

int kv_open_sqlite(const char *path, struct kv **ret, struct err *err)
{
    struct kv_sqlite *k = calloc(1, sizeof(*k));
    if (!k) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the store");
    }
    k->kv.backend = &backend;
    k->lock_fd = -1;
    k->tail = &k->head;
    k->path = strdup(path);
    pthread_mutex_init(&k->mu, NULL);
    cond_init_mono(&k->work_cv);
    pthread_mutex_init(&k->readers.mu, NULL);
    pthread_cond_init(&k->readers.cv, NULL);
    int r = k->path ? take_lock(k, err) : fail(err, -ENOMEM, "OutOfMemory", "no memory");
    if (r == 0) {
        r = open_file(k, err);
    }
    if (r < 0) {
        kvs_free(k);
        return r;
    }
    watch_set_init(&k->watches);
    r = watch_set_run(&k->watches, kvs_dispatcher, k, err);
    int rc = r < 0 ? 0 : pthread_create(&k->writer, NULL, kvs_writer, k);
    if (rc) {
        r = fail(err, -rc, "ThreadFailed", "cannot start the writer of the store");
    }
    if (r < 0) {
        watch_set_done(&k->watches);
        kvs_free(k);
        return r;
    }
    *ret = &k->kv;
    return 0;
}
