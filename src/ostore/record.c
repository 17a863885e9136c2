#include "ostore/record_int.h"

#include "base/bytes.h"
#include <errno.h>

int orec_sum_size(uint32_t alg)
{
    switch (alg) {
    case OSUM_NONE: return 0;
    case OSUM_CRC32:
    case OSUM_CRC32C: return 4;
    case OSUM_CRC64NVME: return 8;
    case OSUM_SHA1: return 20;
    case OSUM_SHA256: return 32;
    default: return -1;
    }
}

uint32_t orec_fields_of(enum orec_kind kind)
{
    const uint32_t bucket = FIELD_BIT(FIELD_BUCKET);
    const uint32_t key = bucket | FIELD_BIT(FIELD_KEY);
    const uint32_t version = key | FIELD_BIT(FIELD_VERSION);
    const uint32_t upload = key | FIELD_BIT(FIELD_UPLOAD);
    switch (kind) {
    case OREC_NOTHING: return 0;
    case OREC_PUT: return version | FIELD_BIT(FIELD_OBJECT);
    case OREC_MARKER:
    case OREC_TAGS:
    case OREC_GONE: return version;
    case OREC_RENAME: return key | FIELD_BIT(FIELD_NEW_KEY);
    case OREC_UPLOAD:
    case OREC_ABORT: return upload;
    case OREC_PART: return upload | FIELD_BIT(FIELD_OBJECT) | FIELD_BIT(FIELD_PART_NUMBER);
    case OREC_COMPLETE:
        return upload | FIELD_BIT(FIELD_VERSION) | FIELD_BIT(FIELD_OBJECT) |
               FIELD_BIT(FIELD_PARTS);
    case OREC_BUCKET: return bucket | FIELD_BIT(FIELD_BUCKET_NAME);
    case OREC_BUCKET_CONF: return bucket | FIELD_BIT(FIELD_CONF);
    case OREC_BUCKET_GONE: return bucket;
    case OREC_FILE_MOVED:
        return bucket | FIELD_BIT(FIELD_SOURCE) | FIELD_BIT(FIELD_BODY) | FIELD_BIT(FIELD_FILE);
    }
    return FIELD_KIND_UNKNOWN;
}

static int bad(struct err *err, const char *what)
{
    return fail(err, -EBADMSG, "BadRecord", "head of a record: %s", what);
}

int orec_check(const struct orec *r, uint32_t have, struct err *err)
{
    uint32_t want = orec_fields_of(r->kind);
    if (want == FIELD_KIND_UNKNOWN) {
        return fail(err, -ENOTSUP, "UnknownRecord", "a record of kind %u", (unsigned)r->kind);
    }
    if ((have & want) != want) {
        return fail(err, -EBADMSG, "BadRecord", "a record of kind %u has not all its fields",
                    (unsigned)r->kind);
    }
    if ((r->kind == OREC_PUT || r->kind == OREC_PART) && r->size > 0 && !r->body.is_set) {
        return bad(err, "a body is not described");
    }
    if (r->body.is_set && !r->body.is_inline && !(have & FIELD_BIT(FIELD_FILE))) {
        return bad(err, "a body in files does not name them");
    }
    if ((have & FIELD_BIT(FIELD_FILE)) && (!r->body.is_set || r->body.is_inline)) {
        return bad(err, "files without a body in files");
    }
    if (r->body.is_set && r->body.is_sealed != !!(have & FIELD_BIT(FIELD_WRAPPED_KEY))) {
        return bad(err, "sealed without a key, or a key without a seal");
    }
    if (!r->body.is_set && (have & FIELD_BIT(FIELD_WRAPPED_KEY))) {
        return bad(err, "a key without a body");
    }
    return 0;
}

/* --- reading fields --- */

static int get_sum(const uint8_t *p, size_t n, struct orec_sum *ret)
{
    /* algorithm, composite, size, 0; the value follows */
    int size = orec_sum_size(p[0]);
    if (size < 0 || p[1] > 1 || p[2] != size || p[3] != 0 || n < (size_t)size + 4 ||
        (size == 0 && p[1])) {
        return -EBADMSG;
    }
    ret->alg = (enum orec_sum_alg)p[0];
    ret->is_composite = p[1];
    ret->value = size ? str_n((const char *)p + 4, (size_t)size) : STR_NONE;
    return size + 4;
}

static int get_object(struct str f, struct orec *r, struct err *err)
{
    if (f.n < 12) {
        return bad(err, "size of the object");
    }
    const uint8_t *p = (const uint8_t *)f.p;
    int n = get_sum(p + 8, f.n - 8, &r->sum);
    if (n < 0) {
        return bad(err, "checksum of the object");
    }
    r->size = get_u64(p);
    r->etag = str_skip(f, 8 + (size_t)n);
    if (r->size > INT64_MAX || r->etag.n > OREC_ETAG_MAX) {
        return bad(err, "size or ETag of the object");
    }
    return 0;
}

static int get_pairs(struct arena *a, struct str f, struct orec_pairs *ret, struct err *err)
{
    size_t n = 0;
    for (size_t at = 0; at < f.n; n++) {
        if (f.n - at < 4) {
            return bad(err, "pairs of names and values");
        }
        size_t size = (size_t)get_u16(f.p + at) + get_u16(f.p + at + 2);
        at += 4;
        if (f.n - at < size) {
            return bad(err, "pairs of names and values");
        }
        at += size;
    }
    if (n == 0) {
        return bad(err, "an empty list of pairs");
    }
    ret->v = arena_array(a, n, sizeof(*ret->v));
    if (!ret->v) {
        return fail(err, -ENOMEM, "RecordTooLarge", "a record needs too much memory");
    }
    for (size_t i = 0, at = 0; i < n; i++) {
        size_t n_name = get_u16(f.p + at), n_value = get_u16(f.p + at + 2);
        ret->v[i].name = str_n(f.p + at + 4, n_name);
        ret->v[i].value = str_n(f.p + at + 4 + n_name, n_value);
        at += 4 + n_name + n_value;
    }
    ret->n = n;
    return 0;
}

static int get_body(struct str f, struct orec_body *b, struct err *err)
{
    const uint8_t *p = (const uint8_t *)f.p;
    if (f.n != OREC_BODY_FIELD || p[28] > 1 || p[29] > 1 || get_u16(p + 30) != 0) {
        return bad(err, "form of the body");
    }
    memcpy(b->id, p, OREC_ID_SIZE);
    b->stored_size = get_u64(p + 16);
    b->block_size = get_u32(p + 24);
    b->is_sealed = p[28];
    b->is_inline = p[29];
    b->is_set = true;
    if (b->stored_size > INT64_MAX || b->block_size < 512 || b->block_size > (1u << 20) ||
        (b->is_inline && b->stored_size > OREC_BODY_MAX)) {
        return bad(err, "sizes of the body");
    }
    return 0;
}

static int get_file(struct str f, struct orec_body *b, struct err *err)
{
    const uint8_t *p = (const uint8_t *)f.p;
    if (f.n < OREC_FILE_FIELD || p[0] < 1 || (unsigned)p[0] + p[1] > OREC_SHARDS_MAX ||
        get_u16(p + 2) != 0 || f.n != OREC_FILE_FIELD + (size_t)p[0] + p[1]) {
        return bad(err, "files of the body");
    }
    b->k = p[0];
    b->m = p[1];
    b->unit = get_u32(p + 4);
    if (b->unit == 0 || b->unit > (16u << 20)) {
        return bad(err, "unit of the files of the body");
    }
    memcpy(b->drive, p + OREC_FILE_FIELD, f.n - OREC_FILE_FIELD);
    return 0;
}

static int get_parts(struct arena *a, struct str f, struct orec *r, struct err *err)
{
    const uint8_t *p = (const uint8_t *)f.p;
    size_t n = 0;
    for (size_t at = 0; at < f.n; n++) {
        struct orec_sum sum = {0};
        int got =
            f.n - at < OREC_PART_FIELD ? -EBADMSG : get_sum(p + at + 20, f.n - at - 20, &sum);
        if (got < 0 || n == OREC_PARTS_MAX) {
            return bad(err, "list of parts");
        }
        at += 20 + (size_t)got;
    }
    if (n == 0) {
        return bad(err, "an empty list of parts");
    }
    struct orec_part *v = arena_array(a, n, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "RecordTooLarge", "a record needs too much memory");
    }
    uint32_t before = 0;
    for (size_t i = 0, at = 0; i < n; i++) {
        v[i].number = get_u32(p + at);
        v[i].size = get_u64(p + at + 4);
        v[i].lsn = get_u64(p + at + 12);
        int got = get_sum(p + at + 20, f.n - at - 20, &v[i].sum);
        if (got < 0 || v[i].number <= before || v[i].number > OREC_PARTS_MAX ||
            v[i].size > INT64_MAX) {
            return bad(err, "order or sizes of parts");
        }
        before = v[i].number;
        at += 20 + (size_t)got;
    }
    r->parts = v;
    r->n_parts = n;
    return 0;
}

/* Two texts, the first with its size in front. */
static int get_two(struct str f, struct str *first, struct str *second, struct err *err)
{
    if (f.n < 2 || f.n - 2 < get_u16(f.p)) {
        return bad(err, "a pair of texts");
    }
    *first = str_n(f.p + 2, get_u16(f.p));
    *second = str_skip(f, 2 + first->n);
    return 0;
}

static int get_conf(struct str f, struct orec *r, struct err *err)
{
    const uint8_t *p = (const uint8_t *)f.p;
    if (f.n < OREC_CONF_FIELD || p[4] > 1 || p[5] != 0 || get_u16(p + 6) != 0) {
        return bad(err, "configuration");
    }
    if (get_u16(p + 2) != OREC_CONF_VERSION) {
        return fail(err, -ENOTSUP, "UnknownRecord", "configuration in form %u", get_u16(p + 2));
    }
    r->conf = get_u16(p);
    r->is_conf_removed = p[4];
    r->conf_bytes = r->is_conf_removed ? STR_NONE : str_skip(f, OREC_CONF_FIELD);
    if (r->is_conf_removed && f.n != OREC_CONF_FIELD) {
        return bad(err, "bytes of a configuration that is removed");
    }
    return 0;
}

static int get_number(struct str f, size_t size, uint64_t *ret, struct err *err)
{
    if (f.n != size) {
        return bad(err, "size of a number");
    }
    *ret = size == 4 ? get_u32(f.p) : get_u64(f.p);
    return 0;
}

static int get_id(struct str f, uint8_t ret[OREC_ID_SIZE], struct err *err)
{
    if (f.n != OREC_ID_SIZE) {
        return bad(err, "size of an id");
    }
    memcpy(ret, f.p, OREC_ID_SIZE);
    return 0;
}

static int get_text(struct str f, size_t min, size_t max, struct str *ret, struct err *err)
{
    if (f.n < min || f.n > max) {
        return bad(err, "size of a text");
    }
    *ret = f;
    return 0;
}

static int get_field(struct arena *a, unsigned type, struct str f, struct orec *r,
                     struct err *err)
{
    uint64_t v = 0;
    int rc;
    switch (type) {
    case FIELD_BUCKET: return get_number(f, 8, &r->bucket, err);
    case FIELD_KEY: return get_text(f, 1, OREC_KEY_MAX, &r->key, err);
    case FIELD_VERSION: return get_id(f, r->version, err);
    case FIELD_ORIGIN: return get_number(f, 8, &r->origin_lsn, err);
    case FIELD_OBJECT: return get_object(f, r, err);
    case FIELD_SYSTEM: return get_pairs(a, f, &r->system, err);
    case FIELD_META: return get_pairs(a, f, &r->meta, err);
    case FIELD_TAGS: return get_pairs(a, f, &r->tags, err);
    case FIELD_CLASS: return get_text(f, 1, 64, &r->storage_class, err);
    case FIELD_BODY: return get_body(f, &r->body, err);
    case FIELD_FILE: return get_file(f, &r->body, err);
    case FIELD_WRAPPED_KEY:
        if (f.n < 5 || f.n > 4 + OREC_WRAPPED_MAX) {
            return bad(err, "wrapped key");
        }
        r->body.key_id = get_u32(f.p);
        r->body.wrapped_key = str_skip(f, 4);
        return 0;
    case FIELD_PARTS: return get_parts(a, f, r, err);
    case FIELD_UPLOAD: return get_id(f, r->upload, err);
    case FIELD_WHO: return get_two(f, &r->account, &r->principal, err);
    case FIELD_BUCKET_NAME: return get_two(f, &r->bucket_name, &r->region, err);
    case FIELD_CONF: return get_conf(f, r, err);
    case FIELD_NEW_KEY: return get_text(f, 1, OREC_KEY_MAX, &r->new_key, err);
    case FIELD_SOURCE: return get_number(f, 8, &r->source_lsn, err);
    default: /* FIELD_PART_NUMBER */
        rc = get_number(f, 4, &v, err);
        r->part_number = (uint32_t)v;
        return rc == 0 && (v < 1 || v > OREC_PARTS_MAX) ? bad(err, "number of a part") : rc;
    }
}

/* Fields that are not known are kept as bytes, one after the other. Mostly there are none. */
static int keep_unknown(struct arena *a, struct str field, struct orec *r, struct err *err)
{
    size_t n = r->unknown.n;
    if (r->unknown.p && r->unknown.p + n == field.p) {
        r->unknown.n += field.n; /* they stand together: no copy */
        return 0;
    }
    if (!r->unknown.p) {
        r->unknown = field;
        return 0;
    }
    char *p = arena_alloc(a, n + field.n);
    if (!p) {
        return fail(err, -ENOMEM, "RecordTooLarge", "a record needs too much memory");
    }
    memcpy(p, r->unknown.p, n);
    memcpy(p + n, field.p, field.n);
    r->unknown = str_n(p, n + field.n);
    return 0;
}

int orec_decode(struct arena *a, enum orec_kind kind, struct str head, struct orec *ret,
                struct err *err)
{
    struct orec r = {.kind = kind};
    uint32_t have = 0;
    if (head.n > OREC_HEAD_MAX) {
        return bad(err, "too long");
    }
    for (size_t at = 0; at < head.n;) {
        if (head.n - at < FIELD_HEAD_SIZE) {
            return bad(err, "cut in a field");
        }
        const char *p = head.p + at;
        unsigned type = get_u16(p), flags = get_u16(p + 2);
        size_t n = get_u32(p + 4);
        if (n > head.n - at - FIELD_HEAD_SIZE) {
            return bad(err, "a field is longer than the head");
        }
        at += FIELD_HEAD_SIZE + n;
        if (flags & ~(unsigned)FIELD_IS_NEEDED) {
            return fail(err, -ENOTSUP, "UnknownRecord", "field %u has flags %u", type, flags);
        }
        int rc;
        if (type > 0 && type < FIELD_N) {
            if (have & FIELD_BIT(type)) {
                return bad(err, "a field comes twice");
            }
            have |= FIELD_BIT(type);
            rc = get_field(a, type, str_n(p + FIELD_HEAD_SIZE, n), &r, err);
        } else if (flags & FIELD_IS_NEEDED) {
            return fail(err, -ENOTSUP, "UnknownRecord", "a record needs field %u", type);
        } else {
            rc = keep_unknown(a, str_n(p, FIELD_HEAD_SIZE + n), &r, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    int rc = orec_check(&r, have, err);
    if (rc == 0) {
        *ret = r;
    }
    return rc;
}
