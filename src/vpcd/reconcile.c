#include "vpcd/vpcd_int.h"

#include "base/time.h"
#include "model/keys.h"
#include "model/obj.h"

#include <errno.h>
#include <stdio.h>

LOG_MODULE("vpcd.round");

#define VIEW_TIMEOUT_NS (3 * NS_PER_S)

static const char *const prefixes[] = {"spec/vpc/", "spec/subnet/",   "spec/eni/",
                                       "spec/sg/",  "spec/instance/", "spec/igw/",
                                       "spec/rtb/", "spec/tags/",     "status/eni/"};

static void on_change(void *ctx, const struct view_entry *old, const struct view_entry *now)
{
    struct str key = now ? now->key : old->key;
    if (!str_has_prefixc(key, "status/")) {
        vpcd_poke(ctx);
    }
}

static int open_view(struct vpcd *v, struct err *err)
{
    static const struct view_ops ops = {
        .parse = model_parse, .free = model_free, .on_change = on_change};
    return v->view ? 0
                   : view_open(v->kv, prefixes, ARRAY_LEN(prefixes), &ops, v, VIEW_TIMEOUT_NS,
                               &v->view, err);
}

/* ---- the records of this round, held by reference ---- */

struct held {
    VEC(const struct view_entry *) refs;
    struct plan_input in;
    char prefix[PLAN_PREFIX_SIZE];
};

static bool is_interesting(const struct view_entry *e)
{
    /* Tags of volumes and images say nothing to the network. */
    return !str_has_prefixc(e->key, "spec/tags/") || str_find_str(e->key, STR("/i-")) >= 0;
}

static void hold_all(struct vpcd *v, struct held *h, struct arena *a)
{
    view_lock(v->view);
    const struct omap *m = view_map(v->view);
    omap_foreach_prefix(n, m, STR("spec/"))
    {
        const struct view_entry *e = omap_value(n);
        if (!is_interesting(e)) {
            continue;
        }
        if (e->obj) {
            vec_push(&h->refs, view_ref(e));
        } else {
            h->in.is_incomplete =
                true; /* a record that this version cannot read must not cost a guest its network */
        }
    }
    view_unlock(v->view);
#define X(kind)                                                          \
    h->in.kind.v = arena_xalloc(a, (h->refs.n + 1) * sizeof(void *));    \
    for (size_t i = 0; i < h->refs.n; i++) {                             \
        if (str_has_prefix(h->refs.v[i]->key, STR("spec/" #kind "/"))) { \
            h->in.kind.v[h->in.kind.n++] = h->refs.v[i]->obj;            \
        }                                                                \
    }
    PLAN_INPUT(X)
#undef X
    h->in.node = v->cfg->node;
    plan_host_prefix(v->cfg->run_dir, h->prefix);
    h->in.host_prefix = h->prefix;
}

static void let_go(struct held *h)
{
    for (size_t i = 0; i < h->refs.n; i++) {
        view_unref(h->refs.v[i]);
    }
    vec_free(&h->refs);
}

/* ---- one round ---- */

static void trouble(struct vpcd *v, const char *event, const struct err *err)
{
    log_warn_rl(event, KV_ERR(err));
    if (!v->has_failed) {
        snprintf(v->trouble, sizeof(v->trouble), "%.199s", err->msg);
    }
    v->has_failed = true;
}

static void on_removed(void *ctx, struct str vpc_id)
{
    struct vpcd *v = ctx;
    log_info("vpc.removed", KV_STR("vpc", vpc_id));
    responders_remove(v->responders, vpc_id);
}

struct results {
    struct eni_result *v;
    size_t n;
};

static void add_result(struct results *rs, const struct eni *spec, const char *state,
                       struct str reason)
{
    rs->v[rs->n++] = (struct eni_result){spec, state, reason};
}

static void apply_vpc(struct vpcd *v, const struct plan_vpc *pv, struct arena *a,
                      struct results *rs)
{
    struct err err = ERR_INIT;
    int r = native_apply_vpc(v->native, pv, v->is_full, &err);
    if (r) {
        trouble(v, "vpc.apply_failed", &err);
    }
    for (size_t i = 0; i < pv->n_enis; i++) {
        add_result(rs, pv->enis[i].spec, r ? "error" : "ready",
                   r ? arena_str_dup(a, str_c(err.msg)) : STR(""));
    }
    err_clear(&err);
    /* A guest without answers for a moment still has its network. */
    if (!r && responders_apply(v->responders, v->native, pv, v->is_full, &err)) {
        trouble(v, "responder.failed", &err);
    }
}

static void apply(struct vpcd *v, const struct plan *p, struct arena *a, struct results *rs)
{
    struct err err = ERR_INIT;
    if (native_apply_host(v->native, v->is_full, &err)) {
        trouble(v, "host.apply_failed", &err);
    }
    err_clear(&err);
    if (native_remove_others(v->native, p, on_removed, v, &err)) {
        trouble(v, "remove_failed", &err);
    }
    for (size_t i = 0; i < p->n_vpcs; i++) {
        apply_vpc(v, &p->vpcs[i], a, rs);
    }
    for (size_t i = 0; i < p->n_bad; i++) {
        log_warn_rl("eni.bad", KV_STR("eni", p->bad[i].spec->id),
                    KV_STR("why", p->bad[i].reason));
        add_result(rs, p->bad[i].spec, "error", p->bad[i].reason);
    }
    for (size_t i = 0; i < p->n_gone; i++) {
        add_result(rs, p->gone[i], "deleted", STR(""));
    }
}

static void run(struct vpcd *v, struct arena *a, struct err *why)
{
    struct held h = {0};
    struct plan p;
    hold_all(v, &h, a);
    int r = plan_build(&h.in, a, &p, why);
    if (r) {
        trouble(v, "plan_failed", why);
        let_go(&h);
        return;
    }
    struct results rs = {.v = arena_xalloc(a, (h.in.eni.n + 1) * sizeof(struct eni_result))};
    apply(v, &p, a, &rs);
    vpcd_answer_asks(v, &p, NULL);
    struct err err = ERR_INIT;
    if (vpcd_report(v, rs.v, rs.n, &err)) {
        trouble(v, "report_failed", &err);
    }
    let_go(&h);
}

void vpcd_round(void *ctx)
{
    struct vpcd *v = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(PLAN_ARENA_MAX);
    struct err err = ERR_INIT;
    v->has_failed = false;
    if (open_view(v, &err)) {
        trouble(v, "store.unavailable", &err);
        vpcd_answer_asks(v, NULL, &err);
        return;
    }
    run(v, a, &err);
    v->is_full = v->has_failed;
}
