/* Multipart uploads but for their parts' bytes: begin, complete, abort. */
#include "predastore/ops.h"

#include "aws/s3_cond.h"
#include "codec/hex.h"
#include "codec/uri.h"
#include "model/config.h"
#include "predastore/lifecycle.h"
#include "predastore/page.h"

#include <errno.h>

#define PART_MIN (UINT64_C(5) << 20) /* of all but the last */

/* The checksum that an upload will have: its record holds algorithm and type with a value of
 * zeros, for there is no value yet. */
static int take_sum(struct s3_call *c, const struct s3_create_multipart_upload_request *in,
                    struct orec *rec, bool *ret_is_asked, struct err *err)
{
    static const char zeros[32];
    enum s3_sum_alg alg = S3_SUM_NONE;
    enum s3_sum_type type = S3_SUM_TYPE_NONE;
    bool is_default = false;
    int r = s3_sum_upload_type(in->checksum_algorithm, in->checksum_type, &alg, &type,
                               &is_default, err);
    if (r < 0) {
        return r;
    }
    rec->sum = (struct orec_sum){.alg = (enum orec_sum_alg)alg,
                                 .is_composite = type == S3_SUM_COMPOSITE,
                                 .value = str_n(zeros, s3_sum_size(alg))};
    *ret_is_asked = !is_default;
    return 0;
}

int op_create_multipart_upload(struct s3_call *c, const void *input, void *output,
                               struct err *err)
{
    const struct s3_create_multipart_upload_request *in = input;
    struct s3_create_multipart_upload_output *out = output;
    struct ochange ch;
    bool is_asked = false;
    s3_change_init(c, &ch, OCHANGE_UPLOAD);
    int r = s3_take_all(c, &ch.rec, err);
    if (r < 0 || (r = take_sum(c, in, &ch.rec, &is_asked, err)) < 0) {
        return r;
    }
    if ((r = ochange_wait(c->store, &ch)) < 0) {
        *err = ch.err;
        return r;
    }
    out->bucket = c->bucket->name;
    out->key = c->t.key;
    out->upload_id = s3_upload_text(c->arena, ch.rec.upload);
    if (c->s3->cfg->predastore.is_encrypted) {
        out->server_side_encryption = STR("AES256");
    }
    if (is_asked) {
        out->checksum_algorithm = str_c(s3_sum_name((enum s3_sum_alg)ch.rec.sum.alg));
        out->checksum_type = s3_osum_type(&ch.rec.sum);
    }
    lifecycle_abort_date(c, ch.time_ns, &out->abort_date, &out->abort_rule_id);
    return 0;
}

int op_abort_multipart_upload(struct s3_call *c, const void *input, void *output,
                              struct err *err)
{
    const struct s3_abort_multipart_upload_request *in = input;
    struct ochange ch;
    s3_change_init(c, &ch, OCHANGE_ABORT);
    int r = s3_upload_id(in->upload_id, ch.rec.upload, err);
    if (r < 0) {
        return r;
    }
    if (in->if_match_initiated_time.is_set) { /* of directory buckets */
        return fail(err, -ENOSYS, "NotImplemented",
                    "A header you provided implies functionality that is not implemented");
    }
    if ((r = ochange_wait(c->store, &ch)) < 0) {
        *err = ch.err;
    }
    return r;
}

/* ---- complete ---- */

struct complete {
    struct s3_call *c;
    const struct s3_complete_multipart_upload_request *in;
    const struct s3_completed_part *listed; /* by number, each once */
    size_t n;
    struct opart_page have;
    struct orec_part *chosen;
    struct s3_sum_multi multi;
    uint64_t size;
};

static struct str claim_of(const struct s3_completed_part *p, enum orec_sum_alg alg)
{
    switch (alg) {
    case OSUM_CRC32: return p->checksum_crc32;
    case OSUM_CRC32C: return p->checksum_crc32_c;
    case OSUM_CRC64NVME: return p->checksum_crc64_nvme;
    case OSUM_SHA1: return p->checksum_sha1;
    case OSUM_SHA256: return p->checksum_sha256;
    case OSUM_NONE: break;
    }
    return STR_NONE;
}

static struct str claim_of_all(const struct s3_complete_multipart_upload_request *in,
                               enum orec_sum_alg alg)
{
    switch (alg) {
    case OSUM_CRC32: return in->checksum_crc32;
    case OSUM_CRC32C: return in->checksum_crc32_c;
    case OSUM_CRC64NVME: return in->checksum_crc64_nvme;
    case OSUM_SHA1: return in->checksum_sha1;
    case OSUM_SHA256: return in->checksum_sha256;
    case OSUM_NONE: break;
    }
    return STR_NONE;
}

/* The list as sent: 1 to 10,000 parts with numbers and ETags, ascending. A number that comes twice
 * in a row counts once, as the last says: clients that sent a part again list it again. */
static int take_list(struct complete *k, struct err *err)
{
    const struct s3_completed_multipart_upload *list = k->in->multipart_upload;
    if (!list || list->parts.n == 0 || list->parts.n > OREC_PARTS_MAX) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    struct s3_completed_part *v = arena_array(k->c->arena, list->parts.n, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "MalformedXML", "%s", "");
    }
    for (size_t i = 0; i < list->parts.n; i++) {
        const struct s3_completed_part *p = &list->parts.v[i];
        if (!p->part_number.is_set || !str_is_set(p->e_tag)) {
            return fail(err, -EINVAL, "MalformedXML", "%s", "");
        }
        if (p->part_number.v < 1 || p->part_number.v > OREC_PARTS_MAX) {
            return page_bad(k->c, "partNumber",
                            arena_fmt(k->c->arena, "%lld", (long long)p->part_number.v),
                            "Part number must be an integer between 1 and 10000, "
                            "inclusive",
                            err);
        }
        bool is_again = k->n > 0 && v[k->n - 1].part_number.v == p->part_number.v;
        if (k->n > 0 && !is_again && v[k->n - 1].part_number.v > p->part_number.v) {
            rest_extra_add(&k->c->t.extra, "UploadId", k->in->upload_id);
            return fail(err, -EINVAL, "InvalidPartOrder", "%s", "");
        }
        v[is_again ? k->n - 1 : k->n++] = *p;
    }
    k->listed = v;
    return 0;
}

static int bad_part(struct complete *k, const struct s3_completed_part *p, struct err *err)
{
    struct arena *a = k->c->arena;
    rest_extra_add(&k->c->t.extra, "UploadId", k->in->upload_id);
    rest_extra_add(&k->c->t.extra, "PartNumber",
                   arena_fmt(a, "%u", (unsigned)p->part_number.v));
    rest_extra_add(&k->c->t.extra, "ETag", s3_etag_bare(p->e_tag));
    return fail(err, -EINVAL, "InvalidPart", "%s", "");
}

/* What the list says about a part's checksum against what was computed when it came. */
static int check_claims(struct complete *k, const struct s3_completed_part *p,
                        const struct opart *have, struct err *err)
{
    for (int alg = OSUM_CRC32; alg <= OSUM_SHA256; alg++) {
        struct str claim = claim_of(p, (enum orec_sum_alg)alg);
        struct s3_sum_value v, is = {.alg = (enum s3_sum_alg)have->sum.alg};
        if (!str_is_set(claim) || (int)have->sum.alg != alg) {
            continue; /* a checksum that was not kept cannot be compared */
        }
        memcpy(is.v, have->sum.value.p, have->sum.value.n);
        if (s3_sum_value_parse((enum s3_sum_alg)alg, claim, &v) < 0 || !s3_sum_eq(&v, &is)) {
            return bad_part(k, p, err);
        }
    }
    return 0;
}

static int choose(struct complete *k, size_t i, const struct opart *have, struct err *err)
{
    const struct s3_completed_part *p = &k->listed[i];
    uint8_t md5[MD5_SIZE];
    struct s3_sum_value sum = {.alg = (enum s3_sum_alg)have->sum.alg};
    if (!str_ieq(s3_etag_bare(p->e_tag), have->etag)) {
        return bad_part(k, p, err);
    }
    int r = check_claims(k, p, have, err);
    if (r < 0) {
        return r;
    }
    if (hex_decode(have->etag, md5, sizeof(md5)) < 0) {
        return fail(err, -EBADMSG, "InternalError", "the ETag of a part is no MD5");
    }
    k->chosen[i] = (struct orec_part){have->number, have->size, have->lsn, have->sum};
    k->size += have->size;
    memcpy(sum.v, have->sum.value.p, have->sum.value.n);
    s3_sum_multi_add(&k->multi, md5, have->size, have->sum.alg == OSUM_NONE ? NULL : &sum);
    return 0;
}

static int check_sizes(struct complete *k, struct err *err)
{
    struct arena *a = k->c->arena;
    struct opt_i64 said = k->in->mpu_object_size;
    for (size_t i = 0; i + 1 < k->n; i++) {
        if (k->chosen[i].size < PART_MIN) {
            struct s3_extra *x = &k->c->t.extra;
            rest_extra_add(x, "ProposedSize",
                           arena_fmt(a, "%llu", (unsigned long long)k->chosen[i].size));
            rest_extra_add(x, "MinSizeAllowed", STR("5242880"));
            rest_extra_add(x, "PartNumber", arena_fmt(a, "%u", k->chosen[i].number));
            rest_extra_add(x, "ETag", s3_etag_bare(k->listed[i].e_tag));
            return fail(err, -EINVAL, "EntityTooSmall", "%s", "");
        }
    }
    if (k->size > S3_UPLOAD_MAX) {
        return fail(err, -E2BIG, "EntityTooLarge", "%s", "");
    }
    if (said.is_set && (said.v < 0 || (uint64_t)said.v != k->size)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The provided 'x-amz-mp-object-size' header value %lld does not match what "
                    "was computed: %llu",
                    (long long)said.v, (unsigned long long)k->size);
    }
    return 0;
}

static int choose_all(struct complete *k, struct err *err)
{
    k->chosen = arena_array(k->c->arena, k->n, sizeof(*k->chosen));
    if (!k->chosen) {
        return fail(err, -ENOMEM, "MalformedXML", "%s", "");
    }
    size_t j = 0;
    for (size_t i = 0; i < k->n; i++) {
        uint32_t number = (uint32_t)k->listed[i].part_number.v;
        while (j < k->have.n && k->have.v[j].number < number) {
            j++;
        }
        int r = j < k->have.n && k->have.v[j].number == number
                    ? choose(k, i, &k->have.v[j], err)
                    : bad_part(k, &k->listed[i], err);
        if (r < 0) {
            return r;
        }
    }
    return check_sizes(k, err);
}

/* A composite checksum is agreed upon part by part. */
static int want_claims(const struct complete *k, enum orec_sum_alg alg, struct err *err)
{
    const char *name = s3_sum_name((enum s3_sum_alg)alg);
    char low[16] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof(low); i++) {
        low[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    }
    for (size_t i = 0; i < k->n; i++) {
        if (!str_is_set(claim_of(&k->listed[i], alg))) {
            return fail(err, -EINVAL, "InvalidRequest",
                        "The upload was created using a %s checksum. The complete request must "
                        "include the checksum for each part. It was missing for part %u in the "
                        "request.",
                        low, (unsigned)k->listed[i].part_number.v);
        }
    }
    return 0;
}

/* ETag and checksum of the whole into the record; against what the client says. */
static int finish_sum(struct complete *k, struct orec *rec, struct err *err)
{
    const struct orec_sum *want = &k->have.upload.sum;
    enum s3_sum_type type = want->is_composite ? S3_SUM_COMPOSITE : S3_SUM_FULL_OBJECT;
    char etag[S3_ETAG_SIZE];
    struct s3_sum_value sum = {0};
    s3_sum_multi_end(&k->multi, etag, &sum);
    rec->etag = arena_str_dup(k->c->arena, str_c(etag));
    if (str_is_set(k->in->checksum_type) &&
        !str_eqc(k->in->checksum_type, s3_sum_type_name(type))) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "The upload was created using the %s checksum mode. The complete request "
                    "must use the same checksum mode.",
                    s3_sum_type_name(type));
    }
    struct str claim = claim_of_all(k->in, want->alg);
    if (str_is_set(claim)) {
        struct err why = ERR_INIT;
        int r = s3_sum_multi_check(claim, &sum, type, (unsigned)k->n, &why);
        if (r < 0) { /* what is no checksum at all does not match either */
            return fail(err, r, "BadDigest", "%s", why.msg);
        }
    }
    int r = want->is_composite ? want_claims(k, want->alg, err) : 0;
    if (r < 0) {
        return r;
    }
    if (sum.alg != S3_SUM_NONE) {
        rec->sum = s3_osum(k->c->arena, &sum, want->is_composite);
    }
    return 0;
}

static void conditions(const struct s3_complete_multipart_upload_request *in,
                       struct ochange_if *cond)
{
    if (in->if_match.n) {
        cond->match = s3_etag_bare(in->if_match);
    }
    if (in->if_none_match.n) {
        cond->none_match = s3_etag_bare(in->if_none_match);
    }
}

static struct str location(const struct s3_call *c)
{
    struct str host = aws_http_header(&c->rq, "host");
    AUTO_BUF b;
    buf_init(&b, 4 * REST_MAX_KEY + 1024);
    buf_addc(&b, c->rq.is_tls ? "https://" : "http://");
    buf_add(&b, host);
    buf_add_char(&b, '/');
    if (!c->t.is_vhost) {
        buf_add(&b, c->bucket->name);
        buf_add_char(&b, '/');
    }
    uri_encode(c->t.key, URI_KEEP_SLASH, &b);
    return arena_str_dup(c->arena, buf_str(&b));
}

static void answer(struct complete *k, const struct ochange *ch,
                   struct s3_complete_multipart_upload_output *out)
{
    struct s3_call *c = k->c;
    struct oversion v = {.rec = ch->rec, .is_latest = true};
    out->location = location(c);
    out->bucket = c->bucket->name;
    out->key = c->t.key;
    out->e_tag = s3_quoted(c->arena, ch->rec.etag);
    if (c->s3->cfg->predastore.is_encrypted) {
        out->server_side_encryption = STR("AES256");
    }
    out->version_id = s3_made_version(c->arena, ch);
    v.rec.kind = OREC_COMPLETE;
    v.rec.time_ns = ch->time_ns;
    v.rec.size = k->size;
    v.rec.tags = k->have.upload.tags;
    size_t n_parts = k->n;
    if (ch->is_repeated) { /* the same as then, as long as it is there */
        if (ostore_get(c->store, c->bucket, c->t.key, ch->version, 0, c->arena, &v, NULL) < 0 ||
            v.rec.kind != OREC_COMPLETE) {
            return;
        }
        n_parts = v.rec.n_parts;
    }
    out->expiration = s3_expiration(c, &v);
    if (v.rec.sum.alg != OSUM_NONE) {
        S3_SUM_OUT(out, c->arena, &v.rec.sum, n_parts);
        out->checksum_type = s3_osum_type(&v.rec.sum);
    }
}

/* A condition that holds, but of an object that was written after the upload began: AWS wants such
 * an upload done again. Whether it holds the store decides; what comes in between changes that. */
static int check_since(const struct complete *k, const struct ochange_if *cond, struct err *err)
{
    struct s3_call *c = k->c;
    struct oversion now;
    bool is_tag = str_is_set(cond->match) && !str_eqc(cond->match, "*");
    bool is_none = str_eqc(cond->none_match, "*");
    if ((!is_tag && !is_none) ||
        ostore_get(c->store, c->bucket, c->t.key, NULL, 0, c->arena, &now, NULL) < 0 ||
        now.rec.origin_lsn < k->have.upload.origin_lsn) {
        return 0;
    }
    bool is_marker = now.rec.kind == OREC_MARKER;
    if (is_none ? !is_marker : is_marker || !str_eq(cond->match, now.rec.etag)) {
        return 0;
    }
    rest_extra_add(&c->t.extra, "Condition", is_none ? STR("If-None-Match") : STR("If-Match"));
    rest_extra_add(&c->t.extra, "Key", c->t.key);
    return fail(err, -EBUSY, "ConditionalRequestConflict", "%s", "");
}

static int complete(struct complete *k, struct ochange *ch, struct err *err)
{
    struct s3_call *c = k->c;
    struct err gone = ERR_INIT;
    int r = ostore_parts(c->store, c->bucket, c->t.key, ch->rec.upload, 0, OREC_PARTS_MAX,
                         c->arena, &k->have, &gone);
    if (r == 0) {
        const struct orec_sum *want = &k->have.upload.sum;
        s3_sum_multi_begin(&k->multi, (enum s3_sum_alg)want->alg,
                           want->is_composite ? S3_SUM_COMPOSITE : S3_SUM_FULL_OBJECT);
        r = choose_all(k, err);
        if (r == 0) {
            r = finish_sum(k, &ch->rec, err);
        }
        if (r == 0) {
            r = check_since(k, &ch->cond, err);
        }
        s3_sum_multi_done(&k->multi);
        if (r < 0) {
            return r;
        }
        ch->rec.parts = k->chosen;
        ch->rec.n_parts = k->n;
        ch->rec.size = k->size;
    } else if (r != -ENOENT) {
        *err = gone;
        return r;
    }
    /* An upload that is not there may be complete: the store knows, and says the same again. */
    if ((r = ochange_wait(c->store, ch)) < 0) {
        *err = ch->err;
    }
    return r;
}

int op_complete_multipart_upload(struct s3_call *c, const void *input, void *output,
                                 struct err *err)
{
    const struct s3_complete_multipart_upload_request *in = input;
    struct complete k = {.c = c, .in = in};
    struct ochange ch;
    s3_change_init(c, &ch, OCHANGE_COMPLETE);
    int r = s3_upload_id(in->upload_id, ch.rec.upload, err);
    if (r < 0 || (r = take_list(&k, err)) < 0) {
        return r;
    }
    conditions(in, &ch.cond);
    if ((r = complete(&k, &ch, err)) == 0) {
        answer(&k, &ch, output);
    }
    return r;
}
