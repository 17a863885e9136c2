/* status/eni: written when it differs from what the store holds, removed when the interface's
 * spec is gone. */
#include "vpcd/vpcd_int.h"

#include "model/keys.h"

#include <errno.h>

#define ARENA_MAX (64u << 20)

static int write_batch(struct vpcd *v, struct kv_op *ops, size_t *n, struct err *err)
{
    uint64_t rev = 0;
    int r = *n ? kv_txn(v->kv, NULL, 0, ops, *n, &rev, err) : 0;
    for (size_t i = 0; !r && i < *n; i++) {
        free(ops[i].type == KV_PUT
                 ? omap_put(v->reported, ops[i].key, strndup(ops[i].value.p, ops[i].value.n))
                 : omap_remove(v->reported, ops[i].key));
    }
    *n = 0;
    return r;
}

static int report_one(struct vpcd *v, struct arena *a, const struct eni_result *e,
                      struct kv_op *op, bool *ret_is_needed, struct err *err)
{
    struct eni_status st = {.id = e->spec->id,
                            .generation = e->spec->generation,
                            .state = str_c(e->state),
                            .reason = e->reason};
    AUTO_BUF b;
    buf_init(&b, KV_MAX_VALUE);
    int r = rec_save(&eni_status_desc, &st, &b, err);
    *op = (struct kv_op){.type = KV_PUT,
                         .key = key_status(a, "eni", e->spec->account, e->spec->id)};
    const char *old = omap_get(v->reported, op->key);
    *ret_is_needed = !r && (!old || !str_eqc(buf_str(&b), old));
    if (*ret_is_needed) {
        op->value = arena_str_dup(a, buf_str(&b));
    }
    return r;
}

static int delete_orphans(struct vpcd *v, struct arena *a, struct kv_op *ops, size_t *n,
                          struct err *err)
{
    VEC(struct str) keys = {0};
    view_lock(v->view);
    omap_foreach_prefix(node, view_map(v->view), STR("status/eni/"))
    {
        struct key_parts k;
        if (!key_parse(omap_key(node), &k) &&
            !view_get(v->view, key_spec(a, "eni", k.account, k.id))) {
            vec_push(&keys, arena_str_dup(a, omap_key(node)));
        }
    }
    view_unlock(v->view);
    int r = 0;
    for (size_t i = 0; !r && i < keys.n; i++) {
        ops[(*n)++] = (struct kv_op){.type = KV_DELETE, .key = keys.v[i]};
        r = *n == KV_MAX_OPS ? write_batch(v, ops, n, err) : 0;
    }
    vec_free(&keys);
    return r;
}

int vpcd_report(struct vpcd *v, const struct eni_result *res, size_t n_res, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_MAX);
    struct kv_op ops[KV_MAX_OPS];
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; !r && i < n_res; i++) {
        bool is_needed = false;
        r = report_one(v, a, &res[i], &ops[n], &is_needed, err);
        n += is_needed;
        r = !r && n == KV_MAX_OPS ? write_batch(v, ops, &n, err) : r;
    }
    r = r ? r : delete_orphans(v, a, ops, &n, err);
    return r ? r : write_batch(v, ops, &n, err);
}
