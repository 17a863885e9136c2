/* Manifests and pages: out of the store, through the cache, and into it. */
#include "snap/snap_int.h"

#include "crypto/crc.h"
#include "crypto/digest.h"

#include <errno.h>
#include <stdio.h>

static int not_there(struct str id, struct err *err)
{
    return fail(err, -ENOENT, "NoSuchSnapshot", "snapshot %.*s is not in the object store",
                STR_ARG(id));
}

int snap_read_manifest(struct snap_store *s, char kind, struct str account, struct str id,
                       struct snap_manifest *ret, struct err *err)
{
    char key[SNAP_KEY_MAX];
    AUTO_BUF b;
    struct err e = ERR_INIT;
    AUTO_SNAP_MANIFEST m = {.pages = NULL};
    snap_key_id(kind, account, id, key);
    buf_init(&b, SNAP_MANIFEST_MAX);
    int r = snap_s3_get_buf(s->s3, key, &b, &e);
    if (r == -ENOENT) {
        return not_there(id, err);
    }
    if (r < 0 && r != -EFBIG) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    r = r < 0 ? -EBADMSG : snap_manifest_decode(buf_str(&b), &m);
    if (r == -ENOMEM) {
        return fail(err, r, "NoMemory", "no memory for a manifest");
    }
    if (r < 0 || !str_eqc(id, m.info.id) || !str_eqc(account, m.info.account)) {
        return fail(err, -EBADMSG, "ManifestDamaged", "%s is not what was written", key);
    }
    *ret = m;
    m.pages = NULL;
    return 0;
}

static void manifest_free(void *p)
{
    snap_manifest_done(p);
    free(p);
}

static void cache_key(char kind, struct str account, struct str id, char ret[SNAP_KEY_MAX])
{
    snap_key_id(kind, account, id, ret);
}

int snap_load_manifest(struct snap_store *s, struct str account, struct str id,
                       struct snap_cached **ret, struct err *err)
{
    char key[SNAP_KEY_MAX];
    uint64_t generation = 0;
    struct snap_manifest m = {.pages = NULL};
    int r = snap_check_account(account, err);
    if (r < 0 || (r = snap_check_id(id, err)) < 0) {
        return r;
    }
    cache_key('m', account, id, key);
    if ((*ret = snap_cache_get(&s->cache, key, &generation))) {
        return 0;
    }
    struct err e = ERR_INIT;
    r = snap_read_manifest(s, 'm', account, id, &m, &e);
    if (r == -ENOENT) { /* snap_keep() makes 'r' before it takes 'm' away */
        err_clear(&e);
        r = snap_read_manifest(s, 'r', account, id, &m, &e);
        m.info.is_kept = r == 0;
    }
    if (r < 0) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    struct snap_manifest *p = malloc(sizeof(*p));
    if (!p) {
        snap_manifest_done(&m);
        return fail(err, -ENOMEM, "NoMemory", "no memory for a manifest");
    }
    *p = m;
    *ret = snap_cache_put(&s->cache, key, generation, p,
                          sizeof(m) + m.n_pages * sizeof(*m.pages), manifest_free);
    return 0;
}

void snap_forget(struct snap_store *s, struct str account, struct str id)
{
    char key[SNAP_KEY_MAX];
    cache_key('m', account, id, key);
    snap_cache_drop(&s->cache, key);
}

int snap_is_there(struct snap_store *s, char kind, struct str account, struct str id,
                  struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct snap_s3_stat st;
    struct err e = ERR_INIT;
    snap_key_id(kind, account, id, key);
    int r = snap_s3_stat(s->s3, key, &st, &e);
    if (r == 0 || r == -ENOENT) {
        return r == 0;
    }
    return fail(err, r, e.name, "%s", e.msg);
}

int snap_write_manifest(struct snap_store *s, char kind, const struct snap_manifest *m,
                        struct err *err)
{
    char key[SNAP_KEY_MAX];
    AUTO_BUF b;
    buf_init(&b, SNAP_MANIFEST_MAX);
    snap_manifest_encode(m, &b);
    if (!buf_ok(&b)) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a manifest");
    }
    snap_key_id(kind, str_c(m->info.account), str_c(m->info.id), key);
    const struct snap_s3_put put = {
        .key = key, .body = buf_str(&b), .crc = (uint32_t)crc_add(CRC_32C, 0, buf_str(&b))};
    return snap_s3_put(s->s3, &put, err);
}

/* ---- pages ---- */

int snap_read_page(struct snap_store *s, struct str account, const uint8_t name[SNAP_NAME],
                   void *raw, snap_page_names ret, struct err *err)
{
    char key[SNAP_KEY_MAX];
    uint8_t real[SHA256_SIZE];
    uint32_t n_stored = 0;
    size_t n = 0;
    struct err e = ERR_INIT;
    snap_key_name('p', account, name, key);
    int r = snap_s3_get(s->s3, key, raw, SNAP_PAGE_MAX, &n, &e);
    if (r < 0 && r != -ENOENT && r != -EFBIG) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    if (r == 0) {
        sha256(str_n(raw, n), real);
    }
    if (r < 0 || memcmp(real, name, SNAP_NAME) != 0 ||
        snap_page_decode(str_n(raw, n), ret, &n_stored) < 0) {
        return fail(err, -EBADMSG, "ManifestDamaged", "%s %s", key,
                    r == -ENOENT ? "is not there" : "is not what its name says");
    }
    return 0;
}

int snap_load_page(struct snap_store *s, struct str account, const uint8_t name[SNAP_NAME],
                   struct snap_cached **ret, struct err *err)
{
    char key[SNAP_KEY_MAX];
    uint64_t generation = 0;
    snap_key_name('p', account, name, key);
    if ((*ret = snap_cache_get(&s->cache, key, &generation))) {
        return 0;
    }
    void *raw = snap_scratch_take(s);
    AUTO_FREE uint8_t(*names)[SNAP_NAME] = malloc(sizeof(snap_page_names));
    int r = raw && names ? snap_read_page(s, account, name, raw, names, err)
                         : fail(err, -ENOMEM, "NoMemory", "no memory for a page");
    snap_scratch_give(s, raw);
    if (r == 0) {
        *ret = snap_cache_put(&s->cache, key, generation, names, sizeof(snap_page_names), free);
        names = NULL;
    }
    return r;
}
