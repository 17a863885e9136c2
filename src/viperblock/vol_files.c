#include "viperblock/vol_files.h"
#include "base/file.h"
#include "base/rand.h"
#include "blk/blk_cow.h"
#include "codec/base64.h"
#include "keys/keys.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define META_MAX 262144u
#define KEY_SIZE 64u

static void put(char *out, size_t size, struct str s)
{
    (void)snprintf(out, size, "%.*s", (int)MIN(s.n, size - 1), s.p ? s.p : "");
}

int vol_meta_load(struct vb *vb, struct arena *a, struct str id, struct volume_meta *ret,
                  struct err *err)
{
    AUTO_FD fd = -1;
    char *text = arena_alloc(a, META_MAX);
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, id, "meta.json", O_RDONLY, &fd, err);
    if (rc != 0) {
        return rc;
    }
    ssize_t n = text ? read(fd, text, META_MAX) : -1;
    if (n < 0) {
        return fail(err, -EIO, "ReadFailed", "the volume cannot be read: %m");
    }
    rc = rec_load(&volume_meta_desc, a, str_n(text, (size_t)n), ret, err);
    if (rc != 0) {
        return rc;
    }
    bool is_known =
        str_eqc(ret->layout, VOLUME_LAYOUT_RAW) || str_eqc(ret->layout, VOLUME_LAYOUT_MAPPED);
    if (!str_eq(ret->id, id) || ret->size == 0) {
        return fail(err, -EIO, "VolumeDamaged",
                    "the description of %.*s is that of another volume", STR_ARG(id));
    }
    return is_known
               ? 0
               : fail(err, -EIO, "NewerFormat",
                      "%.*s has the layout \"%.*s\", which a newer Spinifex wrote and this "
                      "one does not know: install the newer one again",
                      STR_ARG(id), STR_ARG(ret->layout));
}

int vol_meta_save(struct vb *vb, const struct volume_meta *m, struct err *err)
{
    AUTO_BUF text;
    buf_init(&text, META_MAX);
    int rc = rec_save(&volume_meta_desc, m, &text, err);
    return rc != 0 ? rc
                   : folder_replace_text(vb->folder, FOLDER_VOLUME, m->id, "meta.json",
                                         buf_str(&text), err);
}

/* --- keys
 * ----------------------------------------------------------------------------------- */

static struct str purpose_of(struct arena *a, struct str id)
{
    return arena_fmt(a, "volume-key/%.*s", STR_ARG(id));
}

/* An operator may have given the root key since it was last asked for. */
static int unlocked(struct vb *vb, struct err *err)
{
    struct err e = ERR_INIT;
    if (!vb->keys || (keys_is_locked(vb->keys) && keys_unlock(vb->keys, &e) != 0)) {
        return fail(err, -EACCES, "Locked",
                    "encrypted volumes wait until the root key is there");
    }
    return 0;
}

int vol_key(struct vb *vb, const struct volume_meta *m, struct secret *ret, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(4096);
    int rc = unlocked(vb, err);
    rc = rc != 0 ? rc : keys_unwrap(vb->keys, purpose_of(a, m->id), m->key, ret, err);
    if (rc == 0 && secret_str(ret).n != KEY_SIZE) {
        rc = fail(err, -EBADMSG, "WrongKey", "the key of %.*s has a wrong length",
                  STR_ARG(m->id));
    }
    return rc;
}

int vol_new_key(struct vb *vb, struct arena *a, struct str id, struct str *ret, struct err *err)
{
    AUTO_SECRET key = SECRET_INIT;
    AUTO_BUF text;
    buf_init(&text, 4096);
    int rc = unlocked(vb, err);
    if (rc == 0 && secret_random(&key, KEY_SIZE) != 0) {
        abort();
    }
    rc = rc != 0 ? rc : keys_wrap(vb->keys, purpose_of(a, id), secret_str(&key), &text, err);
    *ret = rc == 0 ? arena_str_dup(a, buf_str(&text)) : STR_NONE;
    return rc;
}

/* --- map and aside
 * -------------------------------------------------------------------------- */

static int fill_map(void *ctx, int fd, struct err *err)
{
    return blk_map_create(fd, ctx, err);
}

int vol_open_map(struct vb *vb, const struct volume_meta *m, int *ret, struct err *err)
{
    struct err e = ERR_INIT;
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, m->id, "map", O_RDWR, ret, &e);
    if (rc == -ENOENT && str_eqc(m->layout, VOLUME_LAYOUT_RAW)) {
        struct blk_map_opts o = {.size = m->size};
        rc = folder_replace_file(vb->folder, FOLDER_VOLUME, m->id, "map", fill_map, &o, err);
        return rc != 0 ? rc
                       : folder_open_file(vb->folder, FOLDER_VOLUME, m->id, "map", O_RDWR, ret,
                                          err);
    }
    return rc == 0 ? 0
                   : fail(err, rc == -ENOENT ? -EIO : rc, "VolumeDamaged",
                          "the map of the volume is gone: %s", e.msg);
}

static int fill_aside(void *ctx, int fd, struct err *err)
{
    const uint64_t *size = ctx;
    return ftruncate(fd, (off_t)*size) == 0
               ? 0
               : fail(err, -errno, "WriteFailed", "a file cannot be sized: %m");
}

/* Room for what four snapshots may freeze; sparse. */
static uint64_t aside_size(uint64_t size)
{
    return MIN(BLK_MAX_FROZEN * size, (uint64_t)BLK_ASIDE_SLOTS * BLK_BLOCK);
}

int vol_open_aside(struct vb *vb, const struct volume_meta *m, int *ret, struct err *err)
{
    uint64_t size = aside_size(m->size);
    int rc = folder_open_file(vb->folder, FOLDER_VOLUME, m->id, "aside", O_RDWR, ret, NULL);
    if (rc == -ENOENT) {
        rc = folder_replace_file(vb->folder, FOLDER_VOLUME, m->id, "aside", fill_aside, &size,
                                 err);
        return rc != 0 ? rc
                       : folder_open_file(vb->folder, FOLDER_VOLUME, m->id, "aside", O_RDWR,
                                          ret, err);
    }
    return rc == 0 ? 0 : fail(err, rc, "FolderFailed", "the volume's file 'aside': %m");
}

static int make_file(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd >= 0 ? fd
                   : fail(err, -EIO, "WriteFailed", "the volume's file %s cannot be made: %m",
                          name);
}

int vol_make_files(const struct volume_meta *m, int dir, struct err *err)
{
    AUTO_BUF text;
    uint64_t size = m->size, room = aside_size(size);
    struct blk_map_opts o = {
        .size = size,
        .source_size = MIN((m->source_size + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE, size),
        .is_encrypted = m->is_encrypted};
    put(o.since, sizeof(o.since), m->last);
    buf_init(&text, META_MAX);
    AUTO_FD data = make_file(dir, "data", err);
    AUTO_FD map = data < 0 ? -1 : make_file(dir, "map", err);
    AUTO_FD aside = map < 0 ? -1 : make_file(dir, "aside", err);
    if (aside < 0) {
        return err->code;
    }
    int rc = fill_aside(&size, data, err);
    rc = rc != 0 ? rc : fill_aside(&room, aside, err);
    rc = rc != 0 ? rc : blk_map_create(map, &o, err);
    rc = rc != 0 ? rc : rec_save(&volume_meta_desc, m, &text, err);
    return rc != 0 ? rc : folder_write_file(dir, "meta.json", buf_str(&text), err);
}

/* --- what is remembered
 * --------------------------------------------------------------------- */

static bool is_frozen(const struct volume_meta *m, const char *snap)
{
    bool found = false;
    for (size_t i = 0; i < m->frozen.n; i++) {
        found = found || str_eqc(m->frozen.v[i].id, snap);
    }
    return found;
}

void vol_set_source(struct vol *v, const struct volume_meta *m)
{
    put(v->source_id, sizeof(v->source_id), m->source_id);
    put(v->source_account, sizeof(v->source_account), m->source_account);
    put(v->base, sizeof(v->base), m->base);
    v->source_size = m->source_size;
    v->source_loaded = true;
    for (size_t i = 0; i < BLK_MAX_FROZEN; i++) {
        if (!is_frozen(m, v->uploads[i].snap)) {
            memset(&v->uploads[i], 0, sizeof(v->uploads[i]));
        }
    }
    for (size_t i = 0; i < m->frozen.n; i++) {
        struct upload *free_slot = NULL;
        bool is_there = false;
        for (size_t k = 0; k < BLK_MAX_FROZEN; k++) {
            is_there = is_there || str_eqc(m->frozen.v[i].id, v->uploads[k].snap);
            free_slot =
                !free_slot && v->uploads[k].snap[0] == '\0' ? &v->uploads[k] : free_slot;
        }
        if (!is_there && free_slot) {
            put(free_slot->snap, sizeof(free_slot->snap), m->frozen.v[i].id);
        }
    }
}
