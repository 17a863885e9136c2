#include "snap/snap_mark.h"

#include <errno.h>
#include <stdio.h>

/* ---- which there are ---- */

static int add_root(struct snap_roots *r, const char *id, bool is_kept,
                    struct snap_upload *upload)
{
    if (r->n == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 64;
        void *p = reallocarray(r->v, cap, sizeof(*r->v));
        if (!p) {
            return -ENOMEM;
        }
        r->v = p;
        r->cap = cap;
    }
    struct snap_root *root = &r->v[r->n++];
    *root = (struct snap_root){.is_kept = is_kept, .upload = upload};
    snprintf(root->id, sizeof(root->id), "%s", id);
    return 0;
}

static int look_uploads(struct snap_store *s, struct str account, struct snap_roots *roots,
                        struct err *err)
{
    int r = 0;
    pthread_mutex_lock(&s->mu);
    omap_foreach_prefix(n, s->uploads, STR(""))
    {
        struct snap_upload *u = omap_value(n);
        /* Nobody knows whose a damaged one is. */
        bool is_ours = u->is_damaged || str_eqc(account, u->base.info.account);
        if (r == 0 && is_ours && (r = add_root(roots, u->base.info.id, false, u)) == 0) {
            u->refs++;
            roots->n_pending++;
        }
    }
    pthread_mutex_unlock(&s->mu);
    return r < 0 ? fail(err, r, "NoMemory", "no memory for a collection") : 0;
}

static int look_manifests(struct snap_store *s, char kind, struct str account,
                          struct snap_roots *roots, struct err *err)
{
    char prefix[SNAP_KEY_MAX], after[SNAP_KEY_MAX] = "";
    bool is_more = true;
    AUTO_FREE struct snap_s3_item *items = calloc(SNAP_S3_LIST_MAX, sizeof(*items));
    int r = items ? 0 : -ENOMEM;
    snprintf(prefix, sizeof(prefix), "%c/%.*s/", kind, STR_ARG(account));
    while (r == 0 && is_more) {
        size_t n = 0;
        if ((r = snap_s3_list(s->s3, prefix, after, false, items, &n, &is_more, err)) < 0) {
            return r;
        }
        for (size_t i = 0; r == 0 && i < n; i++) {
            struct str id = str_skip(str_c(items[i].key), strlen(prefix));
            if (snap_check_id(id, NULL) == 0) {
                r = add_root(roots, id.p, kind == 'r', NULL);
                (*(kind == 'r' ? &roots->n_kept : &roots->n_manifests))++;
            }
        }
        if (n) {
            snprintf(after, sizeof(after), "%s", items[n - 1].key);
        }
    }
    return r < 0 ? fail(err, r, "NoMemory", "no memory for a collection") : 0;
}

int snap_roots_look(struct snap_store *s, struct str account, struct snap_roots *ret,
                    struct err *err)
{
    *ret = (struct snap_roots){.v = NULL};
    pthread_mutex_lock(&s->roots_mu);
    ret->n_begun = s->n_begun;
    int r = look_uploads(s, account, ret, err);
    if (r == 0 && (r = look_manifests(s, 'm', account, ret, err)) == 0) {
        r = look_manifests(s, 'r', account, ret, err);
    }
    pthread_mutex_unlock(&s->roots_mu);
    if (r < 0) {
        snap_roots_done(s, ret);
    }
    return r;
}

void snap_roots_done(struct snap_store *s, struct snap_roots *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].upload) {
            snap_upload_unref(s, r->v[i].upload);
        }
    }
    free(r->v);
    *r = (struct snap_roots){.v = NULL};
}

/* ---- pages ---- */

static int no_memory(struct err *err)
{
    return fail(err, -ENOMEM, "NoMemory", "no memory for a collection");
}

/* What cannot be read ends a collection, and is only counted by a check. */
static int unreadable(const struct snap_mark *m, int r, const struct err *e, struct err *err)
{
    if (r != -EBADMSG || !m->usage) {
        return fail(err, r, e->name, "%s", e->msg);
    }
    m->usage->n_damaged++;
    return 0;
}

static int add_refs(const struct snap_manifest *m, struct snap_names *live)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->n_pages; i++) {
        r = snap_names_add(live, m->pages[i].name);
    }
    return r;
}

/* It went since it was looked up. That is fine when nothing can have begun from it since. */
static int vanished(const struct snap_mark *m)
{
    pthread_mutex_lock(&m->s->roots_mu);
    bool is_new = m->s->n_begun != m->roots->n_begun;
    pthread_mutex_unlock(&m->s->roots_mu);
    return is_new ? -ESTALE : 0;
}

static int mark_manifest(const struct snap_mark *m, const struct snap_root *root,
                         struct snap_names *live, struct err *err)
{
    AUTO_SNAP_MANIFEST x = {.pages = NULL};
    struct err e = ERR_INIT;
    char kind = root->is_kept ? 'r' : 'm';
    int r = snap_read_manifest(m->s, kind, m->account, str_c(root->id), &x, &e);
    if (r == -ENOENT && !root->is_kept) {
        err_clear(&e);
        r = snap_read_manifest(m->s, 'r', m->account, str_c(root->id), &x, &e);
    }
    if (r == -ENOENT) {
        return vanished(m);
    }
    if (r < 0) {
        return unreadable(m, r, &e, err);
    }
    return add_refs(&x, live) < 0 ? no_memory(err) : 0;
}

struct log_mark {
    const struct snap_mark *m;
    struct snap_names *live; /* NULL: pages that it names are touched */
};

static int on_record(void *ctx, enum snap_log_type type, uint64_t block,
                     const uint8_t name[SNAP_NAME])
{
    const struct log_mark *l = ctx;
    (void)block;
    if (!l->live && type == SNAP_LOG_PAGE) {
        snap_touch(l->m->s, l->m->account, name);
    }
    return l->live && type == SNAP_LOG_BLOCK ? snap_names_add(l->live, name) : 0;
}

static int mark_log(const struct snap_mark *m, struct snap_upload *u, struct snap_names *live,
                    struct err *err)
{
    struct log_mark l = {m, live};
    struct err e = ERR_INIT;
    if (u->is_damaged) {
        fail(&e, -EBADMSG, "UploadDamaged", "the log of %s cannot be read", u->base.info.id);
        return unreadable(m, -EBADMSG, &e, err);
    }
    int r = snap_log_walk(&u->log, on_record, &l, &e);
    if (r == -ENOMEM) {
        return no_memory(err);
    }
    return r < 0 ? unreadable(m, r, &e, err) : 0;
}

static int mark_refs(const struct snap_mark *m, struct snap_names *live, bool is_first,
                     struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->roots->n; i++) {
        const struct snap_root *root = &m->roots->v[i];
        if (!root->upload) {
            r = mark_manifest(m, root, live, err);
        } else if (!root->upload->is_damaged) {
            r = add_refs(&root->upload->base, live) < 0 ? no_memory(err) : 0;
        }
        if (r == 0 && root->upload && is_first) {
            r = mark_log(m, root->upload, NULL, err);
        }
    }
    return r;
}

int snap_mark_pages(const struct snap_mark *m, struct snap_names *live, struct err *err)
{
    return mark_refs(m, live, true, err);
}

/* ---- blocks ---- */

static int mark_page(const struct snap_mark *m, const uint8_t *name, struct snap_names *live,
                     void *raw, snap_page_names names, struct err *err)
{
    struct err e = ERR_INIT;
    int r = snap_read_page(m->s, m->account, name, raw, names, &e);
    if (r < 0) {
        return unreadable(m, r, &e, err);
    }
    for (unsigned i = 0; i < SNAP_PAGE_BLOCKS && r == 0; i++) {
        r = snap_names_add(live, names[i]);
    }
    return r < 0 ? no_memory(err) : 0;
}

static int mark_range(const struct snap_mark *m, struct snap_names *live,
                      struct snap_names *pages, void *raw, snap_page_names names,
                      struct err *err)
{
    const struct snap_mark quiet = {m->s, m->account, m->roots, NULL};
    struct snap_usage ignored = {0};
    struct snap_mark counted = quiet;
    counted.usage = m->usage ? &ignored : NULL; /* manifests were counted with the pages */
    int r = mark_refs(&counted, pages, false, err);
    for (size_t i = 0; r == 0 && i < pages->n_slots; i++) {
        if (!snap_name_is_zero(pages->slots[i])) {
            r = mark_page(m, pages->slots[i], live, raw, names, err);
        }
    }
    return r;
}

int snap_mark_blocks(const struct snap_mark *m, struct snap_names *live,
                     struct snap_names *pages, struct err *err)
{
    AUTO_FREE void *raw = malloc(SNAP_PAGE_MAX);
    AUTO_FREE uint8_t(*names)[SNAP_NAME] = malloc(sizeof(snap_page_names));
    int r = raw && names ? 0 : no_memory(err);
    snap_names_begin(pages, 0);
    for (bool is_more = true; r == 0 && is_more;) {
        r = mark_range(m, live, pages, raw, names, err);
        is_more = pages->hi != 0;
        snap_names_begin(pages, pages->hi);
    }
    for (size_t i = 0; r == 0 && i < m->roots->n; i++) {
        if (m->roots->v[i].upload && !m->roots->v[i].upload->is_damaged) {
            r = mark_log(m, m->roots->v[i].upload, live, err);
        }
    }
    return r;
}
