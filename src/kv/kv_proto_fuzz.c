/* The first byte chooses the message. What is accepted must give the same bytes when it is
 * written again, and keep the limits. */
#include "kv/kv_proto.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_key(struct str s, size_t max)
{
    assert(s.p && s.n <= max);
}

static void check_item(const struct kv_item *i)
{
    check_key(i->key, KV_MAX_KEY);
    check_key(i->value, KV_MAX_VALUE);
}

static int hello(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_hello m;
    int r = kvp_get_hello(s, &m, NULL);
    if (r == 0) {
        check_key(m.service, KVP_MAX_SERVICE);
        kvp_put_hello(out, &m);
    }
    return r;
}

static int hello_reply(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_hello_reply m;
    int r = kvp_get_hello_reply(s, &m, NULL);
    if (r == 0) {
        kvp_put_hello_reply(out, &m);
    }
    return r;
}

static int key(struct str s, struct arena *a, struct buf *out)
{
    struct str m;
    int r = kvp_get_key(s, &m, NULL);
    if (r == 0) {
        check_key(m, KV_MAX_KEY);
        kvp_put_key(out, m);
    }
    return r;
}

static int item(struct str s, struct arena *a, struct buf *out)
{
    struct kv_item m;
    int r = kvp_get_item(s, &m, NULL);
    if (r == 0) {
        check_item(&m);
        kvp_put_item(out, &m);
    }
    return r;
}

static int list(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_list m;
    int r = kvp_get_list(s, &m, NULL);
    if (r == 0) {
        check_key(m.prefix, KV_MAX_KEY);
        assert(m.after.n <= KV_MAX_KEY);
        kvp_put_list(out, &m);
    }
    return r;
}

static int list_reply(struct str s, struct arena *a, struct buf *out)
{
    struct kv_list m;
    int r = kvp_get_list_reply(s, a, &m, NULL);
    for (size_t i = 0; r == 0 && i < m.n; i++) {
        check_item(&m.v[i]);
    }
    if (r == 0) {
        assert(m.n <= KV_LIST_MAX);
        kvp_put_list_reply(out, &m);
    }
    return r;
}

static int txn(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_txn m;
    int r = kvp_get_txn(s, a, &m, NULL);
    if (r == 0) {
        assert(m.n_cmp <= KV_MAX_OPS && m.n_op <= KV_MAX_OPS);
        for (size_t i = 0; i < m.n_op; i++) {
            check_key(m.op[i].key, KV_MAX_KEY);
            check_key(m.op[i].value, KV_MAX_VALUE);
        }
        kvp_put_txn(out, &m);
    }
    return r;
}

static int num64(struct str s, struct arena *a, struct buf *out)
{
    uint64_t m;
    int r = kvp_get_u64(s, &m, NULL);
    if (r == 0) {
        kvp_put_u64(out, m);
    }
    return r;
}

static int num32(struct str s, struct arena *a, struct buf *out)
{
    uint32_t m;
    int r = kvp_get_u32(s, &m, NULL);
    if (r == 0) {
        kvp_put_u32(out, m);
    }
    return r;
}

static int watch(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_watch m;
    int r = kvp_get_watch(s, &m, NULL);
    if (r == 0) {
        check_key(m.prefix, KV_MAX_KEY);
        kvp_put_watch(out, &m);
    }
    return r;
}

static int unwatch(struct str s, struct arena *a, struct buf *out)
{
    struct kvp_unwatch m;
    int r = kvp_get_unwatch(s, &m, NULL);
    if (r == 0) {
        kvp_put_unwatch(out, &m);
    }
    return r;
}

static int events(struct str s, struct arena *a, struct buf *out)
{
    struct kv_event ev;
    uint32_t id = 0;
    size_t left = s.n;
    int r = 0;
    while ((r = kvp_next_event(&s, &id, &ev, NULL)) == 1) {
        assert(s.n < left); /* it goes on */
        left = s.n;
        check_item(&ev.item);
        kvp_put_event(out, id, &ev);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const fn[])(struct str, struct arena *, struct buf *) = {
        hello, hello_reply, key,   item,  list,    list_reply,
        txn,   num64,       num32, watch, unwatch, events};
    if (size == 0 || size > (1u << 20)) {
        return 0;
    }
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO_BUF out;
    buf_init(&out, 4u << 20);
    struct str in = str_n((const char *)data + 1, size - 1);
    if (fn[data[0] % ARRAY_LEN(fn)](in, a, &out) == 0) {
        assert(buf_ok(&out) && str_eq(buf_str(&out), in));
    }
    return 0;
}
