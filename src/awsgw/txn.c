#include "awsgw/txn.h"

#include "awsgw/store.h"
#include "base/time.h"
#include "codec/json.h"

#include <errno.h>

#define VIEW_WAIT_NS (5 * NS_PER_S)

void txn_init(struct txn *t, struct gw *gw, struct arena *a)
{
    t->gw = gw;
    t->a = a;
    t->n_cmp = t->n_op = 0;
    err_clear(&t->err);
}

struct txn *txn_open(const struct aws_call *call)
{
    struct txn *t = arena_new_of(call->arena, struct txn);
    txn_init(t, gw_of(call), call->arena);
    return t;
}

void txn_expect(struct txn *t, struct str key, uint64_t rev)
{
    if (t->n_cmp == KV_MAX_OPS) {
        fail(&t->err, -E2BIG, "ResourceCountExceeded",
             "The request touches more than %u records at once: name fewer resources.",
             KV_MAX_OPS);
        return;
    }
    t->cmp[t->n_cmp++] = (struct kv_cmp){key, rev};
}

static void add_op(struct txn *t, struct kv_op op)
{
    if (t->n_op == KV_MAX_OPS) {
        fail(&t->err, -E2BIG, "ResourceCountExceeded",
             "The request changes more than %u records at once: name fewer resources.",
             KV_MAX_OPS);
        return;
    }
    t->op[t->n_op++] = op;
}

static void add_rec(struct txn *t, struct str key, const struct rec_desc *d, const void *rec)
{
    AUTO_BUF b;
    buf_init(&b, KV_MAX_VALUE);
    if (rec_save(d, rec, &b, &t->err) < 0) {
        return;
    }
    struct str value = arena_str_dup(t->a, buf_str(&b));
    if (!value.p) {
        fail(&t->err, -ENOMEM, "RequestTooLarge", "the request needs too much memory");
        return;
    }
    add_op(t, (struct kv_op){.type = KV_PUT, .key = key, .value = value});
}

void txn_create(struct txn *t, struct str key, const struct rec_desc *d, const void *rec)
{
    txn_expect(t, key, 0);
    add_rec(t, key, d, rec);
}

void txn_update(struct txn *t, const struct view_entry *e, const struct rec_desc *d,
                const void *rec)
{
    txn_expect(t, e->key, e->mod_rev);
    add_rec(t, e->key, d, rec);
}

void txn_set(struct txn *t, const struct view_entry *e, struct str key,
             const struct rec_desc *d, const void *rec)
{
    if (e) {
        txn_update(t, e, d, rec);
    } else {
        txn_create(t, key, d, rec);
    }
}

static void add_claim(struct txn *t, struct str key, struct str owner)
{
    AUTO_BUF b;
    buf_init(&b, 1024);
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_str(&w, "owner", owner);
    jw_obj_end(&w);
    add_op(t, (struct kv_op){
                  .type = KV_PUT, .key = key, .value = arena_str_dup(t->a, buf_str(&b))});
}

void txn_claim(struct txn *t, struct str key, struct str owner)
{
    txn_expect(t, key, 0);
    add_claim(t, key, owner);
}

int txn_settle(struct gw *gw, const struct view_entry *e, struct err *err)
{
    if (view_wait(gw->view, e->mod_rev, VIEW_WAIT_NS) < 0) {
        return fail(err, -ETIMEDOUT, "NotYetSeen",
                    "this service does not see the latest change completely yet");
    }
    return 0;
}

void txn_lock(struct txn *t, struct str key)
{
    const struct view_entry *e = store_key(t->gw, t->a, key);
    int r = e ? txn_settle(t->gw, e, &t->err) : 0;
    (void)r; /* told by txn_commit() */
    txn_expect(t, key, e ? e->mod_rev : 0);
    add_claim(t, key, STR(""));
}

struct str name_key(struct arena *a, struct str name)
{
    AUTO_BUF b;
    buf_init(&b, KV_MAX_KEY);
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (is_plain) {
            buf_add_char(&b, (char)c);
        } else {
            buf_fmt(&b, "%%%02X", c);
        }
    }
    return arena_str_dup(a, buf_str(&b));
}

void txn_delete(struct txn *t, const struct view_entry *e)
{
    if (e) {
        txn_expect(t, e->key, e->mod_rev);
        add_op(t, (struct kv_op){.type = KV_DELETE, .key = e->key});
    }
}

void txn_delete_key(struct txn *t, struct str key)
{
    add_op(t, (struct kv_op){.type = KV_DELETE, .key = key});
}

void txn_token(struct txn *t, const struct aws_call *call, const struct aws_token *tok,
               struct str result)
{
    if (str_is_set(tok->key)) {
        txn_expect(t, tok->key, tok->mod_rev);
        add_op(t, (struct kv_op){.type = KV_PUT,
                                 .key = tok->key,
                                 .value = aws_token_value(call, tok, result)});
    }
}

int txn_token_begin(const struct aws_call *call, struct str client_token, const void *input,
                    struct aws_token *ret, struct err *err)
{
    struct gw *gw = gw_of(call);
    int r = aws_token_begin(call, gw->kv, client_token, input, ret, err);
    if (r == 0 && ret->is_replay && view_wait(gw->view, ret->mod_rev, VIEW_WAIT_NS) < 0) {
        return fail(err, -ETIMEDOUT, "NotYetSeen",
                    "this service does not see the first request with this token yet");
    }
    return r;
}

int txn_commit(struct txn *t, struct err *err)
{
    if (t->err.code != 0) {
        return fail(err, t->err.code, t->err.name, "%s", t->err.msg);
    }
    uint64_t rev = 0;
    int r = kv_txn(t->gw->kv, t->cmp, t->n_cmp, t->op, t->n_op, &rev, err);
    if (r == -EAGAIN) {
        /* The view may be behind what beat us: let the next try see it. */
        int w = view_wait(t->gw->view, kv_revision(t->gw->kv), NS_PER_S);
        (void)w;
        return r;
    }
    if (r < 0) {
        return r;
    }
    if (view_wait(t->gw->view, rev, VIEW_WAIT_NS) < 0) {
        return fail(err, -ETIMEDOUT, "NotYetSeen",
                    "the change was made, but this service does not see it yet");
    }
    return 0;
}
