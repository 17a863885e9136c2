#include "aws/s3_sum.h"

#include "codec/base64.h"
#include <assert.h>
#include <errno.h>

#define BIT(x) (1u << (x))

static const struct {
    const char *name, *header;
    size_t size;
    bool is_crc;
    enum crc_alg crc;
    enum digest_alg digest;
} algs[S3_SUM_ALG_N] = {
    [S3_SUM_NONE] = {"", "", 0, false, CRC_32, DIGEST_MD5},
    [S3_SUM_CRC32] = {"CRC32", "x-amz-checksum-crc32", 4, true, CRC_32, DIGEST_MD5},
    [S3_SUM_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", 4, true, CRC_32C, DIGEST_MD5},
    [S3_SUM_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", 8, true, CRC_64NVME,
                          DIGEST_MD5},
    [S3_SUM_SHA1] = {"SHA1", "x-amz-checksum-sha1", SHA1_SIZE, false, CRC_32, DIGEST_SHA1},
    [S3_SUM_SHA256] = {"SHA256", "x-amz-checksum-sha256", SHA256_SIZE, false, CRC_32,
                       DIGEST_SHA256},
};

size_t s3_sum_size(enum s3_sum_alg alg)
{
    return algs[alg].size;
}
const char *s3_sum_name(enum s3_sum_alg alg)
{
    return algs[alg].name;
}
const char *s3_sum_header(enum s3_sum_alg alg)
{
    return algs[alg].header;
}

enum s3_sum_alg s3_sum_by_name(struct str name)
{
    for (int i = S3_SUM_NONE + 1; i < S3_SUM_ALG_N; i++) {
        if (str_ieqc(name, algs[i].name)) {
            return (enum s3_sum_alg)i;
        }
    }
    return S3_SUM_NONE;
}

enum s3_sum_alg s3_sum_by_header(struct str name)
{
    for (int i = S3_SUM_NONE + 1; i < S3_SUM_ALG_N; i++) {
        if (str_ieqc(name, algs[i].header)) {
            return (enum s3_sum_alg)i;
        }
    }
    return S3_SUM_NONE;
}

const char *s3_sum_type_name(enum s3_sum_type t)
{
    return t == S3_SUM_FULL_OBJECT ? "FULL_OBJECT" : t == S3_SUM_COMPOSITE ? "COMPOSITE" : "";
}

const char *s3_sum_text(const struct s3_sum_value *v, unsigned n_parts,
                        char out[S3_SUM_TEXT_SIZE])
{
    AUTO_BUF b;
    buf_init(&b, S3_SUM_TEXT_SIZE);
    base64_encode(str_n((const char *)v->v, s3_sum_size(v->alg)), &b);
    if (n_parts) {
        buf_fmt(&b, "-%u", n_parts);
    }
    assert(buf_ok(&b) && b.n < S3_SUM_TEXT_SIZE); /* 44 and at most 11 */
    memcpy(out, b.p, b.n);
    out[b.n] = '\0';
    return out;
}

static int decode(struct str base64, size_t size, uint8_t *out)
{
    AUTO_BUF b;
    buf_init(&b, 64);
    if (base64.n != BASE64_LEN(size) || base64_decode(base64, &b) < 0 || b.n != size) {
        return -EINVAL;
    }
    memcpy(out, b.p, size);
    return 0;
}

int s3_sum_value_parse(enum s3_sum_alg alg, struct str base64, struct s3_sum_value *ret)
{
    struct s3_sum_value v = {.alg = alg};
    if (alg == S3_SUM_NONE || decode(base64, s3_sum_size(alg), v.v) < 0) {
        return -EINVAL;
    }
    *ret = v;
    return 0;
}

bool s3_sum_eq(const struct s3_sum_value *a, const struct s3_sum_value *b)
{
    return a->alg == b->alg && memcmp(a->v, b->v, s3_sum_size(a->alg)) == 0;
}

void s3_etag(const uint8_t md5[16], char out[S3_ETAG_SIZE])
{
    digest_hex(md5, MD5_SIZE, out);
}

/* ---- one body ---- */

void s3_sum_begin(struct s3_sum *s, const struct s3_sum_want *want, bool without_md5)
{
    s->want = *want;
    s->size = 0;
    s->todo = without_md5 && !want->has_md5 ? 0 : BIT(0);
    s->todo |= want->alg ? BIT(want->alg) : 0;
    s->todo |= want->keep ? BIT(want->keep) : 0;
    s->todo |= want->has_sha256 ? BIT(S3_SUM_SHA256) : 0;
    memset(s->crc, 0, sizeof(s->crc));
    for (int i = 0; i < S3_SUM_ALG_N; i++) {
        if (!(s->todo & BIT(i)) || algs[i].is_crc) {
            continue;
        }
        struct digest **d = &s->digest[algs[i].digest];
        if (*d) {
            uint8_t scratch[DIGEST_MAX_SIZE];
            digest_end(*d, scratch); /* what a broken body left */
        } else {
            *d = digest_new(algs[i].digest);
        }
    }
}

void s3_sum_add(struct s3_sum *s, struct str data)
{
    s->size += data.n;
    for (int i = 0; data.n && i < S3_SUM_ALG_N; i++) {
        if (!(s->todo & BIT(i))) {
            continue;
        }
        if (algs[i].is_crc) {
            s->crc[algs[i].crc] = crc_add(algs[i].crc, s->crc[algs[i].crc], data);
        } else {
            digest_add(s->digest[algs[i].digest], data);
        }
    }
}

int s3_sum_trailer(struct s3_sum *s, struct str name, struct str value, struct err *err)
{
    enum s3_sum_alg alg = s3_sum_by_header(name);
    if (alg == S3_SUM_NONE) {
        return 0;
    }
    if (!s->want.is_in_trailer || alg != s->want.alg) {
        return fail(err, -EINVAL, "MalformedTrailerError",
                    "The request contained trailing data that was not well-formed or did not "
                    "conform to our published schema.");
    }
    if (s3_sum_value_parse(alg, value, &s->want.value) < 0) {
        return fail(err, -EINVAL, "InvalidRequest", "Value for %s trailing header is invalid.",
                    s3_sum_header(alg));
    }
    s->want.is_given = true;
    return 0;
}

static int bad_md5(const struct s3_sum *s, const uint8_t have[MD5_SIZE], struct arena *a,
                   struct s3_extra *extra, struct err *err)
{
    if (a && extra) {
        AUTO_BUF want_text, have_text;
        buf_init(&want_text, 64);
        buf_init(&have_text, 64);
        base64_encode(str_n((const char *)s->want.md5, MD5_SIZE), &want_text);
        base64_encode(str_n((const char *)have, MD5_SIZE), &have_text);
        s3_extra_dup(extra, a, "ExpectedDigest", buf_str(&want_text));
        s3_extra_dup(extra, a, "CalculatedDigest", buf_str(&have_text));
    }
    return fail(err, -EINVAL, "BadDigest",
                "The Content-MD5 you specified did not match what we received.");
}

static int bad_sha256(const struct s3_sum *s, const uint8_t have[SHA256_SIZE], struct arena *a,
                      struct s3_extra *extra, struct err *err)
{
    char hex[2 * SHA256_SIZE + 1];
    if (a && extra) {
        digest_hex(s->want.sha256, SHA256_SIZE, hex);
        s3_extra_dup(extra, a, "ClientComputedContentSHA256", str_c(hex));
        digest_hex(have, SHA256_SIZE, hex);
        s3_extra_dup(extra, a, "S3ComputedContentSHA256", str_c(hex));
    }
    return fail(err, -EINVAL, "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.");
}

int s3_sum_end(struct s3_sum *s, struct s3_sum_result *ret, struct arena *a,
               struct s3_extra *extra, struct err *err)
{
    struct s3_sum_value have[S3_SUM_ALG_N] = {{0}}; /* [0]: the MD5 */
    struct s3_sum_result r = {.size = s->size, .has_md5 = (s->todo & BIT(0)) != 0};
    for (int i = 0; i < S3_SUM_ALG_N; i++) {
        have[i].alg = (enum s3_sum_alg)i;
        if (!(s->todo & BIT(i))) {
            continue;
        }
        if (algs[i].is_crc) {
            crc_bytes(algs[i].crc, s->crc[algs[i].crc], have[i].v);
        } else {
            digest_end(s->digest[algs[i].digest], have[i].v);
        }
    }
    const struct s3_sum_want *w = &s->want;
    if (w->has_md5 && memcmp(have[0].v, w->md5, MD5_SIZE) != 0) {
        return bad_md5(s, have[0].v, a, extra, err);
    }
    if (w->has_sha256 && memcmp(have[S3_SUM_SHA256].v, w->sha256, SHA256_SIZE) != 0) {
        return bad_sha256(s, have[S3_SUM_SHA256].v, a, extra, err);
    }
    if (w->is_in_trailer && !w->is_given) {
        return fail(err, -EINVAL, "MalformedTrailerError",
                    "The request contained trailing data that was not well-formed or did not "
                    "conform to our published schema.");
    }
    if (w->is_given && !s3_sum_eq(&have[w->alg], &w->value)) {
        return fail(err, -EINVAL, "BadDigest",
                    "The %s you specified did not match the calculated checksum.",
                    s3_sum_name(w->alg));
    }
    memcpy(r.md5, have[0].v, MD5_SIZE);
    if (w->keep) {
        r.sum = have[w->keep];
    }
    *ret = r;
    return 0;
}

void s3_sum_done(struct s3_sum *s)
{
    for (size_t i = 0; i < DIGEST_ALG_N; i++) {
        digest_free(s->digest[i]);
        s->digest[i] = NULL;
    }
}

int s3_sum_check(const struct s3_sum_want *want, struct str body, struct s3_sum_result *ret,
                 struct err *err)
{
    struct s3_sum s = {.size = 0};
    s3_sum_begin(&s, want, true);
    s3_sum_add(&s, body);
    int rc = s3_sum_end(&s, ret, NULL, NULL, err);
    s3_sum_done(&s);
    return rc;
}

/* ---- multipart ---- */

void s3_sum_multi_begin(struct s3_sum_multi *m, enum s3_sum_alg alg, enum s3_sum_type type)
{
    s3_sum_multi_done(m);
    *m = (struct s3_sum_multi){.alg = alg, .type = type, .md5 = digest_new(DIGEST_MD5)};
    if (alg && type == S3_SUM_COMPOSITE && !algs[alg].is_crc) {
        m->composite = digest_new(algs[alg].digest);
    }
    assert(type != S3_SUM_FULL_OBJECT || !alg || algs[alg].is_crc);
}

void s3_sum_multi_add(struct s3_sum_multi *m, const uint8_t md5[16], uint64_t size,
                      const struct s3_sum_value *sum)
{
    digest_add(m->md5, str_n((const char *)md5, MD5_SIZE));
    m->n_parts++;
    m->size += size;
    if (!m->alg || m->is_lost) {
        return;
    }
    if (!sum || sum->alg != m->alg) {
        m->is_lost = true;
        return;
    }
    struct str bytes = {(const char *)sum->v, s3_sum_size(m->alg)};
    if (m->composite) {
        digest_add(m->composite, bytes);
    } else if (m->type == S3_SUM_COMPOSITE) {
        m->crc = crc_add(algs[m->alg].crc, m->crc, bytes);
    } else {
        uint64_t crc = 0;
        for (size_t i = 0; i < bytes.n; i++) {
            crc = crc << 8 | sum->v[i];
        }
        m->crc = crc_combine(algs[m->alg].crc, m->crc, crc, size);
    }
}

void s3_sum_multi_end(struct s3_sum_multi *m, char ret_etag[S3_ETAG_SIZE],
                      struct s3_sum_value *ret_sum)
{
    uint8_t md5[MD5_SIZE];
    AUTO_BUF text;
    digest_end(m->md5, md5);
    digest_hex(md5, MD5_SIZE, ret_etag);
    buf_init(&text, 16);
    buf_fmt(&text, "-%u", m->n_parts);
    memcpy(ret_etag + 2 * MD5_SIZE, buf_cstr(&text), text.n + 1);
    *ret_sum = (struct s3_sum_value){.alg = S3_SUM_NONE};
    if (!m->alg || m->is_lost) {
        return;
    }
    ret_sum->alg = m->alg;
    if (m->composite) {
        digest_end(m->composite, ret_sum->v);
    } else {
        crc_bytes(algs[m->alg].crc, m->crc, ret_sum->v);
    }
}

void s3_sum_multi_done(struct s3_sum_multi *m)
{
    digest_free(m->md5);
    digest_free(m->composite);
    m->md5 = m->composite = NULL;
}
