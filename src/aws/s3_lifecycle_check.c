/* Is a lifecycle configuration valid? With the codes and texts of S3. */
#include "aws/s3_lifecycle.h"

#include "base/rand.h"
#include "base/time.h"
#include "codec/hex.h"
#include <errno.h>

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

static int malformed(struct err *err)
{
    return fail(err, -EINVAL, "MalformedXML",
                "The XML you provided was not well-formed or did not validate against our "
                "published schema");
}
static int argument(struct err *err, const char *msg)
{
    return fail(err, -EINVAL, "InvalidArgument", "%s", msg);
}
static int request(struct err *err, const char *msg)
{
    return fail(err, -EINVAL, "InvalidRequest", "%s", msg);
}

static bool is_days(struct opt_i64 v)
{
    return v.v > 0 && v.v <= INT32_MAX;
}

static int check_filter(const struct s3_life_filter *f, struct err *err)
{
    size_t n = (str_is_set(f->prefix) ? 1 : 0) + f->n_tags + (f->size_above.is_set ? 1 : 0) +
               (f->size_below.is_set ? 1 : 0);
    if (f->is_and ? n < 2 : n > 1) {
        return malformed(err);
    }
    if (f->prefix.n > S3_KEY_MAX) {
        return request(err, "The maximum size of a prefix is 1024.");
    }
    if ((f->size_above.is_set && f->size_above.v < 0) ||
        (f->size_below.is_set && f->size_below.v <= 0)) {
        return request(err, "'ObjectSizeGreaterThan' should be at least 0 and "
                            "'ObjectSizeLessThan' should be greater than 0");
    }
    if (f->size_above.is_set && f->size_below.is_set && f->size_above.v >= f->size_below.v) {
        return request(err, "'ObjectSizeLessThan' has to be a value greater than "
                            "'ObjectSizeGreaterThan'");
    }
    for (size_t i = 0; i < f->n_tags; i++) {
        for (size_t k = 0; k < i; k++) {
            if (str_eq(f->tags[i].key, f->tags[k].key)) {
                return request(err, "Duplicate Tag Keys are not allowed.");
            }
        }
    }
    return s3_tags_check(f->tags, f->n_tags, S3_TAGS_MAX, NULL, err);
}

static int check_expiration(const struct s3_life_rule *r, struct err *err)
{
    int n = (r->days.is_set ? 1 : 0) + (r->date.is_set ? 1 : 0) + (r->marker.is_set ? 1 : 0);
    if (n != 1) {
        return malformed(err);
    }
    if (r->days.is_set && !is_days(r->days)) {
        return argument(err, "'Days' for Expiration action must be a positive integer");
    }
    if (r->date.is_set && r->date.ns % DAY_NS != 0) {
        return argument(err, "'Date' must be at midnight GMT");
    }
    if (r->marker.is_set && r->has_filter && r->filter.n_tags > 0) {
        return request(err, "ExpiredObjectDeleteMarker cannot be specified with Tags.");
    }
    return 0;
}

static int check_noncurrent(const struct s3_life_rule *r, struct err *err)
{
    if (!r->noncurrent_days.is_set) {
        return malformed(err);
    }
    if (!is_days(r->noncurrent_days)) {
        return argument(err,
                        "'NoncurrentDays' for NoncurrentVersionExpiration action must be a "
                        "positive integer");
    }
    if (r->newer_versions.is_set &&
        (r->newer_versions.v <= 0 || r->newer_versions.v > S3_LIFE_NEWER_MAX)) {
        return argument(err, "'NewerNoncurrentVersions' for NoncurrentVersionExpiration action "
                             "must be an integer between 1 and 100");
    }
    return 0;
}

static int check_abort(const struct s3_life_rule *r, struct err *err)
{
    if (!r->abort_days.is_set) {
        return malformed(err);
    }
    if (!is_days(r->abort_days)) {
        return argument(err, "'DaysAfterInitiation' for AbortIncompleteMultipartUpload action "
                             "must be a positive integer");
    }
    if (r->has_filter && r->filter.n_tags > 0) {
        return request(err, "AbortIncompleteMultipartUpload cannot be specified with Tags.");
    }
    if (r->has_filter && (r->filter.size_above.is_set || r->filter.size_below.is_set)) {
        return request(err,
                       "AbortIncompleteMultipartUpload cannot be specified with Object Size.");
    }
    return 0;
}

static int check_rule(const struct s3_life_rule *r, struct err *err)
{
    if (!str_eqc(r->status, "Enabled") && !str_eqc(r->status, "Disabled")) {
        return malformed(err);
    }
    if (r->has_filter == str_is_set(r->prefix)) {
        return malformed(err); /* one of both */
    }
    if (r->prefix.n > S3_KEY_MAX) {
        return request(err, "The maximum size of a prefix is 1024.");
    }
    if (r->transition_date.is_set && r->transition_date.ns % DAY_NS != 0) {
        return argument(err, "'Date' must be at midnight GMT");
    }
    if (r->has_transition) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "Transitions are not implemented: there is one storage class.");
    }
    if (!r->has_expiration && !r->has_noncurrent && !r->has_abort) {
        return request(err, "At least one action needs to be specified in a rule.");
    }
    int rc = r->has_filter ? check_filter(&r->filter, err) : 0;
    rc = rc < 0 || !r->has_expiration ? rc : check_expiration(r, err);
    rc = rc < 0 || !r->has_noncurrent ? rc : check_noncurrent(r, err);
    return rc < 0 || !r->has_abort ? rc : check_abort(r, err);
}

static int check_id(struct arena *a, const struct s3_life *l, size_t idx, struct err *err)
{
    struct str *id = &l->rules[idx].id;
    if (id->n > S3_LIFE_ID_MAX) {
        return argument(err, "ID length should not exceed allowed limit of 255");
    }
    if (id->n == 0) {
        uint8_t bytes[24];
        char hex[2 * sizeof(bytes) + 1];
        rand_bytes(bytes, sizeof(bytes));
        hex_encode_to(bytes, sizeof(bytes), hex);
        *id = arena_str_dup(a, str_c(hex));
        return id->p ? 0 : fail(err, -ENOMEM, "InternalError", "the arena is full");
    }
    for (size_t i = 0; i < idx; i++) {
        if (str_eq(l->rules[i].id, *id)) {
            return argument(err,
                            "Rule ID must be unique. Found same ID for more than one rule");
        }
    }
    return 0;
}

int s3_life_check(struct arena *a, struct s3_life *l, struct err *err)
{
    if (l->n_rules == 0) {
        return malformed(err);
    }
    if (l->n_rules > S3_LIFE_RULES_MAX) {
        return request(err,
                       "The number of lifecycle rules must not exceed the allowed limit of "
                       "1000 rules");
    }
    for (size_t i = 0; i < l->n_rules; i++) {
        int rc = check_id(a, l, i, err);
        rc = rc < 0 ? rc : check_rule(&l->rules[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}
