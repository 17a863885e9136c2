#include "ostore/shard_reader_int.h"

#include <errno.h>
#include <stdlib.h>

struct check {
    struct shard_reader *r;
    struct shard_verify *io;
    uint32_t bad;   /* shards that are not as they should be */
    uint64_t paced; /* of io->n_bytes */
};

static unsigned n_shards(const struct check *c)
{
    return (unsigned)c->r->l.k + c->r->l.m;
}

#define PACE_SIZE (UINT64_C(1) << 20)

/* False: the work ends here. */
static bool pace(struct check *c)
{
    uint64_t n = c->io->n_bytes - c->paced;
    if (!c->io->pace || n < PACE_SIZE) {
        return true;
    }
    c->paced = c->io->n_bytes;
    return c->io->pace(c->io->ctx, n);
}

static int canceled(struct err *err)
{
    return fail(err, -ECANCELED, "Canceled", "the work on a body was ended");
}

/* All fetches of a turn, each until it is done or its drive is given up. */
static void collect(struct check *c, struct shard_fetch **fetches)
{
    struct shard_reader *r = c->r;
    for (unsigned i = 0; i < n_shards(c); i++) {
        struct shard_fetch *f = fetches[i];
        if (!f) {
            continue;
        }
        enum shard_patience p = SHARD_WAIT;
        pthread_mutex_lock(&r->waiter->lock);
        while (!f->is_done && p != SHARD_GIVE_UP) {
            uint64_t now = time_mono_ns(), until = now + NS_PER_S;
            p = shard_patience(r, f, now, &until);
            if (p != SHARD_GIVE_UP) {
                shard_waiter_wait(r->waiter, until);
            }
        }
        bool is_done = f->is_done;
        pthread_mutex_unlock(&r->waiter->lock);
        if (is_done) {
            if (shard_adopt(r, f) < 0 || f->meta_rc < 0) {
                c->bad |= 1u << i;
            }
            c->io->n_bytes += f->n;
            c->io->n_units += f->n > 0;
            continue; /* the caller looks at it and drops it */
        }
        c->bad |= 1u << i;
        drives_fault(r->s->drives, r->body->drive[i], -ETIMEDOUT, "reading a shard");
        shard_fetch_drop(f);
        fetches[i] = NULL;
    }
}

static void drop_all(struct shard_fetch **fetches)
{
    for (unsigned i = 0; i < RS_UNITS_MAX; i++) {
        shard_fetch_drop(fetches[i]);
        fetches[i] = NULL;
    }
}

/* Headers, footers and tables of the shards in 'mask'. */
static void check_meta(struct check *c, uint32_t mask)
{
    struct shard_fetch *fetches[RS_UNITS_MAX] = {0};
    for (unsigned i = 0; i < n_shards(c); i++) {
        if (!(mask >> i & 1)) {
            continue;
        }
        if (!shard_is_there(c->r, i)) {
            c->bad |= 1u << i;
            continue;
        }
        fetches[i] = shard_fetch_new(c->r->s, c->r->waiter, c->r->body, i, NULL, 0, 0);
        fetches[i]->is_head_wanted = fetches[i]->is_table_wanted = true;
        shard_fetch_post(c->r->s, fetches[i]);
    }
    collect(c, fetches);
    drop_all(fetches);
}

static uint32_t *table_copy(const struct shard_reader *r, unsigned shard)
{
    size_t size = 4 * ((layout_shard_size(&r->l, shard) + r->l.unit - 1) / r->l.unit);
    uint32_t *t = malloc(size ? size : 1);
    if (!t) {
        abort();
    }
    memcpy(t, r->files[shard].table, size);
    return t;
}

/* Parity against data, when all of a stripe is there: what CRCs of wrong bytes hide. */
static void check_parity(struct check *c, const struct layout_stripe *ls,
                         struct shard_fetch **fetches)
{
    struct shard_reader *r = c->r;
    const uint8_t *units[RS_UNITS_MAX];
    struct shard_buf *buf = shard_buf_get(r->s, (size_t)r->l.k * r->l.unit);
    bool is_whole = r->l.m > 0 && buf;
    for (unsigned i = 0; i < n_shards(c) && is_whole; i++) {
        uint32_t n = layout_unit_stored(&r->l, ls, i);
        is_whole = n == 0 || (fetches[i] && fetches[i]->rc == 0 && fetches[i]->is_verified);
        if (is_whole && i < r->l.k) {
            uint8_t *p = buf->p + (size_t)i * ls->unit_size;
            if (n > 0) {
                memcpy(p, fetches[i]->p, n);
            }
            memset(p + n, 0, ls->unit_size - n);
            units[i] = p;
        } else if (is_whole) {
            units[i] = fetches[i]->p;
        }
    }
    if (is_whole && (r->rs || rs_new(r->l.k, r->l.m, &r->rs, NULL) == 0) &&
        rs_verify(r->rs, ls->unit_size, units, NULL) < 0) {
        /* Data is what its blocks say; parity is made anew from it. */
        c->bad |= ((1u << r->l.m) - 1) << r->l.k;
    }
    shard_buf_put(r->s, buf);
}

static void check_stripe(struct check *c, uint64_t idx)
{
    struct shard_reader *r = c->r;
    struct layout_stripe ls = layout_stripe(&r->l, idx);
    struct shard_fetch *fetches[RS_UNITS_MAX] = {0};
    unsigned n_good = 0;
    for (unsigned i = 0; i < n_shards(c); i++) {
        uint32_t n = layout_unit_stored(&r->l, &ls, i);
        if (n == 0) {
            n_good++;
            continue;
        }
        if (!shard_is_there(r, i) || !r->files[i].table) {
            continue;
        }
        fetches[i] =
            shard_fetch_new(r->s, r->waiter, r->body, i, r->files[i].file, ls.shard_off, n);
        fetches[i]->is_unit_checked = true;
        fetches[i]->table = table_copy(r, i);
        shard_fetch_post(r->s, fetches[i]);
    }
    collect(c, fetches);
    for (unsigned i = 0; i < n_shards(c); i++) {
        n_good += fetches[i] && fetches[i]->rc == 0 && fetches[i]->is_verified;
    }
    c->io->n_lost += n_good < r->l.k;
    check_parity(c, &ls, fetches);
    drop_all(fetches);
}

/* A drive that has no shard of this body, for a shard whose drive is gone; -1: none. */
static int other_drive(struct shards *s, const struct orec_body *b)
{
    uint32_t taken = 0;
    for (unsigned i = 0; i < (unsigned)b->k + b->m; i++) {
        taken |= 1u << b->drive[i];
    }
    uint32_t free_bits = drives_writable(s->drives) & ~taken;
    if (free_bits == 0) {
        return -1;
    }
    unsigned n = (unsigned)__builtin_popcount(free_bits), turn = b->id[2] % n;
    for (unsigned i = 0; i < turn; i++) {
        free_bits &= free_bits - 1;
    }
    return __builtin_ctz(free_bits);
}

/* Where each bad shard is made anew; shards whose drives stay away are left out. */
static uint32_t place(struct shards *s, struct orec_body *b, uint32_t bad, bool is_moving,
                      bool *ret_is_moved)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < (unsigned)b->k + b->m; i++) {
        if (!(bad >> i & 1)) {
            continue;
        }
        if (drives_writable(s->drives) >> b->drive[i] & 1) {
            mask |= 1u << i;
            continue;
        }
        int other = is_moving ? other_drive(s, b) : -1;
        if (other >= 0) {
            b->drive[i] = (uint8_t)other;
            *ret_is_moved = true;
            mask |= 1u << i;
        }
    }
    return mask;
}

/* Every stripe from the good shards into new files of the bad ones. */
static int rebuild(struct check *c, const struct orec_body *to, uint32_t mask, struct err *err)
{
    AUTO(shard_writer_freep) struct shard_writer *w = NULL;
    int rc = shard_writer_repair(c->r->s, to, mask, &w, err);
    for (unsigned i = 0; i < n_shards(c); i++) {
        if (mask >> i & 1) { /* not from what it replaces, but where there is no other way */
            c->r->files[i].is_last_choice = true;
        }
    }
    for (uint64_t i = 0; i < layout_n_stripes(&c->r->l) && rc == 0; i++) {
        const uint8_t *p = NULL;
        struct layout_stripe ls = layout_stripe(&c->r->l, i);
        rc = shard_stripe(c->r, i, &p, err);
        rc = rc < 0 ? rc : shard_writer_stored(w, p, ls.size, err);
        c->io->n_bytes += 2 * (uint64_t)ls.size; /* read and written */
        rc = rc < 0 || pace(c) ? rc : canceled(err);
    }
    struct orec_body done = *to;
    return rc < 0 ? rc : shard_writer_finish(w, &done, err);
}

static int repair(struct check *c, struct orec_body *body, unsigned flags, bool *ret_is_moved,
                  struct err *err)
{
    struct orec_body to = *body;
    bool is_moved = false;
    uint32_t mask = place(c->r->s, &to, c->bad, flags & SHARD_MOVE, &is_moved);
    if (mask == 0) {
        return 0;
    }
    int rc = rebuild(c, &to, mask, err);
    if (rc < 0) {
        return rc;
    }
    c->io->n_rebuilt += (uint64_t)__builtin_popcount(mask);
    if (is_moved) {
        memcpy(body->drive, to.drive, sizeof(body->drive));
        *ret_is_moved = true;
    }
    return 0;
}

static int verify(struct shards *s, struct orec_body *body, unsigned flags,
                  struct shard_verify *io, bool *ret_is_moved, struct err *err)
{
    AUTO(shard_reader_freep) struct shard_reader *r = NULL;
    bool is_moved = false;
    if (ret_is_moved) {
        *ret_is_moved = false;
    }
    const struct orec_body was = *body; /* what is read, while 'body' changes */
    int rc = shard_reader_open(s, &was, NULL, &r, err);
    if (rc < 0) {
        return rc;
    }
    r->reported = UINT32_MAX; /* whoever calls this knows */
    struct check c = {.r = r, .io = io, .paced = io->n_bytes};
    unsigned only = flags / SHARD_ONLY_BIT;
    uint64_t lost = io->n_lost;
    if (only > n_shards(&c)) {
        return fail(err, -EINVAL, "NoSuchShard", "a body has no shard %u", only - 1);
    }
    check_meta(&c, only ? 1u << (only - 1) : (1u << n_shards(&c)) - 1);
    if (!only) {
        for (uint64_t i = 0; i < layout_n_stripes(&r->l); i++) {
            check_stripe(&c, i);
            if (!pace(&c)) {
                return canceled(err);
            }
        }
    }
    io->n_bad += (uint64_t)__builtin_popcount(c.bad);
    if (io->n_lost > lost) {
        return fail(err, -EIO, "BodyLost", "%llu stripes of a body cannot be made any more",
                    (unsigned long long)(io->n_lost - lost));
    }
    if (c.bad && flags & SHARD_REPAIR) {
        rc = repair(&c, body, flags, &is_moved, err);
        if (ret_is_moved) {
            *ret_is_moved = is_moved;
        }
    }
    return rc;
}

/* The scrub and heal may come upon one body at the same time. */
int shard_verify(struct shards *s, struct orec_body *body, unsigned flags,
                 struct shard_verify *io, bool *ret_is_moved, struct err *err)
{
    if (!(flags & SHARD_REPAIR)) {
        return verify(s, body, flags, io, ret_is_moved, err);
    }
    pthread_mutex_lock(&s->repair);
    int rc = verify(s, body, flags, io, ret_is_moved, err);
    pthread_mutex_unlock(&s->repair);
    return rc;
}
