#include "ostore/index.h"

#include "base/bytes.h"
#include "base/rand.h"
#include "ostore/record_int.h"
#include <errno.h>

static const uint8_t zeros[OREC_ID_SIZE];

/* --- keys: big-endian numbers, so that the order of bytes is the order of things --- */

static void add(struct ikey *k, const void *p, size_t n)
{
    memcpy(k->p + k->n, p, n);
    k->n += n;
}

static void add_be64(struct ikey *k, uint64_t v)
{
    v = htobe64(v);
    add(k, &v, sizeof(v));
}

static void begin(struct ikey *k, char kind)
{
    k->p[0] = kind;
    k->n = 1;
}

/* 00 becomes 00 FF; 00 01 ends the key: a key sorts before the longer ones that begin with it. */
static void add_escaped(struct ikey *k, struct str key)
{
    for (size_t i = 0; i < key.n; i++) {
        k->p[k->n++] = key.p[i];
        if (key.p[i] == 0) {
            k->p[k->n++] = (char)0xff;
        }
    }
}

void ikey_state(struct ikey *k)
{
    begin(k, IX_STATE);
}

void ikey_number(struct ikey *k, char kind, uint64_t number)
{
    begin(k, kind);
    add_be64(k, number);
}

void ikey_conf(struct ikey *k, uint64_t bucket, uint16_t which)
{
    ikey_number(k, IX_CONF, bucket);
    uint16_t be = htobe16(which);
    add(k, &be, sizeof(be));
}

void ikey_object(struct ikey *k, uint64_t bucket, struct str key)
{
    ikey_number(k, IX_OBJECT, bucket);
    add(k, key.p, key.n);
}

void ikey_prefix(struct ikey *k, char kind, uint64_t bucket, struct str prefix)
{
    ikey_number(k, kind, bucket);
    if (kind == IX_OBJECT) {
        add(k, prefix.p ? prefix.p : "", prefix.n);
    } else {
        add_escaped(k, prefix);
    }
}

void ikey_of(struct ikey *k, char kind, uint64_t bucket, struct str key)
{
    ikey_number(k, kind, bucket);
    add_escaped(k, key);
    add(k, "\0\1", 2);
}

void ikey_old(struct ikey *k, uint64_t bucket, struct str key, uint64_t origin)
{
    ikey_of(k, IX_OLD, bucket, key);
    add_be64(k, ~origin);
}

void ikey_upload(struct ikey *k, uint64_t bucket, struct str key, const uint8_t id[16])
{
    ikey_of(k, IX_UPLOAD, bucket, key);
    add_be64(k, index_id_lsn(id));
    add(k, id, OREC_ID_SIZE);
}

void ikey_parts(struct ikey *k, const uint8_t upload[16])
{
    begin(k, IX_PART);
    add(k, upload, OREC_ID_SIZE);
}

void ikey_part(struct ikey *k, const uint8_t upload[16], uint32_t number)
{
    ikey_parts(k, upload);
    uint32_t be = htobe32(number);
    add(k, &be, sizeof(be));
}

void ikey_completed(struct ikey *k, const uint8_t upload[16])
{
    begin(k, IX_COMPLETED);
    add(k, upload, OREC_ID_SIZE);
}

bool ikey_after(struct ikey *k)
{
    while (k->n > 0 && (uint8_t)k->p[k->n - 1] == 0xff) {
        k->n--;
    }
    if (k->n == 0) {
        return false;
    }
    k->p[k->n - 1] = (char)((uint8_t)k->p[k->n - 1] + 1);
    return true;
}

struct str ikey_object_key(struct str k)
{
    return str_skip(k, 9);
}

int ikey_unescape(struct str k, char *buf, struct str *ret_key, struct str *ret_rest)
{
    size_t n = 0;
    for (size_t i = 9; i < k.n; i++) {
        if (k.p[i] == 0) {
            if (++i >= k.n) {
                break;
            }
            if (k.p[i] == 1) {
                *ret_key = str_n(buf, n);
                *ret_rest = str_skip(k, i + 1);
                return 0;
            }
            if (n == OREC_KEY_MAX) {
                break;
            }
            buf[n++] = 0;
            continue;
        }
        if (n == OREC_KEY_MAX) {
            break;
        }
        buf[n++] = k.p[i];
    }
    return -EBADMSG;
}

uint64_t ikey_be64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return be64toh(v);
}

/* --- ids --- */

static uint64_t mix(uint64_t v)
{
    v = (v ^ (v >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ (v >> 27)) * UINT64_C(0x94d049bb133111eb);
    return v ^ (v >> 31);
}

void index_make_id(uint64_t lsn, uint8_t ret[16])
{
    uint64_t salt = rand_u64();
    put_u64(ret, lsn ^ mix(salt));
    put_u64(ret + 8, salt);
}

uint64_t index_id_lsn(const uint8_t id[16])
{
    return get_u64(id) ^ mix(get_u64(id + 8));
}

bool index_is_null(const uint8_t version[16])
{
    return memcmp(version, zeros, sizeof(zeros)) == 0;
}

/* --- values --- */

void ival_encode(const struct ival *v, char out[IVAL_HEAD])
{
    memset(out, 0, IVAL_HEAD);
    out[0] = (char)v->kind;
    put_u32(out + 4, v->off);
    put_u32(out + 8, v->size);
    put_u64(out + 16, v->segment);
    put_u64(out + 24, v->lsn);
    put_u64(out + 32, v->origin);
    put_u64(out + 40, v->time_ns);
    put_u64(out + 48, v->since);
    put_u64(out + 56, v->null_origin);
}

int ival_decode(struct str value, struct ival *ret, struct err *err)
{
    if (value.n < IVAL_HEAD) {
        return fail(err, -EUCLEAN, "IndexDamaged", "a value of the index is too short");
    }
    const char *p = value.p;
    *ret = (struct ival){
        .kind = (enum orec_kind)(uint8_t)p[0],
        .off = get_u32(p + 4),
        .size = get_u32(p + 8),
        .segment = get_u64(p + 16),
        .lsn = get_u64(p + 24),
        .origin = get_u64(p + 32),
        .time_ns = get_u64(p + 40),
        .since = get_u64(p + 48),
        .null_origin = get_u64(p + 56),
        .head = str_skip(value, IVAL_HEAD),
    };
    return 0;
}

int ival_rec(const struct ival *v, struct arena *a, struct orec *ret, struct err *err)
{
    int rc = orec_decode(a, v->kind, v->head, ret, err);
    if (rc < 0) {
        return rc;
    }
    ret->lsn = v->lsn;
    ret->origin_lsn = v->origin;
    ret->time_ns = v->time_ns;
    return 0;
}

static void peek_body(const char *p, size_t n, struct ipeek *r)
{
    if (n == OREC_BODY_FIELD) {
        r->stored_size = get_u64(p + 16);
        r->is_file = p[29] == 0;
    }
}

static void peek_object(const char *p, size_t n, struct ipeek *r)
{
    if (n >= 12) {
        r->size = get_u64(p);
        r->etag = str_skip(str_n(p, n), 12 + (size_t)(uint8_t)p[10]);
    }
}

int index_peek(struct str head, struct ipeek *ret)
{
    struct ipeek r = {.version = zeros, .upload = zeros};
    for (size_t at = 0; at < head.n;) {
        if (head.n - at < FIELD_HEAD_SIZE) {
            return -EBADMSG;
        }
        const char *p = head.p + at + FIELD_HEAD_SIZE;
        unsigned type = get_u16(head.p + at);
        size_t n = get_u32(head.p + at + 4);
        if (n > head.n - at - FIELD_HEAD_SIZE) {
            return -EBADMSG;
        }
        at += FIELD_HEAD_SIZE + n;
        bool is_u64 = n == 8, is_id = n == OREC_ID_SIZE;
        switch (type) {
        case FIELD_BUCKET: r.bucket = is_u64 ? get_u64(p) : 0; break;
        case FIELD_KEY: r.key = str_n(p, n); break;
        case FIELD_VERSION: r.version = is_id ? (const uint8_t *)p : zeros; break;
        case FIELD_ORIGIN: r.origin = is_u64 ? get_u64(p) : 0; break;
        case FIELD_OBJECT: peek_object(p, n, &r); break;
        case FIELD_BODY: peek_body(p, n, &r); break;
        case FIELD_UPLOAD: r.upload = is_id ? (const uint8_t *)p : zeros; break;
        case FIELD_CONF: r.conf = n >= 2 ? get_u16(p) : 0; break;
        case FIELD_NEW_KEY: r.new_key = str_n(p, n); break;
        case FIELD_SOURCE: r.source = is_u64 ? get_u64(p) : 0; break;
        case FIELD_PART_NUMBER: r.part_number = n == 4 ? get_u32(p) : 0; break;
        default: break;
        }
    }
    if (r.key.n > OREC_KEY_MAX || r.new_key.n > OREC_KEY_MAX) {
        return -EBADMSG;
    }
    *ret = r;
    return 0;
}

void icompleted_encode(const struct icompleted *c, char out[ICOMPLETED_HEAD])
{
    put_u64(out, c->origin);
    put_u64(out + 8, c->bucket);
    memcpy(out + 16, c->version, OREC_ID_SIZE);
}

int icompleted_decode(struct str value, struct icompleted *ret)
{
    if (value.n < ICOMPLETED_HEAD) {
        return -EBADMSG;
    }
    ret->origin = get_u64(value.p);
    ret->bucket = get_u64(value.p + 8);
    memcpy(ret->version, value.p + 16, OREC_ID_SIZE);
    ret->key = str_skip(value, ICOMPLETED_HEAD);
    return 0;
}

void istate_encode(const struct istate *s, char out[ISTATE_SIZE])
{
    memset(out, 0, ISTATE_SIZE);
    put_u64(out, s->lsn);
    put_u64(out + 8, (uint64_t)s->n_versions);
    put_u64(out + 16, (uint64_t)s->n_uploads);
    put_u64(out + 24, (uint64_t)s->n_bytes);
    put_u64(out + 32, (uint64_t)s->file_bytes);
    put_u64(out + 40, (uint64_t)s->n_objects);
    out[48] = 1; /* version of the index */
    out[49] = s->is_rebuilding;
    memcpy(out + 64, s->set_id, sizeof(s->set_id));
}

int istate_decode(struct str value, struct istate *ret)
{
    if (value.n != ISTATE_SIZE || value.p[48] != 1) {
        return -EBADMSG; /* another version: made anew */
    }
    ret->lsn = get_u64(value.p);
    ret->n_versions = (int64_t)get_u64(value.p + 8);
    ret->n_uploads = (int64_t)get_u64(value.p + 16);
    ret->n_bytes = (int64_t)get_u64(value.p + 24);
    ret->file_bytes = (int64_t)get_u64(value.p + 32);
    ret->n_objects = (int64_t)get_u64(value.p + 40);
    ret->is_rebuilding = value.p[49];
    memcpy(ret->set_id, value.p + 64, sizeof(ret->set_id));
    return 0;
}
