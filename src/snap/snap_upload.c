/* Uploads under way: begin, blocks, giving up, and finding them again after a restart. */
#include "snap/snap_int.h"

#include "base/time.h"
#include "crypto/crc.h"
#include "crypto/secret.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* After a request whose outcome is not known the store may still do it: a block that is found
 * there in this time is written again, for it may be about to go (a late deletion spares what
 * was written anew). */
#define DOUBT_NS (60 * NS_PER_S)

static void log_name(struct str id, char ret[48])
{
    snprintf(ret, 48, "%.*s.log", STR_ARG(id));
}

/* ---- the map ---- */

static struct snap_upload *upload_new(void)
{
    struct snap_upload *u = calloc(1, sizeof(*u));
    if (u) {
        u->refs = 1;
        u->log.fd = -1;
        pthread_mutex_init(&u->mu, NULL);
        pthread_cond_init(&u->idle, NULL);
    }
    return u;
}

static void upload_free(void *p)
{
    struct snap_upload *u = p;
    snap_log_done(&u->log);
    snap_manifest_done(&u->base);
    pthread_cond_destroy(&u->idle);
    pthread_mutex_destroy(&u->mu);
    free(u);
}

struct snap_upload *snap_upload_get(struct snap_store *s, struct str id)
{
    pthread_mutex_lock(&s->mu);
    struct snap_upload *u = omap_get(s->uploads, id);
    if (u) {
        u->refs++;
    }
    pthread_mutex_unlock(&s->mu);
    return u;
}

void snap_upload_unref(struct snap_store *s, struct snap_upload *u)
{
    pthread_mutex_lock(&s->mu);
    bool is_last = --u->refs == 0;
    pthread_mutex_unlock(&s->mu);
    if (is_last) {
        upload_free(u);
    }
}

static int get(struct snap_store *s, struct str id, struct snap_upload **ret, struct err *err)
{
    *ret = snap_upload_get(s, id);
    return *ret ? 0
                : fail(err, -ENOENT, "NoSuchUpload", "no snapshot %.*s is being uploaded",
                       STR_ARG(id));
}

/* A map's reference. */
static void insert(struct snap_store *s, struct str id, struct snap_upload *u)
{
    pthread_mutex_lock(&s->mu);
    omap_put(s->uploads, id, u);
    pthread_mutex_unlock(&s->mu);
}

/* ---- after a restart ---- */

static int open_one(struct snap_store *s, const char *name, struct str id, struct err *err)
{
    struct snap_upload *u = upload_new();
    struct err e = ERR_INIT;
    if (!u) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
    }
    int r = snap_log_open(&u->log, s->o.fs, s->dir, name, &u->base, &e);
    if (r == 0 && !str_eqc(id, u->base.info.id)) {
        r = -EBADMSG;
    }
    if (r == -ENOMEM) {
        upload_free(u);
        return fail(err, r, e.name, "%s", e.msg);
    }
    if (r < 0) {
        u->is_damaged = true;
        snap_manifest_done(&u->base);
        u->base = (struct snap_manifest){.pages = NULL};
        snprintf(u->base.info.id, sizeof(u->base.info.id), "%.*s", STR_ARG(id));
    }
    insert(s, id, u);
    return 0;
}

int snap_uploads_open(struct snap_store *s, struct err *err)
{
    int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        return fail(err, -EIO, "OpenFailed", "the folder of uploads cannot be read");
    }
    for (const struct dirent *e = NULL; r == 0 && (e = readdir(d));) {
        struct str name = str_c(e->d_name);
        if (str_has_suffix(name, STR(".log.new"))) {
            r = fault_unlink(s->o.fs, s->dir, e->d_name);
            r = r < 0 ? fail(err, r, "OpenFailed", "%s cannot be removed", e->d_name) : 0;
        } else if (str_has_suffix(name, STR(".log"))) {
            name.n -= 4;
            r = snap_check_id(name, NULL) == 0 ? open_one(s, e->d_name, name, err) : 0;
        }
    }
    closedir(d);
    return r;
}

void snap_uploads_close(struct snap_store *s)
{
    for (struct omap_node *n = NULL; (n = omap_seek(s->uploads, STR("")));) {
        char id[24];
        snprintf(id, sizeof(id), "%.*s", STR_ARG(omap_key(n)));
        upload_free(omap_remove(s->uploads, str_c(id)));
    }
}

int snap_pending(struct snap_store *s, struct arena *a, struct snap_info **ret, size_t *ret_n,
                 struct err *err)
{
    size_t i = 0;
    pthread_mutex_lock(&s->mu);
    struct snap_info *v = arena_array(a, omap_len(s->uploads) + 1, sizeof(*v));
    omap_foreach_prefix(n, s->uploads, STR(""))
    {
        const struct snap_upload *u = omap_value(n);
        if (v) {
            v[i] = u->base.info;
            v[i].parent[sizeof(v[i].parent) - 1] = '\0';
            v[i++].is_damaged = u->is_damaged;
        }
    }
    pthread_mutex_unlock(&s->mu);
    if (!v) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a list of uploads");
    }
    *ret = v;
    *ret_n = i;
    return 0;
}

/* ---- begin ---- */

static int check_info(const struct snap_info *i, struct err *err)
{
    int r = snap_check_id(str_c(i->id), err);
    if (r == 0 && (r = snap_check_account(str_c(i->account), err)) == 0 && i->parent[0]) {
        r = snap_check_id(str_c(i->parent), err);
    }
    if (r == 0 && (i->size == 0 || i->size > SNAP_SIZE_MAX)) {
        r = fail(err, -EINVAL, "BadSize", "a disk of %llu bytes", (unsigned long long)i->size);
    }
    return r;
}

static bool is_same(const struct snap_info *a, const struct snap_info *b)
{
    return strcmp(a->account, b->account) == 0 && strcmp(a->parent, b->parent) == 0 &&
           a->size == b->size && a->is_encrypted == b->is_encrypted;
}

/* The pages of the parent are where this begins. */
static int take_parent(struct snap_store *s, const struct snap_info *info,
                       struct snap_manifest *base, struct err *err)
{
    struct snap_cached *e = NULL;
    if (!info->parent[0]) {
        return 0;
    }
    int r = snap_load_manifest(s, str_c(info->account), str_c(info->parent), &e, err);
    if (r < 0) {
        return r;
    }
    const struct snap_manifest *p = snap_manifest_of(e);
    if (p->info.is_encrypted != info->is_encrypted) {
        r = fail(err, -EINVAL, "EncryptionDiffers", "parent %s is %sencrypted", info->parent,
                 p->info.is_encrypted ? "" : "not ");
    } else if (p->info.size > info->size) {
        r = fail(err, -EINVAL, "SmallerThanParent", "parent %s is larger", info->parent);
    } else {
        memcpy(base->pages, p->pages, p->n_pages * sizeof(*p->pages));
        snap_manifest_count(base);
    }
    snap_cache_release(&s->cache, e);
    return r;
}

/* The keys of the account are there before the first block needs them: a locked node says so
 * now. */
static int make_keys(struct snap_store *s, const struct snap_info *info, struct err *err)
{
    struct snap_keys_pair keys;
    int r = info->is_encrypted ? snap_keys_get(s, str_c(info->account), true, &keys, err) : 0;
    secret_wipe(&keys, sizeof(keys));
    return r;
}

static int begin_new(struct snap_store *s, const struct snap_info *info, struct err *err)
{
    char name[48];
    struct snap_info clean = *info;
    struct str account = str_c(info->account), id = str_c(info->id);
    clean.n_blocks = clean.n_zero = clean.n_new = 0;
    int r = snap_is_there(s, 'm', account, id, err);
    r = r != 0 ? r : snap_is_there(s, 'r', account, id, err);
    if (r != 0) {
        return r < 0 ? r
                     : fail(err, -EEXIST, "SnapshotExists", "snapshot %s is there", info->id);
    }
    struct snap_upload *u = upload_new();
    if (!u || snap_manifest_new(&clean, &u->base) < 0) {
        r = fail(err, -ENOMEM, "NoMemory", "no memory for an upload");
    }
    log_name(id, name);
    if (r == 0 && (r = take_parent(s, info, &u->base, err)) == 0 &&
        (r = make_keys(s, info, err)) == 0) {
        r = snap_log_create(&u->log, s->o.fs, s->dir, name, &u->base, err);
    }
    if (r < 0) {
        if (u) {
            upload_free(u);
        }
        return r;
    }
    s->n_begun++;
    insert(s, id, u);
    return 0;
}

int snap_begin(struct snap_store *s, const struct snap_info *info, struct err *err)
{
    int r = check_info(info, err);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&s->roots_mu);
    struct snap_upload *u = snap_upload_get(s, str_c(info->id));
    if (u) {
        r = u->is_damaged ? fail(err, -EBADMSG, "UploadDamaged", "its log cannot be read")
            : is_same(&u->base.info, info)
                ? 0
                : fail(err, -EEXIST, "UploadDiffers", "snapshot %s began with other values",
                       info->id);
        snap_upload_unref(s, u);
    } else if (omap_len(s->uploads) >= SNAP_UPLOADS_MAX) {
        r = fail(err, -EAGAIN, "TooManyUploads", "%u snapshots are being uploaded",
                 SNAP_UPLOADS_MAX);
    } else {
        r = begin_new(s, info, err);
    }
    pthread_mutex_unlock(&s->roots_mu);
    return r;
}

/* ---- blocks ---- */

/* 1: the block is there for sure, as it should be. */
static int is_stored(struct snap_store *s, const char *key, size_t size, bool has_crc,
                     uint32_t crc, struct err *err)
{
    struct snap_s3_stat st = {0};
    struct err e = ERR_INIT;
    if (time_mono_ns() - snap_s3_trouble_ns(s->s3) < DOUBT_NS) {
        return 0;
    }
    int r = snap_s3_stat(s->s3, key, &st, &e);
    if (r < 0) {
        return r == -ENOENT ? 0 : fail(err, r, e.name, "%s", e.msg);
    }
    return st.size == size && (!has_crc || (st.has_crc && st.crc == crc));
}

int snap_store_block(struct snap_store *s, const struct snap_keys_pair *keys,
                     struct str account, const uint8_t name[SNAP_NAME], const void *data,
                     struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct str body = str_n(data, SNAP_BLOCK);
    uint8_t *sealed = NULL;
    snap_key_name('b', account, name, key);
    uint32_t crc = keys ? 0 : (uint32_t)crc_add(CRC_32C, 0, body);
    int r = is_stored(s, key, keys ? SNAP_SEALED : SNAP_BLOCK, !keys, crc, err);
    if (r != 0) {
        return r < 0 ? r : 0;
    }
    if (keys) {
        sealed = snap_scratch_take(s);
        if (!sealed) {
            return fail(err, -ENOMEM, "NoMemory", "no memory for a block");
        }
        r = snap_block_seal(keys, account, name, data, sealed, err);
        body = str_n((const char *)sealed, SNAP_SEALED);
        crc = r < 0 ? 0 : (uint32_t)crc_add(CRC_32C, 0, body);
    }
    if (r == 0) {
        const struct snap_s3_put put = {.key = key, .body = body, .crc = crc};
        r = snap_s3_put(s->s3, &put, err);
    }
    snap_scratch_give(s, sealed);
    return r;
}

static int put_begin(struct snap_upload *u, struct str id, uint64_t block, struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&u->mu);
    if (u->is_damaged) {
        r = fail(err, -EBADMSG, "UploadDamaged", "the log of %.*s cannot be read", STR_ARG(id));
    } else if (u->is_ending) {
        r = fail(err, -EBUSY, "UploadBusy", "snapshot %.*s is ending", STR_ARG(id));
    } else if (block >= snap_n_blocks(u->base.info.size)) {
        r = fail(err, -EINVAL, "BadBlock", "snapshot %.*s has no block %llu", STR_ARG(id),
                 (unsigned long long)block);
    } else {
        u->n_puts++;
    }
    pthread_mutex_unlock(&u->mu);
    return r;
}

static void put_end(struct snap_upload *u)
{
    pthread_mutex_lock(&u->mu);
    if (--u->n_puts == 0) {
        pthread_cond_broadcast(&u->idle);
    }
    pthread_mutex_unlock(&u->mu);
}

static int put_data(struct snap_store *s, struct snap_upload *u, uint64_t block,
                    const void *data, uint8_t name[SNAP_NAME], struct err *err)
{
    struct snap_keys_pair pair, *keys = u->base.info.is_encrypted ? &pair : NULL;
    struct str account = str_c(u->base.info.account);
    struct snap_hold hold;
    int r = keys ? snap_keys_get(s, account, true, keys, err) : 0;
    if (r < 0) {
        return r;
    }
    snap_block_name(keys, data, name);
    snap_hold(s, &hold, account, name);
    r = snap_store_block(s, keys, account, name, data, err);
    if (r == 0) {
        r = snap_log_append(&u->log, SNAP_LOG_BLOCK, block, name, true, err);
    }
    snap_let_go(s, &hold);
    secret_wipe(&pair, sizeof(pair));
    return r;
}

int snap_put(struct snap_store *s, struct str id, uint64_t block, const void *data,
             uint8_t ret_name[SNAP_NAME], struct err *err)
{
    struct snap_upload *u = NULL;
    uint8_t name[SNAP_NAME] = {0};
    int r = get(s, id, &u, err);
    if (r < 0) {
        return r;
    }
    if ((r = put_begin(u, id, block, err)) == 0) {
        r = !data || snap_block_is_zero(data)
                ? snap_log_append(&u->log, SNAP_LOG_BLOCK, block, name, true, err)
                : put_data(s, u, block, data, name, err);
        put_end(u);
    }
    snap_upload_unref(s, u);
    if (r == 0 && ret_name) {
        memcpy(ret_name, name, SNAP_NAME);
    }
    return r;
}

struct walk {
    int (*fn)(void *, uint64_t, const uint8_t *);
    void *ctx;
};

static int on_record(void *ctx, enum snap_log_type type, uint64_t block,
                     const uint8_t name[SNAP_NAME])
{
    const struct walk *w = ctx;
    return type == SNAP_LOG_BLOCK ? w->fn(w->ctx, block, name) : 0;
}

int snap_walk(struct snap_store *s, struct str id,
              int (*fn)(void *ctx, uint64_t block, const uint8_t name[SNAP_NAME]), void *ctx,
              struct err *err)
{
    struct snap_upload *u = NULL;
    struct walk w = {fn, ctx};
    int r = get(s, id, &u, err);
    if (r < 0) {
        return r;
    }
    r = u->is_damaged ? fail(err, -EBADMSG, "UploadDamaged", "its log cannot be read")
                      : snap_log_walk(&u->log, on_record, &w, err);
    snap_upload_unref(s, u);
    return r;
}

/* ---- the end ---- */

int snap_upload_end(struct snap_upload *u, struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&u->mu);
    if (u->is_ending) {
        r = fail(err, -EBUSY, "UploadBusy", "snapshot %s is ending", u->base.info.id);
    } else {
        u->is_ending = true;
        while (u->n_puts) {
            pthread_cond_wait(&u->idle, &u->mu);
        }
    }
    pthread_mutex_unlock(&u->mu);
    return r;
}

void snap_upload_go_on(struct snap_upload *u)
{
    pthread_mutex_lock(&u->mu);
    u->is_ending = false;
    pthread_mutex_unlock(&u->mu);
}

int snap_upload_remove(struct snap_store *s, struct snap_upload *u, struct err *err)
{
    char name[48];
    struct str id = str_c(u->base.info.id);
    log_name(id, name);
    int r = fault_unlink(s->o.fs, s->dir, name);
    if (r == 0 || r == -ENOENT) {
        r = fault_sync_dir(s->o.fs, s->dir);
    }
    if (r < 0) {
        return fail(err, -EIO, "UploadFaulted", "%s cannot be removed", name);
    }
    pthread_mutex_lock(&s->mu);
    omap_remove(s->uploads, id);
    u->refs--;
    pthread_mutex_unlock(&s->mu);
    return 0;
}

int snap_abort(struct snap_store *s, struct str id, struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct snap_upload *u = snap_upload_get(s, id);
    if (!u) {
        return 0;
    }
    int r = snap_upload_end(u, err);
    if (r == 0) {
        struct str account = str_c(u->base.info.account);
        pthread_mutex_lock(&s->roots_mu);
        /* A commit that was cut off may have made it visible. */
        if (account.n) {
            snap_key_id('m', account, id, key);
            r = snap_s3_delete(s->s3, key, err);
            snap_forget(s, account, id);
        }
        r = r < 0 ? r : snap_upload_remove(s, u, err);
        pthread_mutex_unlock(&s->roots_mu);
        if (r < 0) {
            snap_upload_go_on(u);
        }
    }
    snap_upload_unref(s, u);
    return r;
}
