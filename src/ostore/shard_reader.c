#include "ostore/shard_reader_int.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define AHEAD_MIN  (128u << 10)
/* A window has at most this many pieces: units of 64 KiB, and those of a short last stripe. */
#define PIECES_MAX (READ_WINDOW / LAYOUT_UNIT_MIN + 2 * RS_K_MAX)

int shard_reader_open(struct shards *s, const struct orec_body *body, struct body_codec *codec,
                      struct shard_reader **ret, struct err *err)
{
    struct layout l;
    int rc = shard_body_check(body, &l, err);
    if (rc < 0) {
        return rc;
    }
    for (unsigned i = 0; i < (unsigned)l.k + l.m; i++) {
        if (body->drive[i] >= drives_n(s->drives)) {
            return fail(err, -EBADMSG, "BadRecord", "a body on drive %u, which is not there",
                        body->drive[i]);
        }
    }
    struct shard_reader *r = calloc(1, sizeof(*r));
    if (!r) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a reader");
    }
    r->s = s;
    r->body = body;
    r->codec = codec;
    r->l = l;
    r->waiter = shard_waiter_new();
    r->stripe_idx = r->block_idx = UINT64_MAX;
    r->ahead = AHEAD_MIN;
    for (unsigned i = 0; i < l.k; i++) {
        (void)shard_open_now(r, i); /* else a fetch opens it */
    }
    *ret = r;
    return 0;
}

void shard_reader_free(struct shard_reader *r)
{
    if (!r) {
        return;
    }
    for (unsigned i = 0; i < RS_UNITS_MAX; i++) {
        shard_file_unref(r->files[i].file);
        free(r->files[i].table);
    }
    shard_buf_put(r->s, r->stripe);
    rs_free(r->rs);
    shard_waiter_unref(r->waiter);
    shard_buf_put(r->s, r->win);
    free(r->block);
    free(r);
}

/* --- the window --- */

struct piece {
    struct layout_piece at;
    uint8_t *p;
    size_t got;
    bool is_bad;
    struct shard_fetch *fetch;
};

struct fill {
    struct shard_reader *r;
    uint64_t off, n; /* stored bytes */
    struct piece v[PIECES_MAX];
    unsigned n_pieces;
};

/* The bytes of a piece from the stripes, made of others where need be. */
static int from_stripes(struct fill *f, const struct piece *p, struct err *err)
{
    struct shard_reader *r = f->r;
    uint64_t at = p->at.off, end = p->at.off + p->at.n;
    while (at < end) {
        const uint8_t *data = NULL;
        uint64_t idx = at / ((uint64_t)r->l.unit * r->l.k);
        int rc = shard_stripe(r, idx, &data, err);
        if (rc < 0) {
            return rc;
        }
        struct layout_stripe ls = layout_stripe(&r->l, idx);
        size_t n = (size_t)MIN(end, ls.off + ls.size) - at;
        memcpy(r->win->p + (at - f->off), data + (at - ls.off), n);
        at += n;
    }
    return 0;
}

/* What is in memory of it. */
static void read_now(struct fill *f, struct piece *p)
{
    struct shard_reader *r = f->r;
    if (!shard_open_now(r, p->at.shard)) {
        return;
    }
    while (p->got < p->at.n) {
        ssize_t n =
            fault_pread_nowait(r->s->fs, r->files[p->at.shard].file->fd, p->p + p->got,
                               p->at.n - p->got, SHARD_HEAD_SIZE + p->at.shard_off + p->got);
        if (n <= 0) {
            p->is_bad = n == 0 || n != -EAGAIN; /* the file ends here, or cannot be read */
            break;
        }
        p->got += (size_t)n;
    }
}

static void post(struct fill *f, struct piece *p)
{
    struct shard_reader *r = f->r;
    p->fetch =
        shard_fetch_new(r->s, r->waiter, r->body, p->at.shard, r->files[p->at.shard].file,
                        p->at.shard_off + p->got, p->at.n - p->got);
    shard_fetch_post(r->s, p->fetch);
}

static void finish_fetch(struct fill *f, struct piece *p)
{
    if (shard_adopt(f->r, p->fetch) == 0) {
        memcpy(p->p + p->got, p->fetch->p, p->fetch->n);
        p->got = p->at.n;
    } else {
        p->is_bad = true;
    }
    shard_fetch_drop(p->fetch);
    p->fetch = NULL;
}

/* Waits for the fetches; a slow one is abandoned when others can stand in for it. */
static void wait_fetches(struct fill *f)
{
    struct shard_reader *r = f->r;
    for (unsigned i = 0; i < f->n_pieces; i++) {
        struct piece *p = &f->v[i];
        if (!p->fetch) {
            continue;
        }
        enum shard_patience patience = SHARD_WAIT;
        pthread_mutex_lock(&r->waiter->lock);
        while (!p->fetch->is_done) {
            uint64_t now = time_mono_ns(), until = now + NS_PER_S;
            patience = shard_patience(r, p->fetch, now, &until);
            if (patience == SHARD_GIVE_UP || (patience == SHARD_ASK_OTHERS && r->l.m > 0)) {
                break;
            }
            shard_waiter_wait(r->waiter, until);
        }
        bool is_done = p->fetch->is_done;
        pthread_mutex_unlock(&r->waiter->lock);
        if (is_done) {
            finish_fetch(f, p);
            continue;
        }
        p->is_bad = true;
        if (patience == SHARD_GIVE_UP) {
            drives_fault(r->s->drives, r->body->drive[p->at.shard], -ETIMEDOUT,
                         "reading a shard");
        } else {
            shard_note_slow(r, p->at.shard);
        }
        shard_fetch_drop(p->fetch);
        p->fetch = NULL;
    }
}

/* A shard of this stripe that cannot be asked (or was slow a moment ago): the whole stripe is
 * made, and its other units need not be read twice. */
static bool is_stripe_hurt(const struct fill *f, const struct piece *p)
{
    for (unsigned i = 0; i < f->n_pieces; i++) {
        const struct piece *o = &f->v[i];
        bool is_hurt = !shard_is_there(f->r, o->at.shard) ||
                       (f->r->l.m > 0 && shard_is_slow(f->r, o->at.shard));
        if (o->at.stripe == p->at.stripe && is_hurt) {
            return true;
        }
    }
    return false;
}

/* Fills the window with stored bytes [off, off + n). is_nowait: maybe less. */
static int fill(struct shard_reader *r, uint64_t off, size_t n, bool is_nowait, struct err *err)
{
    struct fill f = {.r = r, .off = off, .n = n};
    r->win_n = 0;
    r->win = r->win ? r->win : shard_buf_get(r->s, READ_WINDOW);
    if (!r->win) {
        return fail(err, -ENOMEM, "NoMemory", "no memory to read a body");
    }
    r->win_off = off;
    uint64_t at = off;
    struct layout_piece lp;
    while (layout_next(&r->l, &at, off + n, &lp)) {
        assert(f.n_pieces < PIECES_MAX);
        f.v[f.n_pieces++] = (struct piece){.at = lp, .p = r->win->p + (lp.off - off)};
    }
    for (unsigned i = 0; i < f.n_pieces; i++) {
        struct piece *p = &f.v[i];
        p->is_bad = is_stripe_hurt(&f, p);
        if (!p->is_bad) {
            read_now(&f, p);
        }
        if (is_nowait && p->got < p->at.n) {
            r->win_n = (size_t)(p->at.off - off) + p->got;
            return 0;
        }
        if (!p->is_bad && p->got < p->at.n) {
            post(&f, p);
        }
    }
    wait_fetches(&f);
    int rc = 0;
    for (unsigned i = 0; i < f.n_pieces && rc == 0; i++) {
        rc = f.v[i].is_bad ? from_stripes(&f, &f.v[i], err) : 0;
    }
    r->win_n = rc == 0 ? n : 0;
    return rc;
}

/* --- blocks --- */

/* Which of the stored bytes to read next: the blocks of the request, and more when it goes on
 * in order. */
static size_t window_for(struct shard_reader *r, uint64_t stored_off, uint64_t last_block,
                         bool is_in_order)
{
    uint64_t want = (last_block + 1) * BODY_BLOCK - stored_off;
    if (is_in_order) {
        want = MAX(want, r->ahead);
        r->ahead = MIN(2 * r->ahead, (size_t)READ_WINDOW);
    } else {
        r->ahead = AHEAD_MIN;
    }
    want = MIN(want, READ_WINDOW);
    return (size_t)MIN(want, r->l.size - stored_off);
}

/* The block's bytes again, out of whole stripes whose units were checked. */
static int mend(struct shard_reader *r, uint64_t off, size_t n, struct err *err)
{
    struct fill f = {.r = r, .off = r->win_off};
    uint64_t at = off;
    struct layout_piece lp;
    while (layout_next(&r->l, &at, off + n, &lp)) {
        const struct piece p = {.at = lp};
        int rc = from_stripes(&f, &p, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Opens block 'idx', which is in the window, into 'out'. */
static int open_block(struct shard_reader *r, uint64_t idx, size_t stored, bool is_nowait,
                      uint8_t *out, struct err *err)
{
    uint64_t off = idx * BODY_BLOCK;
    const uint8_t *at = r->win->p + (off - r->win_off);
    if (body_open(r->codec, idx, at, stored, out) == 0) {
        return 0;
    }
    if (is_nowait) {
        return -EAGAIN; /* mending blocks */
    }
    int rc = mend(r, off, stored, err);
    if (rc < 0) {
        return rc;
    }
    if (body_open(r->codec, idx, at, stored, out) < 0) {
        atomic_fetch_add(&r->s->n_lost, 1);
        return fail(err, -EIO, "BodyLost", "block %llu of a body is not what was written",
                    (unsigned long long)idx);
    }
    return 0;
}

/* Plain bytes [in, in + n) of block 'idx'. */
static int read_block(struct shard_reader *r, uint64_t idx, size_t stored, size_t in, size_t n,
                      bool is_nowait, uint8_t *out, struct err *err)
{
    if (in == 0 && n == stored - BODY_TRAILER) {
        return open_block(r, idx, stored, is_nowait, out, err);
    }
    if (r->block_idx != idx) {
        r->block_idx = UINT64_MAX;
        r->block = r->block ? r->block : malloc(BODY_BLOCK);
        if (!r->block) {
            return fail(err, -ENOMEM, "NoMemory", "no memory for a block");
        }
        int rc = open_block(r, idx, stored, is_nowait, r->block, err);
        if (rc < 0) {
            return rc;
        }
        r->block_idx = idx;
    }
    memcpy(out, r->block + in, n);
    return 0;
}

ssize_t shard_read(struct shard_reader *r, uint64_t size, uint64_t off, void *p, size_t n,
                   bool is_nowait, struct err *err)
{
    if (r->l.size != body_stored_size(size)) {
        return fail(err, -EBADMSG, "BadRecord", "the size of a body does not fit its files");
    }
    if (off >= size || n == 0) {
        return 0;
    }
    n = (size_t)MIN((uint64_t)MIN(n, (size_t)SSIZE_MAX), size - off);
    size_t done = 0;
    int rc = 0;
    bool is_in_order = off > 0 && off == r->next;
    uint64_t last = (off + n - 1) / BODY_PLAIN;
    while (done < n && rc == 0) {
        uint64_t idx = (off + done) / BODY_PLAIN, at = idx * BODY_BLOCK;
        size_t in = (size_t)((off + done) % BODY_PLAIN);
        size_t stored = (size_t)MIN((uint64_t)BODY_BLOCK, r->l.size - at);
        size_t part = MIN(n - done, stored - BODY_TRAILER - in);
        bool is_there = at >= r->win_off && at + stored <= r->win_off + r->win_n;
        bool is_kept = r->block_idx == idx && part < stored - BODY_TRAILER; /* in r->block */
        if (!is_there && !is_kept) {
            rc = fill(r, at, window_for(r, at, last, is_in_order), is_nowait, err);
            is_there = rc == 0 && r->win_n >= stored;
            if (!is_there) {
                rc = rc < 0 ? rc : -EAGAIN;
                break;
            }
        }
        rc = read_block(r, idx, stored, in, part, is_nowait, (uint8_t *)p + done, err);
        if (rc == 0) {
            done += part;
            r->next = off + done;
        }
    }
    return rc < 0 && (rc != -EAGAIN || done == 0) ? rc : (ssize_t)done;
}
