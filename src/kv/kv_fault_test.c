/* The disk fails in every way that sqlite can see, and the file is damaged in every way that we
 * must see. */
#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "base/num.h"
#include "base/rand.h"
#include "kv/kv_admin.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The disk, as sqlite sees it: these stand in front of libc's and fail on order. */
static int fail_sync, fail_write; /* atomic: how many calls fail; -1 = all */
static int skip;                  /* atomic: so many succeed first */
static int fail_errno = EIO;

static bool takes_failure(int *left)
{
    int n = __atomic_load_n(left, __ATOMIC_SEQ_CST);
    if (n && __atomic_load_n(&skip, __ATOMIC_SEQ_CST) > 0) {
        __atomic_sub_fetch(&skip, 1, __ATOMIC_SEQ_CST);
        return false;
    }
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
    return takes_failure(&fail_sync) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return takes_failure(&fail_sync) ? -1 : (int)syscall(SYS_fsync, fd);
}

static ssize_t test_pwrite(int fd, const void *p, size_t n, off_t off)
{
    return takes_failure(&fail_write) ? -1 : syscall(SYS_pwrite64, fd, p, n, off);
}

static struct tmpdir dir;
static char path[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    tmpdir_init(&dir, "kv");
    tmpdir_path(&dir, "state.db", path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tmpdir_done(&dir);
    return 0;
}

static int put(struct kv *kv, const char *key, const char *value, struct err *err)
{
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    return kv_txn(kv, NULL, 0, &op, 1, NULL, err);
}

static void test_disk_full(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = kv_test_open(path);
    uint64_t rev = kv_test_put(kv, "a", "1");
    for (int i = 0; i < 4; i++) {
        fail_errno = ENOSPC;
        __atomic_store_n(&fail_write, -1, __ATOMIC_SEQ_CST);
        err_clear(&err);
        assert_int_equal(put(kv, "a", "2", &err), -ENOSPC);
        assert_string_equal(err.name, "StoreFull");
        assert_non_null(strstr(err.msg, path));
        assert_true(kv_test_has(kv, "a", "1"));
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
    assert_true(kv_test_has(kv, "a", "3"));
    assert_int_equal(kv_test_put(kv, "a", "5"), rev + 2);
    kv_close(kv);
    kv = kv_test_open(path);
    assert_true(kv_test_has(kv, "a", "5"));
    kv_close(kv);
}

static void test_failed_sync(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct kv *kv = kv_test_open(path);
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    kv_test_put(kv, "a", "1");
    assert_int_equal(kv_watch_start(kv, STR("a"), 0, kv_recorder_fn, rec, &w, &err), 0);
    kv_recorder_wait(rec, 1);
    fail_errno = EIO;
    __atomic_store_n(&fail_sync, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(put(kv, "a", "2", &err), -ECONNRESET);
    assert_string_equal(err.name, "Interrupted");
    assert_true(kv_test_has(kv, "a", "1") || kv_test_has(kv, "a", "2"));
    uint64_t rev = kv_test_put(kv, "a", "3");
    struct kv_stats stats;
    assert_int_equal(kv_stats(kv, &stats), 0);
    assert_int_equal(stats.n_reopens, 1);
    /* as long as the disk does not sync nothing is acknowledged, and reads go on */
    __atomic_store_n(&fail_sync, -1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 3; i++) {
        assert_true(put(kv, "a", "4", NULL) < 0);
        assert_true(kv_test_has(kv, "a", "3"));
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
    kv = kv_test_open(path);
    assert_true(kv_test_has(kv, "a", "5"));
    kv_close(kv);
    kv_recorder_free(rec);
}

/* Each call of a few transactions fails once, by each kind of failure: what was acknowledged is
 * there, what was refused is not, what was "Interrupted" is one of both; also after opening
 * again. */
struct ledger {
    unsigned sure;  /* the last value acknowledged */
    unsigned maybe; /* a later one that was interrupted, 0 = none */
};

static unsigned number(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    struct err err = ERR_INIT;
    uint64_t n = 0;
    if (kv_get(kv, a, STR("n"), &item, &err) < 0 || num_u64(item.value, 100000, &n) < 0) {
        fail_msg("%s", err.msg);
    }
    return (unsigned)n;
}

static int n_refused;

static void count_up(struct kv *kv, struct ledger *l, unsigned n, bool must_succeed)
{
    char text[16];
    struct err err = ERR_INIT;
    snprintf(text, sizeof(text), "%u", n);
    int r = put(kv, "n", text, &err);
    if (r == 0) {
        *l = (struct ledger){.sure = n};
    } else if (r == -ECONNRESET) {
        l->maybe = n;
    } else if (must_succeed || (r != -EIO && r != -ENOSPC)) {
        fail_msg("%d %s", r, err.msg);
    }
    n_refused += r < 0;
}

static void check(struct kv *kv, const struct ledger *l)
{
    unsigned n = number(kv);
    if (n != l->sure && (l->maybe == 0 || n != l->maybe)) {
        fail_msg("is %u, acknowledged %u, interrupted %u", n, l->sure, l->maybe);
    }
}

static void one_failure(int *which, int at, int errnum, unsigned *n)
{
    struct ledger l = {0};
    struct kv *kv = kv_test_open(path);
    count_up(kv, &l, ++*n, true);
    __atomic_store_n(&fail_errno, errnum, __ATOMIC_SEQ_CST);
    __atomic_store_n(&skip, at, __ATOMIC_SEQ_CST);
    __atomic_store_n(which, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 3; i++) {
        count_up(kv, &l, ++*n, false);
        check(kv, &l);
    }
    __atomic_store_n(which, 0, __ATOMIC_SEQ_CST);
    if (at % 2) {
        count_up(kv, &l, ++*n, true);
    }
    kv_close(kv);
    kv = kv_test_open(path);
    check(kv, &l);
    kv_close(kv);
}

static void test_each_failure(void **state)
{
    (void)state;
    static const int kinds[] = {EIO, ENOSPC};
    unsigned n = 0;
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (int at = 0; at < 16; at++) {
            one_failure(&fail_write, at, kinds[k], &n);
        }
    }
    for (int at = 0; at < 6; at++) {
        one_failure(&fail_sync, at, EIO, &n);
    }
    assert_true(n_refused >= 20); /* the order to fail did reach commits */
}

/* The same while it is opened: an error or a whole store, never an empty one. */
static void test_open_fails(void **state)
{
    (void)state;
    int *const which[] = {&fail_write, &fail_sync};
    int n_failed = 0;
    for (size_t k = 0; k < ARRAY_LEN(which); k++) {
        for (int is_new = 0; is_new < 2; is_new++) {
            for (int at = 0; at < 12; at++) {
                struct kv *kv = NULL;
                struct err err = ERR_INIT;
                if (is_new) {
                    tmpdir_done(&dir);
                    setup(NULL);
                } else {
                    kv = kv_test_open(path);
                    kv_test_put(kv, "n", "7");
                    kv_close(kv);
                }
                __atomic_store_n(&fail_errno, EIO, __ATOMIC_SEQ_CST);
                __atomic_store_n(&skip, at, __ATOMIC_SEQ_CST);
                __atomic_store_n(which[k], 1, __ATOMIC_SEQ_CST);
                if (kv_open_sqlite(path, &kv, &err) == 0) {
                    kv_close(kv);
                } else {
                    n_failed++;
                    assert_non_null(strstr(err.msg, "state.db"));
                }
                __atomic_store_n(which[k], 0, __ATOMIC_SEQ_CST);
                kv = kv_test_open(path);
                if (is_new) {
                    kv_test_put(kv, "n", "7");
                }
                assert_int_equal(number(kv), 7);
                kv_close(kv);
            }
        }
    }
    assert_true(n_failed > 5);
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
    struct kv *kv = kv_test_open(path);
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
    kv = kv_test_open(path); /* whole again */
    assert_true(kv_revision(kv) == 50);
    kv_close(kv);
    assert_int_equal(truncate(path, 0), 0);
    assert_refused(-EIO, "CorruptStore");
    /* a log without its file */
    unlink(path);
    char wal[PATH_MAX];
    tmpdir_path(&dir, "state.db-wal", wal);
    AUTO_FD w = open(wal, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(w, junk, 4096), 4096);
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_sqlite(path, &kv, &err), -EIO);
    assert_string_equal(err.name, "CorruptStore");
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
    struct kv *kv = kv_test_open(path);
    for (int i = 1; i <= 20; i++) {
        char value[16];
        snprintf(value, sizeof(value), "%d", i);
        kv_test_put(kv, "a", value);
    }
    char wal[PATH_MAX], copy[PATH_MAX], copy_wal[PATH_MAX];
    tmpdir_path(&dir, "state.db-wal", wal);
    tmpdir_path(&dir, "copy", copy);
    tmpdir_path(&dir, "copy-wal", copy_wal);
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
            assert_true(kv_test_has(torn, "a", value));
        }
        kv_close(torn);
    }
    kv_close(kv);
    assert_true(last >= 19);
}

int main(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)test_pwrite);
    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)test_pwrite);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_sync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_log, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
