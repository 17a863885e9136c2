#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "kv/kv_int.h"
#include "kv/kv_sqlite_int.h"

#include "base/rand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The disk, as sqlite sees it: these stand in front of libc's and fail on order. */
static int fail_sync,
    fail_write; /* atomic: how many calls fail; -1 = all; errno in fail_errno */
static int fail_errno = EIO;
static int n_syncs;

static bool takes_failure(int *left)
{
    int n = __atomic_load_n(left, __ATOMIC_SEQ_CST);
    if (n == 0) {
        return false;
    }
    if (n > 0) {
        __atomic_sub_fetch(left, 1, __ATOMIC_SEQ_CST);
    }
    errno = __atomic_load_n(&fail_errno, __ATOMIC_SEQ_CST);
    return true;
}

int fdatasync(int fd)
{
    __atomic_add_fetch(&n_syncs, 1, __ATOMIC_SEQ_CST);
    return takes_failure(&fail_sync) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    __atomic_add_fetch(&n_syncs, 1, __ATOMIC_SEQ_CST);
    return takes_failure(&fail_sync) ? -1 : (int)syscall(SYS_fsync, fd);
}

static ssize_t test_pwrite(int fd, const void *p, size_t n, off_t off)
{
    return takes_failure(&fail_write) ? -1 : syscall(SYS_pwrite64, fd, p, n, off);
}

static char folder[64];
static char path[96];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/kv-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/state.db", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"state.db",      "state.db-wal", "state.db-shm",
                                        "state.db.lock", "state.db.new", "state.db.new-journal",
                                        "copy",          "copy-wal",     "copy-shm",
                                        "copy.lock"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char p[200];
        snprintf(p, sizeof(p), "%s/%s", folder, names[i]);
        unlink(p);
    }
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static struct kv *open_kv(void)
{
    struct kv *kv = NULL;
    struct err err = ERR_INIT;
    if (kv_open_sqlite(path, &kv, &err) < 0) {
        fail_msg("%s: %s", err.name, err.msg);
    }
    return kv;
}

static int put(struct kv *kv, const char *key, const char *value, struct err *err)
{
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    return kv_txn(kv, NULL, 0, &op, 1, NULL, err);
}

static bool has(struct kv *kv, const char *key, const char *value)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    return kv_get(kv, a, str_c(key), &item, NULL) == 0 && str_eqc(item.value, value);
}

static void test_contract(void **state)
{
    (void)state;
    struct kv *kv = open_kv();
    kv_contract(kv);
    kv_close(kv);
    kv = open_kv(); /* and once more over what the first run left */
    kv_contract(kv);
    kv_close(kv);
}

static void test_survives_restart(void **state)
{
    (void)state;
    struct kv *kv = open_kv();
    kv_test_put(kv, "a", "1");
    kv_test_put(kv, "b", "2");
    uint64_t rev = kv_test_delete(kv, "a");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    kv_close(kv);
    kv = open_kv();
    assert_int_equal(kv_revision(kv), rev);
    assert_false(has(kv, "a", "1"));
    assert_true(has(kv, "b", "2"));
    assert_int_equal(kv_test_put(kv, "c", "3"), rev + 1);
    struct err err = ERR_INIT;
    assert_int_equal(kv_compact(kv, 0, &err), 0);
    kv_test_delete(kv, "b");
    rev = kv_test_delete(kv, "c");
    assert_int_equal(kv_compact(kv, 0, &err), 0);
    kv_close(kv);
    kv = open_kv(); /* no version of any key is left, the revision is */
    assert_int_equal(kv_revision(kv), rev);
    assert_int_equal(kv_test_put(kv, "d", "4"), rev + 1);
    kv_close(kv);
}

static void test_one_process_only(void **state)
{
    (void)state;
    struct kv *kv = open_kv();
    struct kv *other = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_sqlite(path, &other, &err), -EBUSY);
    assert_string_equal(err.name, "StoreInUse");
    kv_close(kv);
    kv = open_kv();
    kv_close(kv);
}

static uint64_t count(const char *sql)
{
    sqlite3 *h = NULL;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(h, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    uint64_t n = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(h);
    return n;
}

static void test_compaction(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    struct kv_stats stats;
    for (int i = 0; i < 300; i++) {
        char key[16], value[16];
        snprintf(key, sizeof(key), "k%d", i % 10);
        snprintf(value, sizeof(value), "%d", i);
        kv_test_put(kv, key, value);
    }
    for (int i = 5; i < 10; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        kv_test_delete(kv, key);
    }
    assert_int_equal(kv_stats(kv, &stats), 0);
    assert_int_equal(stats.n_history, 305);
    assert_int_equal(kv_compact(kv, 3, &err), 0);
    assert_int_equal(kv_stats(kv, &stats), 0);
    assert_int_equal(stats.n_history, 3);
    assert_int_equal(stats.compact_rev, 302);
    /* inside of history: just the changes */
    assert_int_equal(kv_watch_start(kv, STR("k"), 302, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, 305);
    AUTO_FREE char *text = kv_recorder_text(rec);
    assert_string_equal(text, "DELETE k7 DELETE k8 DELETE k9 SYNC");
    kv_watch_stop(w);
    /* before it: everything */
    kv_recorder_clear(rec);
    assert_int_equal(kv_watch_start(kv, STR("k"), 301, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, 305);
    free(text);
    text = kv_recorder_text(rec);
    assert_string_equal(text,
                        "RESET PUT k0=290 PUT k1=291 PUT k2=292 PUT k3=293 PUT k4=294 SYNC");
    kv_watch_stop(w);
    kv_test_put(kv, "k0", "new"); /* replaces a version that only the item kept */
    kv_close(kv);
    assert_int_equal(count("SELECT count(*) FROM item"), 5);
    assert_int_equal(count("SELECT count(*) FROM ver WHERE id <= (302<<8|255)"), 4);
    assert_int_equal(count("SELECT count(*) FROM ver"), 4 + 3 + 1);
    assert_int_equal(
        count("SELECT count(*) FROM item i LEFT JOIN ver v ON v.id=i.id AND v.key=i.key"
              " WHERE v.value IS NULL"),
        0);
    kv_recorder_free(rec);
}

/* A watch that is stopped for a while and behind history when it goes on. */
static void test_pause(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    uint64_t rev = kv_test_put(kv, "p/a", "1");
    kv_test_put(kv, "p/b", "1");
    assert_int_equal(kv_watch_start(kv, STR("p/"), 0, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, rev + 1);
    kv_watch_pause(w);
    usleep(20000);
    kv_recorder_clear(rec);
    kv_test_put(kv, "p/a", "2");
    usleep(50000);
    assert_int_equal(kv_recorder_n(rec), 0);
    kv_watch_resume(w);
    kv_recorder_wait(rec, rev + 2);
    kv_watch_pause(w);
    usleep(20000);
    kv_recorder_clear(rec);
    kv_test_delete(kv, "p/b");
    uint64_t last = kv_test_put(kv, "p/c", "3");
    assert_int_equal(kv_compact(kv, 0, &err), 0);
    kv_watch_resume(w);
    kv_recorder_wait(rec, last);
    AUTO_FREE char *text = kv_recorder_text(rec);
    assert_string_equal(text, "RESET PUT p/a=2 PUT p/c=3 SYNC");
    kv_watch_stop(w);
    kv_close(kv);
    kv_recorder_free(rec);
}

static void test_lease_after_restart(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    uint64_t lease = 0;
    assert_int_equal(kv_lease_grant_tagged(kv, 5, 1, &lease, &err), 0);
    assert_int_equal(kv_lease_tag(lease), 5);
    struct kv_op op = {.type = KV_PUT, .key = STR("n"), .value = STR("v"), .lease = lease};
    assert_int_equal(kv_txn(kv, NULL, 0, &op, 1, NULL, &err), 0);
    usleep(700000);
    kv_close(kv);
    kv = open_kv();
    usleep(700000); /* its full time again: still there */
    assert_true(has(kv, "n", "v"));
    int syncs = __atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST);
    assert_int_equal(kv_lease_keepalive(kv, lease, &err), 0);
    assert_int_equal(__atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST), syncs);
    usleep(700000);
    assert_true(has(kv, "n", "v"));
    usleep(800000);
    assert_false(has(kv, "n", "v"));
    kv_close(kv);
    assert_int_equal(count("SELECT count(*) FROM lease"), 0);
}

static void test_disk_full(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)test_pwrite),
                     SQLITE_OK);
    assert_int_equal(vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)test_pwrite),
                     SQLITE_OK);
    struct kv *kv = open_kv();
    uint64_t rev = kv_test_put(kv, "a", "1");
    /* a commit writes a few pages: each of them may be the one that finds the disk full */
    for (int skip = 0; skip < 4; skip++) {
        fail_errno = ENOSPC;
        __atomic_store_n(&fail_write, -1, __ATOMIC_SEQ_CST);
        err_clear(&err);
        assert_int_equal(put(kv, "a", "2", &err), -ENOSPC);
        assert_string_equal(err.name, "StoreFull");
        assert_non_null(strstr(err.msg, path));
        assert_true(has(kv, "a", "1"));
        struct kv_stats stats;
        assert_int_equal(kv_stats(kv, &stats), 0);
        assert_true(stats.is_failing && stats.reason[0]);
    }
    __atomic_store_n(&fail_write, 0, __ATOMIC_SEQ_CST);
    assert_int_equal(kv_test_put(kv, "a", "3"),
                     rev + 1); /* goes on by itself, no revision was lost */
    struct kv_stats stats;
    assert_int_equal(kv_stats(kv, &stats), 0);
    assert_false(stats.is_failing);
    fail_errno = EIO;
    __atomic_store_n(&fail_write, 1, __ATOMIC_SEQ_CST);
    err_clear(&err);
    int r = put(kv, "a", "4", &err);
    assert_true(r == -EIO || r == -ECONNRESET);
    assert_true(has(kv, "a", "3"));
    assert_int_equal(kv_test_put(kv, "a", "5"), rev + 2);
    kv_close(kv);
    vfs->xSetSystemCall(vfs, "pwrite64", NULL);
    vfs->xSetSystemCall(vfs, "pwrite", NULL);
    kv = open_kv();
    assert_true(has(kv, "a", "5"));
    kv_close(kv);
}

static void test_failed_sync(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    kv_test_put(kv, "a", "1");
    assert_int_equal(kv_watch_start(kv, STR("a"), 0, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, 1);
    fail_errno = EIO;
    __atomic_store_n(&fail_sync, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(put(kv, "a", "2", &err), -ECONNRESET);
    assert_string_equal(err.name, "Interrupted");
    assert_true(has(kv, "a", "1") || has(kv, "a", "2"));
    uint64_t rev = kv_test_put(kv, "a", "3");
    struct kv_stats stats;
    assert_int_equal(kv_stats(kv, &stats), 0);
    assert_int_equal(stats.n_reopens, 1);
    /* as long as the disk does not sync nothing is acknowledged, and reads go on */
    __atomic_store_n(&fail_sync, -1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 3; i++) {
        assert_true(put(kv, "a", "4", NULL) < 0);
        assert_true(has(kv, "a", "3"));
    }
    __atomic_store_n(&fail_sync, 0, __ATOMIC_SEQ_CST);
    uint64_t last = kv_test_put(kv, "a", "5");
    assert_true(last > rev);
    kv_recorder_wait(rec, last);
    for (size_t i = 0; i < kv_recorder_n(rec); i++) { /* nobody saw what was not acknowledged */
        struct kv_seen s = kv_recorder_at(rec, i);
        assert_true(s.type != KV_EVENT_PUT || strcmp(s.value, "4") != 0);
    }
    kv_watch_stop(w);
    kv_close(kv);
    kv = open_kv();
    assert_true(has(kv, "a", "5"));
    kv_close(kv);
    kv_recorder_free(rec);
}

static void damage(const char *p, off_t off, const char *bytes, size_t n)
{
    AUTO_FD fd = open(p, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, off), n);
}

static off_t size_of(const char *p)
{
    struct stat st;
    assert_int_equal(stat(p, &st), 0);
    return st.st_size;
}

static void assert_refused(int code, const char *name)
{
    struct err err = ERR_INIT;
    struct kv *kv = NULL;
    off_t size = size_of(path);
    int r = kv_open_sqlite(path, &kv, &err);
    if (r == 0) {
        kv_close(kv);
    }
    assert_int_equal(r, code);
    assert_string_equal(err.name, name);
    assert_non_null(strstr(err.msg, path)); /* names the file ... */
    assert_non_null(err.hint);              /* ... and the way out */
    assert_int_equal(size_of(path), size);  /* and nothing was reset */
}

static void test_refuses_damage(void **state)
{
    (void)state;
    struct kv *kv = open_kv();
    char big[2000];
    memset(big, 'x', sizeof(big));
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(big, sizeof(big))};
        assert_int_equal(kv_txn(kv, NULL, 0, &op, 1, NULL, NULL), 0);
    }
    kv_close(kv);
    char page[4096], junk[4096];
    rand_bytes(junk, sizeof(junk));
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = size_of(path);
    for (off_t off = 4096; off + 4096 <= size; off += 4096 * 7) { /* a page inside */
        assert_int_equal(pread(fd, page, 4096, off), 4096);
        damage(path, off, junk, 4096);
        assert_refused(-EIO, "CorruptStore");
        damage(path, off, page, 4096);
    }
    assert_int_equal(pread(fd, page, 4096, 0), 4096);
    damage(path, 0, junk, 100); /* the header */
    assert_refused(-EIO, "CorruptStore");
    damage(path, 0, page, 4096);
    damage(path, 60, "\0\0\0\7", 4); /* user_version */
    assert_refused(-EPROTO, "NewerStore");
    damage(path, 0, page, 4096);
    damage(path, 68, "\0\0\0\0", 4); /* application_id: some other sqlite file */
    assert_refused(-EIO, "CorruptStore");
    damage(path, 0, page, 4096);
    kv = open_kv(); /* whole again */
    assert_true(kv_revision(kv) == 50);
    kv_close(kv);
    assert_int_equal(truncate(path, 0), 0);
    assert_refused(-EIO, "CorruptStore");
    /* a log without its file */
    unlink(path);
    char wal[128];
    snprintf(wal, sizeof(wal), "%s-wal", path);
    AUTO_FD w = open(wal, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(w, junk, 4096), 4096);
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_sqlite(path, &kv, &err), -EIO);
    assert_string_equal(err.name, "CorruptStore");
}

struct items {
    int i, n, fail_at;
    char key[16], value[16];
};

static int next_item(void *ctx, struct kv_item *ret, struct err *err)
{
    struct items *x = ctx;
    if (x->i == x->fail_at) {
        return fail(err, -EINVAL, "BadDump", "line %d", x->i);
    }
    if (x->i == x->n) {
        return 0;
    }
    snprintf(x->key, sizeof(x->key), "i%04d", x->i);
    snprintf(x->value, sizeof(x->value), "%d", x->i++);
    *ret = (struct kv_item){.key = str_c(x->key), .value = str_c(x->value)};
    return 1;
}

static void test_replace_and_snapshot(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    uint64_t rev = kv_test_put(kv, "old", "1");
    assert_int_equal(kv_watch_start(kv, STR(""), 0, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, rev);
    kv_recorder_clear(rec);
    struct kv_snapshot *snap = NULL;
    assert_int_equal(kv_snapshot_open(kv, &snap, &err), 0);

    struct items x = {.n = 3000, .fail_at = -1};
    assert_int_equal(kv_replace(kv, false, next_item, &x, &err), -EEXIST);
    assert_string_equal(err.name, "StoreNotEmpty");
    err_clear(&err);
    x.fail_at = 2000; /* a bad dump changes nothing */
    assert_int_equal(kv_replace(kv, true, next_item, &x, &err), -EINVAL);
    assert_true(has(kv, "old", "1"));
    assert_int_equal(kv_revision(kv), rev);
    err_clear(&err);
    x = (struct items){.n = 3000, .fail_at = -1};
    assert_int_equal(kv_replace(kv, true, next_item, &x, &err), 0);
    assert_false(has(kv, "old", "1"));
    assert_true(has(kv, "i2999", "2999"));
    kv_recorder_wait(rec, kv_revision(kv));
    assert_int_equal(kv_recorder_at(rec, 0).type, KV_EVENT_RESET);
    assert_int_equal(kv_recorder_n(rec), 3002);

    AUTO(arena_freep) struct arena *a = arena_new(4 << 20);
    struct kv_list list = {0};
    assert_int_equal(kv_snapshot_list(snap, a, STR_NONE, &list, &err),
                     0); /* the picture of before */
    assert_int_equal(list.n, 1);
    assert_true(str_eqc(list.v[0].key, "old"));
    assert_int_equal(list.rev, rev);
    kv_snapshot_close(snap);
    kv_watch_stop(w);
    kv_close(kv);
    kv_recorder_free(rec);
}

static void on_async(void *ctx, int rc, uint64_t rev, const struct err *err)
{
    (void)rev;
    (void)err;
    __atomic_add_fetch((int *)ctx, rc == 0 ? 1 : 1000, __ATOMIC_SEQ_CST);
}

static void test_group_commit(void **state)
{
    (void)state;
    enum { N = 400 };
    struct err err = ERR_INIT;
    struct kv *kv = open_kv();
    static struct kv_op op[N];
    static char key[N][16];
    int n_done = 0;
    int before = __atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST);
    for (int i = 0; i < N; i++) {
        snprintf(key[i], sizeof(key[i]), "g%d", i);
        op[i] = (struct kv_op){.type = KV_PUT, .key = str_c(key[i]), .value = STR("v")};
        assert_int_equal(kv_txn_start(kv, NULL, 0, &op[i], 1, on_async, &n_done, &err), 0);
    }
    kv_close(kv); /* waits for all of them */
    assert_int_equal(n_done, N);
    int syncs = __atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST) - before;
    print_message("  %d transactions, %d syncs\n", N, syncs);
    assert_true(syncs < N / 4);
    kv = open_kv();
    assert_int_equal(kv_revision(kv), N);
    kv_close(kv);
}

/* The log as a kill would leave it: copied while the store is open. */
static void copy_file(const char *from, const char *to)
{
    AUTO_FD in = open(from, O_RDONLY | O_CLOEXEC);
    AUTO_FD out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char buf[65536];
    ssize_t n = 0;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buf, sizeof(buf))) > 0) {
        assert_int_equal(write(out, buf, (size_t)n), n);
    }
}

static void test_torn_log(void **state)
{
    (void)state;
    struct kv *kv = open_kv();
    for (int i = 1; i <= 20; i++) {
        char value[16];
        snprintf(value, sizeof(value), "%d", i);
        kv_test_put(kv, "a", value);
    }
    char wal[128], copy[128], copy_wal[140];
    snprintf(wal, sizeof(wal), "%s-wal", path);
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    snprintf(copy_wal, sizeof(copy_wal), "%s-wal", copy);
    off_t size = size_of(wal);
    assert_true(size > 0);
    uint64_t last = 0;
    for (off_t cut = 0; cut <= size;
         cut +=
         MAX(size / 40, 1)) { /* the tail may end anywhere: never an error, revisions grow */
        copy_file(path, copy);
        copy_file(wal, copy_wal);
        assert_int_equal(truncate(copy_wal, cut), 0);
        struct kv *torn = NULL;
        struct err err = ERR_INIT;
        if (kv_open_sqlite(copy, &torn, &err) < 0) {
            fail_msg("cut at %lld: %s", (long long)cut, err.msg);
        }
        uint64_t rev = kv_revision(torn);
        assert_true(rev >= last && rev <= 20);
        last = rev;
        if (rev) {
            char value[16];
            snprintf(value, sizeof(value), "%d", (int)rev);
            assert_true(has(torn, "a", value));
        }
        kv_close(torn);
    }
    kv_close(kv);
    assert_true(last >= 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_contract, setup, teardown),
        cmocka_unit_test_setup_teardown(test_survives_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_process_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compaction, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pause, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lease_after_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_sync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replace_and_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_log, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
