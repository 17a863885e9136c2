/* A snapshot again, for another account or under other keys; and lists of what there is. */
#include "snap/snap_int.h"

#include "crypto/secret.h"

#include <errno.h>
#include <stdio.h>

/* Nothing but the manifest: the same account, the same names. */
static int copy_manifest(struct snap_store *s, struct str account, struct str id,
                         const struct snap_info *to, struct err *err)
{
    struct snap_cached *e = NULL;
    pthread_mutex_lock(&s->roots_mu);
    int r = snap_load_manifest(s, account, id, &e, err);
    if (r == 0) {
        struct snap_manifest m = *snap_manifest_of(e);
        memcpy(m.info.id, to->id, sizeof(m.info.id));
        memset(m.info.parent, 0, sizeof(m.info.parent));
        m.info.n_new = 0;
        m.info.is_kept = false;
        s->n_begun++;
        r = snap_write_manifest(s, 'm', &m, err);
        snap_forget(s, account, str_c(to->id));
        snap_cache_release(&s->cache, e);
    }
    pthread_mutex_unlock(&s->roots_mu);
    return r;
}

struct copy {
    struct snap_store *s;
    struct str account, id, to;
    uint8_t *done; /* a bit for each block */
    uint64_t n_done, n_total;
    void *buf;
    bool (*on_progress)(void *, uint64_t, uint64_t);
    void *ctx;
};

static int on_done(void *ctx, uint64_t block, const uint8_t name[SNAP_NAME])
{
    struct copy *c = ctx;
    (void)name;
    if (!(c->done[block / 8] >> (block % 8) & 1)) {
        c->done[block / 8] = (uint8_t)(c->done[block / 8] | 1u << (block % 8));
        c->n_done++;
    }
    return 0;
}

static int copy_blocks(struct copy *c, struct err *err)
{
    uint64_t at = 0;
    int r = 0;
    for (;; at++) {
        r = snap_next(c->s, c->account, c->id, STR_NONE, STR_NONE, at, &at, err);
        if (r < 0 || at == UINT64_MAX) {
            return r;
        }
        if (c->done[at / 8] >> (at % 8) & 1) {
            continue;
        }
        if ((r = snap_get(c->s, c->account, c->id, at, c->buf, err)) < 0 ||
            (r = snap_put(c->s, c->to, at, c->buf, NULL, err)) < 0) {
            return r;
        }
        c->n_done++;
        if (c->on_progress && !c->on_progress(c->ctx, c->n_done, c->n_total)) {
            return fail(err, -ECANCELED, "Cancelled", "the copy was ended");
        }
    }
}

static int copy_bytes(struct copy *c, const struct snap_info *from, const struct snap_info *to,
                      struct err *err)
{
    struct snap_info begin = *to;
    AUTO_FREE uint8_t *done = calloc(snap_n_blocks(from->size) / 8 + 1, 1);
    AUTO_FREE void *buf = malloc(SNAP_BLOCK);
    c->done = done;
    c->buf = buf;
    c->n_total = from->n_blocks;
    if (!done || !buf) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a copy");
    }
    begin.size = from->size;
    memset(begin.parent, 0, sizeof(begin.parent));
    int r = snap_begin(c->s, &begin, err);
    r = r < 0 ? r : snap_walk(c->s, c->to, on_done, c, err);
    r = r < 0 ? r : copy_blocks(c, err);
    secret_wipe(buf, SNAP_BLOCK);
    return r < 0 ? r : snap_commit(c->s, c->to, NULL, err);
}

int snap_copy(struct snap_store *s, struct str account, struct str id,
              const struct snap_info *to, bool (*on_progress)(void *, uint64_t, uint64_t),
              void *ctx, struct err *err)
{
    struct snap_info from = {.id = ""};
    struct err e = ERR_INIT;
    struct copy c = {.s = s,
                     .account = account,
                     .id = id,
                     .to = str_c(to->id),
                     .on_progress = on_progress,
                     .ctx = ctx};
    int r = snap_check_id(c.to, err);
    if (r < 0 || (r = snap_check_account(str_c(to->account), err)) < 0) {
        return r;
    }
    r = snap_is_there(s, 'm', str_c(to->account), c.to, err);
    if (r != 0) { /* an earlier call has done it, but for its answer */
        return r < 0 ? r : 0;
    }
    if ((r = snap_stat(s, account, id, &from, &e)) < 0) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    return str_eqc(account, to->account) && from.is_encrypted == to->is_encrypted
               ? copy_manifest(s, account, id, to, err)
               : copy_bytes(&c, &from, to, err);
}

/* ---- lists ---- */

int snap_list(struct snap_store *s, struct str account, bool is_kept, struct arena *a,
              struct str **ret, size_t *ret_n, struct err *err)
{
    char prefix[SNAP_KEY_MAX], after[SNAP_KEY_MAX] = "";
    bool is_more = true;
    size_t n_all = 0, cap = 0;
    struct str *v = NULL;
    AUTO_FREE struct snap_s3_item *items = calloc(SNAP_S3_LIST_MAX, sizeof(*items));
    int r = snap_check_account(account, err);
    snprintf(prefix, sizeof(prefix), "%c/%.*s/", is_kept ? 'r' : 'm', STR_ARG(account));
    while (r == 0 && items && is_more) {
        size_t n = 0;
        r = snap_s3_list(s->s3, prefix, after, false, items, &n, &is_more, err);
        if (r == 0 && n_all + n > cap) {
            struct str *more = arena_array(a, cap = (n_all + n) * 2, sizeof(*v));
            if (more && n_all) {
                memcpy(more, v, n_all * sizeof(*v));
            }
            v = more;
            r = v ? 0 : fail(err, -ENOMEM, "NoMemory", "too many snapshots for one list");
        }
        for (size_t i = 0; r == 0 && i < n; i++) {
            struct str id = str_skip(str_c(items[i].key), strlen(prefix));
            if (snap_check_id(id, NULL) == 0) {
                v[n_all++] = arena_str_dup(a, id);
            }
        }
        if (n) {
            snprintf(after, sizeof(after), "%s", items[n - 1].key);
        }
    }
    if (!items) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a list");
    }
    if (r == 0) {
        *ret = v;
        *ret_n = n_all;
    }
    return r;
}

static int add_accounts(struct snap_store *s, const char *prefix, struct omap *set,
                        struct err *err)
{
    char after[SNAP_KEY_MAX] = "";
    bool is_more = true;
    int r = 0;
    AUTO_FREE struct snap_s3_item *items = calloc(SNAP_S3_LIST_MAX, sizeof(*items));
    if (!items) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a list");
    }
    while (r == 0 && is_more) {
        size_t n = 0;
        r = snap_s3_list(s->s3, prefix, after, true, items, &n, &is_more, err);
        for (size_t i = 0; r == 0 && i < n; i++) {
            struct str name = str_cut(str_skip(str_c(items[i].key), 2), '/');
            if (snap_check_account(name, NULL) == 0) {
                omap_put(set, name, set);
            }
        }
        if (n) { /* past all that the folder holds */
            snprintf(after, sizeof(after), "%s", items[n - 1].key);
        }
    }
    return r;
}

int snap_accounts(struct snap_store *s, struct arena *a, struct str **ret, size_t *ret_n,
                  struct err *err)
{
    static const char *const prefixes[] = {"m/", "r/", "b/", "p/"};
    struct omap *set = omap_new();
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(prefixes); i++) {
        r = add_accounts(s, prefixes[i], set, err);
    }
    pthread_mutex_lock(&s->mu);
    omap_foreach_prefix(u, s->uploads, STR(""))
    {
        const struct snap_upload *up = omap_value(u);
        if (up->base.info.account[0]) {
            omap_put(set, str_c(up->base.info.account), set);
        }
    }
    pthread_mutex_unlock(&s->mu);
    struct str *v = arena_array(a, omap_len(set) + 1, sizeof(*v));
    omap_foreach_prefix(k, set, STR(""))
    {
        if (v) {
            v[n++] = arena_str_dup(a, omap_key(k));
        }
    }
    omap_free(set, NULL);
    if (r == 0 && !v) {
        r = fail(err, -ENOMEM, "NoMemory", "too many accounts for one list");
    }
    if (r == 0) {
        *ret = v;
        *ret_n = n;
    }
    return r;
}
