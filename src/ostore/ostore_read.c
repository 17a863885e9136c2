#include "ostore/ostore_int.h"

#include <errno.h>

/* A body that is part of what is read: the only one, or a part of a multipart object. */
struct piece {
    uint64_t off, size; /* in the object */
    uint64_t segment;   /* of its record */
    uint32_t rec_off, head_size;
    struct orec_body body;
};

struct oread {
    struct ostore *s;
    struct arena *a; /* what was looked up anew, and parts; NULL: nothing */
    struct piece one, *pieces;
    size_t n_pieces;
    uint64_t size;
    uint8_t pin[OREC_ID_SIZE];
    bool is_pinned;
    VEC(uint64_t) segments; /* pinned */
    uint64_t one_segment;   /* pinned, when there is just one */
    /* the piece that is read now */
    size_t cur;
    bool is_codec;
    struct body_codec codec;
    struct shard_reader *reader;
    uint8_t *scratch; /* blocks as stored */
    size_t scratch_size;
};

int ostore_codec(struct ostore *s, const struct orec_body *body, struct body_codec *ret,
                 struct err *err)
{
    pthread_rwlock_rdlock(&s->keys_lock);
    int rc = body_codec_open(ret, s->body_keys, body, err);
    pthread_rwlock_unlock(&s->keys_lock);
    return rc;
}

/* --- opening --- */

static void pin_segment(struct oread *r, uint64_t segment)
{
    uint8_t id[OREC_ID_SIZE];
    for (size_t i = 0; i < r->segments.n; i++) {
        if (r->segments.v[i] == segment) {
            return;
        }
    }
    pin_of_segment(segment, id);
    pins_hold(r->s->pins, id);
    vec_push(&r->segments, segment);
}

static void pin_id(struct oread *r, const uint8_t *id)
{
    memcpy(r->pin, id, sizeof(r->pin));
    pins_hold(r->s->pins, id);
    r->is_pinned = true;
}

static void open_one(struct oread *r, const struct oversion *v)
{
    r->one = (struct piece){.size = v->rec.size,
                            .segment = v->segment,
                            .rec_off = v->off,
                            .head_size = v->head_size,
                            .body = v->rec.body};
    r->pieces = &r->one;
    r->n_pieces = 1;
    if (!v->rec.body.is_set) {
        r->size = 0;
    } else if (v->rec.body.is_inline) {
        uint8_t id[OREC_ID_SIZE];
        pin_of_segment(v->segment, id);
        pins_hold(r->s->pins, id);
        r->one_segment = v->segment;
    } else {
        pin_id(r, v->rec.body.id);
    }
}

static int add_piece(struct oread *r, const struct ival *p, size_t i, struct err *err)
{
    struct orec rec;
    int rc = ival_rec(p, r->a, &rec, err);
    if (rc == 0) {
        r->pieces[i].segment = p->segment;
        r->pieces[i].rec_off = p->off;
        r->pieces[i].head_size = (uint32_t)p->head.n;
        r->pieces[i].body = rec.body;
        if (rec.body.is_set && rec.body.is_inline) {
            pin_segment(r, p->segment);
        }
    }
    return rc;
}

/* All parts at once: a later look into the index would not find those of a deleted object. */
static int open_parts(struct oread *r, const struct oversion *v, struct err *err)
{
    const struct orec *rec = &v->rec;
    if (!r->a) {
        r->a = arena_new((size_t)64 << 20);
    }
    r->pieces = arena_array(r->a, rec->n_parts, sizeof(*r->pieces));
    if (!r->pieces) {
        return fail(err, -ENOMEM, "RequestTooLarge", "too many parts");
    }
    uint64_t off = 0;
    for (size_t i = 0; i < rec->n_parts; i++) {
        r->pieces[i].off = off;
        r->pieces[i].size = rec->parts[i].size;
        off += rec->parts[i].size;
    }
    r->n_pieces = rec->n_parts;
    pin_id(r, rec->upload);
    struct ikey prefix;
    ikey_parts(&prefix, rec->upload);
    struct ikey end = prefix;
    struct oindex_iter *it = NULL;
    int rc = oindex_iter_open(r->s->index, ikey_after(&end) ? ikey_str(&end) : STR_NONE, &it);
    if (rc < 0) {
        return fail(err, rc, "OutOfMemory", "no memory for the index");
    }
    size_t n = 0;
    for (bool is = oindex_seek(it, ikey_str(&prefix)); is && rc == 0 && n < rec->n_parts;
         is = oindex_next(it)) {
        struct ival p;
        struct str value = oindex_value(it), key = oindex_key(it);
        uint32_t number = key.n == 21 ? (uint32_t)(ikey_be64(key.p + 13) & UINT32_MAX) : 0;
        if (number != rec->parts[n].number) {
            continue;
        }
        value = arena_str_dup(r->a, value);
        rc = value.p ? ival_decode(value, &p, err) : -ENOMEM;
        if (rc == 0 && p.origin == rec->parts[n].lsn) {
            rc = add_piece(r, &p, n, err);
            n++;
        }
    }
    if (rc == 0) {
        rc = oindex_iter_error(it, err);
    }
    oindex_iter_close(it);
    return rc == 0 && n < rec->n_parts
               ? fail(err, -ENOENT, "NoSuchVersion", "The specified version does not exist.")
               : rc;
}

/* The version as it lies now: what the caller knows may have been moved. */
static int look_again(struct oread *r, const struct oversion *v, unsigned flags,
                      struct oversion *ret, struct err *err)
{
    struct ival now;
    bool is_latest;
    r->a = arena_new((size_t)64 << 20);
    int rc = ostore_find(r->s, v->rec.bucket, v->rec.key, v->rec.version, flags & OSTORE_NOWAIT,
                         r->a, &now, &is_latest, err);
    if (rc == 0 && now.origin != v->rec.origin_lsn) {
        rc = -ENOENT;
    }
    if (rc == -ENOENT) {
        return fail(err, rc, "NoSuchVersion", "The specified version does not exist.");
    }
    return rc < 0 ? rc : oversion_fill(&now, is_latest, r->a, ret, err);
}

int oread_open(struct ostore *s, const struct oversion *v, unsigned flags, struct oread **ret,
               struct err *err)
{
    if (v->rec.kind == OREC_COMPLETE && (flags & OSTORE_NOWAIT)) {
        return -EAGAIN;
    }
    if (v->rec.kind != OREC_PUT && v->rec.kind != OREC_COMPLETE) {
        return fail(err, -EPERM, "MethodNotAllowed",
                    "The specified method is not allowed against this resource.");
    }
    struct oread *r = calloc(1, sizeof(*r));
    if (!r) {
        return fail(err, -EAGAIN, "SlowDown", "no memory for a reader");
    }
    r->s = s;
    r->size = v->rec.size;
    int rc = 0;
    struct oversion now = {0};
    uint64_t epoch = pins_enter(s->pins);
    bool is_held = v->pin && v->pin->is_in;
    if (!is_held) {
        rc = look_again(r, v, flags, &now, err);
        v = &now;
    }
    if (rc == 0 && v->rec.kind == OREC_COMPLETE) {
        rc = open_parts(r, v, err);
    } else if (rc == 0) {
        open_one(r, v);
    }
    pins_leave(s->pins, epoch);
    if (rc < 0) {
        oread_close(r);
        return rc;
    }
    if (is_held) {
        opin_leave(v->pin); /* what it held is pinned now */
    }
    *ret = r;
    return 0;
}

static void end_piece(struct oread *r)
{
    shard_reader_free(r->reader);
    r->reader = NULL;
    if (r->is_codec) {
        body_codec_done(&r->codec);
        r->is_codec = false;
    }
}

void oread_close(struct oread *r)
{
    if (!r) {
        return;
    }
    end_piece(r);
    uint8_t id[OREC_ID_SIZE];
    if (r->is_pinned) {
        pins_drop(r->s->pins, r->pin);
    }
    if (r->one_segment) {
        pin_of_segment(r->one_segment, id);
        pins_drop(r->s->pins, id);
    }
    for (size_t i = 0; i < r->segments.n; i++) {
        pin_of_segment(r->segments.v[i], id);
        pins_drop(r->s->pins, id);
    }
    vec_free(&r->segments);
    arena_free(r->a);
    free(r->scratch);
    free(r);
}

/* --- reading --- */

static int need_scratch(struct oread *r, size_t n)
{
    if (r->scratch_size >= n) {
        return 0;
    }
    uint8_t *p = malloc(n);
    if (!p) {
        return -ENOMEM;
    }
    free(r->scratch);
    r->scratch = p;
    r->scratch_size = n;
    return 0;
}

/* Opens stored blocks [first, first + n) into 'out': bytes [skip, skip + want) of them. */
static int open_blocks(struct oread *r, uint64_t first, size_t stored, size_t skip, char *out,
                       size_t want)
{
    uint8_t *p = r->scratch;
    uint8_t one[BODY_PLAIN];
    for (uint64_t block = first; stored > 0 && want > 0; block++) {
        size_t n = MIN(stored, (size_t)BODY_BLOCK);
        if (n <= BODY_TRAILER) {
            return -EBADMSG;
        }
        size_t plain = n - BODY_TRAILER, take = MIN(plain - MIN(skip, plain), want);
        bool is_whole = skip == 0 && take == plain;
        int rc = body_open(&r->codec, block, p, n, is_whole ? (void *)out : one);
        if (rc < 0) {
            return rc;
        }
        if (!is_whole) {
            memcpy(out, one + skip, take);
        }
        skip = 0;
        out += take;
        want -= take;
        p += n;
        stored -= n;
    }
    return want == 0 ? 0 : -EBADMSG;
}

static ssize_t read_inline(struct oread *r, const struct piece *p, uint64_t off, char *out,
                           size_t n, bool is_nowait, struct err *err)
{
    uint64_t first = off / BODY_PLAIN, last = (off + n - 1) / BODY_PLAIN;
    uint64_t begin = first * BODY_BLOCK,
             end = MIN((last + 1) * BODY_BLOCK, p->body.stored_size);
    if (end <= begin || need_scratch(r, (size_t)(end - begin)) < 0) {
        return fail(err, -EIO, "BodyLost", "a body is shorter than its record says");
    }
    struct olog_place at = {p->segment, p->rec_off};
    for (unsigned copy = 0;; copy++) {
        int rc = olog_read_body(r->s->log, at, p->head_size, (uint32_t)begin, r->scratch,
                                (size_t)(end - begin), copy, is_nowait);
        if (rc == -EAGAIN && is_nowait) {
            return rc;
        }
        if (rc == -ENOENT && copy > 0) {
            return fail(err, -EIO, "BodyLost", "no copy of a body in the log is good");
        }
        if (rc == 0) {
            rc = open_blocks(r, first, (size_t)(end - begin),
                             (size_t)(off - first * BODY_PLAIN), out, n);
        }
        if (rc == 0) {
            return (ssize_t)n;
        }
        if (is_nowait) {
            return -EAGAIN; /* the other copies: at leisure */
        }
        if (copy == 0) {
            struct arena *a = arena_new((size_t)4 << 20);
            struct olog_rec rec;
            rc = olog_read(r->s->log, a, at, &rec, NULL); /* repairs what is bad */
            arena_free(a);
        }
        if (copy >= DRIVES_MAX) {
            return fail(err, -EIO, "BodyLost", "no copy of a body in the log is good");
        }
    }
}

static ssize_t read_piece(struct oread *r, const struct piece *p, uint64_t off, char *out,
                          size_t n, bool is_nowait, struct err *err)
{
    if (!r->is_codec) {
        int rc = ostore_codec(r->s, &p->body, &r->codec, err);
        if (rc < 0) {
            return rc;
        }
        r->is_codec = true;
    }
    if (p->body.is_inline) {
        return read_inline(r, p, off, out, n, is_nowait, err);
    }
    if (!r->reader) { /* opens no file yet: does not block */
        int rc = shard_reader_open(r->s->shards, &p->body, &r->codec, &r->reader, err);
        if (rc < 0) {
            return rc;
        }
    }
    return shard_read(r->reader, p->size, off, out, n, is_nowait, err);
}

static size_t piece_at(const struct oread *r, uint64_t off)
{
    size_t lo = 0, hi = r->n_pieces;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (r->pieces[mid].off <= off) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    while (lo + 1 < r->n_pieces && r->pieces[lo].off + r->pieces[lo].size <= off) {
        lo++; /* parts without bytes */
    }
    return lo;
}

ssize_t oread_at(struct oread *r, uint64_t off, void *p, size_t n, unsigned flags,
                 struct err *err)
{
    size_t got = 0;
    if (off >= r->size) {
        return 0;
    }
    n = (size_t)MIN((uint64_t)n, r->size - off);
    while (got < n) {
        size_t i = piece_at(r, off + got);
        if (i != r->cur) {
            end_piece(r);
            r->cur = i;
        }
        const struct piece *pc = &r->pieces[i];
        uint64_t at = off + got - pc->off;
        size_t want = (size_t)MIN((uint64_t)(n - got), pc->size - at);
        ssize_t rc = want == 0 ? -EIO
                               : read_piece(r, pc, at, (char *)p + got, want,
                                            flags & OSTORE_NOWAIT, err);
        if (rc <= 0) {
            if (got > 0 && (rc == -EAGAIN || rc == 0)) {
                break;
            }
            return rc == 0 ? fail(err, -EIO, "BodyLost", "a body ended early") : rc;
        }
        got += (size_t)rc;
        if ((size_t)rc < want && (flags & OSTORE_NOWAIT)) {
            break;
        }
    }
    return (ssize_t)got;
}

int ostore_part_range(struct ostore *s, const struct oversion *v, uint32_t number,
                      uint64_t *ret_off, uint64_t *ret_n, struct err *err)
{
    const struct orec *r = &v->rec;
    if (r->kind != OREC_COMPLETE && number == 1) {
        *ret_off = 0;
        *ret_n = r->size;
        return 0;
    }
    uint64_t off = 0;
    size_t i = 0;
    while (i < r->n_parts && r->parts[i].number != number) {
        off += r->parts[i++].size;
    }
    if (r->kind != OREC_COMPLETE || i == r->n_parts) {
        return fail(err, -EINVAL, "InvalidPartNumber",
                    "The requested partnumber is not satisfiable");
    }
    *ret_off = off;
    *ret_n = r->parts[i].size;
    return 0;
}
