#include "base/test.h"

#include "kv_contract_int.h"

#include "base/buf.h"
#include "base/rand.h"
#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

/* ---- the rules ---- */

static void rule_put_get_delete(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    struct kv_item item = {0};
    uint64_t r1 = kv_test_put(kv, "t/pgd/a", "one");
    assert_ok(kv_test_get(kv, a, "t/pgd/a", &item, &err));
    assert_true(str_eqc(item.key, "t/pgd/a") && str_eqc(item.value, "one"));
    assert_int_equal(item.create_rev, r1);
    assert_int_equal(item.mod_rev, r1);
    assert_int_equal(item.lease, 0);
    uint64_t r2 = kv_test_put(kv, "t/pgd/a", "two");
    assert_true(r2 > r1);
    assert_ok(kv_test_get(kv, a, "t/pgd/a", &item, &err));
    assert_true(str_eqc(item.value, "two"));
    assert_int_equal(item.create_rev, r1);
    assert_int_equal(item.mod_rev, r2);
    uint64_t r3 = kv_test_delete(kv, "t/pgd/a");
    assert_true(r3 > r2);
    assert_absent(kv, "t/pgd/a");
    assert_int_equal(kv_test_delete(kv, "t/pgd/a"), r3); /* nothing changed: no revision */
    uint64_t r4 = kv_test_put(kv, "t/pgd/a", "");
    assert_ok(kv_test_get(kv, a, "t/pgd/a", &item, &err));
    assert_non_null(item.value.p);
    assert_int_equal(item.value.n, 0);
    assert_int_equal(item.create_rev, r4);
    assert_true(kv_revision(kv) >= r4);
}

static void rule_binary_safe(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    char all[256], key[64] = "t/bin/";
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
    }
    for (int i = 0; i < 32; i++) {
        key[6 + i] = (char)(i < 16 ? i : 240 + i - 16);
    }
    struct kv_op op = {.type = KV_PUT, .key = str_n(key, 38), .value = str_n(all, 256)};
    struct kv_item item = {0};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
    assert_ok(kv_get(kv, a, op.key, &item, &err));
    assert_true(str_eq(item.key, op.key) && str_eq(item.value, op.value));
    op.type = KV_DELETE;
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
}

static int txn1(struct kv *kv, const char *cmp_key, uint64_t cmp_rev, const char *key,
                const char *value, struct err *err)
{
    struct kv_cmp cmp = {str_c(cmp_key), cmp_rev};
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    return kv_txn(kv, &cmp, 1, &op, 1, NULL, err);
}

static void rule_compare(struct kv *kv)
{
    struct err err = ERR_INIT;
    kv_test_delete(kv, "t/cmp/a");
    assert_ok(txn1(kv, "t/cmp/a", 0, "t/cmp/a", "made", &err));
    assert_err(txn1(kv, "t/cmp/a", 0, "t/cmp/a", "again", &err), -EAGAIN, &err, "TxnConflict");
    uint64_t rev = kv_test_put(kv, "t/cmp/a", "x");
    err_clear(&err);
    assert_err(txn1(kv, "t/cmp/a", rev - 1, "t/cmp/b", "y", &err), -EAGAIN, &err,
               "TxnConflict");
    assert_absent(kv, "t/cmp/b"); /* nothing of it was done */
    err_clear(&err);
    assert_ok(txn1(kv, "t/cmp/a", rev, "t/cmp/b", "y", &err));
    /* one compare of two fails: nothing is done */
    struct kv_cmp cmp[2] = {{STR("t/cmp/a"), rev}, {STR("t/cmp/none"), 7}};
    struct kv_op op[2] = {{.type = KV_DELETE, .key = STR("t/cmp/a")},
                          {.type = KV_PUT, .key = STR("t/cmp/c"), .value = STR("z")}};
    assert_err(kv_txn(kv, cmp, 2, op, 2, NULL, &err), -EAGAIN, &err, "TxnConflict");
    assert_absent(kv, "t/cmp/c");
    err_clear(&err);
    /* a transaction of compares alone answers whether they hold */
    uint64_t at = 0;
    assert_ok(kv_txn(kv, cmp, 1, NULL, 0, &at, &err));
    assert_true(at >= rev);
    assert_err(kv_txn(kv, &cmp[1], 1, NULL, 0, NULL, &err), -EAGAIN, &err, "TxnConflict");
    /* delete and create again: an old revision does not match the new key */
    kv_test_delete(kv, "t/cmp/a");
    kv_test_put(kv, "t/cmp/a", "new");
    err_clear(&err);
    assert_err(txn1(kv, "t/cmp/a", rev, "t/cmp/d", "n", &err), -EAGAIN, &err, "TxnConflict");
}

static void rule_one_revision(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    uint64_t rev = 0;
    struct kv_op op[3] = {{.type = KV_PUT, .key = STR("t/one/a"), .value = STR("1")},
                          {.type = KV_PUT, .key = STR("t/one/b"), .value = STR("2")},
                          {.type = KV_DELETE, .key = STR("t/one/none")}};
    assert_ok(kv_txn(kv, NULL, 0, op, 3, &rev, &err));
    struct kv_item x = {0}, y = {0};
    assert_ok(kv_test_get(kv, a, "t/one/a", &x, &err));
    assert_ok(kv_test_get(kv, a, "t/one/b", &y, &err));
    assert_int_equal(x.mod_rev, rev);
    assert_int_equal(y.mod_rev, rev);
}

static void rule_limits(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(8 << 20);
    struct err err = ERR_INIT;
    AUTO_FREE char *big = calloc(1, KV_MAX_VALUE + 1);
    AUTO_FREE char *long_key = malloc(KV_MAX_KEY + 1);
    assert_non_null(big);
    assert_non_null(long_key);
    memset(long_key, 'k', KV_MAX_KEY + 1);
    memcpy(long_key, "t/lim/", 6);
    rand_bytes(big, KV_MAX_VALUE);

    struct kv_op op = {
        .type = KV_PUT, .key = STR("t/lim/v"), .value = str_n(big, KV_MAX_VALUE)};
    struct kv_item item = {0};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
    assert_ok(kv_get(kv, a, op.key, &item, &err));
    assert_true(str_eq(item.value, op.value));
    op.value.n++;
    assert_err(kv_txn(kv, NULL, 0, &op, 1, NULL, &err), -E2BIG, &err, "TooLarge");
    err_clear(&err);
    AUTO(arena_freep) struct arena *small = arena_new(64 << 10);
    assert_err(kv_get(kv, small, op.key, &item, &err), -E2BIG, &err, "TooLarge");

    err_clear(&err);
    op = (struct kv_op){.type = KV_PUT, .key = str_n(long_key, KV_MAX_KEY), .value = STR("v")};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
    assert_ok(kv_get(kv, a, op.key, &item, &err));
    op.key.n++;
    assert_err(kv_txn(kv, NULL, 0, &op, 1, NULL, &err), -E2BIG, &err, "TooLarge");
    err_clear(&err);
    op.key.n = 0;
    assert_err(kv_txn(kv, NULL, 0, &op, 1, NULL, &err), -EINVAL, &err, "BadKey");
    err_clear(&err);
    assert_err(kv_get(kv, a, STR(""), &item, &err), -EINVAL, &err, "BadKey");

    struct kv_op ops[KV_MAX_OPS + 1];
    char keys[KV_MAX_OPS + 1][16];
    for (size_t i = 0; i <= KV_MAX_OPS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "t/lim/n%03zu", i);
        ops[i] = (struct kv_op){.type = KV_PUT, .key = str_c(keys[i]), .value = STR("v")};
    }
    err_clear(&err);
    assert_ok(kv_txn(kv, NULL, 0, ops, KV_MAX_OPS, NULL, &err));
    assert_err(kv_txn(kv, NULL, 0, ops, KV_MAX_OPS + 1, NULL, &err), -E2BIG, &err, "TooLarge");
    err_clear(&err);
    ops[1].key = ops[0].key;
    assert_err(kv_txn(kv, NULL, 0, ops, 2, NULL, &err), -EINVAL, &err, "DuplicateKey");
    err_clear(&err);
    ops[0].value = ops[2].value = str_n(big, KV_MAX_TXN / 2 + 1);
    ops[1] = ops[2];
    assert_err(kv_txn(kv, NULL, 0, ops, 2, NULL, &err), -E2BIG, &err, "TooLarge");
    op = (struct kv_op){.type = KV_DELETE, .key = STR("t/lim/v")};
    err_clear(&err);
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
}

static void put_raw(struct kv *kv, struct str key)
{
    struct err err = ERR_INIT;
    struct kv_op op = {.type = KV_PUT, .key = key, .value = STR("v")};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
}

static void rule_prefix_ends(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    static const struct str in[] = {{"t/p\xff", 4},
                                    {"t/p\xff\0", 5},
                                    {"t/p\xff"
                                     "a",
                                     5},
                                    {"t/p\xff\xff", 5},
                                    {"t/p\xff\xff\xff", 6}};
    static const struct str out[] = {
        {"t/p", 3}, {"t/p\xfe\xff", 5}, {"t/q", 3}, {"t/o\xff\xff", 5}};
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        put_raw(kv, in[ARRAY_LEN(in) - 1 - i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(out); i++) {
        put_raw(kv, out[i]);
    }
    struct kv_list list = {0};
    assert_ok(kv_list(kv, a, str_n("t/p\xff", 4), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, ARRAY_LEN(in));
    for (size_t i = 0; i < list.n; i++) {
        assert_true(str_eq(list.v[i].key, in[i]));
    }
    assert_ok(kv_list(kv, a, str_n("t/p\xff\xff", 5), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, 2);
    assert_ok(kv_list(kv, a, str_n("\xff\xff", 2), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, 0);
    put_raw(kv, str_n("\xff\xff\xff", 3));
    assert_ok(kv_list(kv, a, str_n("\xff", 1), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, 1);
    struct kv_op op = {.type = KV_DELETE, .key = str_n("\xff\xff\xff", 3)};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
}

static void rule_paging(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(32 << 20);
    struct err err = ERR_INIT;
    for (int i = 0; i < 25; i++) {
        char key[32];
        snprintf(key, sizeof(key), "t/page/%02d", i);
        kv_test_put(kv, key, "v");
    }
    for (size_t limit = 1; limit <= 26; limit++) {
        struct str after = STR_NONE;
        size_t n = 0;
        for (bool has_more = true; has_more;) {
            struct kv_list list = {0};
            assert_ok(kv_list(kv, a, STR("t/page/"), after, limit, &list, &err));
            assert_true(list.n <= limit);
            assert_true(list.n > 0 || !list.has_more);
            for (size_t i = 0; i < list.n; i++) {
                char key[32];
                snprintf(key, sizeof(key), "t/page/%02zu", n++);
                assert_true(str_eqc(list.v[i].key, key));
            }
            has_more = list.has_more;
            after = list.n ? list.v[list.n - 1].key : after;
        }
        assert_int_equal(n, 25);
        arena_reset(a);
    }
    struct kv_list list = {0};
    assert_ok(kv_list(kv, a, STR("t/page/"), STR("t/page/zz"), 0, &list, &err));
    assert_int_equal(list.n, 0);
    assert_ok(
        kv_list(kv, a, STR("t/page/"), STR("a"), 0, &list, &err)); /* before the prefix: all */
    assert_int_equal(list.n, 25);
    assert_ok(kv_list(kv, a, STR("t/page/"), STR("t/page/235"), 0, &list,
                      &err)); /* need not be there */
    assert_int_equal(list.n, 1);
    assert_true(list.rev >= list.v[0].mod_rev);
}

static void rule_big_pages(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(16 << 20);
    struct err err = ERR_INIT;
    AUTO_FREE char *big = calloc(1, 400 << 10);
    assert_non_null(big);
    for (int i = 0; i < 8; i++) {
        char key[32];
        snprintf(key, sizeof(key), "t/big/%d", i);
        struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(big, 400 << 10)};
        assert_ok(kv_txn(kv, NULL, 0, &op, 1, NULL, &err));
    }
    struct str after = STR_NONE;
    size_t n = 0, n_pages = 0;
    for (bool has_more = true; has_more; n_pages++) {
        struct kv_list list = {0};
        arena_reset(a);
        assert_ok(kv_list(kv, a, STR("t/big/"), after, 0, &list, &err));
        n += list.n;
        has_more = list.has_more;
        char last[32];
        snprintf(last, sizeof(last), "t/big/%zu", n - 1);
        assert_true(list.n > 0 && str_eqc(list.v[list.n - 1].key, last));
        static char keep[32];
        memcpy(keep, last, sizeof(keep));
        after = str_c(keep);
    }
    assert_int_equal(n, 8);
    assert_true(n_pages > 1);
    for (int i = 0; i < 8; i++) {
        char key[32];
        snprintf(key, sizeof(key), "t/big/%d", i);
        kv_test_delete(kv, key);
    }
}

/* 32 threads count one number up; none of the steps may be lost, each success has a revision of
 * its own. */
enum { N_WRITERS = 32, N_STEPS = 6 };

struct writer {
    struct kv *kv;
    pthread_t thread;
    int idx, n_conflicts;
    uint64_t rev[N_STEPS];
    char failure[200];
};

static int count_up(struct writer *me, int step, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    int r = kv_get(me->kv, a, STR("t/count"), &item, err);
    if (r < 0) {
        return r;
    }
    unsigned n = 0;
    for (size_t i = 0; i < item.value.n; i++) {
        n = n * 10 + (unsigned)(item.value.p[i] - '0');
    }
    char value[16], key[32];
    snprintf(value, sizeof(value), "%u", n + 1);
    snprintf(key, sizeof(key), "t/cw/%02d/%d", me->idx, step);
    struct kv_cmp cmp = {STR("t/count"), item.mod_rev};
    struct kv_op op[2] = {{.type = KV_PUT, .key = STR("t/count"), .value = str_c(value)},
                          {.type = KV_PUT, .key = str_c(key), .value = str_c(value)}};
    return kv_txn(me->kv, &cmp, 1, op, 2, &me->rev[step], err);
}

static void *writer_main(void *arg)
{
    struct writer *me = arg;
    for (int i = 0; i < N_STEPS;) {
        struct err err = ERR_INIT;
        int r = count_up(me, i, &err);
        if (r == 0) {
            i++;
        } else if (r == -EAGAIN) {
            me->n_conflicts++;
        } else {
            snprintf(me->failure, sizeof(me->failure), "%d %.100s", r, err.msg);
            return NULL;
        }
    }
    return NULL;
}

static void rule_writers(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    static struct writer w[N_WRITERS];
    uint64_t from = kv_test_put(kv, "t/count", "0");
    assert_ok(kv_watch_start(kv, STR("t/cw/"), from, kv_recorder_fn, rec, &watch, &err));
    for (int i = 0; i < N_WRITERS; i++) {
        w[i] = (struct writer){.kv = kv, .idx = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, writer_main, &w[i]), 0);
    }
    uint64_t last = 0;
    for (int i = 0; i < N_WRITERS; i++) {
        pthread_join(w[i].thread, NULL);
        assert_string_equal(w[i].failure, "");
        for (int k = 0; k < N_STEPS; k++) {
            last = MAX(last, w[i].rev[k]);
        }
    }
    struct kv_item item = {0};
    assert_ok(kv_test_get(kv, a, "t/count", &item, &err));
    char want[16];
    snprintf(want, sizeof(want), "%d", N_WRITERS * N_STEPS);
    assert_true(str_eqc(item.value, want));
    kv_recorder_wait(rec, last);
    unsigned n = 0;
    uint64_t at = 0;
    for (size_t i = 0; i < kv_recorder_n(rec); i++) {
        struct kv_seen s = kv_recorder_at(rec, i);
        if (s.type == KV_EVENT_PUT) {
            snprintf(want, sizeof(want), "%u", ++n); /* the watch saw the same order */
            assert_string_equal(s.value, want);
            assert_true(s.mod_rev > at);
            at = s.mod_rev;
        }
    }
    assert_int_equal(n, N_WRITERS * N_STEPS);
    kv_watch_stop(watch);
    kv_recorder_free(rec);
}

/* What an earlier run left. */
static void purge(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(16 << 20);
    struct err err = ERR_INIT;
    for (struct kv_list list = {.has_more = true}; list.has_more;) {
        arena_reset(a);
        assert_ok(kv_list(kv, a, STR("t/"), STR_NONE, KV_MAX_OPS, &list, &err));
        struct kv_op op[KV_MAX_OPS];
        for (size_t i = 0; i < list.n; i++) {
            op[i] = (struct kv_op){.type = KV_DELETE, .key = list.v[i].key};
        }
        assert_ok(kv_txn(kv, NULL, 0, op, list.n, NULL, &err));
    }
}

void kv_contract(struct kv *kv)
{
    purge(kv);
    static const struct {
        const char *name;
        void (*fn)(struct kv *kv);
    } rules[] = {
        {"put, get, delete", rule_put_get_delete},
        {"bytes of any value", rule_binary_safe},
        {"compares", rule_compare},
        {"one revision per transaction", rule_one_revision},
        {"limits", rule_limits},
        {"ends of prefixes", rule_prefix_ends},
        {"paging", rule_paging},
        {"big pages", rule_big_pages},
        {"watch", rule_watch},
        {"watch from a revision", rule_watch_from},
        {"watch more than a frame", rule_watch_big},
        {"a watch that stops itself", rule_watch_stops_itself},
        {"leases", rule_leases},
        {"a lease with many keys", rule_lease_many},
        {"32 writers", rule_writers},
    };
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        print_message("  %s\n", rules[i].name);
        rules[i].fn(kv);
    }
}
