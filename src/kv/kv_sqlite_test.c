#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "kv/kv_int.h"
#include "kv/kv_sqlite_int.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Stands in front of libc's, as sqlite sees it: how often is synced. */
static int n_syncs; /* atomic */

int fdatasync(int fd)
{
    __atomic_add_fetch(&n_syncs, 1, __ATOMIC_SEQ_CST);
    return (int)syscall(SYS_fdatasync, fd);
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

static void test_contract(void **state)
{
    (void)state;
    struct kv *kv = kv_test_open(path);
    kv_contract(kv);
    kv_close(kv);
    kv = kv_test_open(path); /* and once more over what the first run left */
    kv_contract(kv);
    kv_close(kv);
}

static void test_survives_restart(void **state)
{
    (void)state;
    struct kv *kv = kv_test_open(path);
    kv_test_put(kv, "a", "1");
    kv_test_put(kv, "b", "2");
    uint64_t rev = kv_test_delete(kv, "a");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    kv_close(kv);
    kv = kv_test_open(path);
    assert_int_equal(kv_revision(kv), rev);
    assert_false(kv_test_has(kv, "a", "1"));
    assert_true(kv_test_has(kv, "b", "2"));
    assert_int_equal(kv_test_put(kv, "c", "3"), rev + 1);
    struct err err = ERR_INIT;
    assert_int_equal(kv_compact(kv, 0, &err), 0);
    kv_test_delete(kv, "b");
    rev = kv_test_delete(kv, "c");
    assert_int_equal(kv_compact(kv, 0, &err), 0);
    kv_close(kv);
    kv = kv_test_open(path); /* no version of any key is left, the revision is */
    assert_int_equal(kv_revision(kv), rev);
    assert_int_equal(kv_test_put(kv, "d", "4"), rev + 1);
    kv_close(kv);
}

static void test_one_process_only(void **state)
{
    (void)state;
    struct kv *kv = kv_test_open(path);
    struct kv *other = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(kv_open_sqlite(path, &other, &err), -EBUSY);
    assert_string_equal(err.name, "StoreInUse");
    kv_close(kv);
    kv = kv_test_open(path);
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
    struct kv *kv = kv_test_open(path);
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
    struct kv *kv = kv_test_open(path);
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
    struct kv *kv = kv_test_open(path);
    uint64_t lease = 0;
    assert_int_equal(kv_lease_grant_tagged(kv, 5, 1, &lease, &err), 0);
    assert_int_equal(kv_lease_tag(lease), 5);
    struct kv_op op = {.type = KV_PUT, .key = STR("n"), .value = STR("v"), .lease = lease};
    assert_int_equal(kv_txn(kv, NULL, 0, &op, 1, NULL, &err), 0);
    usleep(700000);
    kv_close(kv);
    kv = kv_test_open(path);
    usleep(700000); /* its full time again: still there */
    assert_true(kv_test_has(kv, "n", "v"));
    int syncs = __atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST);
    assert_int_equal(kv_lease_keepalive(kv, lease, &err), 0);
    assert_int_equal(__atomic_load_n(&n_syncs, __ATOMIC_SEQ_CST), syncs);
    usleep(700000);
    assert_true(kv_test_has(kv, "n", "v"));
    usleep(800000);
    assert_false(kv_test_has(kv, "n", "v"));
    kv_close(kv);
    assert_int_equal(count("SELECT count(*) FROM lease"), 0);
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
    struct kv *kv = kv_test_open(path);
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
    assert_true(kv_test_has(kv, "old", "1"));
    assert_int_equal(kv_revision(kv), rev);
    err_clear(&err);
    x = (struct items){.n = 3000, .fail_at = -1};
    assert_int_equal(kv_replace(kv, true, next_item, &x, &err), 0);
    assert_false(kv_test_has(kv, "old", "1"));
    assert_true(kv_test_has(kv, "i2999", "2999"));
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
    struct kv *kv = kv_test_open(path);
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
    kv = kv_test_open(path);
    assert_int_equal(kv_revision(kv), N);
    kv_close(kv);
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
        cmocka_unit_test_setup_teardown(test_replace_and_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_group_commit, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
