#include "base/rand.h"
#include "base/time.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "viperblock/base.h"
#include "viperblock/copy.h"
#include "viperblock/gc.h"
#include "viperblock/import_run.h"
#include "viperblock/meta.h"
#include "viperblock/snapshot.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.image");

#define GIB             (UINT64_C(1) << 30)
#define META_MAX        65536u
#define DESCRIPTION_MAX 255u
#define TELL_EVERY      (200 * NS_PER_MS)
/* In a published folder: the store may not know the image yet. */
#define MARK            "unregistered"

/* --- the reconciler -------------------------------------------------------------------------
 */

static int put_status(struct vb *vb, struct arena *a, const struct image *i, const char *state,
                      const char *reason)
{
    struct err err = ERR_INIT;
    struct image_status st = {
        .id = i->id, .state = str_c(state), .reason = str_c(reason), .node = str_c(vb->o.node)};
    int rc = vb_put_rec(vb, key_status(a, "image", i->account, i->id), &image_status_desc, &st,
                        &err);
    if (rc != 0) {
        log_warn_rl("image.status_failed", KV_STR("image", i->id), KV_ERR(&err));
    }
    return rc;
}

/* The name is given back by whoever asked for the removal; a claim that is somebody else's now
 * stays, and so does the snapshot, as in AWS. */
static int forget(struct vb *vb, struct arena *a, const struct view_entry *e)
{
    struct err err = ERR_INIT;
    const struct image *i = e->obj;
    struct kv_op ops[] = {
        {.type = KV_DELETE, .key = e->key},
        {.type = KV_DELETE, .key = key_status(a, "image", i->account, i->id)},
    };
    struct kv_cmp same = {.key = e->key, .mod_rev = e->mod_rev};
    int rc = kv_txn(vb->o.kv, &same, 1, ops, ARRAY_LEN(ops), NULL, &err);
    if (rc != 0) {
        log_warn_rl("image.forget_failed", KV_STR("image", i->id), KV_ERR(&err));
    }
    return rc;
}

/* The record goes at once; the base when no volume reads through it any more. */
static int remove_image_base(struct vb *vb, struct arena *a, const struct view_entry *e)
{
    struct err err = ERR_INIT;
    const struct image *i = e->obj;
    int rc = 0;
    if (folder_has(vb->folder, FOLDER_IMAGE, i->id)) {
        rc = folder_replace_text(vb->folder, FOLDER_IMAGE, i->id, IMAGE_REMOVED,
                                 STR("the image is gone: its base goes when it is not read\n"),
                                 &err);
    }
    if (rc != 0) {
        log_warn("image.remove_failed", KV_STR("image", i->id), KV_ERR(&err));
        return rc;
    }
    struct str id = arena_str_dup(a, i->id);
    rc = forget(vb, a, e);
    if (rc == 0) {
        log_info("image.removed", KV_STR("image", id));
        gc_base(vb, id);
    }
    return rc;
}

int image_reconcile(struct vb *vb, struct arena *a, struct str key)
{
    const struct view_entry *e = vb_get(vb, key);
    if (!e) {
        return 0;
    }
    const struct image *i = e->obj;
    bool is_import = i->source.n == 0;
    int rc = 0;
    if (!id_is_wellformed(i->id, "ami")) {
        rc = 0;
    } else if (str_eqc(i->want, "deleted")) {
        rc = remove_image_base(vb, a, e);
    } else if (is_import && (folder_has(vb->folder, FOLDER_IMAGE, i->id) ||
                             snap_is_completed(vb, a, i->account, i->snapshot_id))) {
        rc = put_status(vb, a, i, "available", "");
    } else if (is_import) {
        log_error("image.lost", KV_STR("image", i->id));
        rc = put_status(vb, a, i, "failed", "the image's file is gone");
    }
    view_unref(e);
    return rc;
}

/* --- after a kill ---------------------------------------------------------------------------
 */

struct settle_ctx {
    struct vb *vb;
    VEC(char *) known, unknown;
};

static void settle_one(void *ctx, struct str id)
{
    struct settle_ctx *c = ctx;
    AUTO_FD mark = -1;
    bool is_known = vb_is_in_store(c->vb, "spec/image/", id);
    if (folder_open_file(c->vb->folder, FOLDER_IMAGE, id, MARK, O_RDONLY, &mark, NULL) == 0) {
        char *copy = strndup(id.p, id.n);
        if (!copy) {
            abort();
        }
        if (is_known) {
            vec_push(&c->known, copy);
        } else {
            vec_push(&c->unknown, copy);
        }
    } else if (!is_known) {
        log_warn("image.orphan",
                 KV_STR("image",
                        id)); /* the store was put back to an older state: a person decides */
    }
}

/* A folder with the mark was published by a process that may have died before the store knew:
 * without a record it goes. */
int image_settle(struct vb *vb, struct err *err)
{
    struct settle_ctx c = {.vb = vb};
    int rc = folder_each(vb->folder, FOLDER_IMAGE, settle_one, &c, err);
    for (size_t i = 0; i < c.known.n; i++) {
        rc = rc != 0
                 ? rc
                 : folder_remove_file(vb->folder, FOLDER_IMAGE, str_c(c.known.v[i]), MARK, err);
        free(c.known.v[i]);
    }
    for (size_t i = 0; i < c.unknown.n; i++) {
        log_info("image.half_made_removed", KV_CSTR("image", c.unknown.v[i]));
        rc = rc != 0 ? rc : folder_remove(vb->folder, FOLDER_IMAGE, str_c(c.unknown.v[i]), err);
        free(c.unknown.v[i]);
    }
    vec_free(&c.known);
    vec_free(&c.unknown);
    return rc;
}

/* --- image.import ---------------------------------------------------------------------------
 */

struct import {
    struct vb_call *call;
    struct image image;
    enum img_format format;
    struct str sha256;
    uint32_t stream;
    uint64_t total; /* bytes of the source, 0 = not known */
    const char *phase;
};

/* EC2's rule for AMI names (CreateImage). */
static bool is_name(struct str s)
{
    bool is_ok = s.n >= 3 && s.n <= 128;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        is_ok = is_ok && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || (c != '\0' && strchr("()[] ./-'@_", c)));
    }
    return is_ok;
}

static bool is_one_of(struct str s, const char *a, const char *b)
{
    return str_eqc(s, a) || str_eqc(s, b);
}

static struct str arg(const struct json *args, const char *name, const char *dflt)
{
    struct str s = json_get_str(args, name);
    return s.n > 0 ? s : str_c(dflt);
}

static int parse_args(struct arena *a, struct import *im, const struct json *args,
                      struct err *err)
{
    struct image *i = &im->image;
    i->account = json_get_str(args, "account");
    i->name = json_get_str(args, "name");
    i->description = arg(args, "description", "");
    i->arch = arg(args, "arch", "x86_64");
    i->boot_mode = arg(args, "boot_mode", "bios");
    i->platform = arg(args, "platform", "");
    i->root_device = arg(args, "root_device", "/dev/sda1");
    i->is_public = json_get_bool(args, "is_public", false);
    im->sha256 = arg(args, "sha256", "");
    im->stream = (uint32_t)json_get_u64(args, "stream", 0);
    im->total = json_get_u64(args, "size", 0);
    if (i->account.n != ACCOUNT_ID_LEN || strspn(i->account.p, "0123456789") < ACCOUNT_ID_LEN) {
        return fail(err, -EINVAL, "BadArgument", "'account' must be 12 digits");
    }
    if (!is_name(i->name)) {
        return fail(err, -EINVAL, "InvalidAMIName.Malformed",
                    "AMI names must be between 3 and 128 characters long, and may contain "
                    "letters, numbers, '(', ')', '.', '-', '/' and '_'");
    }
    if (str_utf8_len(i->description) > DESCRIPTION_MAX) {
        return fail(err, -EINVAL, "BadArgument", "the description may have up to %u characters",
                    DESCRIPTION_MAX);
    }
    if (!is_one_of(i->arch, "x86_64", "arm64")) {
        return fail(err, -EINVAL, "BadArgument", "arch is x86_64 or arm64");
    }
    if (!is_one_of(i->boot_mode, "bios", "uefi") || !is_one_of(i->platform, "", "windows")) {
        return fail(err, -EINVAL, "BadArgument",
                    "boot_mode is bios or uefi, platform is empty or windows");
    }
    if (!str_has_prefixc(i->root_device, "/dev/") || i->root_device.n < 6 ||
        i->root_device.n > 32) {
        return fail(err, -EINVAL, "BadArgument", "root_device is a name like /dev/sda1");
    }
    if (im->sha256.n != 0 &&
        (im->sha256.n != 64 || strspn(im->sha256.p, "0123456789abcdefABCDEF") < 64)) {
        return fail(err, -EINVAL, "BadArgument", "sha256 must be 64 hex digits");
    }
    i->id = id_new(a, "ami");
    i->snapshot_id = id_new(a, "snap");
    i->want = STR("present");
    i->create_ns = time_wall_ns();
    return img_format_parse(json_get_str(args, "format"), &im->format, err);
}

static int check_name(struct vb *vb, struct arena *a, const struct image *i, struct err *err)
{
    struct kv_item item;
    struct err e = ERR_INIT;
    int rc = kv_get(vb->o.kv, a, key_claim(a, "imagename", i->account, i->name), &item, &e);
    if (rc == 0) {
        return fail(err, -EEXIST, "InvalidAMIName.Duplicate",
                    "AMI name %.*s is already in use by AMI %.*s", STR_ARG(i->name),
                    STR_ARG(item.value));
    }
    return rc == -ENOENT ? 0 : fail(err, e.code, e.name, "%s", e.msg);
}

static void push_progress(struct import *im, const char *phase, uint64_t done, uint64_t total)
{
    struct vb_call *c = im->call;
    uint64_t now = time_mono_ns();
    struct jw w;
    AUTO_BUF out;
    buf_init(&out, 4096);
    if (phase == im->phase && now - c->told_ns < TELL_EVERY) {
        return;
    }
    im->phase = phase;
    c->told_ns = now;
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "phase", phase);
    jw_u64(&w, "done", done);
    jw_u64(&w, "total", total);
    jw_obj_end(&w);
    if (rpc_push(c->conn, im->stream, buf_str(&out)) != 0) {
        atomic_store(&c->is_cancelled, true);
    }
}

static void on_progress(void *ctx, const char *phase, uint64_t done)
{
    struct import *im = ctx;
    bool is_read = strcmp(phase, "read") == 0;
    push_progress(im, is_read ? "read" : "convert", done, is_read ? im->total : 1000);
}

static bool import_is_cancelled(void *ctx)
{
    return call_is_cancelled(((struct import *)ctx)->call);
}

static int write_files(const struct image *i, const char *format, int dir, struct err *err)
{
    AUTO_BUF text;
    struct image_meta m = {.id = i->id,
                           .account = i->account,
                           .snapshot_id = i->snapshot_id,
                           .layout = STR("raw"),
                           .size = i->size,
                           .name = i->name,
                           .description = i->description,
                           .arch = i->arch,
                           .boot_mode = i->boot_mode,
                           .root_device = i->root_device,
                           .source_format = str_c(format),
                           .source_sha256 = i->sha256,
                           .is_public = i->is_public,
                           .create_ns = i->create_ns};
    buf_init(&text, META_MAX);
    int rc = rec_save(&image_meta_desc, &m, &text, err);
    rc = rc != 0 ? rc : folder_write_file(dir, "meta.json", buf_str(&text), err);
    return rc != 0 ? rc
                   : folder_write_file(dir, MARK,
                                       STR("the store does not know this image yet\n"), err);
}

/* Record, snapshot, status and the name's claim, in one step. */
static int register_image(struct vb *vb, struct arena *a, const struct image *i,
                          struct err *err)
{
    AUTO_BUF spec, snap, status;
    struct snapshot s = {.id = i->snapshot_id,
                         .account = i->account,
                         .generation = 1,
                         .want = STR("present"),
                         .source = STR("image"),
                         .volume_id = STR("vol-ffffffff"),
                         .description = arena_fmt(a, "Created for image %.*s", STR_ARG(i->id)),
                         .image_id = i->id,
                         .node = str_c(vb->o.node),
                         .size_gib = (i->size + GIB - 1) / GIB,
                         .size = i->size,
                         .create_ns = i->create_ns};
    struct image_status st = {
        .id = i->id, .state = STR("available"), .reason = STR(""), .node = str_c(vb->o.node)};
    buf_init(&spec, KV_MAX_VALUE);
    buf_init(&snap, KV_MAX_VALUE);
    buf_init(&status, KV_MAX_VALUE);
    int rc = rec_save(&image_desc, i, &spec, err);
    rc = rc != 0 ? rc : rec_save(&snapshot_desc, &s, &snap, err);
    rc = rc != 0 ? rc : rec_save(&image_status_desc, &st, &status, err);
    if (rc != 0) {
        return rc;
    }
    struct kv_cmp absent[] = {{.key = key_claim(a, "imagename", i->account, i->name)},
                              {.key = key_spec(a, "image", i->account, i->id)}};
    struct kv_op ops[] = {
        {.type = KV_PUT, .key = absent[0].key, .value = i->id},
        {.type = KV_PUT, .key = absent[1].key, .value = buf_str(&spec)},
        {.type = KV_PUT,
         .key = key_spec(a, "snapshot", i->account, i->snapshot_id),
         .value = buf_str(&snap)},
        {.type = KV_PUT,
         .key = key_status(a, "image", i->account, i->id),
         .value = buf_str(&status)},
    };
    struct err e = ERR_INIT;
    uint64_t rev = 0;
    rc = kv_txn(vb->o.kv, absent, ARRAY_LEN(absent), ops, ARRAY_LEN(ops), &rev, &e);
    if (rc == -ECONNRESET) { /* applied or not: the record tells */
        struct kv_item item;
        rc = kv_get(vb->o.kv, a, absent[1].key, &item, NULL) == 0 ? 0 : rc;
    }
    if (rc == 0 && view_wait(vb->view, rev, 5 * NS_PER_S) != 0) {
        log_warn(
            "image.view_is_late",
            KV_STR("image", i->id)); /* a volume made from the snapshot now may not find it */
    }
    if (rc == 0) {
        return 0;
    }
    if (rc == -EAGAIN && check_name(vb, a, i, err) != 0) {
        return err->code; /* somebody took the name meanwhile */
    }
    return fail(err, e.code, e.name, "%s", e.msg);
}

static int import_into(struct vb *vb, struct arena *a, struct import *im, int dir,
                       const char **ret_format, struct err *err)
{
    struct image *i = &im->image;
    struct import_opts o = {.helper = vb->o.helper,
                            .folder = folder_begun_path(vb->folder, FOLDER_IMAGE, i->id),
                            .folder_fd = dir,
                            .source_fd = im->call->fd,
                            .format = im->format,
                            .max_size = vb->o.max_image_size,
                            .is_cancelled = import_is_cancelled,
                            .progress = on_progress,
                            .ctx = im};
    struct import_result r;
    int rc = import_run(&o, &r, err);
    if (rc != 0) {
        return rc;
    }
    *ret_format = img_format_name(r.format);
    if (im->sha256.n != 0 && !str_ieqc(im->sha256, r.sha256)) {
        return fail(err, -EINVAL, "ChecksumMismatch",
                    "the file's SHA-256 is %s, %.*s was expected", r.sha256,
                    STR_ARG(im->sha256));
    }
    i->size = r.size;
    i->sha256 = arena_str_dup(a, str_c(r.sha256));
    push_progress(im, "commit", 0, 1);
    rc = write_files(i, *ret_format, dir, err);
    rc = rc != 0 ? rc : folder_publish(vb->folder, FOLDER_IMAGE, i->id, dir, err);
    return rc != 0 ? rc : base_complete(vb, i->id, i->size, err);
}

static int import(struct vb *vb, struct arena *a, struct import *im, const char **ret_format,
                  struct err *err)
{
    struct image *i = &im->image;
    AUTO_FD dir = -1;
    struct stat st;
    int rc = parse_args(a, im, im->call->args, err);
    rc = rc != 0 ? rc : check_name(vb, a, i, err);
    if (rc == 0 && (fstat(im->call->fd, &st) != 0 ||
                    !(S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))) {
        rc = fail(err, -EINVAL, "BadArgument", "the source must be a file or a pipe");
    }
    rc = rc != 0 ? rc
                 : copy_check_room(folder_fd(vb->folder),
                                   S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * 512 : 0, err);
    if (rc != 0) {
        return rc;
    }
    if (S_ISREG(st.st_mode)) {
        off_t at = lseek(im->call->fd, 0, SEEK_CUR);
        im->total = (uint64_t)MAX(st.st_size - MAX(at, 0), 0);
    }
    log_info("image.import_started", KV_STR("image", i->id), KV_STR("name", i->name));
    rc = folder_begin(vb->folder, FOLDER_IMAGE, i->id, &dir, err);
    if (rc != 0) {
        return rc;
    }
    rc = import_into(vb, a, im, dir, ret_format, err);
    if (rc != 0) {
        folder_abandon(vb->folder, FOLDER_IMAGE, i->id);
        return rc;
    }
    rc = register_image(vb, a, i, err);
    if (rc == 0) {
        struct err e = ERR_INIT;
        if (folder_remove_file(vb->folder, FOLDER_IMAGE, i->id, MARK, &e) != 0) {
            log_warn("image.mark_stays", KV_STR("image", i->id),
                     KV_ERR(&e)); /* the next start removes it */
        }
    } else if (rc != -ECONNRESET && rc != -ENOTCONN) {
        struct err e = ERR_INIT;
        if (folder_remove(vb->folder, FOLDER_IMAGE, i->id, &e) != 0) {
            log_warn("image.remove_failed", KV_STR("image", i->id), KV_ERR(&e));
        }
    }
    return rc;
}

void call_image_import(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    AUTO_BUF out;
    struct import im = {.call = c};
    struct err err = ERR_INIT;
    struct jw w;
    const char *format = "";
    uint64_t start = time_mono_ns();
    buf_init(&out, 16384);
    if (import(c->vb, a, &im, &format, &err) != 0) {
        call_fail(c, &err);
        return;
    }
    log_info("image.imported", KV_STR("image", im.image.id), KV_STR("name", im.image.name),
             KV_U64("bytes", im.image.size), KV_CSTR("format", format),
             KV_U64("ms", (time_mono_ns() - start) / NS_PER_MS));
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_str(&w, "image_id", im.image.id);
    jw_str(&w, "snapshot_id", im.image.snapshot_id);
    jw_u64(&w, "size", im.image.size);
    jw_str(&w, "sha256", im.image.sha256);
    jw_cstr(&w, "format", format);
    jw_obj_end(&w);
    call_reply(c, buf_str(&out), NULL, 0);
}

/* --- image.remove ---------------------------------------------------------------------------
 */

static int remove_image(struct vb *vb, struct arena *a, struct str id, struct err *err)
{
    struct str key = STR_NONE;
    AUTO_BUF out;
    buf_init(&out, KV_MAX_VALUE);
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/image/"))
    {
        struct key_parts k;
        if (key_parse(omap_key(n), &k) == 0 && str_eq(k.id, id)) {
            key = arena_str_dup(a, omap_key(n));
        }
    }
    view_unlock(vb->view);
    const struct view_entry *e = str_is_set(key) ? vb_get(vb, key) : NULL;
    if (!e) {
        return fail(err, -ENOENT, "InvalidAMIID.NotFound",
                    "The image id '[%.*s]' does not exist", (int)MIN(id.n, (size_t)40), id.p);
    }
    struct image i = *(const struct image *)e->obj;
    struct kv_item claim;
    i.want = STR("deleted");
    struct kv_cmp same[3] = {{.key = e->key, .mod_rev = e->mod_rev}};
    struct kv_op ops[3] = {{.type = KV_PUT, .key = e->key}};
    size_t n = 1;
    AUTO_BUF snap;
    buf_init(&snap, KV_MAX_VALUE);
    const struct view_entry *s = vb_get(vb, key_spec(a, "snapshot", i.account, i.snapshot_id));
    if (s) { /* the operator's way takes everything along */
        struct snapshot x = *(const struct snapshot *)s->obj;
        x.want = STR("deleted");
        x.generation++;
        same[n] = (struct kv_cmp){.key = s->key, .mod_rev = s->mod_rev};
        ops[n++] = (struct kv_op){.type = KV_PUT, .key = s->key};
        int r = rec_save(&snapshot_desc, &x, &snap, err);
        ops[n - 1].value = buf_str(&snap);
        if (r != 0) {
            view_unref(s);
            view_unref(e);
            return r;
        }
    }
    struct str name_key = key_claim(a, "imagename", i.account, i.name);
    if (kv_get(vb->o.kv, a, name_key, &claim, NULL) == 0 && str_eq(claim.value, i.id)) {
        same[n] = (struct kv_cmp){.key = name_key, .mod_rev = claim.mod_rev};
        ops[n++] = (struct kv_op){.type = KV_DELETE, .key = name_key};
    }
    int rc = rec_save(&image_desc, &i, &out, err);
    ops[0].value = buf_str(&out);
    rc = rc != 0 ? rc : kv_txn(vb->o.kv, same, n, ops, n, NULL, err);
    if (s) {
        view_unref(s);
    }
    view_unref(e);
    return rc;
}

void call_image_remove(struct vb_call *c)
{
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct err err = ERR_INIT;
    if (remove_image(c->vb, a, json_get_str(c->args, "image_id"), &err) != 0) {
        call_fail(c, &err);
    } else {
        call_reply(c, STR("{}"), NULL, 0);
    }
}
