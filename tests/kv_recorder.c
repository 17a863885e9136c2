#include "kv_contract.h"

#include "base/test.h"

#include "kv_contract_int.h"

#include "base/buf.h"
#include "base/time.h"
#include "base/vec.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

struct kv_recorder {
    pthread_mutex_t mu;
    VEC(struct kv_seen) seen;
    uint64_t sync_rev;
    size_t n_resets;
};

struct kv_recorder *kv_recorder_new(void)
{
    struct kv_recorder *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    pthread_mutex_init(&r->mu, NULL);
    return r;
}

void kv_recorder_free(struct kv_recorder *r)
{
    vec_free(&r->seen);
    pthread_mutex_destroy(&r->mu);
    free(r);
}

void kv_recorder_fn(void *ctx, const struct kv_event *ev)
{
    struct kv_recorder *r = ctx;
    struct kv_seen s = {.type = (int)ev->type,
                        .value_n = ev->item.value.n,
                        .mod_rev = ev->item.mod_rev,
                        .create_rev = ev->item.create_rev};
    snprintf(s.key, sizeof(s.key), "%.*s", STR_ARG(ev->item.key));
    memcpy(s.value, ev->item.value.n ? ev->item.value.p : "",
           MIN(ev->item.value.n, sizeof(s.value) - 1));
    pthread_mutex_lock(&r->mu);
    vec_push(&r->seen, s);
    if (ev->type == KV_EVENT_SYNC) {
        r->sync_rev = ev->item.mod_rev;
    }
    r->n_resets += ev->type == KV_EVENT_RESET;
    pthread_mutex_unlock(&r->mu);
}

void pause_ms(unsigned ms)
{
    usleep(ms * 1000);
}

void kv_recorder_wait(struct kv_recorder *r, uint64_t rev)
{
    uint64_t end = time_mono_ns() + WAIT_NS;
    for (;;) {
        pthread_mutex_lock(&r->mu);
        bool is_there = r->sync_rev >= rev && r->sync_rev > 0;
        pthread_mutex_unlock(&r->mu);
        if (is_there) {
            return;
        }
        if (time_mono_ns() > end) {
            fail_msg("the watch did not reach revision %llu", (unsigned long long)rev);
        }
        pause_ms(2);
    }
}

void kv_recorder_wait_reset(struct kv_recorder *r)
{
    uint64_t end = time_mono_ns() + WAIT_NS;
    for (;;) {
        pthread_mutex_lock(&r->mu);
        size_t n = r->n_resets;
        pthread_mutex_unlock(&r->mu);
        if (n) {
            return;
        }
        if (time_mono_ns() > end) {
            fail_msg("no RESET");
        }
        pause_ms(2);
    }
}

size_t kv_recorder_n(struct kv_recorder *r)
{
    pthread_mutex_lock(&r->mu);
    size_t n = r->seen.n;
    pthread_mutex_unlock(&r->mu);
    return n;
}

struct kv_seen kv_recorder_at(struct kv_recorder *r, size_t i)
{
    pthread_mutex_lock(&r->mu);
    struct kv_seen s = r->seen.v[i];
    pthread_mutex_unlock(&r->mu);
    return s;
}

void kv_recorder_clear(struct kv_recorder *r)
{
    pthread_mutex_lock(&r->mu);
    r->seen.n = 0;
    r->n_resets = 0;
    r->sync_rev = 0;
    pthread_mutex_unlock(&r->mu);
}

char *kv_recorder_text(struct kv_recorder *r)
{
    static const char *const name[] = {[KV_EVENT_PUT] = "PUT",
                                       [KV_EVENT_DELETE] = "DELETE",
                                       [KV_EVENT_SYNC] = "SYNC",
                                       [KV_EVENT_RESET] = "RESET"};
    struct buf b;
    buf_init(&b, 1u << 20);
    int last = -1;
    pthread_mutex_lock(&r->mu);
    for (size_t i = 0; i < r->seen.n; i++) {
        const struct kv_seen *s = &r->seen.v[i];
        if (s->type == KV_EVENT_SYNC && last == KV_EVENT_SYNC) {
            continue;
        }
        last = s->type;
        buf_fmt(&b, "%s%s", b.n ? " " : "", name[s->type]);
        if (s->type == KV_EVENT_PUT) {
            buf_fmt(&b, " %s=%s", s->key, s->value);
        } else if (s->type == KV_EVENT_DELETE) {
            buf_fmt(&b, " %s", s->key);
        }
    }
    pthread_mutex_unlock(&r->mu);
    return buf_take(&b);
}

void assert_seen(struct kv_recorder *r, const char *want)
{
    AUTO_FREE char *text = kv_recorder_text(r);
    assert_string_equal(text, want);
}

void assert_err(int r, int code, const struct err *err, const char *name)
{
    if (r != code || !err->name || strcmp(err->name, name) != 0) {
        fail_msg("got %d %s (%s), want %d %s", r, err->name ? err->name : "-", err->msg, code,
                 name);
    }
}

uint64_t kv_test_put(struct kv *kv, const char *key, const char *value)
{
    struct err err = ERR_INIT;
    uint64_t rev = 0;
    struct kv_op op = {.type = KV_PUT, .key = str_c(key), .value = str_c(value)};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, &rev, &err));
    return rev;
}

uint64_t kv_test_delete(struct kv *kv, const char *key)
{
    struct err err = ERR_INIT;
    uint64_t rev = 0;
    struct kv_op op = {.type = KV_DELETE, .key = str_c(key)};
    assert_ok(kv_txn(kv, NULL, 0, &op, 1, &rev, &err));
    return rev;
}

int kv_test_get(struct kv *kv, struct arena *a, const char *key, struct kv_item *ret,
                struct err *err)
{
    return kv_get(kv, a, str_c(key), ret, err);
}

void assert_absent(struct kv *kv, const char *key)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item;
    struct err err = ERR_INIT;
    assert_err(kv_test_get(kv, a, key, &item, &err), -ENOENT, &err, "KeyNotFound");
}

struct kv *kv_test_open(const char *path)
{
    struct kv *kv = NULL;
    struct err err = ERR_INIT;
    assert_ok(kv_open_sqlite(path, &kv, &err));
    return kv;
}

bool kv_test_has(struct kv *kv, const char *key, const char *value)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_item item = {0};
    return kv_test_get(kv, a, key, &item, NULL) == 0 && str_eqc(item.value, value);
}
