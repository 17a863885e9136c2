#include "base/time.h"
#include "model/keys.h"
#include "model/volume.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <stdio.h>

LOG_MODULE("viperblock.rpc");

#define MAX_QUEUES  8u
#define MAX_VOLUMES 16u /* of one instance: rings for all of them are made at its start */
#define OTHER_RINGS 32u /* of the disks, and connections of NBD */
#define ANSWER_MAX  4096u

static int bad_args(struct err *err)
{
    return fail(err, -EINVAL, "BadArgument",
                "account and volume_id are needed, instance_id of an instance");
}

/* The volume that is asked for, as the store has it now. */
static int check_spec(struct vb *vb, struct arena *a, struct str account, struct str id,
                      struct str instance_id, struct err *err)
{
    const struct view_entry *e = vb_get(vb, key_spec(a, "volume", account, id));
    const struct view_entry *s = vb_get(vb, key_status(a, "volume", account, id));
    const struct volume *v = e ? e->obj : NULL;
    const struct volume_status *vs = s ? s->obj : NULL;
    int rc = 0;
    if (!v) {
        rc = fail(err, -ENOENT, "InvalidVolume.NotFound", "The volume '%.*s' does not exist.",
                  STR_ARG(id));
    } else if (!str_eqc(v->want, "present") ||
               (instance_id.n > 0 && !str_eq(v->instance_id, instance_id))) {
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
    return rc;
}

struct opened {
    char path[108];
    uint64_t size;
};

static int open_volume(struct vb *vb, struct arena *a, const struct json *args,
                       struct opened *ret, struct err *err)
{
    struct str account = json_get_str(args, "account"), id = json_get_str(args, "volume_id");
    struct str instance = json_get_str(args, "instance_id");
    struct str transport = json_get_str(args, "transport");
    uint64_t uid = json_get_u64(args, "uid", UINT64_MAX);
    uint64_t n_queues = json_get_u64(args, "n_queues", 1);
    if (account.n != ACCOUNT_ID_LEN || !id_is_wellformed(id, "vol") ||
        !id_is_wellformed(instance, "i")) {
        return bad_args(err);
    }
    if (uid >= UINT32_MAX || n_queues < 1) {
        return fail(err, -EINVAL, "BadArgument", "uid and n_queues are needed");
    }
    if (transport.n > 0 && !str_eqc(transport, "vhost-user") && !str_eqc(transport, "nbd")) {
        return fail(err, -EINVAL, "BadArgument", "transport is vhost-user or nbd");
    }
    n_queues = MIN(n_queues, (uint64_t)MAX_QUEUES);
    bool is_nbd = str_eqc(transport, "nbd");
    int rc = check_spec(vb, a, account, id, instance, err);
    if (rc != 0) {
        return rc;
    }
    struct vol *v = vol_take(vb->vols, account, id);
    vol_set_queues(vb->vols, v, (uint32_t)n_queues);
    rc = vol_open(vb->vols, v, arena_cstr(a, instance),
                  (is_nbd ? 0 : (unsigned)n_queues * MAX_VOLUMES) + OTHER_RINGS, err);
    const struct vol_guest g = {
        .uid = (uint32_t)uid, .n_queues = (uint32_t)n_queues, .is_nbd = is_nbd};
    rc = rc != 0 ? rc : vol_serve_guest(vb->vols, v, &g, ret->path, err);
    ret->size = v->size;
    vol_give(vb->vols, v);
    return rc == -EPIPE ? -EAGAIN : rc;
}

void call_volume_open(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct jw w;
    struct opened o;
    struct str id = json_get_str(c->args, "volume_id");
    buf_init(&out, ANSWER_MAX);
    if (open_volume(c->vb, a, c->args, &o, &err) != 0) {
        call_fail(c, &err);
        return;
    }
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_u64(&w, "size", o.size);
    jw_cstr(&w, "path", o.path);
    jw_str(&w, "serial", arena_fmt(a, "vol%.*s", STR_ARG(str_skip(id, 4))));
    jw_bool(&w, "is_read_only", false);
    jw_obj_end(&w);
    log_info("volume.opened", KV_STR("volume", id),
             KV_STR("instance", json_get_str(c->args, "instance_id")));
    call_reply(c, buf_str(&out), NULL, 0);
}

/* --- volume.close
 * --------------------------------------------------------------------------- */

static int close_volume(struct vb *vb, const struct json *args, struct err *err)
{
    struct str account = json_get_str(args, "account"), id = json_get_str(args, "volume_id");
    struct str instance = json_get_str(args, "instance_id");
    int rc = 0;
    if (account.n != ACCOUNT_ID_LEN || !id_is_wellformed(id, "vol") ||
        !id_is_wellformed(instance, "i")) {
        return bad_args(err);
    }
    struct vol *v = vol_take(vb->vols, account, id);
    if (str_eqc(instance, v->host)) {
        rc = vol_close(vb->vols, v, json_get_bool(args, "is_forced", false), err);
    }
    vol_give(vb->vols, v);
    if (rc == 0) { /* what is being read of it for a snapshot goes on in a process of its own */
        AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
        vb_touch(vb, key_spec(a, "volume", account, id));
        snapshot_touch_of_volume(vb, account, id);
    }
    return rc;
}

void call_volume_close(struct vb_call *c)
{
    struct err err = ERR_INIT;
    if (close_volume(c->vb, c->args, &err) != 0) {
        call_fail(c, &err);
    } else {
        call_reply(c, STR("{}"), NULL, 0);
    }
}

/* --- NBD
 * ------------------------------------------------------------------------------------ */

static int open_nbd(struct vb *vb, struct arena *a, const struct json *args, char path[108],
                    struct err *err)
{
    struct str account = json_get_str(args, "account"), id = json_get_str(args, "volume_id");
    bool is_read_only = json_get_bool(args, "is_read_only", false);
    if (account.n != ACCOUNT_ID_LEN || !id_is_wellformed(id, "vol")) {
        return bad_args(err);
    }
    int rc = check_spec(vb, a, account, id, STR(""), err);
    if (rc != 0) {
        return rc;
    }
    struct vol *v = vol_take(vb->vols, account, id);
    if (v->is_vu && !v->is_vu_nbd && !is_read_only) {
        rc = fail(err, -EBUSY, "VolumeInUse",
                  "a guest has the volume %.*s: it can be exported for reading only",
                  STR_ARG(id));
    }
    rc = rc != 0 ? rc : vol_open(vb->vols, v, NULL, 0, err);
    rc = rc != 0 ? rc : vol_serve_nbd(vb->vols, v, is_read_only, path, err);
    vol_give(vb->vols, v);
    return rc == -EPIPE ? -EAGAIN : rc;
}

void call_volume_nbd(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    AUTO_BUF out;
    struct err err = ERR_INIT;
    struct jw w;
    char path[108];
    buf_init(&out, ANSWER_MAX);
    if (open_nbd(c->vb, a, c->args, path, &err) != 0) {
        call_fail(c, &err);
        return;
    }
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "path", path);
    jw_obj_end(&w);
    log_info("volume.exported", KV_STR("volume", json_get_str(c->args, "volume_id")));
    call_reply(c, buf_str(&out), NULL, 0);
}

void call_volume_nbd_end(struct vb_call *c)
{
    struct err err = ERR_INIT;
    struct str account = json_get_str(c->args, "account"),
               id = json_get_str(c->args, "volume_id");
    int rc = 0;
    if (account.n != ACCOUNT_ID_LEN || !id_is_wellformed(id, "vol")) {
        rc = bad_args(&err);
    } else {
        struct vol *v = vol_take(c->vb->vols, account, id);
        rc = v->is_nbd ? vol_unserve(c->vb->vols, v, true, &err) : 0;
        vol_give(c->vb->vols, v);
    }
    if (rc != 0) {
        call_fail(c, &err);
    } else {
        call_reply(c, STR("{}"), NULL, 0);
    }
}
