#include "spx/data.h"
#include <errno.h>

#define PAGE_ARENA (16u << 20)

int data_each(struct kv *kv, struct str prefix, data_each_fn fn, void *ctx, struct err *err)
{
    char last[KV_MAX_KEY];
    struct str after = STR_NONE;
    for (;;) {
        AUTO(arena_freep) struct arena *a = arena_new(PAGE_ARENA);
        struct kv_list l = {0};
        int r = kv_list(kv, a, prefix, after, 0, &l, err);
        if (r == -ENOTCONN) {
            err_hint(err, "is it running? sudo spx up, or systemctl start spinifex.target");
        } else if (r == -EACCES || r == -EPERM) {
            err_hint(err, "run it with sudo");
        }
        for (size_t i = 0; r == 0 && i < l.n; i++) {
            r = fn(ctx, &l.v[i], err);
        }
        if (r < 0 || !l.has_more || l.n == 0) {
            return r;
        }
        struct str key = l.v[l.n - 1].key;
        if (key.n > sizeof(last)) {
            return fail(err, -E2BIG, "TooLarge", "a key of the store is too long");
        }
        memcpy(last, key.p, key.n);
        after = str_n(last, key.n);
    }
}

struct loader {
    struct spx *s;
    const struct rec_desc *d;
    struct recs *out;
};

static int load_one(void *ctx, const struct kv_item *item, struct err *err)
{
    struct loader *l = ctx;
    struct recs *r = l->out;
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        char *v = arena_array(l->s->arena, cap, r->size);
        struct str *keys = arena_array(l->s->arena, cap, sizeof(*keys));
        if (!v || !keys) {
            return fail(err, -ENOMEM, "TooLarge", "too many records");
        }
        if (r->n) {
            memcpy(v, r->v, r->n * r->size);
            memcpy(keys, r->keys, r->n * sizeof(*keys));
        }
        r->v = v;
        r->keys = keys;
        r->cap = cap;
    }
    int e = rec_load(l->d, l->s->arena, item->value, r->v + r->n * r->size, err);
    if (e < 0) {
        return err_context(err, e, "%.*s", STR_ARG(item->key));
    }
    r->keys[r->n++] = arena_str_dup(l->s->arena, item->key);
    return 0;
}

int data_load(struct spx *s, const char *prefix, const struct rec_desc *d, struct recs *ret,
              struct err *err)
{
    *ret = (struct recs){.size = d->size};
    struct loader l = {.s = s, .d = d, .out = ret};
    int r = spx_state(s, err);
    return r < 0 ? r : data_each(s->kv, str_c(prefix), load_one, &l, err);
}

const void *data_find(const struct recs *r, struct str tail)
{
    for (size_t i = 0; i < r->n; i++) {
        struct str k = r->keys[i];
        if (k.n > tail.n && k.p[k.n - tail.n - 1] == '/' && str_has_suffix(k, tail)) {
            return r->v + i * r->size;
        }
    }
    return NULL;
}
