#include "predastore/s3.h"

#include "aws/s3_name.h"
#include "codec/base64.h"
#include "codec/hex.h"
#include "crypto/digest.h"

#include <errno.h>
#include <stdio.h>

void s3_change_init(const struct s3_call *c, struct ochange *ch, enum ochange_kind kind)
{
    *ch = (struct ochange){.kind = kind,
                           .bucket = c->bucket,
                           .cond = OCHANGE_IF_NONE,
                           .target_cond = OCHANGE_IF_NONE};
    ch->rec.key = c->t.key;
    ch->rec.account = c->who.account;
    ch->rec.principal = c->who.arn;
}

void s3_take_extra(struct s3_call *c, const struct s3_extra *x)
{
    for (size_t i = 0; i < x->n; i++) {
        rest_extra_add(&c->t.extra, x->v[i].name, x->v[i].value);
    }
}

int s3_version(struct s3_call *c, struct str text, uint8_t ret[16], bool *ret_is,
               struct err *err)
{
    *ret_is = str_is_set(text);
    if (!*ret_is) {
        return 0;
    }
    if (text.n == 0) {
        return fail(err, -EINVAL, "InvalidArgument", "Version id cannot be the empty string");
    }
    struct s3_extra x = {0};
    int r = s3_version_id_parse(text, ret, &x, err);
    s3_take_extra(c, &x);
    return r;
}

struct str s3_version_text(struct arena *a, const uint8_t version[16])
{
    char text[S3_VERSION_ID_SIZE];
    return arena_str_dup(a, str_c(s3_version_id_text(version, text)));
}

struct str s3_made_version(struct arena *a, const struct ochange *ch)
{
    static const uint8_t null_version[OREC_ID_SIZE];
    bool is_null = memcmp(ch->version, null_version, OREC_ID_SIZE) == 0;
    return ch->is_version_made && !is_null ? s3_version_text(a, ch->version) : STR_NONE;
}

int s3_upload_id(struct str text, uint8_t ret[16], struct err *err)
{
    if (text.n != 32 || hex_decode(text, ret, 16) < 0) {
        return fail(err, -ENOENT, "NoSuchUpload", "%s", "");
    }
    return 0;
}

struct str s3_upload_text(struct arena *a, const uint8_t upload[16])
{
    char text[33];
    hex_encode_to(upload, 16, text);
    return arena_str_dup(a, str_n(text, 32));
}

struct str s3_quoted(struct arena *a, struct str etag)
{
    char *p = arena_alloc(a, etag.n + 3);
    if (!p) {
        return STR_NONE;
    }
    p[0] = '"';
    memcpy(p + 1, etag.p, etag.n);
    p[etag.n + 1] = '"';
    return str_n(p, etag.n + 2);
}

struct str s3_owner_id(struct arena *a, struct str account)
{
    uint8_t hash[SHA256_SIZE];
    char text[2 * SHA256_SIZE + 1];
    sha256(account, hash);
    hex_encode_to(hash, sizeof(hash), text);
    return arena_str_dup(a, str_n(text, 2 * SHA256_SIZE));
}

struct s3_owner *s3_owner_of(struct arena *a, struct str account)
{
    struct s3_owner *o = arena_new_of(a, struct s3_owner);
    o->id = s3_owner_id(a, account);
    o->display_name = arena_str_dup(a, account);
    return o;
}

struct str s3_class(const struct orec *r)
{
    return r->storage_class.n ? r->storage_class : STR("STANDARD");
}

struct str s3_osum_text(struct arena *a, const struct orec_sum *sum, size_t n_parts)
{
    struct s3_sum_value v = {.alg = (enum s3_sum_alg)sum->alg};
    size_t n = s3_sum_size(v.alg);
    char text[S3_SUM_TEXT_SIZE];
    if (n == 0 || sum->value.n != n) {
        return STR_NONE;
    }
    memcpy(v.v, sum->value.p, n);
    return arena_str_dup(
        a, str_c(s3_sum_text(&v, sum->is_composite ? (unsigned)n_parts : 0, text)));
}

struct str s3_osum_type(const struct orec_sum *sum)
{
    if (sum->alg == OSUM_NONE) {
        return STR_NONE;
    }
    return sum->is_composite ? STR("COMPOSITE") : STR("FULL_OBJECT");
}

struct orec_sum s3_osum(struct arena *a, const struct s3_sum_value *v, bool is_composite)
{
    struct orec_sum sum = {.alg = (enum orec_sum_alg)v->alg, .is_composite = is_composite};
    sum.value = arena_str_dup(a, str_n((const char *)v->v, s3_sum_size(v->alg)));
    return sum;
}

struct str s3_pair(const struct orec_pairs *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (str_eqc(l->v[i].name, name)) {
            return l->v[i].value;
        }
    }
    return STR_NONE;
}
