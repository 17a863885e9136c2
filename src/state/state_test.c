/* spx-state as it runs: the contract over the wire, and what happens when it dies or stands
 * still. */
#include "state/state_world.h"

#include "kv/kv_admin.h"
#include "kv/view.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static void test_contract(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = world_open(&w, "admin");
    kv_contract(kv);
    kv_close(kv);
    assert_int_equal(daemon_stop(w.d, WAIT_NS), 0);
    world_done(&w);
}

/* ---- kill -9 under load ---- */

enum { N_WRITERS = 6, N_KILLS = 5 };

/* Each writer counts its own key up and keeps a ledger: what was acknowledged must be there
 * afterwards, and nothing that was never asked for. */
struct writer {
    struct kv *kv;
    pthread_t thread;
    int idx;
    unsigned acked, asked; /* atomic */
    bool is_stopping;      /* atomic */
    unsigned n_interrupted, n_unavailable;
    char failure[200];
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    char key[32], value[32];
    snprintf(key, sizeof(key), "crash/%d", w->idx);
    while (!__atomic_load_n(&w->is_stopping, __ATOMIC_SEQ_CST)) {
        struct err err = ERR_INIT;
        unsigned n = w->asked + 1;
        snprintf(value, sizeof(value), "%u", n);
        __atomic_store_n(&w->asked, n, __ATOMIC_SEQ_CST);
        int r = world_put(w->kv, key, value, &err);
        if (r == 0) {
            __atomic_store_n(&w->acked, n, __ATOMIC_SEQ_CST);
        } else if (r == -ECONNRESET) {
            w->n_interrupted++;
        } else if (r == -ENOTCONN) {
            w->n_unavailable++;
        } else {
            snprintf(w->failure, sizeof(w->failure), "%d %.100s", r, err.msg);
            return NULL;
        }
    }
    return NULL;
}

/* What a watch saw, checked as it comes: revisions ascend, values of a key ascend, no change
 * twice. */
struct follower {
    pthread_mutex_t mu;
    unsigned last[N_WRITERS];
    uint64_t at, n_puts, n_resets, sync_rev;
    unsigned n_bad;
};

static void on_follow(void *ctx, const struct kv_event *ev)
{
    struct follower *f = ctx;
    pthread_mutex_lock(&f->mu);
    if (ev->type == KV_EVENT_PUT) {
        unsigned idx = (unsigned)(ev->item.key.p[ev->item.key.n - 1] - '0'), n = 0;
        for (size_t i = 0; i < ev->item.value.n; i++) {
            n = n * 10 + (unsigned)(ev->item.value.p[i] - '0');
        }
        f->n_bad += ev->item.mod_rev <= f->at || idx >= N_WRITERS || n <= f->last[idx];
        f->at = ev->item.mod_rev;
        f->last[idx] = n;
        f->n_puts++;
    } else if (ev->type == KV_EVENT_SYNC) {
        f->sync_rev = ev->item.mod_rev;
    } else if (ev->type == KV_EVENT_RESET) {
        f->n_resets++;
    }
    pthread_mutex_unlock(&f->mu);
}

static void wait_sync(struct follower *f, uint64_t rev)
{
    uint64_t end = time_mono_ns() + WAIT_NS;
    for (bool is_there = false; !is_there;) {
        pthread_mutex_lock(&f->mu);
        is_there = f->sync_rev >= rev;
        pthread_mutex_unlock(&f->mu);
        assert_true(is_there || time_mono_ns() < end);
        usleep(2000);
    }
}

static void check_ledger(struct kv *kv, const struct writer *w)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    struct kv_item item = {0};
    char key[32];
    snprintf(key, sizeof(key), "crash/%d", w->idx);
    if (kv_get(kv, a, str_c(key), &item, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    unsigned n = 0;
    for (size_t i = 0; i < item.value.n; i++) {
        n = n * 10 + (unsigned)(item.value.p[i] - '0');
    }
    assert_true(n >= w->acked);
    assert_true(n <= w->asked);
}

static void test_kill(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    static struct writer writers[N_WRITERS];
    struct kv *kv = world_open(&w, "admin");
    struct follower f = {0};
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    pthread_mutex_init(&f.mu, NULL);
    kv_test_put(kv, "crash/0", "0");
    uint64_t from = kv_revision(kv);
    assert_int_equal(kv_watch_start(kv, STR("crash/"), from, on_follow, &f, &watch, &err), 0);
    for (int i = 0; i < N_WRITERS; i++) {
        writers[i] = (struct writer){.kv = i % 2 ? kv : world_open(&w, "admin"), .idx = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]), 0);
    }
    for (int i = 0; i < N_KILLS; i++) {
        usleep(150000 + (unsigned)i * 37000);
        daemon_kill(w.d);
        err_clear(&err);
        if (daemon_restart(w.d, &err) < 0) {
            fail_msg("%s", err.msg);
        }
    }
    usleep(200000);
    unsigned n_acked = 0, n_interrupted = 0;
    for (int i = 0; i < N_WRITERS; i++) {
        __atomic_store_n(&writers[i].is_stopping, true, __ATOMIC_SEQ_CST);
        pthread_join(writers[i].thread, NULL);
        assert_string_equal(writers[i].failure, "");
        n_acked += writers[i].acked;
        n_interrupted += writers[i].n_interrupted;
    }
    for (int i = 0; i < N_WRITERS; i++) {
        check_ledger(kv, &writers[i]);
    }
    uint64_t last = kv_test_put(kv, "other", "x");
    wait_sync(&f, last);
    print_message("  %d kills, about %u writes acknowledged, %u interrupted, %llu watched\n",
                  N_KILLS, n_acked, n_interrupted, (unsigned long long)f.n_puts);
    assert_int_equal(f.n_bad, 0);
    assert_int_equal(f.n_resets, 0); /* resumed, not listed anew */
    assert_int_equal(f.n_puts,
                     last - 1 -
                         from); /* every revision between was one put: none lost, none twice */
    assert_true(n_interrupted > 0);
    kv_watch_stop(watch);
    for (int i = 0; i < N_WRITERS; i += 2) {
        kv_close(writers[i].kv);
    }
    kv_close(kv);
    pthread_mutex_destroy(&f.mu);
    world_done(&w);
}

/* A service that starts before the store, and one that lives longer than it. */
static void test_absent(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    daemon_kill(w.d);
    struct kv *kv = world_open(&w, "admin");
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    uint64_t start = time_mono_ns();
    assert_int_equal(kv_watch_start(kv, STR(""), 0, kv_recorder_fn, rec, &watch, &err), 0);
    assert_true(time_mono_ns() - start < 5 * NS_PER_S);
    assert_int_equal(daemon_restart(w.d, &err), 0);
    uint64_t rev = kv_test_put(kv, "a", "1");
    kv_recorder_wait(rec, rev);
    daemon_kill(w.d);
    start = time_mono_ns();
    kv_watch_stop(watch);
    kv_close(kv); /* does not wait for one that is dead */
    assert_true(time_mono_ns() - start < 5 * NS_PER_S);
    kv_recorder_free(rec);
    world_done(&w);
}

/* History was compacted while it was away: the watch says so and gives everything. */
static void test_compacted(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = world_open(&w, "admin"), *direct = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    char path[PATH_MAX];
    kv_test_put(kv, "a", "1");
    uint64_t rev = kv_test_put(kv, "b", "1");
    assert_int_equal(kv_watch_start(kv, STR(""), rev, kv_recorder_fn, rec, &watch, &err), 0);
    kv_recorder_wait(rec, rev);
    kv_recorder_clear(rec);
    assert_int_equal(daemon_stop(w.d, WAIT_NS), 0);
    tmpdir_path(&w.dir, "data/state/state.db", path);
    assert_int_equal(kv_open_sqlite(path, &direct, &err), 0);
    kv_test_delete(direct, "a");
    kv_test_put(direct, "b", "2");
    assert_int_equal(kv_compact(direct, 0, &err), 0);
    rev = kv_test_put(direct, "c", "3");
    kv_close(direct);
    assert_int_equal(daemon_restart(w.d, &err), 0);
    kv_recorder_wait(rec, rev);
    AUTO_FREE char *text = kv_recorder_text(rec);
    assert_string_equal(text, "RESET PUT b=2 PUT c=3 SYNC");
    kv_watch_stop(watch);
    kv_close(kv);
    kv_recorder_free(rec);
    world_done(&w);
}

/* It stands still for a while: answers that come too late must not make a hole. */
static void test_stalled(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct kv *kv = world_open(&w, "admin"), *other = world_open(&w, "admin");
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *watch = NULL;
    struct err err = ERR_INIT;
    uint64_t rev = kv_test_put(other, "a", "0");
    assert_int_equal(kv_watch_start(kv, STR("a"), rev, kv_recorder_fn, rec, &watch, &err), 0);
    kv_recorder_wait(rec, rev);
    daemon_signal(w.d, SIGSTOP);
    int r = world_put(other, "a", "1", &err); /* 15 s */
    assert_int_equal(r, -ECONNRESET);
    assert_string_equal(err.name, "Interrupted");
    usleep(11000000); /* longer than a request for events is waited for */
    daemon_signal(w.d, SIGCONT);
    for (int i = 2; i < 6; i++) {
        char value[8];
        snprintf(value, sizeof(value), "%d", i);
        rev = kv_test_put(other, "a", value);
    }
    kv_recorder_wait(rec, rev);
    char flat[200] = "";
    for (size_t i = 0; i < kv_recorder_n(rec); i++) {
        struct kv_seen s = kv_recorder_at(rec, i);
        if (s.type == KV_EVENT_PUT) {
            snprintf(flat + strlen(flat), sizeof(flat) - strlen(flat), "%s ", s.value);
        }
    }
    assert_string_equal(flat, "1 2 3 4 5 ");
    kv_watch_stop(watch);
    kv_close(other);
    kv_close(kv);
    kv_recorder_free(rec);
    world_done(&w);
}

/* A view over the socket: a service reads its own writes, also after the store was killed and
 * came back. */
static void *parse_value(struct str key, struct str value, struct err *err)
{
    (void)key;
    (void)err;
    return strndup(value.p, value.n);
}

static void free_value(struct str key, void *obj)
{
    (void)key;
    free(obj);
}

static void test_view(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    static const struct view_ops ops = {.parse = parse_value, .free = free_value};
    static const char *const prefixes[] = {"spec/", "status/", "config/"};
    struct kv *kv = world_open(&w, "awsgw"), *reader = world_open(&w, "compute");
    struct view *v = NULL;
    struct err err = ERR_INIT;
    if (view_open(reader, prefixes, 3, &ops, NULL, WAIT_NS, &v, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    for (int i = 0; i < 200; i++) {
        char key[32], value[16];
        snprintf(key, sizeof(key), "%s%d", prefixes[i % 2 * 2], i % 7);
        snprintf(value, sizeof(value), "%d", i);
        uint64_t rev = kv_test_put(kv, key, value);
        assert_int_equal(view_wait(v, rev, WAIT_NS), 0);
        view_lock(v);
        const struct view_entry *e = view_get(v, str_c(key));
        assert_non_null(e);
        assert_string_equal(e->obj, value);
        view_unlock(v);
        if (i % 60 == 59) {
            daemon_kill(w.d);
            assert_int_equal(daemon_restart(w.d, &err), 0);
        }
    }
    view_close(v);
    kv_close(reader);
    kv_close(kv);
    world_done(&w);
}

int main(int argc, char **argv)
{
    world_exe = argc == 2 ? argv[1] : world_exe;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract),  cmocka_unit_test(test_kill),
        cmocka_unit_test(test_view),      cmocka_unit_test(test_absent),
        cmocka_unit_test(test_compacted), cmocka_unit_test(test_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
