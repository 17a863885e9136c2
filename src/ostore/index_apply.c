#include "ostore/index_tx.h"

#include <errno.h>

/* Order of versions is the order of origin lsns. Records come in the order of their lsns, but
 * some that are dead may be missing, and copies (moved) of living ones come again later. So
 * each function below compares origins before it replaces or removes anything. */

static uint64_t origin_of(const struct irec *r)
{
    return r->peek.origin ? r->peek.origin : r->lsn;
}

static struct ival value_of(const struct irec *r)
{
    return (struct ival){
        .kind = r->kind,
        .off = r->off,
        .size = r->size,
        .segment = r->segment,
        .lsn = r->lsn,
        .origin = origin_of(r),
        .time_ns = r->time_ns,
        .since = r->peek.source ? r->peek.source : origin_of(r),
        .head = r->head,
    };
}

static bool is_object(enum orec_kind kind)
{
    return kind == OREC_PUT || kind == OREC_COMPLETE;
}

/* --- what lives where --- */

static void add_live(struct itx *t, const struct ival *v, bool is_born)
{
    if (v->segment == ITX_PENDING) {
        t->recs.v[v->off].is_live = is_born;
    } else if (!t->is_blind) {
        inums_get(&t->segments, v->segment)->a +=
            is_born ? (int64_t)v->size : -(int64_t)v->size;
    }
}

static void add_bytes(struct itx *t, const struct ipeek *p, enum orec_kind kind, int sign)
{
    if (t->is_blind || (kind != OREC_PUT && kind != OREC_PART)) {
        return;
    }
    int64_t n = (int64_t)p->size * sign;
    inums_get(&t->buckets, p->bucket)->b += n;
    t->sum.n_bytes += n;
    if (p->is_file) {
        t->sum.file_bytes += (int64_t)p->stored_size * sign;
    }
}

static void born(struct itx *t, const struct ival *v, const struct ipeek *p)
{
    add_live(t, v, true);
    add_bytes(t, p, v->kind, 1);
    t->sum.n_versions += is_object(v->kind) || v->kind == OREC_MARKER;
    t->sum.n_uploads += v->kind == OREC_UPLOAD;
}

static int bury_file(struct itx *t, const struct ival *v, const uint8_t *pin, struct err *err)
{
    struct orec rec;
    int rc = ival_rec(v, t->a, &rec, err);
    if (rc < 0) {
        return rc;
    }
    struct ideath d = {.body = rec.body};
    d.body.wrapped_key = STR_NONE;
    memcpy(d.pin, pin ? pin : rec.body.id, sizeof(d.pin));
    vec_push(&t->deaths, d);
    return 0;
}

/* A copy of a record: its body is another one when that was written anew (recode.h). */
static int bury_replaced(struct itx *t, const struct ival *old, const struct ival *v,
                         const uint8_t *pin, struct err *err)
{
    struct ipeek p;
    struct orec before, now;
    if (index_peek(old->head, &p) < 0) {
        return fail(err, -EUCLEAN, "IndexDamaged",
                    "the head of a value of the index is broken");
    }
    if (!p.is_file) {
        return 0;
    }
    int rc = ival_rec(old, t->a, &before, err);
    rc = rc < 0 ? rc : ival_rec(v, t->a, &now, err);
    if (rc < 0 || memcmp(before.body.id, now.body.id, OREC_ID_SIZE) == 0) {
        return rc;
    }
    return bury_file(t, old, pin, err);
}

/* What the version or part was stops to be. 'keeps_body': another record has the files now. */
static int died(struct itx *t, const struct ival *v, const uint8_t *pin, bool keeps_body,
                struct err *err)
{
    struct ipeek p;
    if (index_peek(v->head, &p) < 0) {
        return fail(err, -EUCLEAN, "IndexDamaged",
                    "the head of a value of the index is broken");
    }
    add_live(t, v, false);
    add_bytes(t, &p, v->kind, -1);
    t->sum.n_versions -= is_object(v->kind) || v->kind == OREC_MARKER;
    t->sum.n_uploads -= v->kind == OREC_UPLOAD;
    return p.is_file && !keeps_body ? bury_file(t, v, pin, err) : 0;
}

static int drop_parts(struct itx *t, const uint8_t *upload, const struct orec *keep,
                      uint64_t before, struct err *err)
{
    struct ikey prefix;
    struct itx_iter it;
    ikey_parts(&prefix, upload);
    int rc = itx_iter_open(t, &prefix, &it, err);
    if (rc < 0) {
        return rc;
    }
    size_t at = 0;
    while (rc == 0 && itx_iter_next(&it)) {
        struct ival v;
        struct ipeek p;
        rc = ival_decode(it.value, &v, err);
        if (rc < 0 || index_peek(v.head, &p) < 0) {
            rc = rc < 0 ? rc : -EUCLEAN;
            break;
        }
        while (keep && at < keep->n_parts && keep->parts[at].number < p.part_number) {
            at++;
        }
        if (v.origin >= before ||
            (keep && at < keep->n_parts && keep->parts[at].number == p.part_number &&
             keep->parts[at].lsn == v.origin)) {
            continue;
        }
        struct ikey k;
        ikey_part(&k, upload, p.part_number);
        rc = died(t, &v, upload, false, err);
        itx_del(t, &k);
    }
    int rc2 = itx_iter_close(&it, err);
    return rc < 0 ? rc : rc2;
}

/* The version is gone for good, with its parts when they are its own. */
static int kill_version(struct itx *t, const struct ival *v, bool keeps_body, struct err *err)
{
    int rc = died(t, v, NULL, keeps_body, err);
    if (rc < 0 || v->kind != OREC_COMPLETE || keeps_body) {
        return rc;
    }
    struct ipeek p;
    struct ikey k;
    struct str value;
    struct icompleted c;
    if (index_peek(v->head, &p) < 0) {
        return -EUCLEAN;
    }
    ikey_completed(&k, p.upload);
    rc = itx_get_raw(t, &k, &value, err);
    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (icompleted_decode(value, &c) < 0 || c.origin != v->origin) {
        return 0; /* renamed: the parts belong to the other name */
    }
    itx_del(t, &k);
    return drop_parts(t, p.upload, NULL, UINT64_MAX, err);
}

/* --- versions --- */

static void count_current(struct itx *t, uint64_t bucket, const struct ival *before,
                          const struct ival *after)
{
    int d = (after && is_object(after->kind)) - (before && is_object(before->kind));
    if (d && !t->is_blind) {
        inums_get(&t->buckets, bucket)->a += d;
        t->sum.n_objects += d;
    }
}

static bool has_ids(struct itx *t, uint64_t bucket)
{
    const struct inum *n = inums_find(&t->counts->buckets, bucket);
    return n && n->has_ids;
}

static void note_ids(struct itx *t, uint64_t bucket)
{
    if (!has_ids(t, bucket)) {
        pthread_mutex_lock(&t->counts->lock);
        inums_get(&t->counts->buckets, bucket)->has_ids = true;
        pthread_mutex_unlock(&t->counts->lock);
    }
}

static const uint8_t *version_of(const struct ival *v)
{
    static const uint8_t zeros[OREC_ID_SIZE];
    struct ipeek p;
    return index_peek(v->head, &p) == 0 ? p.version : zeros;
}

/* The same version again: a copy, or a newer null version in the place of an older. */
static int replace_same(struct itx *t, const struct ikey *k, const struct ival *old,
                        struct ival *v, const struct ipeek *p, struct err *err)
{
    if (v->origin < old->origin || (v->origin == old->origin && v->lsn <= old->lsn)) {
        return 0;
    }
    v->null_origin = old->null_origin;
    int rc = 0;
    if (v->origin == old->origin) {
        struct ipeek before;
        if (index_peek(old->head, &before) < 0) {
            return -EUCLEAN;
        }
        add_live(t, old, false);
        add_bytes(t, &before, old->kind, -1);
        add_live(t, v, true);
        add_bytes(t, p, v->kind, 1);
        v->since = MIN(v->since, old->since);
        rc = bury_replaced(t, old, v, NULL, err);
    } else {
        v->since = MIN(v->since, old->since); /* a tombstone must cover both */
        rc = kill_version(t, old, false, err);
        born(t, v, p);
    }
    itx_put(t, k, v);
    return rc;
}

/* Not the latest: a copy of an old version, or a null version put where newer ones are already. */
static int put_old(struct itx *t, const struct ikey *k_object, struct ival *cur, struct ival *v,
                   const struct ipeek *p, struct err *err)
{
    struct ikey k;
    struct ival old;
    bool is_null = index_is_null(p->version);
    if (is_null && cur->null_origin && cur->null_origin != v->origin) {
        if (cur->null_origin > v->origin) {
            return 0;
        }
        ikey_old(&k, p->bucket, p->key, cur->null_origin);
        int rc = itx_get(t, &k, &old, err);
        if (rc == 0) {
            itx_del(t, &k);
            v->since = MIN(v->since, old.since);
            rc = kill_version(t, &old, false, err);
        }
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
    }
    ikey_old(&k, p->bucket, p->key, v->origin);
    int rc = itx_get(t, &k, &old, err);
    if (rc == 0) {
        rc = replace_same(t, &k, &old, v, p, err);
    } else if (rc == -ENOENT) {
        born(t, v, p);
        itx_put(t, &k, v);
        rc = 0;
    }
    if (rc == 0 && is_null && cur->null_origin != v->origin) {
        cur->null_origin = v->origin;
        itx_put(t, k_object, cur);
    }
    return rc;
}

static int cover(struct itx *t, const struct ival *cur, struct ival *v, const struct ipeek *p,
                 struct err *err)
{
    struct ikey k;
    bool is_null = index_is_null(p->version), was_null = index_is_null(version_of(cur));
    if (is_null && cur->null_origin) {
        struct ival old;
        ikey_old(&k, p->bucket, p->key, cur->null_origin);
        int rc = itx_get(t, &k, &old, err);
        if (rc == 0) {
            itx_del(t, &k);
            v->since = MIN(v->since, old.since);
            rc = kill_version(t, &old, false, err);
        }
        if (rc < 0 && rc != -ENOENT) {
            return rc;
        }
    }
    struct ival down = *cur;
    down.null_origin = 0;
    ikey_old(&k, p->bucket, p->key, cur->origin);
    itx_put(t, &k, &down);
    v->null_origin = is_null ? 0 : was_null ? cur->origin : cur->null_origin;
    return 0;
}

#define SEEN_BITS (UINT64_C(1) << 27) /* 16 MiB */

/* Whether a record of this key may have come before in a blind replay: "no" is certain. */
static bool was_seen(struct itx *t, const struct ikey *k)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < k->n; i++) {
        h = (h ^ (uint8_t)k->p[i]) * UINT64_C(0x100000001b3);
    }
    h = (h ^ (h >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    t->seen = t->seen ? t->seen : calloc(SEEN_BITS / 64, sizeof(*t->seen));
    if (!t->seen) {
        return true;
    }
    const uint64_t bits[] = {h % SEEN_BITS, (h >> 32) % SEEN_BITS};
    bool is = true;
    for (size_t i = 0; i < ARRAY_LEN(bits); i++) {
        uint64_t bit = UINT64_C(1) << (bits[i] % 64);
        is = is && (t->seen[bits[i] / 64] & bit);
        t->seen[bits[i] / 64] |= bit;
    }
    return is;
}

static int apply_version(struct itx *t, const struct irec *r, struct err *err)
{
    const struct ipeek *p = &r->peek;
    struct ival v = value_of(r), cur;
    struct ikey k;
    bool is_null = index_is_null(p->version);
    ikey_object(&k, p->bucket, p->key);
    if (!is_null) {
        note_ids(t, p->bucket);
    } else if (t->is_blind && !has_ids(t, p->bucket)) {
        /* What it replaces is not looked at: a tombstone has to cover all that may be there. */
        v.since = was_seen(t, &k) ? 1 : v.since;
        itx_put(t, &k, &v);
        return 0;
    }
    int rc = itx_get(t, &k, &cur, err);
    if (rc == -ENOENT) {
        born(t, &v, p);
        count_current(t, p->bucket, NULL, &v);
        itx_put(t, &k, &v);
        return 0;
    }
    if (rc < 0) {
        return rc;
    }
    if (memcmp(version_of(&cur), p->version, OREC_ID_SIZE) == 0) {
        if (v.origin >= cur.origin) {
            count_current(t, p->bucket, &cur, &v);
        }
        return replace_same(t, &k, &cur, &v, p, err);
    }
    if (v.origin < cur.origin) {
        return put_old(t, &k, &cur, &v, p, err);
    }
    rc = cover(t, &cur, &v, p, err);
    if (rc == 0) {
        born(t, &v, p);
        count_current(t, p->bucket, &cur, &v);
        itx_put(t, &k, &v);
    }
    return rc;
}

static int apply_complete(struct itx *t, const struct irec *r, struct err *err)
{
    const struct ipeek *p = &r->peek;
    struct orec rec;
    int rc = apply_version(t, r, err);
    if (rc == 0) {
        rc = orec_decode(t->a, r->kind, r->head, &rec, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct ikey k;
    struct ival up;
    struct icompleted c = {.origin = origin_of(r), .bucket = p->bucket};
    struct str was;
    struct icompleted before;
    ikey_completed(&k, p->upload);
    rc = itx_get_raw(t, &k, &was, err);
    if (rc == 0 && icompleted_decode(was, &before) == 0 && before.origin > c.origin) {
        return 0; /* it was renamed since */
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    memcpy(c.version, p->version, OREC_ID_SIZE);
    char head[ICOMPLETED_HEAD];
    icompleted_encode(&c, head);
    itx_put_raw(t, &k, str_n(head, sizeof(head)), p->key);
    ikey_upload(&k, p->bucket, p->key, p->upload);
    rc = itx_get(t, &k, &up, err);
    if (rc == 0) {
        itx_del(t, &k);
        rc = died(t, &up, NULL, false, err);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    return drop_parts(t, p->upload, &rec, UINT64_MAX, err);
}

int itx_find(struct itx *t, uint64_t bucket, struct str key, const uint8_t *version,
             struct ival *ret, struct ikey *ret_key, struct err *err)
{
    struct ival cur;
    ikey_object(ret_key, bucket, key);
    int rc = itx_get(t, ret_key, &cur, err);
    if (rc < 0 || !version || memcmp(version_of(&cur), version, OREC_ID_SIZE) == 0) {
        if (rc == 0) {
            *ret = cur;
        }
        return rc;
    }
    uint64_t origin = index_is_null(version) ? cur.null_origin : index_id_lsn(version);
    ikey_old(ret_key, bucket, key, origin);
    rc = itx_get(t, ret_key, ret, err);
    if (rc == 0 && memcmp(version_of(ret), version, OREC_ID_SIZE) == 0) {
        return 0;
    }
    return rc < 0 ? rc : -ENOENT;
}

/* The version below takes the place of the latest. */
static int uncover(struct itx *t, const struct ikey *k_object, const struct ival *cur,
                   const struct ipeek *p, struct err *err)
{
    itx_del(t, k_object);
    count_current(t, p->bucket, cur, NULL);
    if (!has_ids(t, p->bucket)) {
        return 0;
    }
    struct ikey prefix;
    struct itx_iter it;
    ikey_of(&prefix, IX_OLD, p->bucket, p->key);
    int rc = itx_iter_open(t, &prefix, &it, err);
    if (rc < 0) {
        return rc;
    }
    struct ival next;
    if (itx_iter_next(&it)) {
        rc = ival_decode(it.value, &next, err);
        if (rc == 0) {
            struct ikey k;
            bool is_null = index_is_null(version_of(&next));
            ikey_old(&k, p->bucket, p->key, next.origin);
            next.null_origin = is_null ? 0 : cur->null_origin;
            itx_put(t, k_object, &next);
            itx_del(t, &k);
            count_current(t, p->bucket, NULL, &next);
        }
    }
    int rc2 = itx_iter_close(&it, err);
    return rc < 0 ? rc : rc2;
}

static int apply_gone(struct itx *t, const struct irec *r, bool keeps_body, struct err *err)
{
    const struct ipeek *p = &r->peek;
    uint64_t origin = origin_of(r);
    struct ikey k, k_object;
    struct ival v, cur;
    ikey_object(&k_object, p->bucket, p->key);
    /* A tombstone may have outlived all versions with ids, its own too: the latest is not meant. */
    if (t->is_blind && !has_ids(t, p->bucket) && origin == r->lsn &&
        index_is_null(p->version)) {
        itx_del(t, &k_object);
        return 0;
    }
    int rc = itx_find(t, p->bucket, p->key, p->version, &v, &k, err);
    if (rc < 0 || v.origin >= origin) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = kill_version(t, &v, keeps_body, err);
    if (rc < 0) {
        return rc;
    }
    if (str_eq(ikey_str(&k), ikey_str(&k_object))) {
        return uncover(t, &k_object, &v, p, err);
    }
    itx_del(t, &k);
    if (index_is_null(p->version)) {
        rc = itx_get(t, &k_object, &cur, err);
        if (rc == 0) {
            cur.null_origin = 0;
            itx_put(t, &k_object, &cur);
        }
    }
    return rc;
}

/* --- uploads --- */

/* UPLOAD, PART and the records of buckets: the newest of a subject counts. */
static int apply_single(struct itx *t, const struct irec *r, const struct ikey *k,
                        const uint8_t *pin, struct err *err)
{
    struct ival v = value_of(r), old;
    int rc = itx_get(t, k, &old, err);
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    if (rc == 0) {
        if (v.origin < old.origin || (v.origin == old.origin && v.lsn <= old.lsn)) {
            return 0;
        }
        v.since = MIN(v.since, old.since);
        rc = died(t, &old, pin, v.origin == old.origin, err);
        if (rc == 0 && v.origin == old.origin) {
            rc = bury_replaced(t, &old, &v, pin, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    born(t, &v, &r->peek);
    itx_put(t, k, &v);
    return 0;
}

static int apply_abort(struct itx *t, const struct irec *r, struct err *err)
{
    const struct ipeek *p = &r->peek;
    struct ikey k;
    struct ival v;
    struct str value;
    struct icompleted c;
    ikey_completed(&k, p->upload);
    int rc = itx_get_raw(t, &k, &value, err);
    if (rc == 0 && icompleted_decode(value, &c) == 0 && c.origin > origin_of(r)) {
        return 0;
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    ikey_upload(&k, p->bucket, p->key, p->upload);
    rc = itx_get(t, &k, &v, err);
    if (rc == 0) {
        itx_del(t, &k);
        rc = died(t, &v, NULL, false, err);
    }
    if (rc < 0 && rc != -ENOENT) {
        return rc;
    }
    return drop_parts(t, p->upload, NULL, origin_of(r), err);
}

static int apply_bucket_gone(struct itx *t, const struct irec *r, struct err *err)
{
    static const char kinds[] = {IX_BUCKET, IX_CONF, IX_COUNTS};
    int rc = 0;
    for (size_t i = 0; i < sizeof(kinds) && rc == 0; i++) {
        struct ikey prefix;
        struct itx_iter it;
        ikey_number(&prefix, kinds[i], r->peek.bucket);
        rc = itx_iter_open(t, &prefix, &it, err);
        if (rc < 0) {
            return rc;
        }
        while (rc == 0 && itx_iter_next(&it)) {
            struct ikey k = {.n = it.key.n};
            struct ival v;
            memcpy(k.p, it.key.p, it.key.n);
            if (kinds[i] != IX_COUNTS) {
                rc = ival_decode(it.value, &v, err);
                if (rc == 0) {
                    rc = died(t, &v, NULL, true, err);
                }
            }
            itx_del(t, &k);
        }
        int rc2 = itx_iter_close(&it, err);
        rc = rc < 0 ? rc : rc2;
    }
    inums_drop(&t->buckets, r->peek.bucket);
    return rc;
}

int itx_apply(struct itx *t, const struct irec *r, struct err *err)
{
    struct ikey k;
    switch (r->kind) {
    case OREC_NOTHING: return 0;
    case OREC_PUT:
    case OREC_MARKER: return apply_version(t, r, err);
    case OREC_COMPLETE: return apply_complete(t, r, err);
    case OREC_GONE: return apply_gone(t, r, false, err);
    case OREC_RENAME: return apply_gone(t, r, true, err);
    case OREC_UPLOAD:
        ikey_upload(&k, r->peek.bucket, r->peek.key, r->peek.upload);
        return apply_single(t, r, &k, NULL, err);
    case OREC_PART:
        ikey_part(&k, r->peek.upload, r->peek.part_number);
        return apply_single(t, r, &k, r->peek.upload, err);
    case OREC_ABORT: return apply_abort(t, r, err);
    case OREC_BUCKET:
        ikey_number(&k, IX_BUCKET, r->peek.bucket);
        return apply_single(t, r, &k, NULL, err);
    case OREC_BUCKET_CONF:
        ikey_conf(&k, r->peek.bucket, r->peek.conf);
        return apply_single(t, r, &k, NULL, err);
    case OREC_BUCKET_GONE: return apply_bucket_gone(t, r, err);
    case OREC_TAGS:
    case OREC_FILE_MOVED:
        break; /* reserved: a version with other tags is a copy of its record */
    }
    return fail(err, -ENOTSUP, "UnknownRecord", "a record of kind %u cannot be applied",
                (unsigned)r->kind);
}
