#include "ostore/shard_writer_int.h"

#include "base/bytes.h"
#include "crypto/crc.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    return (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)p, n));
}

/* --- life --- */

static struct shard_writer *writer_new(struct shards *s, const struct orec_body *body)
{
    struct shard_writer *w = calloc(1, sizeof(*w));
    if (!w) {
        abort();
    }
    atomic_init(&w->refs, 1);
    w->s = s;
    w->drives = s->drives;
    w->fs = s->fs;
    w->waiter = shard_waiter_new();
    w->body = *body;
    w->body.wrapped_key = STR_NONE;
    w->mask = (1u << (body->k + body->m)) - 1;
    w->stripe_max = body->k * body->unit;
    for (unsigned i = 0; i < (unsigned)body->k + body->m; i++) {
        struct shard_head h = shard_head_of(s, body, i);
        shard_head_encode(&h, w->files[i].head);
        w->files[i].w = w;
    }
    pthread_mutex_lock(&s->lock);
    w->next = s->writers;
    w->prev_next = &s->writers;
    if (w->next) {
        w->next->prev_next = &w->next;
    }
    s->writers = w;
    pthread_mutex_unlock(&s->lock);
    return w;
}

void shard_writer_unref(struct shard_writer *w)
{
    if (atomic_fetch_sub(&w->refs, 1) != 1) {
        return;
    }
    for (unsigned i = 0; i < RS_UNITS_MAX; i++) {
        shard_file_unref(w->files[i].file);
        free(w->files[i].table);
    }
    rs_free(w->rs);
    shard_waiter_unref(w->waiter);
    free(w);
}

bool shard_is_being_written(struct shards *s, const uint8_t id[OREC_ID_SIZE])
{
    bool is_found = false;
    pthread_mutex_lock(&s->lock);
    for (const struct shard_writer *w = s->writers; w; w = w->next) {
        is_found |= memcmp(w->body.id, id, OREC_ID_SIZE) == 0;
    }
    pthread_mutex_unlock(&s->lock);
    return is_found;
}

/* Code and drives of a new body: see shard.h, "Degraded". */
static int choose(struct shards *s, const struct shard_code *want, struct orec_body *body,
                  struct err *err)
{
    unsigned h = 0, v[DRIVES_MAX];
    uint32_t bits = drives_writable(s->drives);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (bits >> i & 1) {
            v[h++] = i;
        }
    }
    if (h == 0) {
        return fail(err, -EIO, "NoDrives", "no drive can be written");
    }
    unsigned k = want->k, m = want->m;
    if (h < k + m) {
        k = h > m ? MAX(1u, MIN(k, h - m)) : 1;
        m = MIN(m, h - 1);
    }
    struct layout l;
    int r = layout_init(&l, 0, k, m, want->unit, err);
    if (r < 0) {
        return r;
    }
    body->k = (uint8_t)k;
    body->m = (uint8_t)m;
    body->unit = want->unit;
    unsigned turn = get_u16(body->id) % h;
    for (unsigned i = 0; i < k + m; i++) {
        body->drive[i] = (uint8_t)v[(turn + i) % h];
    }
    return 0;
}

int shard_writer_new(struct shards *s, const struct shard_code *want, struct body_codec *codec,
                     struct orec_body *body, struct shard_writer **ret, struct err *err)
{
    struct orec_body b = *body;
    b.is_inline = false;
    memcpy(b.id, codec->id, OREC_ID_SIZE);
    int r = choose(s, want, &b, err);
    if (r < 0) {
        return r;
    }
    struct rs *rs = NULL;
    r = b.m > 0 ? rs_new(b.k, b.m, &rs, err) : 0;
    if (r < 0) {
        return r;
    }
    struct shard_writer *w = writer_new(s, &b);
    w->codec = codec;
    w->rs = rs;
    w->is_direct = b.k == 1 && b.m == 0;
    *body = b;
    *ret = w;
    return 0;
}

int shard_writer_repair(struct shards *s, const struct orec_body *body, uint32_t mask,
                        struct shard_writer **ret, struct err *err)
{
    struct layout l;
    struct rs *rs = NULL;
    int r = shard_body_check(body, &l, err);
    r = r == 0 && mask >> body->k ? rs_new(body->k, body->m, &rs, err) : r;
    if (r < 0) {
        return r;
    }
    struct shard_writer *w = writer_new(s, body);
    w->rs = rs;
    w->mask = mask;
    w->is_repair = true;
    *ret = w;
    return 0;
}

/* --- stripes --- */

/* What one shard stores of a stripe, and its CRC into the table. */
static int unit_of(struct shard_writer *w, struct wstripe *st, unsigned shard,
                   const struct layout *l, const struct layout_stripe *ls)
{
    struct wfile *f = &w->files[shard];
    struct iovec *iov = &st->jobs[shard].unit;
    uint32_t n = layout_unit_stored(l, ls, shard);
    uint8_t *p = shard < w->body.k
                     ? st->buf->p + (size_t)shard * ls->unit_size
                     : st->buf->p + w->stripe_max + (size_t)(shard - w->body.k) * w->body.unit;
    *iov = (struct iovec){p, n};
    if (n == 0) {
        return 0;
    }
    if (f->n_units == f->cap) {
        uint32_t cap = f->cap ? 2 * f->cap : 16;
        uint8_t *t = realloc(f->table, 4 * (size_t)cap);
        if (!t) {
            return -ENOMEM;
        }
        f->table = t;
        f->cap = cap;
    }
    put_u32(f->table + 4 * (size_t)f->n_units++, crc_of(p, n));
    return 0;
}

/* A footer, for the last stripe (or none, when the body is empty). */
static void foot_of(struct shard_writer *w, unsigned shard, const struct layout *l)
{
    struct wfile *f = &w->files[shard];
    struct shard_foot foot = {.head = shard_head_of(w->s, &w->body, shard),
                              .stored_size = l->size,
                              .data_size = layout_shard_size(l, shard),
                              .n_units = f->n_units,
                              .table_crc = crc_of(f->table, 4 * (size_t)f->n_units)};
    shard_foot_encode(&foot, f->foot);
}

/* Parity and CRCs of the stripe at hand, then to the drives. */
static int submit(struct shard_writer *w, bool is_last, struct err *err)
{
    struct wstripe *st = w->cur;
    struct layout l;
    int r = layout_init(&l, w->done + w->fill, w->body.k, w->body.m, w->body.unit, err);
    if (r < 0) {
        return r;
    }
    struct layout_stripe ls = {.shard_off = w->done / w->body.k};
    if (w->fill > 0) {
        ls = layout_stripe(&l, layout_n_stripes(&l) - 1);
        memset(st->buf->p + w->fill, 0, (size_t)ls.unit_size * w->body.k - w->fill);
    }
    if (w->rs && w->fill > 0) {
        uint8_t *units[RS_UNITS_MAX];
        for (unsigned i = 0; i < (unsigned)w->body.k + w->body.m; i++) {
            units[i] = i < w->body.k ? st->buf->p + (size_t)i * ls.unit_size
                                     : st->buf->p + w->stripe_max +
                                           (size_t)(i - w->body.k) * w->body.unit;
        }
        rs_encode(w->rs, ls.unit_size, units);
    }
    for (unsigned i = 0; i < (unsigned)w->body.k + w->body.m; i++) {
        if (!(w->mask >> i & 1)) {
            continue;
        }
        st->jobs[i].unit = (struct iovec){NULL, 0};
        r = w->fill > 0 ? unit_of(w, st, i, &l, &ls) : 0;
        if (r < 0) {
            return fail(err, r, "NoMemory", "no memory for a table of CRCs");
        }
        if (is_last) {
            foot_of(w, i, &l);
        }
        st->jobs[i].off = ls.shard_off;
        st->jobs[i].is_last = is_last;
    }
    w->done += w->fill;
    w->fill = 0;
    w->cur = NULL;
    w->held[w->n_held++] = st;
    st->is_held = true;
    /* The first stripes wait for each other: a body that is not larger takes one turn of each
     * drive. */
    bool is_waiting = !is_last && !w->is_direct && !w->is_begun && w->n_held < WSTRIPES_MAX;
    w->is_begun |= !is_waiting;
    return is_waiting ? 0 : shard_writer_post(w, err);
}

/* --- bytes --- */

static int next_stripe(struct shard_writer *w, struct err *err)
{
    if (w->cur && w->fill == w->stripe_max) { /* more follows: it was not the last */
        int r = submit(w, false, err);
        if (r < 0) {
            return r;
        }
    }
    return w->cur ? 0 : shard_writer_stripe(w, &w->cur, err);
}

static int too_large(struct shard_writer *w, struct err *err)
{
    return fail(err, -EFBIG, "InvalidLayout", "a body of more than %llu bytes",
                (unsigned long long)SHARD_SIZE_MAX);
}

/* First error wins, also over later calls. */
static int keep(struct shard_writer *w, int r)
{
    w->rc = w->rc < 0 ? w->rc : r < 0 ? r : 0;
    return r;
}

int shard_writer_stored(struct shard_writer *w, const void *p, size_t n, struct err *err)
{
    const uint8_t *from = p;
    while (n > 0) {
        int r = next_stripe(w, err);
        if (r < 0) {
            return keep(w, r);
        }
        size_t part = MIN(n, (size_t)w->stripe_max - w->fill);
        memcpy(w->cur->buf->p + w->fill, from, part);
        w->fill += (uint32_t)part;
        from += part;
        n -= part;
    }
    return 0;
}

/* Seals the block at the end of the stripe, whose plain bytes may be in place. */
static void seal(struct shard_writer *w, const uint8_t *plain, size_t n)
{
    uint8_t *at = w->cur->buf->p + w->fill;
    body_seal(w->codec, w->block++, plain, n, at);
    w->fill += (uint32_t)n + BODY_TRAILER;
    w->partial = 0;
}

int shard_writer_add(struct shard_writer *w, const void *p, size_t n, struct err *err)
{
    const uint8_t *from = p;
    if (w->rc < 0) {
        return fail(err, w->rc, "WriteFailed", "an earlier write of this body failed");
    }
    if (w->done + w->fill + w->partial + n > SHARD_SIZE_MAX) {
        return keep(w, too_large(w, err));
    }
    while (n > 0) {
        int r = w->partial == 0 ? next_stripe(w, err) : 0;
        if (r < 0) {
            return keep(w, r);
        }
        size_t part = MIN(n, (size_t)(BODY_PLAIN - w->partial));
        if (part == BODY_PLAIN) {
            seal(w, from, part);
        } else {
            uint8_t *at = w->cur->buf->p + w->fill;
            memcpy(at + w->partial, from, part);
            w->partial += (uint32_t)part;
            if (w->partial == BODY_PLAIN) {
                seal(w, at, BODY_PLAIN);
            }
        }
        from += part;
        n -= part;
    }
    return 0;
}

int shard_writer_finish(struct shard_writer *w, struct orec_body *body, struct err *err)
{
    if (w->rc < 0) {
        return fail(err, w->rc, "WriteFailed", "an earlier write of this body failed");
    }
    if (w->partial > 0) {
        seal(w, w->cur->buf->p + w->fill, w->partial);
    }
    int r = w->cur ? 0 : shard_writer_stripe(w, &w->cur, err);
    r = r < 0 ? r : submit(w, true, err);
    r = r < 0 ? r : shard_writer_wait(w, err);
    if (r < 0) {
        return keep(w, r);
    }
    w->is_finished = true;
    body->stored_size = w->done;
    return 0;
}

void shard_writer_free(struct shard_writer *w)
{
    if (!w) {
        return;
    }
    shard_writer_stop(w);
    struct shards *s = w->s;
    pthread_mutex_lock(&s->lock);
    *w->prev_next = w->next;
    if (w->next) {
        w->next->prev_next = w->prev_next;
    }
    pthread_mutex_unlock(&s->lock);
    w->s = NULL;
    shard_writer_unref(w);
}
