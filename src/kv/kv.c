#include "kv/kv.h"

#include "kv/kv_int.h"

#include <errno.h>

static int check_key(struct str key, struct err *err)
{
    if (key.n == 0) {
        return fail(err, -EINVAL, "BadKey", "a key of the store may not be empty");
    }
    if (key.n > KV_MAX_KEY) {
        return fail(err, -E2BIG, "TooLarge", "a key of %zu bytes: at most %u are possible",
                    key.n, KV_MAX_KEY);
    }
    return 0;
}

static int check_prefix(struct str prefix, struct err *err)
{
    if (prefix.n > KV_MAX_KEY) {
        return fail(err, -E2BIG, "TooLarge", "a prefix of %zu bytes: at most %u are possible",
                    prefix.n, KV_MAX_KEY);
    }
    return 0;
}

void kv_close(struct kv *kv)
{
    if (kv) {
        kv->backend->close(kv);
    }
}

int kv_get(struct kv *kv, struct arena *a, struct str key, struct kv_item *ret, struct err *err)
{
    int r = check_key(key, err);
    return r < 0 ? r : kv->backend->get(kv, a, key, ret, err);
}

int kv_list(struct kv *kv, struct arena *a, struct str prefix, struct str after, size_t limit,
            struct kv_list *ret, struct err *err)
{
    int r = check_prefix(prefix, err);
    if (r == 0) {
        r = check_prefix(after, err);
    }
    if (r < 0) {
        return r;
    }
    if (limit == 0 || limit > KV_LIST_MAX) {
        limit = KV_LIST_MAX;
    }
    return kv->backend->list(kv, a, prefix, after, limit, ret, err);
}

/* etcd refuses a transaction that touches a key twice, because no order is defined in it. */
static int check_ops(const struct kv_op *op, size_t n_op, struct err *err)
{
    size_t total = 0;
    for (size_t i = 0; i < n_op; i++) {
        int r = check_key(op[i].key, err);
        if (r < 0) {
            return r;
        }
        if (op[i].type == KV_PUT && op[i].value.n > KV_MAX_VALUE) {
            return fail(err, -E2BIG, "TooLarge",
                        "%.*s: a value of %zu bytes: at most %u are possible",
                        STR_ARG(op[i].key), op[i].value.n, KV_MAX_VALUE);
        }
        total += op[i].key.n + (op[i].type == KV_PUT ? op[i].value.n : 0);
        for (size_t k = 0; k < i; k++) {
            if (str_eq(op[k].key, op[i].key)) {
                return fail(err, -EINVAL, "DuplicateKey", "%.*s: twice in one transaction",
                            STR_ARG(op[i].key));
            }
        }
    }
    if (total > KV_MAX_TXN) {
        return fail(err, -E2BIG, "TooLarge",
                    "a transaction of %zu bytes: at most %u are possible", total, KV_MAX_TXN);
    }
    return 0;
}

static int check_txn(const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
                     size_t n_op, struct err *err)
{
    if (n_cmp > KV_MAX_OPS || n_op > KV_MAX_OPS) {
        return fail(
            err, -E2BIG, "TooLarge",
            "a transaction of %zu compares and %zu operations: at most %u each are possible",
            n_cmp, n_op, KV_MAX_OPS);
    }
    for (size_t i = 0; i < n_cmp; i++) {
        int r = check_key(cmp[i].key, err);
        if (r < 0) {
            return r;
        }
    }
    return check_ops(op, n_op, err);
}

int kv_txn(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
           size_t n_op, uint64_t *ret_rev, struct err *err)
{
    uint64_t rev = 0;
    int r = check_txn(cmp, n_cmp, op, n_op, err);
    if (r == 0) {
        r = kv->backend->txn(kv, cmp, n_cmp, op, n_op, &rev, err);
    }
    if (r == 0 && ret_rev) {
        *ret_rev = rev;
    }
    return r;
}

uint64_t kv_revision(struct kv *kv)
{
    return kv->backend->revision(kv);
}

int kv_watch_start(struct kv *kv, struct str prefix, uint64_t from_rev, kv_watch_fn fn,
                   void *ctx, struct kv_watch **ret, struct err *err)
{
    int r = check_prefix(prefix, err);
    if (r < 0) {
        return r;
    }
    struct kv_watch *w = calloc(1, sizeof(*w));
    char *p = malloc(prefix.n + 1);
    if (!w || !p) {
        free(w);
        free(p);
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a watch");
    }
    if (prefix.n) {
        memcpy(p, prefix.p, prefix.n);
    }
    p[prefix.n] = '\0';
    w->kv = kv;
    w->prefix = str_n(p, prefix.n);
    w->fn = fn;
    w->ctx = ctx;
    w->pos = from_rev;
    w->phase = from_rev ? WATCH_LIVE : WATCH_NEW;
    r = kv->backend->watch_start(kv, w, err);
    if (r < 0) {
        watch_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void kv_watch_stop(struct kv_watch *w)
{
    if (w) {
        w->kv->backend->watch_stop(w->kv, w);
    }
}

static int check_ttl(uint32_t ttl_s, struct err *err)
{
    if (ttl_s == 0 || ttl_s > KV_MAX_TTL_S) {
        return fail(err, -EINVAL, "BadTtl", "a lease of %u seconds: 1 to %u are possible",
                    ttl_s, KV_MAX_TTL_S);
    }
    return 0;
}

int kv_lease_grant(struct kv *kv, uint32_t ttl_s, uint64_t *ret_lease, struct err *err)
{
    return kv_lease_grant_tagged(kv, 0, ttl_s, ret_lease, err);
}

int kv_lease_grant_tagged(struct kv *kv, uint8_t tag, uint32_t ttl_s, uint64_t *ret_lease,
                          struct err *err)
{
    int r = check_ttl(ttl_s, err);
    return r < 0 ? r : kv->backend->lease_grant(kv, tag & 0x7f, ttl_s, ret_lease, err);
}

uint8_t kv_lease_tag(uint64_t lease)
{
    return (uint8_t)(lease >> 56 & 0x7f);
}

int kv_lease_keepalive(struct kv *kv, uint64_t lease, struct err *err)
{
    return kv->backend->lease_keepalive(kv, lease, err);
}

int kv_lease_revoke(struct kv *kv, uint64_t lease, struct err *err)
{
    return kv->backend->lease_revoke(kv, lease, err);
}

static int no_admin(struct err *err)
{
    return fail(err, -ENOSYS, "NotSupported", "this connection to the store cannot do that");
}

int kv_txn_start(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp, const struct kv_op *op,
                 size_t n_op, kv_txn_fn fn, void *ctx, struct err *err)
{
    if (!kv->backend->txn_start) {
        return no_admin(err);
    }
    int r = check_txn(cmp, n_cmp, op, n_op, err);
    return r < 0 ? r : kv->backend->txn_start(kv, cmp, n_cmp, op, n_op, fn, ctx, err);
}

void kv_watch_pause(struct kv_watch *w)
{
    __atomic_store_n(&w->is_paused, true, __ATOMIC_SEQ_CST);
}

void kv_watch_resume(struct kv_watch *w)
{
    if (__atomic_exchange_n(&w->is_paused, false, __ATOMIC_SEQ_CST) &&
        w->kv->backend->watch_resume) {
        w->kv->backend->watch_resume(w->kv, w);
    }
}

int kv_stats(struct kv *kv, struct kv_stats *ret)
{
    if (!kv->backend->stats) {
        return -ENOSYS;
    }
    memset(ret, 0, sizeof(*ret));
    kv->backend->stats(kv, ret);
    return 0;
}

int kv_compact(struct kv *kv, uint64_t keep, struct err *err)
{
    return kv->backend->compact ? kv->backend->compact(kv, keep, err) : no_admin(err);
}

int kv_snapshot_open(struct kv *kv, struct kv_snapshot **ret, struct err *err)
{
    return kv->backend->snapshot_open ? kv->backend->snapshot_open(kv, ret, err)
                                      : no_admin(err);
}

int kv_snapshot_list(struct kv_snapshot *s, struct arena *a, struct str after,
                     struct kv_list *ret, struct err *err)
{
    return s->kv->backend->snapshot_list(s, a, after, ret, err);
}

void kv_snapshot_close(struct kv_snapshot *s)
{
    if (s) {
        s->kv->backend->snapshot_close(s);
    }
}

int kv_replace(struct kv *kv, bool is_forced, kv_next_fn next, void *ctx, struct err *err)
{
    return kv->backend->replace ? kv->backend->replace(kv, is_forced, next, ctx, err)
                                : no_admin(err);
}
