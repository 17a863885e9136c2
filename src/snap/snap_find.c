/* Which blocks of which snapshots cannot be read: looked for when a check has counted some. */
#include "snap/snap_int.h"

#include <errno.h>

struct find {
    struct snap_store *s;
    struct str account;
    struct snap_names good; /* snapshots share most of their blocks: each is read once */
    void *buf;
    snap_damage_fn fn;
    void *ctx;
};

static int look_at(struct find *f, struct str id, uint64_t block, struct err *err)
{
    uint8_t name[SNAP_NAME];
    struct err e = ERR_INIT;
    int r = snap_names(f->s, f->account, id, block, 1, &name, err);
    if (r < 0 || snap_names_has(&f->good, name)) {
        return r;
    }
    r = snap_get(f->s, f->account, id, block, f->buf, &e);
    if (r == -ENOENT || r == -EBADMSG) {
        return f->fn(f->ctx, id, block, r);
    }
    return r < 0 ? fail(err, r, e.name, "%s", e.msg) : snap_names_add(&f->good, name);
}

static int one(struct find *f, struct str id, struct err *err)
{
    uint64_t block = 0;
    int r = snap_next(f->s, f->account, id, STR(""), STR(""), 0, &block, err);
    while (r == 0 && block != UINT64_MAX) {
        r = look_at(f, id, block, err);
        r = r != 0 ? r
                   : snap_next(f->s, f->account, id, STR(""), STR(""), block + 1, &block, err);
    }
    return r == -ENOENT ? 0 : r; /* it was deleted meanwhile */
}

int snap_find_damage(struct snap_store *s, struct str account, snap_damage_fn fn, void *ctx,
                     struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    AUTO_FREE void *buf = malloc(SNAP_BLOCK);
    struct find f = {.s = s, .account = account, .buf = buf, .fn = fn, .ctx = ctx};
    if (!buf) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a block");
    }
    snap_names_init(&f.good, s->o.collect_names);
    int r = 0;
    for (unsigned is_kept = 0; r == 0 && is_kept < 2; is_kept++) {
        struct str *ids = NULL;
        size_t n = 0;
        r = snap_list(s, account, is_kept == 1, a, &ids, &n, err);
        for (size_t i = 0; r == 0 && i < n; i++) {
            r = one(&f, ids[i], err);
        }
    }
    snap_names_done(&f.good);
    return r;
}
