#include "ostore/ostore_int.h"

#include <errno.h>

const char *oversion_text(const uint8_t version[16], char buf[OVERSION_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    if (index_is_null(version)) {
        memcpy(buf, "null", 5);
        return buf;
    }
    for (size_t i = 0; i < OREC_ID_SIZE; i++) {
        buf[2 * i] = digits[version[i] >> 4];
        buf[2 * i + 1] = digits[version[i] & 15];
    }
    buf[OVERSION_TEXT_SIZE - 1] = 0;
    return buf;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int oversion_parse(struct str text, uint8_t ret[16])
{
    uint8_t v[OREC_ID_SIZE] = {0};
    if (str_eq(text, STR("null"))) {
        memset(ret, 0, OREC_ID_SIZE);
        return 0;
    }
    if (text.n != 2 * OREC_ID_SIZE) {
        return -EINVAL;
    }
    for (size_t i = 0; i < OREC_ID_SIZE; i++) {
        int hi = digit(text.p[2 * i]), lo = digit(text.p[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return -EINVAL;
        }
        v[i] = (uint8_t)(hi << 4 | lo);
    }
    if (index_is_null(v)) {
        return -EINVAL; /* zeros have a name */
    }
    memcpy(ret, v, OREC_ID_SIZE);
    return 0;
}

static int get_value(struct ostore *s, const struct ikey *k, bool is_nowait, struct arena *a,
                     struct ival *ret, struct ipeek *peek, struct err *err)
{
    struct str value;
    int rc = oindex_get(s->index, ikey_str(k), is_nowait, a, &value, err);
    if (rc == 0) {
        rc = ival_decode(value, ret, err);
    }
    if (rc == 0 && index_peek(ret->head, peek) < 0) {
        rc = fail(err, -EUCLEAN, "IndexDamaged", "the head of a value of the index is broken");
    }
    return rc;
}

int ostore_find(struct ostore *s, uint64_t bucket, struct str key, const uint8_t *version,
                bool is_nowait, struct arena *a, struct ival *ret, bool *ret_is_latest,
                struct err *err)
{
    struct ikey k;
    struct ipeek p;
    if (key.n == 0 || key.n > OREC_KEY_MAX) {
        return -ENOENT;
    }
    ikey_object(&k, bucket, key);
    int rc = get_value(s, &k, is_nowait, a, ret, &p, err);
    *ret_is_latest = true;
    if (rc < 0 || !version || memcmp(version, p.version, OREC_ID_SIZE) == 0) {
        return rc;
    }
    *ret_is_latest = false;
    uint64_t origin = index_is_null(version) ? ret->null_origin : index_id_lsn(version);
    if (origin == 0) {
        return -ENOENT;
    }
    ikey_old(&k, bucket, key, origin);
    rc = get_value(s, &k, is_nowait, a, ret, &p, err);
    if (rc == -ENOENT) {
        /* It may have become the latest between the two looks: the one above it was deleted. */
        ikey_object(&k, bucket, key);
        rc = get_value(s, &k, is_nowait, a, ret, &p, err);
        *ret_is_latest = true;
    }
    return rc == 0 && memcmp(version, p.version, OREC_ID_SIZE) != 0 ? -ENOENT : rc;
}

int oversion_fill(const struct ival *v, bool is_latest, struct arena *a, struct oversion *ret,
                  struct err *err)
{
    *ret = (struct oversion){
        .is_latest = is_latest,
        .is_first_of_key = is_latest,
        .segment = v->segment,
        .off = v->off,
        .head_size = (uint32_t)v->head.n,
    };
    int rc = ival_rec(v, a, &ret->rec, err);
    ret->is_null = rc == 0 && index_is_null(ret->rec.version);
    return rc;
}

void opin_leave(struct opin *p)
{
    if (p->is_in) {
        p->is_in = false;
        pins_leave(p->s->pins, p->epoch);
    }
}

static void leave_deferred(void *p)
{
    opin_leave(p);
}

int ostore_get(struct ostore *s, const struct obucket *b, struct str key,
               const uint8_t *version, unsigned flags, struct arena *a, struct oversion *ret,
               struct err *err)
{
    struct ival v;
    bool is_latest = false;
    struct opin *pin = arena_alloc(a, sizeof(*pin));
    if (!pin) {
        return fail(err, -ENOMEM, "RequestTooLarge", "a request needs too much memory");
    }
    *pin = (struct opin){.s = s, .epoch = pins_enter(s->pins), .is_in = true};
    int rc =
        ostore_find(s, b->number, key, version, flags & OSTORE_NOWAIT, a, &v, &is_latest, err);
    if (rc == 0) {
        rc = oversion_fill(&v, is_latest, a, ret, err);
    }
    if (rc == 0 && arena_defer(a, leave_deferred, pin) < 0) {
        rc = fail(err, -ENOMEM, "RequestTooLarge", "a request needs too much memory");
    }
    if (rc < 0) {
        opin_leave(pin);
        return rc != -ENOENT ? rc
               : version
                   ? fail(err, rc, "NoSuchVersion", "The specified version does not exist.")
                   : fail(err, rc, "NoSuchKey", "The specified key does not exist.");
    }
    ret->pin = pin;
    atomic_fetch_add_explicit(&s->n_get, 1, memory_order_relaxed);
    return 0;
}
