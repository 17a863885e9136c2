#include "model/volume.h"
#include "base/time.h"
#include "model/keys.h"
#include "viperblock/copy.h"
#include "viperblock/meta.h"
#include "viperblock/vb_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.volume");

#define GIB          (UINT64_C(1) << 30)
#define SIZE_GIB_MAX 65536u
#define META_MAX     65536u
#define LOCK_WAIT     \
    (UINT64_C(1500) * \
     NS_PER_MS) /* writes of a killed QEMU have been seen to hold the lock for 0.2 s */
#define LOCK_STEP_US 20000u

static bool is_stopping(void *vb)
{
    return atomic_load(&((struct vb *)vb)->is_stopping);
}

static int put_status(struct vb *vb, struct arena *a, const struct volume *v, const char *state,
                      const char *reason, uint64_t allocated)
{
    struct err err = ERR_INIT;
    struct volume_status st = {.id = v->id,
                               .generation = v->generation,
                               .state = str_c(state),
                               .reason = str_c(reason),
                               .health = str_c(strcmp(state, "error") == 0 ? "impaired" : "ok"),
                               .allocated = allocated};
    int rc = vb_put_rec(vb, key_status(a, "volume", v->account, v->id), &volume_status_desc,
                        &st, &err);
    if (rc != 0) {
        log_warn_rl("volume.status_failed", KV_STR("volume", v->id), KV_ERR(&err));
    }
    return rc;
}

/* --- making ---------------------------------------------------------------------------------
 */

static int write_meta(const struct volume *v, int dir, struct err *err)
{
    AUTO_BUF text;
    struct volume_meta m = {.id = v->id,
                            .account = v->account,
                            .layout = STR("raw"),
                            .size = v->size_gib * GIB,
                            .image_id = v->image_id,
                            .snapshot_id = v->snapshot_id,
                            .create_ns = v->create_ns};
    buf_init(&text, META_MAX);
    int rc = rec_save(&volume_meta_desc, &m, &text, err);
    return rc != 0 ? rc : folder_write_file(dir, "meta.json", buf_str(&text), err);
}

/* Opens the bytes that the volume starts with; *ret_fd stays -1 for an empty volume. */
static int open_source(struct vb *vb, struct arena *a, const struct volume *v, int *ret_fd,
                       uint64_t *ret_size, struct err *err)
{
    struct str image_id = v->image_id;
    struct stat st;
    if (str_is_empty(image_id) && str_is_empty(v->snapshot_id)) {
        return 0;
    }
    if (str_is_empty(image_id) && !image_of_snapshot(vb, a, v->snapshot_id, &image_id)) {
        return fail(err, -ENOENT, "InvalidSnapshot.NotFound", "the snapshot %.*s is not here",
                    STR_ARG(v->snapshot_id));
    }
    if (!id_is_wellformed(image_id, "ami")) {
        return fail(err, -EINVAL, "InvalidAMIID.Malformed", "'%.*s' is no image id",
                    STR_ARG(image_id));
    }
    int rc =
        folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "data", O_RDONLY, ret_fd, err);
    if (rc != 0) {
        return rc;
    }
    if (fstat(*ret_fd, &st) != 0) {
        return fail(err, -EIO, "ReadFailed", "the image %.*s: %m", STR_ARG(image_id));
    }
    *ret_size = (uint64_t)st.st_size;
    if (*ret_size > v->size_gib * GIB) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "the image %.*s has %llu bytes: the volume is too small", STR_ARG(image_id),
                    (unsigned long long)*ret_size);
    }
    return 0;
}

static int make(struct vb *vb, struct arena *a, const struct volume *v, struct err *err)
{
    AUTO_FD source = -1;
    AUTO_FD dir = -1;
    uint64_t source_size = 0;
    if (v->size_gib == 0 || v->size_gib > SIZE_GIB_MAX) {
        return fail(err, -EINVAL, "InvalidParameterValue", "%llu GiB is no size of a volume",
                    (unsigned long long)v->size_gib);
    }
    int rc = open_source(vb, a, v, &source, &source_size, err);
    rc = rc != 0 ? rc : copy_check_room(folder_fd(vb->folder), 0, err);
    rc = rc != 0 ? rc : folder_begin(vb->folder, FOLDER_VOLUME, v->id, &dir, err);
    if (rc != 0) {
        return rc;
    }
    AUTO_FD data =
        openat(dir, "data", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (data < 0) {
        rc = fail(err, -EIO, "WriteFailed", "the volume's file cannot be made: %m");
    }
    if (rc == 0 && source >= 0) {
        rc = copy_file(source, data, source_size, is_stopping, vb, err);
    }
    if (rc == 0 && ftruncate(data, (off_t)(v->size_gib * GIB)) != 0) {
        rc = fail(err, -errno, "WriteFailed", "the volume cannot be grown to %llu GiB: %m",
                  (unsigned long long)v->size_gib);
    }
    rc = rc != 0 ? rc : write_meta(v, dir, err);
    rc = rc != 0 ? rc : folder_publish(vb->folder, FOLDER_VOLUME, v->id, dir, err);
    if (rc != 0) {
        folder_abandon(vb->folder, FOLDER_VOLUME, v->id);
    }
    return rc;
}

/* The bytes that are there must be those that were made: the right size, as meta.json says. */
static int verify(struct vb *vb, struct arena *a, const struct volume *v,
                  uint64_t *ret_allocated, struct err *err)
{
    AUTO_FD data = -1;
    AUTO_FD meta = -1;
    struct stat st;
    struct volume_meta m;
    char *text = arena_alloc(a, META_MAX);
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, v->id, "data", O_RDONLY, &data, err);
    rc = rc != 0 ? rc
                 : folder_open_file(vb->folder, FOLDER_VOLUME, v->id, "meta.json", O_RDONLY,
                                    &meta, err);
    if (rc != 0) {
        return rc;
    }
    ssize_t n = text ? read(meta, text, META_MAX) : -1;
    if (n < 0 || fstat(data, &st) != 0) {
        return fail(err, -EIO, "ReadFailed", "the volume cannot be read: %m");
    }
    rc = rec_load(&volume_meta_desc, a, str_n(text, (size_t)n), &m, err);
    if (rc == 0 &&
        (!str_eq(m.id, v->id) || !str_eqc(m.layout, "raw") || (uint64_t)st.st_size < m.size)) {
        rc = fail(err, -EIO, "VolumeDamaged",
                  "the volume's file has %lld bytes, its description says %llu",
                  (long long)st.st_size, (unsigned long long)m.size);
    }
    *ret_allocated = (uint64_t)st.st_blocks * 512;
    return rc;
}

/* --- removing -------------------------------------------------------------------------------
 */

/* Holds the lock of the volume's bytes; -EBUSY while somebody else does. */
static int lock_data(int fd, uint64_t wait_ns)
{
    uint64_t end = time_mono_ns() + wait_ns;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return -errno;
        }
        if (time_mono_ns() >= end) {
            return -EBUSY;
        }
        usleep(LOCK_STEP_US);
    }
    return 0;
}

static int delete (struct vb *vb, struct arena *a, const struct volume *v)
{
    struct err err = ERR_INIT;
    if (folder_has(vb->folder, FOLDER_VOLUME, v->id)) {
        AUTO_FD data = -1;
        int rc = put_status(vb, a, v, "deleting", "", 0);
        if (rc != 0) {
            return rc;
        }
        rc = folder_open_file(vb->folder, FOLDER_VOLUME, v->id, "data", O_RDWR, &data, &err);
        if (rc == 0 && lock_data(data, 0) != 0) {
            log_info_rl("volume.delete_waits", KV_STR("volume", v->id));
            return -EAGAIN; /* a guest still has it open */
        }
        err_clear(&err); /* a volume without bytes can be removed all the same */
        if (folder_remove(vb->folder, FOLDER_VOLUME, v->id, &err) != 0) {
            log_warn("volume.delete_failed", KV_STR("volume", v->id), KV_ERR(&err));
            return -EAGAIN;
        }
        log_info("volume.deleted", KV_STR("volume", v->id));
    }
    return put_status(vb, a, v, "deleted", "", 0);
}

/* --- the reconciler -------------------------------------------------------------------------
 */

static int present(struct vb *vb, struct arena *a, const struct volume *v,
                   const struct volume_status *st)
{
    struct err err = ERR_INIT;
    uint64_t allocated = 0;
    bool was_made = st && str_eqc(st->state, "available"),
         has_failed = st && str_eqc(st->state, "error");
    if (folder_has(vb->folder, FOLDER_VOLUME, v->id)) {
        if (verify(vb, a, v, &allocated, &err) != 0) {
            log_error("volume.damaged", KV_STR("volume", v->id), KV_ERR(&err));
            return put_status(vb, a, v, "error", err.msg, 0);
        }
        if (was_made && st->generation == v->generation) {
            return 0; /* do not write for a number of blocks that changed */
        }
        return put_status(vb, a, v, "available", "", allocated);
    }
    if (was_made) { /* never make an empty one in its place */
        log_error("volume.lost", KV_STR("volume", v->id));
        return put_status(vb, a, v, "error", "the volume's file is gone", 0);
    }
    if (has_failed) {
        return 0; /* as in AWS, a volume whose making failed stays so */
    }
    int rc = put_status(vb, a, v, "creating", "", 0);
    if (rc != 0) {
        return rc;
    }
    uint64_t start = time_mono_ns();
    rc = make(vb, a, v, &err);
    if (rc == -ECANCELED) {
        return 0; /* the service stops; the next start makes it */
    }
    if (rc != 0) {
        log_warn("volume.create_failed", KV_STR("volume", v->id), KV_ERR(&err));
        return put_status(vb, a, v, "error", err.msg, 0);
    }
    log_info("volume.created", KV_STR("volume", v->id), KV_U64("gib", v->size_gib),
             KV_U64("ms", (time_mono_ns() - start) / NS_PER_MS));
    rc = verify(vb, a, v, &allocated, &err);
    return rc != 0 ? put_status(vb, a, v, "error", err.msg, 0)
                   : put_status(vb, a, v, "available", "", allocated);
}

/* The record is gone: so goes the status of a volume that was deleted. One that still has bytes
 * keeps them: a person decides. */
static int forget(struct vb *vb, struct arena *a, struct str key)
{
    struct err err = ERR_INIT;
    struct key_parts k;
    if (key_parse(key, &k) != 0 || !id_is_wellformed(k.id, "vol")) {
        return 0;
    }
    if (folder_has(vb->folder, FOLDER_VOLUME, k.id)) {
        log_warn("volume.orphan", KV_STR("volume", k.id));
        return 0;
    }
    struct kv_op op = {.type = KV_DELETE, .key = key_status(a, "volume", k.account, k.id)};
    int rc = kv_txn(vb->o.kv, NULL, 0, &op, 1, NULL, &err);
    if (rc != 0) {
        log_warn_rl("volume.status_failed", KV_STR("volume", k.id), KV_ERR(&err));
    }
    return rc;
}

int volume_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    const struct view_entry *e = vb_get(vb, key);
    if (!e) {
        return forget(vb, a, key);
    }
    const struct volume *v = e->obj;
    const struct view_entry *s = vb_get(vb, key_status(a, "volume", v->account, v->id));
    const struct volume_status *st = s ? s->obj : NULL;
    int rc = 0;
    bool is_here = str_is_empty(v->node) || str_eqc(v->node, vb->o.node);
    if (is_here && !id_is_wellformed(v->id, "vol")) {
        rc = put_status(vb, a, v, "error", "the id is malformed", 0);
    } else if (is_here && str_eqc(v->want, "deleted")) {
        rc = delete (vb, a, v);
    } else if (is_here) {
        rc = present(vb, a, v, st);
    }
    if (s) {
        view_unref(s);
    }
    view_unref(e);
    return rc;
}

static void report_orphan(void *ctx, struct str id)
{
    if (!vb_is_in_store(ctx, "spec/volume/", id)) {
        log_warn("volume.orphan", KV_STR("volume", id));
    }
}

int volume_report_orphans(struct vb *vb, struct err *err)
{
    return folder_each(vb->folder, FOLDER_VOLUME, report_orphan, vb, err);
}

/* --- volume.open ----------------------------------------------------------------------------
 */

static int open_volume(struct vb *vb, struct arena *a, const struct json *args, int *ret_fd,
                       uint64_t *ret_size, struct err *err)
{
    struct str account = json_get_str(args, "account"), id = json_get_str(args, "volume_id");
    struct str instance_id = json_get_str(args, "instance_id");
    struct stat st;
    if (account.n != ACCOUNT_ID_LEN || !id_is_wellformed(id, "vol") ||
        !id_is_wellformed(instance_id, "i")) {
        return fail(err, -EINVAL, "BadArgument",
                    "account, volume_id and instance_id are needed");
    }
    const struct view_entry *e = vb_get(vb, key_spec(a, "volume", account, id));
    const struct view_entry *s = vb_get(vb, key_status(a, "volume", account, id));
    const struct volume *v = e ? e->obj : NULL;
    const struct volume_status *vs = s ? s->obj : NULL;
    int rc = 0;
    if (!v) {
        rc = fail(err, -ENOENT, "InvalidVolume.NotFound", "The volume '%.*s' does not exist.",
                  STR_ARG(id));
    } else if (!str_eqc(v->want, "present") || !str_eq(v->instance_id, instance_id)) {
        rc = fail(err, -EPERM, "IncorrectState", "the volume %.*s is not attached to %.*s",
                  STR_ARG(id), STR_ARG(instance_id));
    } else if (!vs || !str_eqc(vs->state, "available")) {
        rc = fail(err, -EAGAIN, "VolumeNotReady", "the volume %.*s is %.*s", STR_ARG(id),
                  STR_ARG(vs ? vs->state : STR("creating")));
    }
    if (e) {
        view_unref(e);
    }
    if (s) {
        view_unref(s);
    }
    rc = rc != 0 ? rc
                 : folder_open_file(vb->folder, FOLDER_VOLUME, id, "data", O_RDWR, ret_fd, err);
    if (rc == 0 && (rc = lock_data(*ret_fd, LOCK_WAIT)) != 0) {
        rc = fail(err, rc, "VolumeInUse", "the volume %.*s is open elsewhere", STR_ARG(id));
    }
    if (rc == 0 && fstat(*ret_fd, &st) != 0) {
        rc = fail(err, -EIO, "ReadFailed", "the volume cannot be sized: %m");
    }
    *ret_size = rc == 0 ? (uint64_t)st.st_size : 0;
    return rc;
}

void call_volume_open(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    AUTO_FD fd = -1;
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct jw w;
    uint64_t size = 0;
    buf_init(&out, 4096);
    if (open_volume(c->vb, a, c->args, &fd, &size, &err) != 0) {
        call_fail(c, &err);
        return;
    }
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_u64(&w, "size", size);
    jw_obj_end(&w);
    log_info("volume.opened", KV_STR("volume", json_get_str(c->args, "volume_id")),
             KV_STR("instance", json_get_str(c->args, "instance_id")));
    call_reply(c, buf_str(&out), &fd,
               1); /* the lock goes with the descriptor: closing ours does not end it */
}
