#include "base/test.h"

#include "../../tests/kv_contract.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "kv/kv_admin.h"
#include "kv/view.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define WAIT_NS (20 * NS_PER_S)

static char folder[64];
static char path[96];
static int n_objs; /* atomic: parsed and not freed */

static int setup(void **state)
{
    struct err err = ERR_INIT;
    struct kv *kv = NULL;
    snprintf(folder, sizeof(folder), "/tmp/kv-view-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/state.db", folder);
    assert_int_equal(kv_open_sqlite(path, &kv, &err), 0);
    *state = kv;
    return 0;
}

static int teardown(void **state)
{
    kv_close(*state);
    static const char *const suffix[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < ARRAY_LEN(suffix); i++) {
        char p[200];
        snprintf(p, sizeof(p), "%s%s", path, suffix[i]);
        unlink(p);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(__atomic_load_n(&n_objs, __ATOMIC_SEQ_CST), 0);
    return 0;
}

static void *parse(struct str key, struct str value, struct err *err)
{
    (void)key;
    if (str_eqc(value, "-")) {
        return NULL; /* a key that is no record */
    }
    uint64_t *n = malloc(sizeof(*n));
    if (num_u64(value, UINT64_MAX, n) < 0) {
        free(n);
        fail(err, -EINVAL, "BadValue", "not a number");
        return NULL;
    }
    __atomic_add_fetch(&n_objs, 1, __ATOMIC_SEQ_CST);
    return n;
}

static void free_obj(struct str key, void *obj)
{
    assert_true(key.n > 0);
    free(obj);
    __atomic_sub_fetch(&n_objs, 1, __ATOMIC_SEQ_CST);
}

struct changes {
    pthread_mutex_t mu;
    struct buf text;
    uint64_t sync_rev;
};

static unsigned long long num_of(const struct view_entry *e)
{
    return e->obj ? *(uint64_t *)e->obj : 0;
}

static void on_change(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    struct changes *c = ctx;
    pthread_mutex_lock(&c->mu);
    buf_fmt(&c->text, "%.*s:", STR_ARG(old ? old->key : now->key));
    if (old) {
        buf_fmt(&c->text, "%llu", num_of(old));
    }
    buf_addc(&c->text, ">");
    if (now) {
        buf_fmt(&c->text, "%llu", num_of(now));
    }
    buf_addc(&c->text, " ");
    pthread_mutex_unlock(&c->mu);
}

static void on_sync(void *ctx, uint64_t rev)
{
    struct changes *c = ctx;
    pthread_mutex_lock(&c->mu);
    assert_true(rev > c->sync_rev ||
                (rev == 0 && c->sync_rev == 0)); /* an empty store is at 0 */
    c->sync_rev = rev;
    pthread_mutex_unlock(&c->mu);
}

static const struct view_ops ops = {parse, free_obj, on_change, on_sync};

static void changes_init(struct changes *c)
{
    *c = (struct changes){0};
    pthread_mutex_init(&c->mu, NULL);
    buf_init(&c->text, 1 << 20);
}

static void changes_done(struct changes *c)
{
    buf_done(&c->text);
    pthread_mutex_destroy(&c->mu);
}

static void assert_changes(struct changes *c, const char *want)
{
    pthread_mutex_lock(&c->mu);
    assert_string_equal(buf_cstr(&c->text), want);
    buf_clear(&c->text);
    pthread_mutex_unlock(&c->mu);
}

static struct view *open_view(struct kv *kv, const char *const *prefixes, size_t n, void *ctx)
{
    struct err err = ERR_INIT;
    struct view *v = NULL;
    if (view_open(kv, prefixes, n, &ops, ctx, WAIT_NS, &v, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return v;
}

static unsigned long long value(struct view *v, const char *key)
{
    view_lock(v);
    const struct view_entry *e = view_get(v, str_c(key));
    unsigned long long n = e ? num_of(e) : 999;
    view_unlock(v);
    return n;
}

static void test_follows(void **state)
{
    struct kv *kv = *state;
    struct changes c;
    changes_init(&c);
    kv_test_put(kv, "a/1", "1");
    kv_test_put(kv, "b/1", "2");
    kv_test_put(kv, "c/1", "3");
    static const char *const prefixes[] = {"a/", "b/"};
    struct view *v = open_view(kv, prefixes, 2, &c);
    assert_changes(&c, "a/1:>1 b/1:>2 ");
    uint64_t rev = kv_test_put(kv, "a/1", "5");
    assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
    assert_int_equal(value(v, "a/1"), 5);
    rev = kv_test_delete(kv, "b/1");
    assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
    assert_int_equal(value(v, "b/1"), 999);
    rev = kv_test_put(kv, "c/1", "7"); /* not ours: still reached */
    assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
    assert_int_equal(view_wait(v, rev + 1, 20 * NS_PER_MS), -ETIMEDOUT);
    assert_changes(&c, "a/1:1>5 b/1:2> ");
    view_lock(v);
    size_t n = 0;
    omap_foreach_prefix(node, view_map(v), STR("a/"))
    {
        n++;
        assert_str(omap_key(node), "a/1");
    }
    assert_int_equal(n, 1);
    view_unlock(v);
    view_close(v);
    changes_done(&c);
}

static void test_refs_and_bad_values(void **state)
{
    struct kv *kv = *state;
    struct changes c;
    changes_init(&c);
    static const char *const prefixes[] = {"a/"};
    kv_test_put(kv, "a/1", "1");
    kv_test_put(kv, "a/2", "not a number");
    kv_test_put(kv, "a/3", "-");
    struct view *v = open_view(kv, prefixes, 1, &c);
    assert_int_equal(view_n_bad(v), 1);
    view_lock(v);
    const struct view_entry *bad = view_get(v, STR("a/2"));
    assert_non_null(bad);
    assert_null(bad->obj);
    assert_non_null(view_get(v, STR("a/3")));
    const struct view_entry *e = view_ref(view_get(v, STR("a/1")));
    view_unlock(v);
    kv_test_put(kv, "a/1", "2");
    uint64_t rev = kv_test_put(kv, "a/2", "3");
    assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
    assert_int_equal(view_n_bad(v), 0);
    assert_int_equal(num_of(e), 1);
    rev = kv_test_delete(kv, "a/1");
    assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
    view_close(v);
    assert_int_equal(num_of(e), 1); /* longer than the view */
    view_unref(e);
    changes_done(&c);
}

static int next_item(void *ctx, struct kv_item *ret, struct err *err)
{
    int *i = ctx;
    (void)err;
    static const struct kv_item items[] = {{.key = {"a/2", 3}, .value = {"2", 1}},
                                           {.key = {"a/4", 3}, .value = {"40", 2}},
                                           {.key = {"b/9", 3}, .value = {"9", 1}}};
    if (*i == (int)ARRAY_LEN(items)) {
        return 0;
    }
    *ret = items[(*i)++];
    return 1;
}

/* History was compacted: what vanished meanwhile must be told as deleted. */
static void test_reset(void **state)
{
    struct kv *kv = *state;
    struct err err = ERR_INIT;
    struct changes c;
    changes_init(&c);
    static const char *const prefixes[] = {"a/", "b/"};
    kv_test_put(kv, "a/1", "1");
    kv_test_put(kv, "a/2", "2");
    kv_test_put(kv, "b/1", "1");
    struct view *v = open_view(kv, prefixes, 2, &c);
    assert_changes(&c, "a/1:>1 a/2:>2 b/1:>1 ");
    int i = 0;
    assert_int_equal(kv_replace(kv, true, next_item, &i, &err), 0);
    assert_int_equal(view_wait(v, kv_revision(kv), WAIT_NS), 0);
    assert_changes(&c, "a/2:2>2 a/4:>40 a/1:1> b/9:>9 b/1:1> ");
    assert_int_equal(value(v, "a/1"), 999);
    assert_int_equal(value(v, "a/4"), 40);
    view_close(v);
    changes_done(&c);
}

enum { N_WRITERS = 8, N_STEPS = 40 };

struct writer {
    struct kv *kv;
    struct view *v;
    int idx, n_stale;
    pthread_t thread;
};

/* Each writer reads its own write from the view after view_wait(), while others write and it is
 * listed. */
static void *writer_main(void *arg)
{
    struct writer *w = arg;
    for (int i = 0; i < N_STEPS; i++) {
        char key[32], val[16];
        snprintf(key, sizeof(key), "%c/%d", 'a' + i % 2, w->idx);
        snprintf(val, sizeof(val), "%d", i + 1);
        struct kv_op op = {
            .type = i % 5 == 4 ? KV_DELETE : KV_PUT, .key = str_c(key), .value = str_c(val)};
        uint64_t rev = 0;
        if (kv_txn(w->kv, NULL, 0, &op, 1, &rev, NULL) < 0 ||
            view_wait(w->v, rev, WAIT_NS) < 0) {
            w->n_stale += 1000;
            break;
        }
        unsigned long long want = op.type == KV_PUT ? (unsigned)(i + 1) : 999;
        w->n_stale += value(w->v, key) != want;
        view_lock(w->v);
        omap_foreach_prefix(n, view_map(w->v), STR("a/"))
        {
            const struct view_entry *e = omap_value(n);
            w->n_stale += num_of(e) > N_STEPS;
        }
        view_unlock(w->v);
    }
    return NULL;
}

static void test_read_your_writes(void **state)
{
    struct kv *kv = *state;
    struct changes c;
    changes_init(&c);
    static const char *const prefixes[] = {"a/", "b/", "c/"};
    struct view *v = open_view(kv, prefixes, 3, &c);
    static struct writer w[N_WRITERS];
    for (int i = 0; i < N_WRITERS; i++) {
        w[i] = (struct writer){.kv = kv, .v = v, .idx = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, writer_main, &w[i]), 0);
    }
    for (int i = 0; i < 20; i++) { /* history goes away under the watches */
        struct err err = ERR_INIT;
        assert_int_equal(kv_compact(kv, 0, &err), 0);
        usleep(3000);
    }
    for (int i = 0; i < N_WRITERS; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].n_stale, 0);
    }
    view_close(v);
    changes_done(&c);
}

static void test_refuses(void **state)
{
    static const struct {
        const char *prefixes[3];
        size_t n;
    } cases[] = {{{"a/", "a/b/"}, 2}, {{"x/", "a/", "x/"}, 3}, {{"", "a"}, 2}, {{NULL}, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct view *v = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(
            view_open(*state, cases[i].prefixes, cases[i].n, &ops, NULL, WAIT_NS, &v, &err),
            -EINVAL);
        assert_string_equal(err.name, "BadView");
    }
}

int main(void)
{
    log_init("view_test", LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refs_and_bad_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_your_writes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refuses, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
