#include "kv/kv_proto.h"

#include <errno.h>

/* ---- writing: little endian, strings as u32 length and bytes ---- */

static void put_le(struct buf *b, uint64_t v, size_t n)
{
    char *p = buf_reserve(b, n);
    if (p) {
        for (size_t i = 0; i < n; i++) {
            p[i] = (char)(v >> (8 * i) & 0xff);
        }
        buf_commit(b, n);
    }
}

static void put_u8(struct buf *b, uint8_t v)
{
    put_le(b, v, 1);
}

void kvp_put_u32(struct buf *b, uint32_t v)
{
    put_le(b, v, 4);
}

void kvp_put_u64(struct buf *b, uint64_t v)
{
    put_le(b, v, 8);
}

void kvp_put_key(struct buf *b, struct str s)
{
    kvp_put_u32(b, (uint32_t)s.n);
    buf_add(b, s);
}

void kvp_put_hello(struct buf *b, const struct kvp_hello *m)
{
    put_u8(b, m->version);
    kvp_put_key(b, m->service);
}

void kvp_put_hello_reply(struct buf *b, const struct kvp_hello_reply *m)
{
    kvp_put_u64(b, m->session);
    kvp_put_u64(b, m->rev);
}

void kvp_put_item(struct buf *b, const struct kv_item *item)
{
    kvp_put_key(b, item->key);
    kvp_put_key(b, item->value);
    kvp_put_u64(b, item->create_rev);
    kvp_put_u64(b, item->mod_rev);
    kvp_put_u64(b, item->lease);
}

void kvp_put_list(struct buf *b, const struct kvp_list *m)
{
    kvp_put_key(b, m->prefix);
    put_u8(b, m->after.p != NULL);
    kvp_put_key(b, m->after);
    kvp_put_u32(b, m->limit);
}

void kvp_put_list_reply(struct buf *b, const struct kv_list *list)
{
    kvp_put_u64(b, list->rev);
    put_u8(b, list->has_more);
    kvp_put_u32(b, (uint32_t)list->n);
    for (size_t i = 0; i < list->n; i++) {
        kvp_put_item(b, &list->v[i]);
    }
}

void kvp_put_txn(struct buf *b, const struct kvp_txn *m)
{
    kvp_put_u32(b, (uint32_t)m->n_cmp);
    for (size_t i = 0; i < m->n_cmp; i++) {
        kvp_put_key(b, m->cmp[i].key);
        kvp_put_u64(b, m->cmp[i].mod_rev);
    }
    kvp_put_u32(b, (uint32_t)m->n_op);
    for (size_t i = 0; i < m->n_op; i++) {
        const struct kv_op *op = &m->op[i];
        put_u8(b, op->type == KV_PUT ? 1 : 2);
        kvp_put_key(b, op->key);
        if (op->type == KV_PUT) {
            kvp_put_key(b, op->value);
            kvp_put_u64(b, op->lease);
        }
    }
}

void kvp_put_watch(struct buf *b, const struct kvp_watch *m)
{
    kvp_put_u64(b, m->session);
    kvp_put_u32(b, m->id);
    kvp_put_u64(b, m->from_rev);
    kvp_put_key(b, m->prefix);
}

void kvp_put_unwatch(struct buf *b, const struct kvp_unwatch *m)
{
    kvp_put_u64(b, m->session);
    kvp_put_u32(b, m->id);
}

enum { EVENT_PUT = 1, EVENT_DELETE, EVENT_SYNC, EVENT_RESET };

void kvp_put_event(struct buf *b, uint32_t id, const struct kv_event *ev)
{
    kvp_put_u32(b, id);
    switch (ev->type) {
    case KV_EVENT_PUT:
        put_u8(b, EVENT_PUT);
        kvp_put_item(b, &ev->item);
        break;
    case KV_EVENT_DELETE:
        put_u8(b, EVENT_DELETE);
        kvp_put_key(b, ev->item.key);
        kvp_put_u64(b, ev->item.create_rev);
        kvp_put_u64(b, ev->item.mod_rev);
        break;
    case KV_EVENT_SYNC:
        put_u8(b, EVENT_SYNC);
        kvp_put_u64(b, ev->item.mod_rev);
        break;
    case KV_EVENT_RESET:
        put_u8(b, EVENT_RESET);
        kvp_put_u64(b, ev->item.mod_rev);
        break;
    }
}

/* ---- reading: after the first surprise everything is zero and is_bad stays ---- */

struct reader {
    const char *p;
    size_t n;
    bool is_bad;
};

static struct reader reader_of(struct str s)
{
    return (struct reader){s.p ? s.p : "", s.n, false};
}

static uint64_t get_le(struct reader *r, size_t n)
{
    if (r->is_bad || r->n < n) {
        r->is_bad = true;
        return 0;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v |= (uint64_t)(unsigned char)r->p[i] << (8 * i);
    }
    r->p += n;
    r->n -= n;
    return v;
}

static struct str get_str(struct reader *r, size_t max)
{
    size_t n = (size_t)get_le(r, 4);
    if (r->is_bad || n > max || n > r->n) {
        r->is_bad = true;
        return STR("");
    }
    struct str s = {r->p, n};
    r->p += n;
    r->n -= n;
    return s;
}

static bool get_bool(struct reader *r)
{
    uint64_t v = get_le(r, 1);
    r->is_bad = r->is_bad || v > 1;
    return v == 1;
}

static int bad(struct err *err)
{
    return fail(err, -EBADMSG, "BadMessage", "not a message of the store's protocol");
}

static int done(const struct reader *r, struct err *err)
{
    return r->is_bad || r->n ? bad(err) : 0;
}

int kvp_get_hello(struct str s, struct kvp_hello *ret, struct err *err)
{
    struct reader r = reader_of(s);
    ret->version = (uint8_t)get_le(&r, 1);
    ret->service = get_str(&r, KVP_MAX_SERVICE);
    return done(&r, err);
}

int kvp_get_hello_reply(struct str s, struct kvp_hello_reply *ret, struct err *err)
{
    struct reader r = reader_of(s);
    ret->session = get_le(&r, 8);
    ret->rev = get_le(&r, 8);
    return done(&r, err);
}

int kvp_get_key(struct str s, struct str *ret, struct err *err)
{
    struct reader r = reader_of(s);
    *ret = get_str(&r, KV_MAX_KEY);
    return done(&r, err);
}

static struct kv_item get_item(struct reader *r)
{
    struct kv_item item = {0};
    item.key = get_str(r, KV_MAX_KEY);
    item.value = get_str(r, KV_MAX_VALUE);
    item.create_rev = get_le(r, 8);
    item.mod_rev = get_le(r, 8);
    item.lease = get_le(r, 8);
    return item;
}

int kvp_get_item(struct str s, struct kv_item *ret, struct err *err)
{
    struct reader r = reader_of(s);
    *ret = get_item(&r);
    return done(&r, err);
}

int kvp_get_list(struct str s, struct kvp_list *ret, struct err *err)
{
    struct reader r = reader_of(s);
    ret->prefix = get_str(&r, KV_MAX_KEY);
    bool has_after = get_bool(&r);
    ret->after = get_str(&r, KV_MAX_KEY);
    ret->limit = (uint32_t)get_le(&r, 4);
    if (!has_after) {
        r.is_bad = r.is_bad || ret->after.n;
        ret->after = STR_NONE;
    }
    return done(&r, err);
}

int kvp_get_list_reply(struct str s, struct arena *a, struct kv_list *ret, struct err *err)
{
    struct reader r = reader_of(s);
    struct kv_list list = {.rev = get_le(&r, 8), .has_more = get_bool(&r)};
    list.n = (size_t)get_le(&r, 4);
    if (r.is_bad || list.n > KV_LIST_MAX) {
        return bad(err);
    }
    list.v = arena_array(a, list.n, sizeof(*list.v));
    if (!list.v) {
        return fail(err, -E2BIG, "TooLarge",
                    "the answer does not fit the memory of the request");
    }
    for (size_t i = 0; i < list.n; i++) {
        list.v[i] = get_item(&r);
    }
    *ret = list;
    return done(&r, err);
}

static void get_op(struct reader *r, struct kv_op *op)
{
    uint64_t type = get_le(r, 1);
    r->is_bad = r->is_bad || (type != 1 && type != 2);
    op->type = type == 1 ? KV_PUT : KV_DELETE;
    op->key = get_str(r, KV_MAX_KEY);
    op->value = STR("");
    if (type == 1) {
        op->value = get_str(r, KV_MAX_VALUE);
        op->lease = get_le(r, 8);
    }
}

int kvp_get_txn(struct str s, struct arena *a, struct kvp_txn *ret, struct err *err)
{
    struct reader r = reader_of(s);
    struct kvp_txn m = {.n_cmp = (size_t)get_le(&r, 4)};
    if (r.is_bad || m.n_cmp > KV_MAX_OPS) {
        return bad(err);
    }
    m.cmp = arena_array(a, m.n_cmp, sizeof(*m.cmp));
    for (size_t i = 0; m.cmp && i < m.n_cmp; i++) {
        m.cmp[i].key = get_str(&r, KV_MAX_KEY);
        m.cmp[i].mod_rev = get_le(&r, 8);
    }
    m.n_op = (size_t)get_le(&r, 4);
    if (r.is_bad || m.n_op > KV_MAX_OPS) {
        return bad(err);
    }
    m.op = arena_array(a, m.n_op, sizeof(*m.op));
    if (!m.cmp || !m.op) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a transaction");
    }
    for (size_t i = 0; i < m.n_op; i++) {
        get_op(&r, &m.op[i]);
    }
    *ret = m;
    return done(&r, err);
}

int kvp_get_u64(struct str s, uint64_t *ret, struct err *err)
{
    struct reader r = reader_of(s);
    *ret = get_le(&r, 8);
    return done(&r, err);
}

int kvp_get_u32(struct str s, uint32_t *ret, struct err *err)
{
    struct reader r = reader_of(s);
    *ret = (uint32_t)get_le(&r, 4);
    return done(&r, err);
}

int kvp_get_watch(struct str s, struct kvp_watch *ret, struct err *err)
{
    struct reader r = reader_of(s);
    ret->session = get_le(&r, 8);
    ret->id = (uint32_t)get_le(&r, 4);
    ret->from_rev = get_le(&r, 8);
    ret->prefix = get_str(&r, KV_MAX_KEY);
    return done(&r, err);
}

int kvp_get_unwatch(struct str s, struct kvp_unwatch *ret, struct err *err)
{
    struct reader r = reader_of(s);
    ret->session = get_le(&r, 8);
    ret->id = (uint32_t)get_le(&r, 4);
    return done(&r, err);
}

int kvp_next_event(struct str *rest, uint32_t *ret_id, struct kv_event *ret, struct err *err)
{
    if (rest->n == 0) {
        return 0;
    }
    struct reader r = reader_of(*rest);
    struct kv_event ev = {.item = {.key = STR(""), .value = STR("")}};
    uint32_t id = (uint32_t)get_le(&r, 4);
    switch (get_le(&r, 1)) {
    case EVENT_PUT:
        ev.type = KV_EVENT_PUT;
        ev.item = get_item(&r);
        break;
    case EVENT_DELETE:
        ev.type = KV_EVENT_DELETE;
        ev.item.key = get_str(&r, KV_MAX_KEY);
        ev.item.create_rev = get_le(&r, 8);
        ev.item.mod_rev = get_le(&r, 8);
        break;
    case EVENT_SYNC:
        ev.type = KV_EVENT_SYNC;
        ev.item.mod_rev = get_le(&r, 8);
        break;
    case EVENT_RESET:
        ev.type = KV_EVENT_RESET;
        ev.item.mod_rev = get_le(&r, 8);
        break;
    default: r.is_bad = true;
    }
    if (r.is_bad) {
        return bad(err);
    }
    *rest = str_n(r.p, r.n);
    *ret_id = id;
    *ret = ev;
    return 1;
}
