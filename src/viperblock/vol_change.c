#include "base/time.h"
#include "model/keys.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols_int.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("viperblock.vols");

#define CALL_NS (15 * NS_PER_S)

int vol_set_limits(struct vols *vs, struct vol *v, struct err *err)
{
    union ctl_msg m = {.h = {.op = CTL_LIMITS}};
    m.limits.limits = vol_limits(vs, v);
    return vol_call(vs, v, &m, CALL_NS, NULL, err);
}

void vol_set_size(struct vols *vs, struct vol *v, uint64_t size)
{
    vols_lock(vs); /* the loop copies all of it when its process says something */
    v->size = size;
    vols_unlock(vs);
}

void vol_set_queues(struct vols *vs, struct vol *v, uint32_t n_queues)
{
    vols_lock(vs);
    v->n_queues = v->p ? v->n_queues : n_queues;
    vols_unlock(vs);
}

void vol_forgive(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    v->is_crashed = false;
    vols_unlock(vs);
}

void vol_forget_source(struct vols *vs, struct vol *v)
{
    vols_lock(vs);
    v->source_id[0] = v->source_account[0] = v->base[0] = '\0';
    v->source_size = 0;
    vols_unlock(vs);
}

void vol_set_frozen(struct vols *vs, struct vol *v, const struct volume_meta *m)
{
    vols_lock(vs);
    vol_set_source(v, m);
    vols_unlock(vs);
}

void vol_open_upload(struct vols *vs, struct vol *v, const char *snap)
{
    vols_lock(vs);
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        if (strcmp(v->uploads[i].snap, snap) == 0) {
            v->uploads[i].is_open = true;
        }
    }
    vols_unlock(vs);
}

struct upload vol_upload(struct vols *vs, const struct vol *v, const char *snap)
{
    struct upload ret = {.is_open = false};
    vols_lock(vs);
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        ret = strcmp(v->uploads[i].snap, snap) == 0 ? v->uploads[i] : ret;
    }
    vols_unlock(vs);
    return ret;
}

void vols_forget_map(struct vols *vs, struct str id)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%.*s", vs->maps_dir, STR_ARG(id)) < PATH_MAX) {
        (void)unlink(path);
    }
}

void vols_fill(struct vols *vs, struct str id, uint64_t bytes_per_s)
{
    vols_lock(vs);
    struct vol *v = omap_get(vs->vols, id);
    struct proc *p = v && v->p ? proc_ref(v->p) : NULL;
    union ctl_msg m = {.h = {.op = CTL_FILL, .disk = v ? v->disk : 0, .arg = bytes_per_s}};
    vols_unlock(vs);
    if (p) {
        (void)!proc_send(p, &m);
        proc_unref(p);
    }
}

/* The frontend connects again by itself: its connection ends with the service of the old
 * disk. */
int vol_reopen(struct vols *vs, struct vol *v, struct err *err)
{
    char host[BLK_SNAP_ID];
    memcpy(host, v->host, sizeof(host));
    bool is_vu = v->is_vu, is_nbd = v->is_nbd, is_read_only = v->is_nbd_read_only;
    const struct vol_guest g = {.uid = v->uid, .n_queues = v->n_queues, .is_nbd = v->is_vu_nbd};
    char path[108];
    vols_lock(vs);
    v->is_crashed = false;
    v->crash_ns[0] = v->crash_ns[1] = 0;
    vols_unlock(vs);
    if (host[0] == '\0') {
        return 0;
    }
    int rc = v->p && is_vu ? vol_unserve(vs, v, false, err) : 0;
    rc = rc != 0 || !v->p || !is_nbd ? rc : vol_unserve(vs, v, true, err);
    rc = rc != 0 ? rc : vol_close(vs, v, true, err);
    rc = rc != 0 ? rc : vol_open(vs, v, strncmp(host, "i-", 2) == 0 ? host : NULL, 0, err);
    rc = rc != 0 || !is_vu ? rc : vol_serve_guest(vs, v, &g, path, err);
    return rc != 0 || !is_nbd ? rc : vol_serve_nbd(vs, v, is_read_only, path, err);
}
