/* Visible snapshots: what they are, their names, the way from one to the next, their bytes;
 * and how they go. */
#include "snap/snap_int.h"

#include "crypto/secret.h"

#include <errno.h>

int snap_stat(struct snap_store *s, struct str account, struct str id, struct snap_info *ret,
              struct err *err)
{
    struct snap_cached *e = NULL;
    int r = snap_load_manifest(s, account, id, &e, err);
    if (r == 0) {
        *ret = snap_manifest_of(e)->info;
        snap_cache_release(&s->cache, e);
    }
    return r;
}

static int page_of(struct snap_store *s, const struct snap_manifest *m, size_t page,
                   struct snap_cached **ret, struct err *err)
{
    *ret = NULL;
    return page < m->n_pages && m->pages[page].n_stored
               ? snap_load_page(s, str_c(m->info.account), m->pages[page].name, ret, err)
               : 0;
}

int snap_names(struct snap_store *s, struct str account, struct str id, uint64_t first,
               size_t n, uint8_t (*ret)[SNAP_NAME], struct err *err)
{
    struct snap_cached *e = NULL, *p = NULL;
    int r = snap_load_manifest(s, account, id, &e, err);
    if (r < 0) {
        return r;
    }
    const struct snap_manifest *m = snap_manifest_of(e);
    uint64_t total = snap_n_blocks(m->info.size);
    if (first > total || n > total - first) {
        r = fail(err, -EINVAL, "BadBlock", "snapshot %.*s has %llu blocks", STR_ARG(id),
                 (unsigned long long)total);
    }
    while (r == 0 && n) {
        size_t at = (size_t)(first % SNAP_PAGE_BLOCKS);
        size_t k = MIN(n, SNAP_PAGE_BLOCKS - at);
        r = page_of(s, m, (size_t)(first / SNAP_PAGE_BLOCKS), &p, err);
        if (r == 0 && p) {
            memcpy(ret, (uint8_t(*)[SNAP_NAME])p->p + at, k * SNAP_NAME);
        } else if (r == 0) {
            memset(ret, 0, k * SNAP_NAME);
        }
        snap_cache_release(&s->cache, p);
        first += k;
        ret += k;
        n -= k;
    }
    snap_cache_release(&s->cache, e);
    return r;
}

/* ---- the next block ---- */

static const struct snap_page_ref no_page;

static const struct snap_page_ref *ref_of(const struct snap_manifest *m, size_t page)
{
    return m && page < m->n_pages ? &m->pages[page] : &no_page;
}

/* Looks through one page of two snapshots from entry 'at'; true: there is a difference at *at.
 */
static int next_in_page(struct snap_store *s, const struct snap_manifest *a,
                        const struct snap_manifest *b, size_t page, unsigned *at,
                        struct err *err)
{
    static const uint8_t hole[SNAP_NAME];
    struct snap_cached *pa = NULL, *pb = NULL;
    int r = page_of(s, a, page, &pa, err);
    if (r == 0 && b) {
        r = page_of(s, b, page, &pb, err);
    }
    const uint8_t(*na)[SNAP_NAME] = pa ? pa->p : NULL, (*nb)[SNAP_NAME] = pb ? pb->p : NULL;
    for (; r == 0 && *at < SNAP_PAGE_BLOCKS; ++*at) {
        if (memcmp(na ? na[*at] : hole, nb ? nb[*at] : hole, SNAP_NAME) != 0) {
            r = 1;
            break;
        }
    }
    snap_cache_release(&s->cache, pa);
    snap_cache_release(&s->cache, pb);
    return r;
}

static int next(struct snap_store *s, const struct snap_manifest *a,
                const struct snap_manifest *b, uint64_t from, uint64_t *ret, struct err *err)
{
    size_t n_pages = MAX(a->n_pages, b ? b->n_pages : 0);
    for (size_t page = (size_t)(from / SNAP_PAGE_BLOCKS); page < n_pages; page++) {
        unsigned at = page == from / SNAP_PAGE_BLOCKS ? from % SNAP_PAGE_BLOCKS : 0;
        if (memcmp(ref_of(a, page)->name, ref_of(b, page)->name, SNAP_NAME) == 0) {
            continue;
        }
        int r = next_in_page(s, a, b, page, &at, err);
        if (r != 0) {
            *ret = page * (uint64_t)SNAP_PAGE_BLOCKS + at;
            return r < 0 ? r : 0;
        }
    }
    *ret = UINT64_MAX;
    return 0;
}

int snap_next(struct snap_store *s, struct str account_a, struct str a, struct str account_b,
              struct str b, uint64_t from, uint64_t *ret, struct err *err)
{
    struct snap_cached *ea = NULL, *eb = NULL;
    uint64_t at = UINT64_MAX;
    int r = snap_load_manifest(s, account_a, a, &ea, err);
    if (r == 0 && b.n) {
        r = snap_load_manifest(s, account_b, b, &eb, err);
    }
    if (r == 0) {
        r = next(s, snap_manifest_of(ea), eb ? snap_manifest_of(eb) : NULL, from, &at, err);
    }
    snap_cache_release(&s->cache, ea);
    snap_cache_release(&s->cache, eb);
    if (r == 0) {
        *ret = at;
    }
    return r;
}

/* ---- bytes ---- */

int snap_fetch(struct snap_store *s, const struct snap_keys_pair *keys, struct str account,
               const uint8_t name[SNAP_NAME], void *buf, struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct err e = ERR_INIT;
    size_t n = 0;
    snap_key_name('b', account, name, key);
    void *sealed = keys ? snap_scratch_take(s) : buf;
    if (!sealed) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a block");
    }
    int r = snap_s3_get(s->s3, key, sealed, keys ? SNAP_SEALED : SNAP_BLOCK, &n, &e);
    if (r == 0) {
        r = snap_block_open(keys, account, name, str_n(sealed, n), buf, err);
    } else if (r == -ENOENT) {
        r = fail(err, r, "NoSuchBlock", "%s is not in the object store", key);
    } else if (r == -EFBIG) {
        r = fail(err, -EBADMSG, "BlockDamaged", "%s is too large", key);
    } else {
        r = fail(err, r, e.name, "%s", e.msg);
    }
    if (keys) {
        snap_scratch_give(s, sealed);
    }
    return r;
}

int snap_get(struct snap_store *s, struct str account, struct str id, uint64_t block, void *buf,
             struct err *err)
{
    struct snap_info info = {.id = ""};
    struct snap_keys_pair keys;
    uint8_t name[1][SNAP_NAME];
    int r = snap_names(s, account, id, block, 1, name, err);
    if (r < 0 || (r = snap_stat(s, account, id, &info, err)) < 0) {
        return r;
    }
    if (snap_name_is_zero(name[0])) {
        memset(buf, 0, SNAP_BLOCK);
        return 1;
    }
    if (info.is_encrypted && (r = snap_keys_get(s, account, false, &keys, err)) < 0) {
        return r;
    }
    r = snap_fetch(s, info.is_encrypted ? &keys : NULL, account, name[0], buf, err);
    secret_wipe(&keys, sizeof(keys));
    return r;
}

/* ---- the end of a snapshot ---- */

static int forget_key(struct snap_store *s, char kind, struct str account, struct str id,
                      struct err *err)
{
    char key[SNAP_KEY_MAX];
    snap_key_id(kind, account, id, key);
    int r = snap_s3_delete(s->s3, key, err);
    snap_forget(s, account, id);
    return r;
}

static int check(struct str account, struct str id, struct err *err)
{
    int r = snap_check_account(account, err);
    return r < 0 ? r : snap_check_id(id, err);
}

int snap_delete(struct snap_store *s, struct str account, struct str id, struct err *err)
{
    int r = check(account, id, err);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&s->roots_mu);
    r = forget_key(s, 'm', account, id, err);
    pthread_mutex_unlock(&s->roots_mu);
    struct snap_upload *u = r == 0 ? snap_upload_get(s, id) : NULL;
    if (u) {
        bool is_it = str_eqc(account, u->base.info.account);
        snap_upload_unref(s, u);
        r = is_it ? snap_abort(s, id, err) : 0;
    }
    return r;
}

int snap_keep(struct snap_store *s, struct str account, struct str id, struct err *err)
{
    struct snap_manifest m = {.pages = NULL};
    struct err e = ERR_INIT;
    int r = check(account, id, err);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&s->roots_mu);
    r = snap_read_manifest(s, 'm', account, id, &m, &e);
    if (r == 0) {
        r = snap_write_manifest(s, 'r', &m, &e);
        r = r < 0 ? r : forget_key(s, 'm', account, id, &e);
    } else if (r == -ENOENT) {
        int there = snap_is_there(s, 'r', account, id, err);
        r = there > 0 ? 0 : there < 0 ? there : r;
    }
    pthread_mutex_unlock(&s->roots_mu);
    snap_manifest_done(&m);
    return r < 0 ? fail(err, r, e.name, "%s", e.msg) : 0;
}

int snap_unkeep(struct snap_store *s, struct str account, struct str id, struct err *err)
{
    int r = check(account, id, err);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&s->roots_mu);
    r = forget_key(s, 'r', account, id, err);
    pthread_mutex_unlock(&s->roots_mu);
    return r;
}
