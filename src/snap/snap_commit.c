/* From an upload to a visible snapshot: its log onto the pages of the parent, page by page. */
#include "snap/snap_int.h"

#include "crypto/crc.h"
#include "crypto/digest.h"

#include <errno.h>

/* Pages that are worked on at once: 32 MiB of names. */
#define WINDOW 1024u

struct commit {
    struct snap_store *s;
    struct snap_upload *u;
    struct snap_manifest m;
    uint8_t *is_changed; /* of each page */
    snap_page_names *window;
    size_t first, n; /* pages in the window */
    uint8_t *raw;    /* SNAP_PAGE_MAX bytes */
};

static int mark_page(void *ctx, enum snap_log_type type, uint64_t block,
                     const uint8_t name[SNAP_NAME])
{
    struct commit *c = ctx;
    (void)name;
    if (type == SNAP_LOG_BLOCK && block / SNAP_PAGE_BLOCKS < c->m.n_pages) {
        c->is_changed[block / SNAP_PAGE_BLOCKS] = 1;
    }
    return 0;
}

static int apply(void *ctx, enum snap_log_type type, uint64_t block,
                 const uint8_t name[SNAP_NAME])
{
    struct commit *c = ctx;
    uint64_t page = block / SNAP_PAGE_BLOCKS;
    if (type == SNAP_LOG_BLOCK && page >= c->first && page < c->first + c->n) {
        memcpy(c->window[page - c->first][block % SNAP_PAGE_BLOCKS], name, SNAP_NAME);
    }
    return 0;
}

static int load_base(struct commit *c, const struct snap_page_ref *ref, snap_page_names names,
                     struct err *err)
{
    struct snap_cached *e = NULL;
    if (!ref->n_stored) {
        memset(names, 0, sizeof(snap_page_names));
        return 0;
    }
    int r = snap_load_page(c->s, str_c(c->m.info.account), ref->name, &e, err);
    if (r == 0) {
        memcpy(names, e->p, sizeof(snap_page_names));
        snap_cache_release(&c->s->cache, e);
    }
    return r;
}

/* What of the page the parent has not. */
static int count_new(struct commit *c, const struct snap_page_ref *base, snap_page_names names,
                     struct err *err)
{
    struct snap_cached *e = NULL;
    if (base->n_stored) {
        int r = snap_load_page(c->s, str_c(c->m.info.account), base->name, &e, err);
        if (r < 0) {
            return r;
        }
    }
    uint8_t(*old)[SNAP_NAME] = e ? e->p : NULL;
    for (unsigned i = 0; i < SNAP_PAGE_BLOCKS; i++) {
        c->m.info.n_new +=
            !snap_name_is_zero(names[i]) && (!old || memcmp(old[i], names[i], SNAP_NAME) != 0);
    }
    snap_cache_release(&c->s->cache, e);
    return 0;
}

/* The log names the page before it is stored: a collection must not take it away in between. */
static int store_page(struct commit *c, size_t page, size_t size, struct err *err)
{
    char key[SNAP_KEY_MAX];
    struct str account = str_c(c->m.info.account);
    struct str body = str_n((const char *)c->raw, size);
    const uint8_t *name = c->m.pages[page].name;
    int r = snap_log_append(&c->u->log, SNAP_LOG_PAGE, page, name, false, err);
    if (r < 0) {
        return r;
    }
    snap_touch(c->s, account, name);
    snap_key_name('p', account, name, key);
    const struct snap_s3_put put = {
        .key = key, .body = body, .crc = (uint32_t)crc_add(CRC_32C, 0, body)};
    return snap_s3_put(c->s->s3, &put, err);
}

static int end_page(struct commit *c, size_t page, struct err *err)
{
    struct snap_page_ref *ref = &c->m.pages[page];
    const struct snap_page_ref *base = &c->u->base.pages[page];
    uint8_t(*names)[SNAP_NAME] = c->window[page - c->first];
    size_t size = snap_page_encode(names, c->raw, &ref->n_stored);
    memset(ref->name, 0, SNAP_NAME);
    if (!size) {
        return 0;
    }
    sha256(str_n((const char *)c->raw, size), ref->name);
    if (base->n_stored && memcmp(ref->name, base->name, SNAP_NAME) == 0) {
        return 0;
    }
    int r = count_new(c, base, names, err);
    return r < 0 ? r : store_page(c, page, size, err);
}

static int do_window(struct commit *c, struct err *err)
{
    bool is_any = false;
    int r = 0;
    for (size_t i = 0; r == 0 && i < c->n; i++) {
        if (c->is_changed[c->first + i]) {
            is_any = true;
            r = load_base(c, &c->u->base.pages[c->first + i], c->window[i], err);
        }
    }
    if (r < 0 || !is_any) {
        return r;
    }
    r = snap_log_walk(&c->u->log, apply, c, err);
    for (size_t i = 0; r == 0 && i < c->n; i++) {
        if (c->is_changed[c->first + i]) {
            r = end_page(c, c->first + i, err);
        }
    }
    return r;
}

static int do_pages(struct commit *c, struct err *err)
{
    size_t n = c->m.n_pages;
    AUTO_FREE uint8_t *is_changed = calloc(n + 1, 1);
    AUTO_FREE snap_page_names *window = calloc(MIN(n, WINDOW) + 1, sizeof(*window));
    AUTO_FREE uint8_t *raw = malloc(SNAP_PAGE_MAX);
    c->is_changed = is_changed;
    c->window = window;
    c->raw = raw;
    if (!is_changed || !window || !raw) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for pages");
    }
    int r = snap_log_walk(&c->u->log, mark_page, c, err);
    for (c->first = 0; r == 0 && c->first < n; c->first += WINDOW) {
        c->n = MIN(n - c->first, WINDOW);
        r = do_window(c, err);
    }
    snap_manifest_count(&c->m);
    return r;
}

static int publish(struct commit *c, struct err *err)
{
    struct snap_store *s = c->s;
    pthread_mutex_lock(&s->roots_mu);
    int r = snap_write_manifest(s, 'm', &c->m, err);
    snap_forget(s, str_c(c->m.info.account), str_c(c->m.info.id));
    r = r < 0 ? r : snap_upload_remove(s, c->u, err);
    pthread_mutex_unlock(&s->roots_mu);
    return r;
}

static int commit(struct snap_store *s, struct snap_upload *u, struct snap_info *ret,
                  struct err *err)
{
    struct commit c = {.s = s, .u = u};
    if (u->is_damaged) {
        return fail(err, -EBADMSG, "UploadDamaged", "its log cannot be read");
    }
    if (snap_manifest_new(&u->base.info, &c.m) < 0) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a manifest");
    }
    memcpy(c.m.pages, u->base.pages, c.m.n_pages * sizeof(*c.m.pages));
    c.m.info.n_new = 0;
    int r = do_pages(&c, err);
    r = r < 0 ? r : publish(&c, err);
    if (r == 0 && ret) {
        *ret = c.m.info;
    }
    snap_manifest_done(&c.m);
    return r;
}

int snap_commit(struct snap_store *s, struct str id, struct snap_info *ret, struct err *err)
{
    struct snap_upload *u = snap_upload_get(s, id);
    if (!u) {
        return fail(err, -ENOENT, "NoSuchUpload", "no snapshot %.*s is being uploaded",
                    STR_ARG(id));
    }
    int r = snap_upload_end(u, err);
    if (r == 0 && (r = commit(s, u, ret, err)) < 0) {
        snap_upload_go_on(u);
    }
    snap_upload_unref(s, u);
    return r;
}
