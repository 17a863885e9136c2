#include "ostore/record_int.h"

#include "base/bytes.h"
#include <errno.h>

/* Bytes of one field are added piece by piece; its size is put in at the end. */
struct writer {
    struct buf *out;
    size_t start, field; /* of the head, of the field that is open */
    uint32_t have;
    bool is_too_large;
};

static void add(struct writer *w, const void *p, size_t n)
{
    buf_add(w->out, str_n(p ? p : "", n));
}

static void add_u8(struct writer *w, uint8_t v)
{
    add(w, &v, 1);
}

static void add_u16(struct writer *w, size_t v)
{
    char b[2];
    w->is_too_large |= v > UINT16_MAX;
    put_u16(b, (uint16_t)v);
    add(w, b, sizeof(b));
}

static void add_u32(struct writer *w, uint32_t v)
{
    char b[4];
    put_u32(b, v);
    add(w, b, sizeof(b));
}

static void add_u64(struct writer *w, uint64_t v)
{
    char b[8];
    put_u64(b, v);
    add(w, b, sizeof(b));
}

static void begin(struct writer *w, enum orec_field type)
{
    /* What older programs could do without, they keep. */
    bool is_needed = type != FIELD_SYSTEM && type != FIELD_META && type != FIELD_TAGS &&
                     type != FIELD_CLASS && type != FIELD_WHO;
    w->field = w->out->n;
    w->have |= FIELD_BIT(type);
    add_u16(w, type);
    add_u16(w, is_needed ? FIELD_IS_NEEDED : 0);
    add_u32(w, 0);
}

static void end(struct writer *w)
{
    if (buf_ok(w->out)) {
        put_u32(w->out->p + w->field + 4, (uint32_t)(w->out->n - w->field - FIELD_HEAD_SIZE));
    }
}

static void field_u64(struct writer *w, enum orec_field type, uint64_t v)
{
    begin(w, type);
    add_u64(w, v);
    end(w);
}

static void field_text(struct writer *w, enum orec_field type, struct str s)
{
    begin(w, type);
    add(w, s.p, s.n);
    end(w);
}

static void field_two(struct writer *w, enum orec_field type, struct str first,
                      struct str second)
{
    begin(w, type);
    add_u16(w, first.n);
    add(w, first.p, first.n);
    add(w, second.p, second.n);
    end(w);
}

static void add_sum(struct writer *w, const struct orec_sum *s)
{
    add_u8(w, (uint8_t)s->alg);
    add_u8(w, s->is_composite);
    add_u8(w, (uint8_t)s->value.n);
    add_u8(w, 0);
    add(w, s->value.p, s->value.n);
}

static void field_object(struct writer *w, const struct orec *r)
{
    begin(w, FIELD_OBJECT);
    add_u64(w, r->size);
    add_sum(w, &r->sum);
    add(w, r->etag.p, r->etag.n);
    end(w);
}

static void field_pairs(struct writer *w, enum orec_field type, const struct orec_pairs *v)
{
    if (v->n == 0) {
        return;
    }
    begin(w, type);
    for (size_t i = 0; i < v->n; i++) {
        add_u16(w, v->v[i].name.n);
        add_u16(w, v->v[i].value.n);
        add(w, v->v[i].name.p, v->v[i].name.n);
        add(w, v->v[i].value.p, v->v[i].value.n);
    }
    end(w);
}

static void field_body(struct writer *w, const struct orec_body *b)
{
    begin(w, FIELD_BODY);
    add(w, b->id, OREC_ID_SIZE);
    add_u64(w, b->stored_size);
    add_u32(w, b->block_size);
    add_u8(w, b->is_sealed);
    add_u8(w, b->is_inline);
    add_u16(w, 0);
    end(w);
    if (!b->is_inline) {
        begin(w, FIELD_FILE);
        add_u8(w, b->k);
        add_u8(w, b->m);
        add_u16(w, 0);
        add_u32(w, b->unit);
        add(w, b->drive, MIN((size_t)b->k + b->m, (size_t)OREC_SHARDS_MAX));
        end(w);
    }
    if (b->is_sealed) {
        begin(w, FIELD_WRAPPED_KEY);
        add_u32(w, b->key_id);
        add(w, b->wrapped_key.p, b->wrapped_key.n);
        end(w);
    }
}

static void field_parts(struct writer *w, const struct orec *r)
{
    begin(w, FIELD_PARTS);
    for (size_t i = 0; i < r->n_parts; i++) {
        add_u32(w, r->parts[i].number);
        add_u64(w, r->parts[i].size);
        add_u64(w, r->parts[i].lsn);
        add_sum(w, &r->parts[i].sum);
    }
    end(w);
}

static void field_conf(struct writer *w, const struct orec *r)
{
    begin(w, FIELD_CONF);
    add_u16(w, r->conf);
    add_u16(w, OREC_CONF_VERSION);
    add_u8(w, r->is_conf_removed);
    add_u8(w, 0);
    add_u16(w, 0);
    if (!r->is_conf_removed) {
        add(w, r->conf_bytes.p, r->conf_bytes.n);
    }
    end(w);
}

static bool is_zero_id(const uint8_t id[OREC_ID_SIZE])
{
    static const uint8_t zeros[OREC_ID_SIZE];
    return memcmp(id, zeros, sizeof(zeros)) == 0;
}

/* In the order of types: the same record gives the same bytes. */
static void write_fields(struct writer *w, const struct orec *r, uint32_t want)
{
    if ((want & FIELD_BIT(FIELD_BUCKET)) || r->bucket != 0) {
        field_u64(w, FIELD_BUCKET, r->bucket);
    }
    if (r->key.n > 0) {
        field_text(w, FIELD_KEY, r->key);
    }
    if ((want & FIELD_BIT(FIELD_VERSION)) || !is_zero_id(r->version)) {
        begin(w, FIELD_VERSION);
        add(w, r->version, OREC_ID_SIZE);
        end(w);
    }
    if (r->origin_lsn != 0 && r->origin_lsn != r->lsn) {
        field_u64(w, FIELD_ORIGIN, r->origin_lsn);
    }
    if ((want & FIELD_BIT(FIELD_OBJECT)) || r->size > 0 || r->etag.n > 0 ||
        r->sum.alg != OSUM_NONE) {
        field_object(w, r);
    }
    field_pairs(w, FIELD_SYSTEM, &r->system);
    field_pairs(w, FIELD_META, &r->meta);
    field_pairs(w, FIELD_TAGS, &r->tags);
    if (r->storage_class.n > 0) {
        field_text(w, FIELD_CLASS, r->storage_class);
    }
    if (r->body.is_set) {
        field_body(w, &r->body);
    }
    if (r->n_parts > 0) {
        field_parts(w, r);
    }
    if ((want & FIELD_BIT(FIELD_UPLOAD)) || !is_zero_id(r->upload)) {
        begin(w, FIELD_UPLOAD);
        add(w, r->upload, OREC_ID_SIZE);
        end(w);
    }
    if (r->account.n > 0 || r->principal.n > 0) {
        field_two(w, FIELD_WHO, r->account, r->principal);
    }
    if (want & FIELD_BIT(FIELD_BUCKET_NAME)) {
        field_two(w, FIELD_BUCKET_NAME, r->bucket_name, r->region);
    }
    if (want & FIELD_BIT(FIELD_CONF)) {
        field_conf(w, r);
    }
    if (r->new_key.n > 0) {
        field_text(w, FIELD_NEW_KEY, r->new_key);
    }
    if ((want & FIELD_BIT(FIELD_SOURCE)) || r->source_lsn != 0) {
        field_u64(w, FIELD_SOURCE, r->source_lsn);
    }
    if (r->part_number > 0) {
        begin(w, FIELD_PART_NUMBER);
        add_u32(w, r->part_number);
        end(w);
    }
    add(w, r->unknown.p, r->unknown.n);
}

static bool is_sum_good(const struct orec_sum *s)
{
    int size = orec_sum_size((uint32_t)s->alg);
    return size >= 0 && s->value.n == (size_t)size && !(size == 0 && s->is_composite);
}

/* What a decoder would refuse is not written. */
static bool are_values_good(const struct orec *r)
{
    const struct orec_body *b = &r->body;
    bool is_good = r->key.n <= OREC_KEY_MAX && r->new_key.n <= OREC_KEY_MAX &&
                   r->size <= INT64_MAX && r->etag.n <= OREC_ETAG_MAX && is_sum_good(&r->sum) &&
                   r->storage_class.n <= 64 && r->n_parts <= OREC_PARTS_MAX &&
                   r->part_number <= OREC_PARTS_MAX;
    if (b->is_set) {
        is_good =
            is_good && b->stored_size <= INT64_MAX && b->block_size >= 512 &&
            b->block_size <= (1u << 20) && (!b->is_inline || b->stored_size <= OREC_BODY_MAX) &&
            (b->is_inline || (b->k >= 1 && (unsigned)b->k + b->m <= OREC_SHARDS_MAX &&
                              b->unit > 0 && b->unit <= (16u << 20))) &&
            (!b->is_sealed || (b->wrapped_key.n > 0 && b->wrapped_key.n <= OREC_WRAPPED_MAX));
    }
    uint32_t before = 0;
    for (size_t i = 0; i < r->n_parts && is_good; i++) {
        const struct orec_part *p = &r->parts[i];
        is_good = p->number > before && p->number <= OREC_PARTS_MAX && p->size <= INT64_MAX &&
                  is_sum_good(&p->sum);
        before = p->number;
    }
    return is_good;
}

int orec_encode(const struct orec *r, struct buf *out, struct err *err)
{
    uint32_t want = orec_fields_of(r->kind);
    if (want == FIELD_KIND_UNKNOWN) {
        return fail(err, -EINVAL, "BadRecord", "a record of kind %u", (unsigned)r->kind);
    }
    if (!are_values_good(r)) {
        return fail(err, -EINVAL, "BadRecord", "a value of a record of kind %u is out of range",
                    (unsigned)r->kind);
    }
    struct writer w = {.out = out, .start = out->n};
    write_fields(&w, r, want);
    if (!buf_ok(out) || w.is_too_large || out->n - w.start > OREC_HEAD_MAX) {
        out->n = w.start;
        return fail(err, -E2BIG, "RecordTooLarge", "the head of a record is too large");
    }
    struct err why = ERR_INIT;
    if (orec_check(r, w.have, &why) < 0) {
        out->n = w.start;
        return fail(err, -EINVAL, "BadRecord", "%s", why.msg);
    }
    return 0;
}
