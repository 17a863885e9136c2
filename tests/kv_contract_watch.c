/* The rules of watches and leases. */
#include "base/test.h"

#include "kv_contract_int.h"

#include "base/buf.h"
#include "base/time.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

void rule_watch(struct kv *kv)
{
    struct err err = ERR_INIT;
    struct kv_watch *w = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    kv_test_put(kv, "t/w/a", "1");
    kv_test_put(kv, "t/w/b", "2");
    kv_test_put(kv, "t/x", "no");
    uint64_t rev = kv_revision(kv);
    assert_ok(kv_watch_start(kv, STR("t/w/"), 0, kv_recorder_fn, rec, &w, &err));
    kv_recorder_wait(rec, rev);
    assert_seen(rec, "RESET PUT t/w/a=1 PUT t/w/b=2 SYNC");
    kv_recorder_clear(rec);
    kv_test_put(kv, "t/w/b", "3");
    kv_test_delete(kv, "t/w/a");
    kv_test_put(kv, "t/w/a", "4");
    uint64_t last = kv_test_put(kv, "t/x", "other"); /* not ours, but the SYNC must reach it */
    kv_recorder_wait(rec, last);
    for (size_t i = 0, at = 0; i < kv_recorder_n(rec); i++) {
        struct kv_seen s = kv_recorder_at(rec, i);
        assert_true(s.mod_rev >= at); /* ascending */
        at = s.mod_rev;
        if (s.type == KV_EVENT_PUT && strcmp(s.key, "t/w/a") == 0) {
            assert_int_equal(s.create_rev, s.mod_rev); /* created anew */
        }
    }
    kv_watch_stop(w);
    AUTO_FREE char *text = kv_recorder_text(rec);
    /* SYNCs may come between: compare without them */
    char flat[256] = "";
    for (char *p = text, *q = NULL; p && *p; p = q ? q + 1 : NULL) {
        q = strchr(p, ' ');
        size_t n = q ? (size_t)(q - p) : strlen(p);
        if (n != 4 || memcmp(p, "SYNC", 4) != 0) {
            snprintf(flat + strlen(flat), sizeof(flat) - strlen(flat), "%.*s ", (int)n, p);
        }
    }
    assert_string_equal(flat, "PUT t/w/b=3 DELETE t/w/a PUT t/w/a=4 ");
    size_t n = kv_recorder_n(rec);
    kv_test_put(kv, "t/w/a", "5");
    pause_ms(50);
    assert_int_equal(kv_recorder_n(rec), n); /* nothing after stop */
    kv_recorder_free(rec);
}

void rule_watch_from(struct kv *kv)
{
    struct err err = ERR_INIT;
    struct kv_watch *w = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    uint64_t from = kv_test_put(kv, "t/wf/a", "1");
    kv_test_put(kv, "t/wf/a", "2");
    kv_test_put(kv, "t/wf/b", "3");
    kv_test_delete(kv, "t/wf/a");
    uint64_t last = kv_test_put(kv, "t/wf/a", "4");
    assert_ok(kv_watch_start(kv, STR("t/wf/"), from, kv_recorder_fn, rec, &w, &err));
    kv_recorder_wait(rec, last);
    assert_seen(rec, "PUT t/wf/a=2 PUT t/wf/b=3 DELETE t/wf/a PUT t/wf/a=4 SYNC");
    kv_watch_stop(w);
    /* a revision that the store has not reached: it was replaced by an older one, so everything
     * again */
    kv_recorder_clear(rec);
    assert_ok(kv_watch_start(kv, STR("t/wf/"), last + 1000000, kv_recorder_fn, rec, &w, &err));
    kv_recorder_wait(rec, 1);
    assert_seen(rec, "RESET PUT t/wf/a=4 PUT t/wf/b=3 SYNC");
    kv_watch_stop(w);
    kv_recorder_free(rec);
}

void rule_watch_big(struct kv *kv)
{
    struct err err = ERR_INIT;
    struct kv_watch *w = NULL;
    struct kv_recorder *rec = kv_recorder_new();
    AUTO_FREE char *big = calloc(1, 300 << 10);
    assert_non_null(big);
    uint64_t last = 0;
    for (int i = 0; i < 40; i++) { /* 12 MB: more than one frame, page or arena */
        char key[32];
        snprintf(key, sizeof(key), "t/wbig/%02d", i);
        struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_n(big, 300 << 10)};
        assert_ok(kv_txn(kv, NULL, 0, &op, 1, &last, &err));
    }
    assert_ok(kv_watch_start(kv, STR("t/wbig/"), 0, kv_recorder_fn, rec, &w, &err));
    kv_recorder_wait(rec, last);
    assert_int_equal(kv_recorder_n(rec), 42);
    for (size_t i = 1; i <= 40; i++) {
        assert_int_equal(kv_recorder_at(rec, i).value_n, 300 << 10);
    }
    kv_watch_stop(w);
    for (int i = 0; i < 40; i++) {
        char key[32];
        snprintf(key, sizeof(key), "t/wbig/%02d", i);
        kv_test_delete(kv, key);
    }
    kv_recorder_free(rec);
}

struct self_stop {
    pthread_mutex_t mu;
    struct kv_watch *w;
    struct kv *kv;
    int n;
    bool is_found;
};

/* Call-backs may use the kv and stop their own watch. */
static void on_self_stop(void *ctx, const struct kv_event *ev)
{
    struct self_stop *s = ctx;
    pthread_mutex_lock(&s->mu);
    s->n++;
    if (ev->type == KV_EVENT_SYNC && s->w) {
        AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
        struct kv_item item = {0};
        s->is_found = kv_get(s->kv, a, STR("t/self/a"), &item, NULL) == 0;
        kv_watch_stop(s->w);
        s->w = NULL;
    }
    pthread_mutex_unlock(&s->mu);
}

void rule_watch_stops_itself(struct kv *kv)
{
    struct err err = ERR_INIT;
    struct self_stop s = {.kv = kv};
    pthread_mutex_init(&s.mu, NULL);
    kv_test_put(kv, "t/self/a", "1");
    pthread_mutex_lock(&s.mu);
    assert_ok(kv_watch_start(kv, STR("t/self/"), 0, on_self_stop, &s, &s.w, &err));
    pthread_mutex_unlock(&s.mu);
    uint64_t end = time_mono_ns() + WAIT_NS;
    for (bool is_done = false; !is_done && time_mono_ns() < end;) {
        pause_ms(2);
        pthread_mutex_lock(&s.mu);
        is_done = s.w == NULL;
        pthread_mutex_unlock(&s.mu);
    }
    kv_test_put(kv, "t/self/a", "2");
    pause_ms(50);
    pthread_mutex_lock(&s.mu);
    assert_null(s.w);
    assert_true(s.is_found);
    assert_int_equal(s.n, 3);
    pthread_mutex_unlock(&s.mu);
    pthread_mutex_destroy(&s.mu);
}

void rule_leases(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    struct kv_recorder *rec = kv_recorder_new();
    struct kv_watch *w = NULL;
    struct kv_item item = {0};
    uint64_t l1 = 0, l2 = 0;
    assert_ok(kv_lease_grant(kv, 1, &l1, &err));
    assert_ok(kv_lease_grant(kv, 60, &l2, &err));
    assert_true(l1 != 0 && l2 != 0 && l1 != l2);
    struct kv_op op[4] = {
        {.type = KV_PUT, .key = STR("t/l/a"), .value = STR("1"), .lease = l1},
        {.type = KV_PUT, .key = STR("t/l/b"), .value = STR("1"), .lease = l1},
        {.type = KV_PUT, .key = STR("t/l/c"), .value = STR("1"), .lease = l2},
        {.type = KV_PUT, .key = STR("t/l/d"), .value = STR("1"), .lease = l1}};
    uint64_t rev = 0;
    assert_ok(kv_txn(kv, NULL, 0, op, 4, &rev, &err));
    assert_ok(kv_test_get(kv, a, "t/l/a", &item, &err));
    assert_int_equal(item.lease, l1);
    kv_test_put(kv, "t/l/d", "2"); /* put without a lease: it is free of it */
    assert_ok(kv_watch_start(kv, STR("t/l/"), rev, kv_recorder_fn, rec, &w, &err));
    /* kept alive beyond its ttl */
    uint64_t end = time_mono_ns() + 1500 * NS_PER_MS;
    while (time_mono_ns() < end) {
        assert_ok(kv_lease_keepalive(kv, l1, &err));
        pause_ms(100);
    }
    assert_ok(kv_test_get(kv, a, "t/l/a", &item, &err));
    /* and left alone */
    end = time_mono_ns() + WAIT_NS;
    int r = 0;
    while ((r = kv_test_get(kv, a, "t/l/a", &item, NULL)) == 0 && time_mono_ns() < end) {
        pause_ms(20);
    }
    assert_int_equal(r, -ENOENT);
    assert_absent(kv, "t/l/b");
    assert_ok(kv_test_get(kv, a, "t/l/c", &item, &err));
    assert_ok(kv_test_get(kv, a, "t/l/d", &item, &err));
    assert_err(kv_lease_keepalive(kv, l1, &err), -ENOENT, &err, "LeaseNotFound");
    err_clear(&err);
    assert_err(kv_txn(kv, NULL, 0, op, 1, NULL, &err), -ENOENT, &err, "LeaseNotFound");
    err_clear(&err);
    assert_ok(kv_lease_revoke(kv, l2, &err));
    assert_absent(kv, "t/l/c");
    assert_err(kv_lease_revoke(kv, l2, &err), -ENOENT, &err, "LeaseNotFound");
    err_clear(&err);
    uint64_t last = kv_test_delete(kv, "t/l/d");
    kv_recorder_wait(rec, last);
    int n_del = 0;
    for (size_t i = 0; i < kv_recorder_n(rec); i++) {
        n_del += kv_recorder_at(rec, i).type == KV_EVENT_DELETE;
    }
    assert_int_equal(n_del, 4);
    assert_err(kv_lease_grant(kv, 0, &l1, &err), -EINVAL, &err, "BadTtl");
    kv_watch_stop(w);
    kv_recorder_free(rec);
}

/* More keys on a lease than one transaction may touch. */
void rule_lease_many(struct kv *kv)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct err err = ERR_INIT;
    uint64_t lease = 0;
    assert_ok(kv_lease_grant(kv, 60, &lease, &err));
    for (int i = 0; i < 3; i++) {
        struct kv_op op[100];
        char key[100][24];
        for (int k = 0; k < 100; k++) {
            snprintf(key[k], sizeof(key[k]), "t/lm/%d/%03d", i, k);
            op[k] = (struct kv_op){
                .type = KV_PUT, .key = str_c(key[k]), .value = STR("v"), .lease = lease};
        }
        assert_ok(kv_txn(kv, NULL, 0, op, 100, NULL, &err));
    }
    struct kv_list list = {0};
    assert_ok(kv_list(kv, a, STR("t/lm/"), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, 300);
    assert_ok(kv_lease_revoke(kv, lease, &err));
    assert_ok(kv_list(kv, a, STR("t/lm/"), STR_NONE, 0, &list, &err));
    assert_int_equal(list.n, 0);
}
