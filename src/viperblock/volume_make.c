#include "viperblock/volume_make.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "snap/snap.h"
#include "viperblock/base.h"
#include "viperblock/copy.h"
#include "viperblock/store.h"
#include "viperblock/vol_files.h"
#include <errno.h>

#define GIB          (UINT64_C(1) << 30)
#define SIZE_GIB_MAX 65536u

/* Copies into the arena, so that nothing of the view is held. */
static const struct snapshot *find_snapshot(struct vb *vb, struct arena *a, struct str account,
                                            struct str id, struct str *ret_state)
{
    struct snapshot *ret = NULL;
    const struct view_entry *e = vb_get(vb, key_spec(a, "snapshot", account, id));
    const struct view_entry *s = vb_get(vb, key_status(a, "snapshot", account, id));
    if (e) {
        const struct snapshot *x = e->obj;
        ret = arena_new_of(a, struct snapshot);
        *ret = *x;
        ret->id = arena_str_dup(a, x->id);
        ret->account = arena_str_dup(a, x->account);
        ret->image_id = arena_str_dup(a, x->image_id);
        /* Before there were statuses, a snapshot that was there was whole. */
        struct str state = s ? ((const struct snapshot_status *)s->obj)->state : x->state;
        *ret_state = arena_str_dup(a, state.n > 0 ? state : STR("pending"));
        view_unref(e);
    }
    if (s) {
        view_unref(s);
    }
    return ret;
}

static int too_small(struct err *err, struct str id, uint64_t size)
{
    return fail(err, -EINVAL, "InvalidParameterValue",
                "%.*s has %llu bytes: the volume is too small", STR_ARG(id),
                (unsigned long long)size);
}

/* The image's base on this node, when it has or may have one. 0, or 1: none. */
static int use_base(struct vb *vb, struct arena *a, struct str image_id, struct volume_meta *m,
                    struct err *err)
{
    struct base_facts f;
    int rc = base_get(vb, a, image_id, &f, err);
    if (rc != 0) {
        return rc;
    }
    m->base = image_id;
    m->source_id = f.snapshot_id;
    m->source_account = f.account;
    m->source_size = f.size;
    return 0;
}

static int use_store(struct vb *vb, struct arena *a, const struct volume *v,
                     struct volume_meta *m, struct err *err)
{
    struct str state = STR("");
    struct str account = v->snapshot_account.n > 0 ? v->snapshot_account : v->account;
    const struct snapshot *s = find_snapshot(vb, a, account, v->snapshot_id, &state);
    if (!s) {
        return fail(err, -ENOENT, "InvalidSnapshot.NotFound", "the snapshot %.*s is not here",
                    STR_ARG(v->snapshot_id));
    }
    if (s->image_id.n > 0 && use_base(vb, a, s->image_id, m, NULL) == 0) {
        return 0;
    }
    if (str_eqc(state, "error") || str_eqc(state, "deleted")) {
        return fail(err, -EINVAL, "IncorrectState", "the snapshot %.*s is in state %.*s",
                    STR_ARG(s->id), STR_ARG(state));
    }
    if (!str_eqc(state, "completed")) {
        return fail(err, -EAGAIN, "SnapshotNotReady", "the snapshot %.*s is not completed yet",
                    STR_ARG(s->id));
    }
    if (s->is_encrypted && !v->is_encrypted) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "a volume of an encrypted snapshot is encrypted");
    }
    struct snap_store *store = NULL;
    struct snap_info info;
    int rc = store_get(vb, &store, err);
    rc = rc != 0 ? rc : snap_stat(store, s->account, s->id, &info, err);
    if (rc != 0) {
        return rc;
    }
    m->source_id = s->id;
    m->source_account = s->account;
    m->source_size = info.size;
    return 0;
}

/* What dirt counts from: the source, when a snapshot of this volume may have it as its
 * parent. */
static void set_since(struct vb *vb, struct arena *a, struct volume_meta *m)
{
    struct str state = STR("");
    if (m->source_id.n == 0 || !str_eq(m->source_account, m->account)) {
        return;
    }
    const struct snapshot *s = find_snapshot(vb, a, m->source_account, m->source_id, &state);
    if (s && s->is_encrypted == m->is_encrypted && !str_eqc(state, "error")) {
        m->last = m->source_id;
    }
}

static int plan(struct vb *vb, struct arena *a, const struct volume *v, struct volume_meta *m,
                struct err *err)
{
    *m = (struct volume_meta){.id = v->id,
                              .account = v->account,
                              .layout = STR(VOLUME_LAYOUT_MAPPED),
                              .size = v->size_gib * GIB,
                              .image_id = v->image_id,
                              .snapshot_id = v->snapshot_id,
                              .snapshot_account = v->snapshot_account,
                              .create_ns = v->create_ns,
                              .is_encrypted = v->is_encrypted};
    int rc = 1;
    if (v->image_id.n > 0) {
        if (!id_is_wellformed(v->image_id, "ami")) {
            return fail(err, -EINVAL, "InvalidAMIID.Malformed", "'%.*s' is no image id",
                        STR_ARG(v->image_id));
        }
        rc = use_base(vb, a, v->image_id, m, v->snapshot_id.n > 0 ? NULL : err);
    }
    if (rc != 0 && v->snapshot_id.n > 0) {
        rc = use_store(vb, a, v, m, err);
    } else if (rc == 1) {
        rc = 0;
    }
    if (rc == 0 && m->source_size > m->size) {
        rc = too_small(err, m->base.n > 0 ? m->base : m->source_id, m->source_size);
    }
    if (rc == 0) {
        set_since(vb, a, m);
    }
    return rc;
}

int volume_make(struct vb *vb, struct arena *a, const struct volume *v, struct err *err)
{
    struct volume_meta m;
    AUTO_FD dir = -1;
    if (v->size_gib == 0 || v->size_gib > SIZE_GIB_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue", "%llu GiB is no size of a volume",
                    (unsigned long long)v->size_gib);
    }
    base_hold(vb); /* until it is seen to need its base */
    int rc = plan(vb, a, v, &m, err);
    rc = rc != 0 ? rc : copy_check_room(folder_fd(vb->folder), 0, err);
    if (rc == 0 && m.is_encrypted) {
        rc = vol_new_key(vb, a, m.id, &m.key, err);
    }
    rc = rc != 0 ? rc : folder_begin(vb->folder, FOLDER_VOLUME, v->id, &dir, err);
    if (rc == 0) {
        rc = vol_make_files(&m, dir, err);
        rc = rc != 0 ? rc : folder_publish(vb->folder, FOLDER_VOLUME, v->id, dir, err);
        if (rc != 0) {
            folder_abandon(vb->folder, FOLDER_VOLUME, v->id);
        }
    }
    base_release(vb);
    return rc;
}
