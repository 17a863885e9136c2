#include "viperblock/gc.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "snap/snap.h"
#include "viperblock/base.h"
#include "viperblock/step.h"
#include "viperblock/store.h"
#include "viperblock/vol_files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

LOG_MODULE("viperblock.gc");

static void touch(struct vb *vb, const char *what, struct str x, struct str y)
{
    char key[128];
    (void)snprintf(key, sizeof(key), "gc/%s/%.*s%s%.*s", what, STR_ARG(x), y.n > 0 ? "/" : "",
                   STR_ARG(y));
    vb_touch(vb, str_c(key));
}

void gc_snapshot(struct vb *vb, struct str account, struct str id)
{
    if (account.n > 0 && id.n > 0) {
        touch(vb, "snapshot", account, id);
    }
}

void gc_base(struct vb *vb, struct str image_id)
{
    touch(vb, "base", image_id, STR(""));
}

void gc_volume_gone(struct vb *vb, const struct volume_meta *m)
{
    gc_snapshot(vb, m->source_account, m->source_id);
    gc_snapshot(vb, m->account, m->last);
    if (m->base.n > 0) {
        gc_base(vb, m->base);
    }
}

/* --- snapshots
 * ------------------------------------------------------------------------------ */

struct need {
    struct vb *vb;
    struct str account, id;
    bool is_needed;
};

static void look_at(void *ctx, struct str volume_id)
{
    struct need *n = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct volume_meta m;
    struct err err = ERR_INIT;
    int rc = vol_meta_load(n->vb, a, volume_id, &m, &err);
    if (rc == -ENOENT) {
        return; /* it went meanwhile */
    }
    if (rc != 0) { /* what cannot be read may need it */
        n->is_needed = true;
        return;
    }
    bool is_own = str_eq(m.account, n->account);
    n->is_needed = n->is_needed ||
                   (str_eq(m.source_account, n->account) && str_eq(m.source_id, n->id)) ||
                   (is_own && str_eq(m.last, n->id));
    for (size_t i = 0; i < m.frozen.n; i++) {
        n->is_needed = n->is_needed || (is_own && (str_eq(m.frozen.v[i].parent, n->id) ||
                                                   str_eq(m.frozen.v[i].id, n->id)));
    }
}

bool gc_is_needed(struct vb *vb, struct str account, struct str id)
{
    struct need n = {.vb = vb, .account = account, .id = id};
    struct err err = ERR_INIT;
    return folder_each(vb->folder, FOLDER_VOLUME, look_at, &n, &err) != 0 || n.is_needed;
}

static bool is_wanted(struct vb *vb, struct arena *a, struct str account, struct str id)
{
    const struct view_entry *e = vb_get(vb, key_spec(a, "snapshot", account, id));
    bool is = e && !str_eqc(((const struct snapshot *)e->obj)->want, "deleted");
    if (e) {
        view_unref(e);
    }
    return is;
}

static int collect(struct vb *vb, struct str account)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    struct snap_usage u;
    int rc = store_get(vb, &store, &err);
    STEP("snapshot.collect");
    rc = rc != 0 ? rc : snap_collect(store, account, &u, &err);
    if (rc != 0) {
        log_warn_rl("blocks.collect_failed", KV_STR("account", account), KV_ERR(&err));
    } else if (u.n_freed_blocks + u.n_freed_pages > 0) {
        log_info("blocks.freed", KV_STR("account", account), KV_U64("blocks", u.n_freed_blocks),
                 KV_U64("bytes", u.freed_bytes));
    }
    return rc;
}

/* A root that no volume needs is given up. */
static int release(struct vb *vb, struct arena *a, struct str account, struct str id)
{
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    base_hold(vb); /* no volume is made of it meanwhile */
    int rc = 0;
    if (!is_wanted(vb, a, account, id) && !gc_is_needed(vb, account, id)) {
        rc = store_get(vb, &store, &err);
        STEP("snapshot.release");
        rc = rc != 0 ? rc : snap_unkeep(store, account, id, &err);
    }
    base_release(vb);
    if (rc != 0) {
        log_warn_rl("snapshot.release_failed", KV_STR("snapshot", id), KV_ERR(&err));
        return rc;
    }
    return store ? collect(vb, account) : 0;
}

/* --- bases
 * ---------------------------------------------------------------------------------- */

/* The image is gone; its snapshot is in the store, or is not wanted either. */
static bool may_go(struct vb *vb, struct arena *a, struct str image_id)
{
    bool may = true;
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/image/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct image *i = e->obj;
        may = may && !(i && str_eq(i->id, image_id) && !str_eqc(i->want, "deleted"));
    }
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/snapshot/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct snapshot *s = e->obj;
        if (!s || !str_eq(s->image_id, image_id) || str_eqc(s->want, "deleted")) {
            continue;
        }
        const struct view_entry *st =
            view_get(vb->view, key_status(a, "snapshot", s->account, s->id));
        const struct snapshot_status *x = st ? st->obj : NULL;
        may = may && x && (str_eqc(x->state, "completed") || str_eqc(x->state, "error"));
    }
    view_unlock(vb->view);
    return may;
}

static int remove_base(struct vb *vb, struct arena *a, struct str image_id)
{
    struct err err = ERR_INIT;
    if (!folder_has(vb->folder, FOLDER_IMAGE, image_id)) {
        return 0;
    }
    if (!may_go(vb, a, image_id)) {
        return 0; /* looked at again when its snapshot is completed */
    }
    int rc = base_remove(vb, image_id, &err);
    if (rc == 0) {
        log_info("base.removed", KV_STR("image", image_id));
    } else if (rc != -EBUSY) {
        log_warn("base.remove_failed", KV_STR("image", image_id), KV_ERR(&err));
    }
    return rc == -EBUSY ? 0 : rc; /* looked at again when a volume is gone or whole */
}

/* "gc/snapshot/<account>/<id>", "gc/account/<account>", "gc/base/<image>" */
int gc_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    struct str rest = str_skip(key, sizeof("gc/") - 1), what, x, y = STR("");
    if (!str_next(&rest, '/', &what) || !str_next(&rest, '/', &x)) {
        return 0;
    }
    (void)str_next(&rest, '/', &y);
    if (str_eqc(what, "base")) {
        return remove_base(vb, a, x);
    }
    return str_eqc(what, "account") ? collect(vb, x) : release(vb, a, x, y);
}

/* --- start
 * ---------------------------------------------------------------------------------- */

void gc_opened(struct vb *vb, struct str id)
{
    AUTO_FD mark = -1;
    if (folder_open_file(vb->folder, FOLDER_IMAGE, id, IMAGE_REMOVED, O_RDONLY, &mark, NULL) ==
        0) {
        gc_base(vb, id);
    }
}

static void start_base(void *ctx, struct str id)
{
    gc_opened(ctx, id);
}

static void start_all(void *ctx)
{
    struct vb *vb = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct snap_store *store = NULL;
    struct str *accounts = NULL;
    size_t n = 0;
    struct err err = ERR_INIT;
    int rc = folder_each(vb->folder, FOLDER_IMAGE, start_base, vb, &err);
    rc = rc != 0 ? rc : store_get(vb, &store, &err);
    rc = rc != 0 ? rc : snap_accounts(store, a, &accounts, &n, &err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct str *kept = NULL;
        size_t n_kept = 0;
        if (snap_list(store, accounts[i], true, a, &kept, &n_kept, &err) == 0) {
            for (size_t k = 0; k < n_kept; k++) {
                gc_snapshot(vb, accounts[i], kept[k]);
            }
        }
        touch(vb, "account", accounts[i], STR(""));
    }
    if (rc != 0) {
        log_info("blocks.start_collect_failed", KV_ERR(&err));
    }
}

void gc_start(struct vb *vb)
{
    (void)!pool_submit(vb->upload_pool, start_all, NULL, NULL, vb);
}
