#include "viperblock/supply.h"
#include "blk/blk_cow.h"
#include "snap/snap.h"
#include "viperblock/base.h"
#include "viperblock/step.h"
#include "viperblock/store.h"
#include "viperblock/vols.h"
#include "viperblock/vols_int.h"
#include <errno.h>
#include <stdalign.h>

LOG_MODULE("viperblock.supply");

struct work {
    struct vb *vb;
    struct proc *p; /* ref */
    struct ctl_head h;
    char account[16], source_id[BLK_SNAP_ID], base[BLK_SNAP_ID];
    uint64_t source_size;
    bool is_known;
};

static void *buffer(void)
{
    static _Thread_local alignas(4096) char buf[BLK_BLOCK];
    return buf;
}

static void work_free(struct work *w)
{
    proc_unref(w->p);
    free(w);
}

static void answer(struct work *w, uint16_t op, int rc)
{
    union ctl_msg m = {.h = w->h};
    m.h.op = op;
    m.h.rc = rc;
    (void)!proc_send(w->p, &m); /* a process that is gone asks again when it is back */
}

/* --- an absent block
 * ------------------------------------------------------------------------ */

static int fetch(struct work *w, struct err *err)
{
    struct snap_store *store = NULL;
    uint64_t n = (w->source_size + BLK_BLOCK - 1) / BLK_BLOCK;
    if (!w->is_known) { /* its OPEN is being answered at this moment */
        return -EAGAIN;
    }
    if (w->source_id[0] == '\0') {
        return fail(err, -EIO, "NoSuchBlock", "nothing is known of where the block comes from");
    }
    if (w->h.block >= n) {
        return CTL_FETCHED_ZEROS;
    }
    if (w->base[0] != '\0') {
        int rc = base_fetch(w->vb, str_c(w->base), str_c(w->account), str_c(w->source_id),
                            w->h.block, buffer(), err);
        return rc != 0 ? rc : CTL_FETCHED_IN_BASE;
    }
    int rc = store_get(w->vb, &store, err);
    rc = rc != 0 ? rc
                 : snap_get(store, str_c(w->account), str_c(w->source_id), w->h.block, buffer(),
                            err);
    if (rc == 0) {
        rc = proc_slot_write(w->p, w->h.slot, buffer());
    }
    return rc == 1 ? CTL_FETCHED_ZEROS : rc;
}

/* What will not change by waiting is an error in the guest; the rest is asked for again. */
static bool is_for_good(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG || rc == -EIO || rc == -EINVAL || rc == -EPROTO;
}

static void do_fetch(void *ctx)
{
    struct work *w = ctx;
    struct err err = ERR_INIT;
    int rc = fetch(w, &err);
    if (rc < 0) {
        log_warn_rl("block.fetch_failed", KV_CSTR("snapshot", w->source_id),
                    KV_U64("block", w->h.block), KV_ERR(&err));
        rc = is_for_good(rc) ? -EIO : -EAGAIN;
    }
    if (w->is_known) {
        vols_fetched(w->vb->vols, w->p, w->h.disk,
                     rc >= 0      ? FETCH_OK
                     : rc == -EIO ? FETCH_LOST
                                  : FETCH_AWAY);
    }
    answer(w, CTL_FETCHED, rc);
    work_free(w);
}

/* --- a frozen block
 * ------------------------------------------------------------------------- */

static void do_upload(void *ctx)
{
    struct work *w = ctx;
    struct err err = ERR_INIT;
    struct snap_store *store = NULL;
    int rc = w->is_known ? store_get(w->vb, &store, &err) : -ENOENT;
    rc = rc != 0 ? rc : proc_slot_read(w->p, w->h.slot, buffer());
    rc = rc != 0 ? rc : snap_put(store, str_c(w->h.snap), w->h.block, buffer(), NULL, &err);
    STEP("snapshot.stored");
    if (rc != 0 && w->is_known) {
        log_warn_rl("block.store_failed", KV_CSTR("snapshot", w->h.snap),
                    KV_U64("block", w->h.block), KV_ERR(&err));
    }
    answer(w, CTL_STORED, rc == 0 ? 0 : -EAGAIN);
    work_free(w);
}

/* --- the loop's thread
 * ---------------------------------------------------------------------- */

static bool is_open_upload(const struct vol *v, const char *snap)
{
    bool found = false;
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        found = found || (v->uploads[i].is_open && strcmp(v->uploads[i].snap, snap) == 0);
    }
    return found;
}

void supply_take(struct vb *vb, struct proc *p, const struct ctl_head *h)
{
    bool is_fetch = h->op == CTL_FETCH;
    if (atomic_load(&vb->is_stopping)) {
        return; /* the next manager is asked again */
    }
    struct work *w = calloc(1, sizeof(*w));
    if (!w) {
        abort();
    }
    w->vb = vb;
    w->p = proc_ref(p);
    w->h = *h;
    vols_lock(vb->vols);
    const struct vol *v = vol_of_disk(vb->vols, p, h->disk);
    if (v) {
        w->is_known = is_fetch ? v->source_loaded : is_open_upload(v, h->snap);
        memcpy(w->account, v->source_account, sizeof(w->account));
        memcpy(w->source_id, v->source_id, sizeof(w->source_id));
        memcpy(w->base, v->base, sizeof(w->base));
        w->source_size = v->source_size;
    }
    vols_unlock(vb->vols);
    struct pool *pool = is_fetch && h->arg == 0 ? vb->fetch_pool : vb->upload_pool;
    if (pool_submit(pool, is_fetch ? do_fetch : do_upload, NULL, NULL, w) != 0) {
        union ctl_msg m = {.h = w->h};
        m.h.op = is_fetch ? CTL_FETCHED : CTL_STORED;
        m.h.rc = -EAGAIN;
        (void)!proc_try(w->p, &m);
        work_free(w);
    }
}
