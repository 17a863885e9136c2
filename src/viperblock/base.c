#include "viperblock/base.h"
#include "base/vec.h"
#include "blk/blk_base.h"
#include "blk/blk_cow.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/volume.h"
#include "snap/snap.h"
#include "viperblock/copy.h"
#include "viperblock/meta.h"
#include "viperblock/store.h"
#include "viperblock/vol_files.h"
#include "viperblock/vols.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

LOG_MODULE("viperblock.base");

#define META_MAX  65536u
#define GIB       (UINT64_C(1) << 30)
#define FILL_RATE (UINT64_C(64) << 20) /* bytes a second, when a base shall go */

struct base { /* open for filling */
    char id[BLK_SNAP_ID];
    int fd, map_fd;
    struct base_map *map;
    VEC(uint64_t) busy; /* blocks that are being fetched */
};

struct bases {
    pthread_mutex_t mu, made; /* 'made' is taken first */
    pthread_cond_t cond;
    VEC(struct base *) v; /* GUARDED_BY(mu) */
};

struct bases *bases_new(void)
{
    struct bases *b = calloc(1, sizeof(*b));
    if (!b) {
        abort();
    }
    pthread_mutex_init(&b->mu, NULL);
    pthread_mutex_init(&b->made, NULL);
    pthread_cond_init(&b->cond, NULL);
    return b;
}

static void base_close(struct base *b)
{
    base_map_close(b->map);
    if (b->fd >= 0) {
        close(b->fd);
    }
    if (b->map_fd >= 0) {
        close(b->map_fd);
    }
    vec_free(&b->busy);
    free(b);
}

void bases_free(struct bases *b)
{
    if (!b) {
        return;
    }
    for (size_t i = 0; i < b->v.n; i++) {
        base_close(b->v.v[i]);
    }
    vec_free(&b->v);
    pthread_cond_destroy(&b->cond);
    pthread_mutex_destroy(&b->made);
    pthread_mutex_destroy(&b->mu);
    free(b);
}

void base_hold(struct vb *vb)
{
    pthread_mutex_lock(&vb->bases->made);
}

void base_release(struct vb *vb)
{
    pthread_mutex_unlock(&vb->bases->made);
}

static uint64_t whole_blocks(uint64_t size)
{
    return (size + BLK_BLOCK - 1) / BLK_BLOCK * BLK_BLOCK;
}

static uint64_t whole_pages(uint64_t size)
{
    return (size + BLK_PAGE - 1) / BLK_PAGE * BLK_PAGE;
}

/* --- making
 * --------------------------------------------------------------------------------- */

struct map_ctx {
    uint64_t size;
    bool is_complete;
};

static int fill_map(void *ctx, int fd, struct err *err)
{
    const struct map_ctx *c = ctx;
    return base_map_create(fd, whole_pages(c->size), c->is_complete, err);
}

int base_complete(struct vb *vb, struct str image_id, uint64_t size, struct err *err)
{
    AUTO_FD map = -1;
    AUTO_FD data = -1;
    struct map_ctx c = {.size = size, .is_complete = true};
    if (folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "map", O_RDONLY, &map, NULL) ==
        0) {
        return 0;
    }
    int rc = folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "data", O_RDWR, &data, err);
    if (rc == 0 && (ftruncate(data, (off_t)whole_blocks(size)) != 0 || fdatasync(data) != 0)) {
        rc = fail(err, -EIO, "WriteFailed", "the base of %.*s cannot be sized: %m",
                  STR_ARG(image_id));
    }
    return rc != 0 ? rc
                   : folder_replace_file(vb->folder, FOLDER_IMAGE, image_id, "map", fill_map,
                                         &c, err);
}

static int load_meta(struct vb *vb, struct arena *a, struct str image_id,
                     struct image_meta *ret, struct err *err)
{
    AUTO_FD fd = -1;
    char *text = arena_alloc(a, META_MAX);
    int rc =
        folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "meta.json", O_RDONLY, &fd, err);
    if (rc != 0) {
        return rc;
    }
    ssize_t n = text ? read(fd, text, META_MAX) : -1;
    return n < 0 ? fail(err, -EIO, "ReadFailed", "the image cannot be read: %m")
                 : rec_load(&image_meta_desc, a, str_n(text, (size_t)n), ret, err);
}

/* An image made of a snapshot: a base with nothing in it yet. */
static int make_empty(struct vb *vb, struct str image_id, const struct base_facts *f,
                      struct err *err)
{
    AUTO_FD dir = -1;
    AUTO_BUF text;
    struct image_meta m = {.id = image_id,
                           .account = f->account,
                           .snapshot_account = f->account,
                           .snapshot_id = f->snapshot_id,
                           .layout = STR("base"),
                           .size = f->size};
    buf_init(&text, META_MAX);
    int rc = rec_save(&image_meta_desc, &m, &text, err);
    rc = rc != 0 ? rc : folder_begin(vb->folder, FOLDER_IMAGE, image_id, &dir, err);
    if (rc != 0) {
        return rc;
    }
    AUTO_FD data = openat(dir, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AUTO_FD map = openat(dir, "map", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (data < 0 || map < 0 || ftruncate(data, (off_t)whole_blocks(f->size)) != 0) {
        rc = fail(err, -EIO, "WriteFailed", "the base of %.*s cannot be made: %m",
                  STR_ARG(image_id));
    }
    rc = rc != 0 ? rc : base_map_create(map, whole_pages(f->size), false, err);
    rc = rc != 0 ? rc : folder_write_file(dir, "meta.json", buf_str(&text), err);
    rc = rc != 0 ? rc : folder_publish(vb->folder, FOLDER_IMAGE, image_id, dir, err);
    if (rc != 0) {
        folder_abandon(vb->folder, FOLDER_IMAGE, image_id);
    }
    return rc;
}

/* The root snapshot of an image that may be read through a base: 0, 1 or -ENOENT. */
static int facts_of_record(struct vb *vb, struct arena *a, struct str image_id,
                           struct base_facts *ret, struct err *err)
{
    int rc = -ENOENT;
    view_lock(vb->view);
    omap_foreach_prefix(n, view_map(vb->view), STR("spec/image/"))
    {
        const struct view_entry *e = omap_value(n);
        const struct image *i = e->obj;
        if (!i || !str_eq(i->id, image_id) || !str_eqc(i->want, "present")) {
            continue;
        }
        ret->account = arena_str_dup(a, i->account);
        ret->snapshot_id = arena_str_dup(a, i->snapshot_id);
        rc = i->snapshot_id.n > 0 ? 0 : 1;
    }
    const struct view_entry *s =
        rc == 0 ? view_get(vb->view, key_spec(a, "snapshot", ret->account, ret->snapshot_id))
                : NULL;
    const struct view_entry *st =
        rc == 0 ? view_get(vb->view, key_status(a, "snapshot", ret->account, ret->snapshot_id))
                : NULL;
    if (rc == 0) {
        const struct snapshot *x = s ? s->obj : NULL;
        const struct snapshot_status *y = st ? st->obj : NULL;
        bool is_usable = x && y && !x->is_encrypted && str_eqc(y->state, "completed");
        ret->size = !x ? 0 : x->size > 0 ? x->size : x->size_gib * GIB;
        rc = is_usable ? 0 : 1;
    }
    view_unlock(vb->view);
    return rc != -ENOENT ? rc
                         : fail(err, rc, "InvalidAMIID.NotFound",
                                "The image id '[%.*s]' does not exist", STR_ARG(image_id));
}

int base_get(struct vb *vb, struct arena *a, struct str image_id, struct base_facts *ret,
             struct err *err)
{
    struct image_meta m;
    if (!folder_has(vb->folder, FOLDER_IMAGE, image_id)) {
        int rc = facts_of_record(vb, a, image_id, ret, err);
        return rc != 0 ? rc : make_empty(vb, image_id, ret, err);
    }
    int rc = load_meta(vb, a, image_id, &m, err);
    if (rc != 0) {
        return rc;
    }
    ret->account = m.snapshot_account.n > 0 ? m.snapshot_account : m.account;
    ret->snapshot_id = m.snapshot_id;
    ret->size = m.size;
    return base_complete(vb, image_id, m.size, err);
}

/* --- filling
 * -------------------------------------------------------------------------------- */

/* Under 'mu'. */
static int open_base(struct vb *vb, struct str image_id, struct base **ret, struct err *err)
{
    for (size_t i = 0; i < vb->bases->v.n; i++) {
        if (str_eqc(image_id, vb->bases->v.v[i]->id)) {
            *ret = vb->bases->v.v[i];
            return 0;
        }
    }
    struct base *b = calloc(1, sizeof(*b));
    if (!b) {
        abort();
    }
    b->fd = b->map_fd = -1;
    (void)snprintf(b->id, sizeof(b->id), "%.*s", STR_ARG(image_id));
    int rc = folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "data", O_RDWR, &b->fd, err);
    rc = rc != 0 ? rc
                 : folder_open_file(vb->folder, FOLDER_IMAGE, image_id, "map", O_RDWR,
                                    &b->map_fd, err);
    rc = rc != 0 ? rc : base_map_open(b->map_fd, true, &b->map, err);
    if (rc != 0) {
        base_close(b);
        return rc == -ENOENT ? -EIO : rc;
    }
    vec_push(&vb->bases->v, b);
    *ret = b;
    return 0;
}

static bool is_busy(const struct base *b, uint64_t block)
{
    bool found = false;
    for (size_t i = 0; i < b->busy.n; i++) {
        found = found || b->busy.v[i] == block;
    }
    return found;
}

static void not_busy(struct base *b, uint64_t block)
{
    for (size_t i = 0; i < b->busy.n; i++) {
        if (b->busy.v[i] == block) {
            vec_remove(&b->busy, i);
            return;
        }
    }
}

static int write_block(int fd, uint64_t block, const void *buf, struct err *err)
{
    int rc = copy_check_room(fd, BLK_BLOCK, err);
    if (rc != 0) {
        return -EAGAIN; /* the guest waits for room, as for its own writes */
    }
    ssize_t n = pwrite(fd, buf, BLK_BLOCK, (off_t)(block * BLK_BLOCK));
    if (n != (ssize_t)BLK_BLOCK || fdatasync(fd) != 0) {
        return fail(err, n < 0 && errno == ENOSPC ? -EAGAIN : -EIO, "WriteFailed",
                    "a base cannot be written: %m");
    }
    return 0;
}

int base_fetch(struct vb *vb, struct str image_id, struct str account, struct str id,
               uint64_t block, void *buf, struct err *err)
{
    struct bases *bs = vb->bases;
    struct snap_store *store = NULL;
    struct base *b = NULL;
    pthread_mutex_lock(&bs->mu);
    int rc = open_base(vb, image_id, &b, err);
    while (rc == 0 && is_busy(b, block)) {
        pthread_cond_wait(&bs->cond, &bs->mu);
        rc = open_base(vb, image_id, &b, err);
    }
    if (rc != 0 || base_map_has(b->map, block)) {
        pthread_mutex_unlock(&bs->mu);
        return rc;
    }
    vec_push(&b->busy, block);
    pthread_mutex_unlock(&bs->mu);
    rc = store_get(vb, &store, err);
    rc = rc != 0 ? rc : snap_get(store, account, id, block, buf, err);
    rc = rc < 0 || rc == 1 ? rc : write_block(b->fd, block, buf, err);
    pthread_mutex_lock(&bs->mu);
    rc = rc < 0 ? rc : base_map_set(b->map, block, err);
    not_busy(b, block);
    pthread_cond_broadcast(&bs->cond);
    pthread_mutex_unlock(&bs->mu);
    return rc;
}

bool base_is_complete(struct vb *vb, struct str image_id)
{
    struct bases *bs = vb->bases;
    struct base *b = NULL;
    pthread_mutex_lock(&bs->mu);
    bool is_whole = open_base(vb, image_id, &b, NULL) == 0 && base_map_n_absent(b->map) == 0;
    pthread_mutex_unlock(&bs->mu);
    return is_whole;
}

/* --- removing
 * ------------------------------------------------------------------------------- */

struct users {
    struct vb *vb;
    struct str image_id;
    size_t n;
};

/* A volume that still reads through it is filled while it is open; a closed one keeps it. */
static void count_user(void *ctx, struct str id)
{
    struct users *u = ctx;
    AUTO(arena_freep) struct arena *a = arena_new(VB_ARENA_MAX);
    struct volume_meta m;
    if (vol_meta_load(u->vb, a, id, &m, NULL) == 0 && !str_eq(m.base, u->image_id)) {
        return;
    }
    u->n++; /* one whose description cannot be read may be a user too */
    vols_fill(u->vb->vols, id, FILL_RATE);
}

int base_remove(struct vb *vb, struct str image_id, struct err *err)
{
    struct users u = {.vb = vb, .image_id = image_id};
    base_hold(vb);
    int rc = folder_each(vb->folder, FOLDER_VOLUME, count_user, &u, err);
    if (rc == 0 && u.n > 0) {
        rc = fail(err, -EBUSY, "InUse", "%zu volumes read through the base of %.*s", u.n,
                  STR_ARG(image_id));
    }
    if (rc == 0) {
        pthread_mutex_lock(&vb->bases->mu);
        for (size_t i = 0; i < vb->bases->v.n; i++) {
            struct base *b = vb->bases->v.v[i];
            if (str_eqc(image_id, b->id) && b->busy.n == 0) {
                vec_remove(&vb->bases->v, i);
                base_close(b);
                break;
            }
        }
        pthread_mutex_unlock(&vb->bases->mu);
        rc = folder_remove(vb->folder, FOLDER_IMAGE, image_id, err);
    }
    base_release(vb);
    return rc;
}
