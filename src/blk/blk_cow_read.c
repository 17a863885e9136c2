#include "blk/blk_cow_int.h"

/* A read over pages of several kinds: runs of the file, runs of the base, runs of zeros. Nothing of
 * it has to be fetched (that was seen to before). */

#define PARTS 16u

struct cow_split {
    struct cow_split *next;
    struct cow *l;
    struct cow_q *cq;
    struct blk_req *r;
    uint64_t pos; /* bytes of the request dealt with */
    unsigned n_io, n_iov;
    int rc;
    bool is_again; /* a page was given up below while it was read: from the top */
    struct iovec iov[BLK_MAX_IOV + PARTS];
};

void cow_splits_free(struct cow_q *cq)
{
    while (cq->free_splits) {
        struct cow_split *s = cq->free_splits;
        cq->free_splits = s->next;
        free(s);
    }
}

static struct cow_split *split_get(struct cow_q *cq)
{
    struct cow_split *s = cq->free_splits;
    if (s) {
        cq->free_splits = s->next;
    } else {
        s = calloc(1, sizeof(*s));
        if (!s) {
            abort(); /* as xnew(): at most one per request */
        }
    }
    return s;
}

static uint64_t page_of(uint64_t off)
{
    return off / BLK_PAGE;
}
static uint64_t page_end(uint64_t end)
{
    return (end + BLK_PAGE - 1) / BLK_PAGE;
}

enum kind { FROM_FILE, FROM_BASE, ZEROS, GIVEN, MISSING };

static enum kind kind_of(struct cow *l, const struct blk_req *r, uint64_t page)
{
    unsigned st = map_state(l->m, page);
    if (st == MAP_DATA) {
        return FROM_FILE;
    }
    if (st != MAP_ABSENT || page >= l->m->source_pages) {
        return ZEROS;
    }
    if (cow_is_given(r, page / MAP_BLOCK_PAGES)) {
        return GIVEN;
    }
    if (!cow_base_has(l, page / MAP_BLOCK_PAGES)) {
        return MISSING;
    }
    return page * BLK_PAGE < l->o.base->size ? FROM_BASE : ZEROS;
}

static void go_on(struct cow_split *s);

static void part_end(struct cow_io *io, int rc)
{
    struct cow_split *s = io->ctx;
    struct cow *l = io->l;
    s->rc = s->rc ? s->rc : rc;
    if (io->is_locked) { /* here: it was read from the file */
        uint64_t first = page_of(io->r.off);
        s->is_again |= !map_all_data(l->m, first, page_end(io->r.off + io->r.len) - first);
    }
    cow_io_put(io);
    if (--s->n_io == 0) {
        go_on(s);
    }
}

static void part(struct cow_split *s, struct blk_layer *from, bool is_file, uint64_t len)
{
    struct cow_io *io = cow_io_get(s->l, s->cq);
    uint64_t skip = s->pos, left = len;
    io->r.iov = &s->iov[s->n_iov];
    for (int i = 0; left > 0; i++) {
        const struct iovec *v = &s->r->iov[i];
        if (skip >= v->iov_len) {
            skip -= v->iov_len;
            continue;
        }
        uint64_t n = MIN(v->iov_len - skip, left);
        s->iov[s->n_iov++] = (struct iovec){(char *)v->iov_base + skip, n};
        io->r.n_iov++;
        left -= n;
        skip = 0;
    }
    s->n_io++;
    io->end = part_end;
    io->ctx = s;
    io->is_locked = is_file && s->l->m->is_encrypted;
    io->r.op = BLK_READ;
    io->r.flags = s->r->flags;
    io->r.off = s->r->off + s->pos;
    io->r.len = len;
    cow_io_send(io, from);
}

static void split_end(struct cow_split *s)
{
    struct cow *l = s->l;
    struct cow_q *cq = s->cq;
    struct blk_req *r = s->r;
    int rc = s->rc;
    bool is_again = s->is_again;
    s->next = cq->free_splits;
    cq->free_splits = s;
    if (rc == 0 && is_again) {
        cow_read(l, cq, r);
    } else {
        blk_done(r, rc);
    }
}

static void go_on(struct cow_split *s)
{
    struct cow *l = s->l;
    struct blk_req *r = s->r;
    s->n_iov = 0;
    s->n_io = 1; /* ours, until all parts are sent */
    for (unsigned n = 0; n < PARTS && s->pos < r->len && !s->rc && !s->is_again; n++) {
        uint64_t at = r->off + s->pos, end = r->off + r->len;
        uint64_t page = page_of(at);
        enum kind k = kind_of(l, r, page);
        do {
            page++;
        } while (page * BLK_PAGE < end && kind_of(l, r, page) == k);
        uint64_t len = MIN(page * BLK_PAGE, end) - at;
        if (k == MISSING) {
            s->is_again = true;
            break;
        }
        if (k == ZEROS) {
            blk_iov_zero(r->iov, r->n_iov, s->pos, len);
        } else if (k != GIVEN) {
            part(s, k == FROM_FILE ? l->base.below : l->o.base, k == FROM_FILE, len);
        }
        s->pos += len;
    }
    if (--s->n_io > 0) {
        return;
    }
    if (s->pos == r->len || s->rc || s->is_again) {
        split_end(s);
    } else {
        go_on(s); /* all of it was zeros */
    }
}

void cow_read_give(struct cow *l, struct blk_req *r, uint64_t block, const char *buf)
{
    uint64_t start = block * BLK_BLOCK, end = MIN(r->off + r->len, start + BLK_BLOCK);
    for (uint64_t at = MAX(r->off, start); at < end;) {
        uint64_t page = page_of(at), len = MIN((page + 1) * BLK_PAGE, end) - at;
        if (cow_is_absent(l, page)) {
            blk_iov_write(r->iov, r->n_iov, at - r->off, buf + (at - start), len);
        }
        at += len;
    }
    cow_park(r)->given |= 1u << (block - r->off / BLK_BLOCK);
}

static void whole_end(struct cow_io *io, int rc)
{
    struct cow *l = io->l;
    struct cow_q *cq = io->cq;
    struct blk_req *r = io->parent;
    cow_io_put(io);
    uint64_t first = page_of(r->off);
    if (rc == 0 && !map_all_data(l->m, first, page_end(r->off + r->len) - first)) {
        cow_read(l, cq, r); /* discarded meanwhile: what was read may be of no meaning */
        return;
    }
    blk_done(r, rc);
}

void cow_read(struct cow *l, struct cow_q *cq, struct blk_req *r)
{
    uint64_t first = page_of(r->off), end = page_end(r->off + r->len);
    if (map_all_data(l->m, first, end - first)) {
        if (!l->m->is_encrypted) {
            blk_submit(l->base.below, r);
            return;
        }
        struct cow_io *io = cow_io_get(l, cq);
        io->parent = r;
        io->end = whole_end;
        io->r.op = BLK_READ;
        io->r.flags = r->flags;
        io->r.off = r->off;
        io->r.len = r->len;
        io->r.iov = r->iov;
        io->r.n_iov = r->n_iov;
        cow_io_send(io, l->base.below);
        return;
    }
    for (uint64_t p = first; l->m->source_pages && p < end; p++) {
        if (kind_of(l, r, p) == MISSING) {
            cow_to_inner(l, r, cow_prep);
            return;
        }
    }
    struct cow_split *s = split_get(cq);
    s->l = l;
    s->cq = cq;
    s->r = r;
    s->pos = 0;
    s->rc = 0;
    s->is_again = false;
    go_on(s);
}
