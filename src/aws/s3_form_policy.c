/* The policy document of a browser's upload: which fields it allows. */
#include "aws/s3_form.h"

#include "aws/s3_sum.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include <errno.h>

enum { MAX_CONDITIONS = 256 };

static int invalid(struct err *err, const char *what)
{
    return fail(err, -EINVAL, "InvalidPolicyDocument", "Invalid Policy: %s", what);
}

struct check {
    const struct s3_form_policy_in *in;
    struct s3_form_upload *up;
    bool covered[S3_FORM_N_FIELDS_MAX];
    bool has_bucket;
    size_t n;
    struct err *err;
};

/* ---- text ---- */

/* AWS has escapes that JSON lacks: "\$" and "\v". */
static void plain_json(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\\' || i + 1 == s.n) {
            buf_add_char(out, s.p[i]);
            continue;
        }
        char c = s.p[++i];
        if (c == '$') {
            buf_add_char(out, c);
        } else if (c == 'v') {
            buf_addc(out, "\\u000b");
        } else {
            buf_add_char(out, '\\');
            buf_add_char(out, c);
        }
    }
}

/* The fields that need no condition: the file, the policy and its signature, and what the form
 * asks to ignore. */
static bool is_exempt(struct str name)
{
    static const char *const names[] = {"file", "policy", "x-amz-signature", "signature",
                                        "AWSAccessKeyId"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_ieqc(name, names[i])) {
            return true;
        }
    }
    /* A checksum allows nothing: it can only refuse the file. */
    return s3_sum_by_header(name) ||
           (name.n >= 9 && str_ieq(str_n(name.p, 9), STR("x-ignore-")));
}

/* The value that a condition is about; marks the field as covered. */
static struct str value_of(struct check *c, struct str name)
{
    if (str_ieqc(name, "bucket")) {
        c->has_bucket = true;
    }
    for (size_t i = 0; i < c->in->n_fields; i++) {
        if (str_ieq(c->in->fields[i].name, name)) {
            c->covered[i] = true;
            return str_ieqc(name, "bucket") ? c->in->bucket : c->in->fields[i].value;
        }
    }
    return str_ieqc(name, "bucket") ? c->in->bucket : STR("");
}

/* ---- conditions ---- */

/* As a list of three, however it was written. */
static int condition_failed(struct str op, const char *mark, struct str name, struct str want,
                            struct err *err)
{
    return fail(err, -EACCES, "AccessDenied",
                "Invalid according to Policy: Policy Condition failed: [\"%.*s\", \"%s%.*s\", "
                "\"%.*s\"]",
                STR_ARG(op), mark, STR_ARG(name), (int)MIN(want.n, (size_t)500),
                want.p ? want.p : "");
}

/* A list of types in Content-Type: each must begin so. */
static bool starts_with(struct str name, struct str value, struct str prefix)
{
    struct str rest = value, one;
    if (!str_ieqc(name, "content-type")) {
        return str_has_prefix(value, prefix);
    }
    while (str_is_set(rest) && str_next(&rest, ',', &one)) {
        if (!str_has_prefix(str_trim(one), prefix)) {
            return false;
        }
    }
    return true;
}

static bool size_of(const struct json *j, uint64_t *ret)
{
    if (json_type(j) == JSON_T_STR) {
        return num_u64(json_str(j), INT64_MAX, ret) == 0;
    }
    int64_t v = json_type(j) == JSON_T_INT ? json_i64(j, -1) : -1;
    *ret = (uint64_t)v;
    return v >= 0;
}

static int range(struct check *c, const struct json *cond)
{
    uint64_t min = 0, max = 0;
    if (json_len(cond) != 3 || !size_of(json_at(cond, 1), &min) ||
        !size_of(json_at(cond, 2), &max) || min > max) {
        return invalid(c->err, "Invalid content-length-range condition.");
    }
    /* All conditions hold: several ranges narrow each other. */
    c->up->min_size = MAX(c->up->min_size, min);
    c->up->max_size = MIN(c->up->max_size, max);
    c->up->has_range = true;
    return 0;
}

static int array_condition(struct check *c, const struct json *cond)
{
    struct str op = json_str(json_at(cond, 0)), name = json_str(json_at(cond, 1)),
               want = json_str(json_at(cond, 2));
    if (str_ieqc(op, "content-length-range")) {
        return range(c, cond);
    }
    bool is_eq = str_ieqc(op, "eq");
    if (json_len(cond) != 3 || !str_is_set(name) || !str_is_set(want) || name.n < 2 ||
        (!is_eq && !str_ieqc(op, "starts-with"))) {
        return invalid(c->err, "Invalid condition.");
    }
    if (name.p[0] != '$') { /* of no field */
        return condition_failed(op, "", name, want, c->err);
    }
    name = str_skip(name, 1);
    struct str have = value_of(c, name);
    bool is_good = is_eq ? str_eq(have, want) : starts_with(name, have, want);
    return is_good ? 0 : condition_failed(op, "$", name, want, c->err);
}

/* {"name": "value"}: as eq. */
static int object_condition(struct check *c, const struct json *cond)
{
    void *pos = NULL;
    struct str name;
    struct json *value = NULL;
    if (json_len(cond) != 1 || !json_next(cond, &pos, &name, &value)) {
        return invalid(c->err, "Invalid Simple-Condition: Simple-Conditions must have exactly "
                               "one property specified.");
    }
    if (json_type(value) != JSON_T_STR) {
        return invalid(c->err, "Invalid Simple-Condition: value must be a string.");
    }
    if (!str_eq(value_of(c, name), json_str(value))) {
        return condition_failed(STR("eq"), "$", name, json_str(value), c->err);
    }
    return 0;
}

static int conditions(struct check *c, const struct json *list)
{
    if (json_len(list) > MAX_CONDITIONS) {
        return invalid(c->err, "too many conditions.");
    }
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *cond = json_at(list, i);
        int rc = json_type(cond) == JSON_T_ARRAY    ? array_condition(c, cond)
                 : json_type(cond) == JSON_T_OBJECT ? object_condition(c, cond)
                                                    : invalid(c->err, "Invalid condition.");
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int uncovered(struct check *c)
{
    if (!c->has_bucket) {
        return fail(c->err, -EACCES, "AccessDenied",
                    "Invalid according to Policy: Extra input fields: bucket");
    }
    for (size_t i = 0; i < c->in->n_fields; i++) {
        if (!c->covered[i] && !is_exempt(c->in->fields[i].name)) {
            return fail(c->err, -EACCES, "AccessDenied",
                        "Invalid according to Policy: Extra input fields: %.*s",
                        STR_ARG(c->in->fields[i].name));
        }
    }
    return 0;
}

static int expiration(struct check *c, const struct json *doc)
{
    struct str text = json_get_str(doc, "expiration");
    uint64_t ns = 0;
    if (!json_get(doc, "expiration")) {
        return invalid(c->err, "Policy missing expiration.");
    }
    if (text.n < 20 || text.p[10] != 'T' || text.p[text.n - 1] != 'Z' ||
        time_parse_iso(text, &ns) < 0) {
        return fail(c->err, -EINVAL, "InvalidPolicyDocument",
                    "Invalid Policy: Invalid 'expiration' value: '%.*s'",
                    (int)MIN(text.n, (size_t)64), text.p ? text.p : "");
    }
    return ns < c->in->now_ns ? fail(c->err, -EACCES, "AccessDenied",
                                     "Invalid according to Policy: Policy expired.")
                              : 0;
}

int s3_form_policy(const struct s3_form_policy_in *in, struct s3_form_upload *ret,
                   struct err *err)
{
    AUTO(json_freep) struct json *doc = NULL;
    AUTO_BUF text;
    struct check c = {.in = in, .up = ret, .err = err};
    buf_init(&text, 6 * in->json.n + 1);
    ret->min_size = 0;
    ret->max_size = UINT64_MAX;
    ret->has_range = false;
    if (in->n_fields > S3_FORM_N_FIELDS_MAX) {
        return invalid(err, "too many fields.");
    }
    plain_json(in->json, &text);
    if (json_parse(buf_str(&text), &doc, NULL) < 0 || json_type(doc) != JSON_T_OBJECT) {
        return invalid(err, "Invalid JSON.");
    }
    const struct json *list = json_get(doc, "conditions");
    int rc = expiration(&c, doc);
    if (rc == 0 && json_type(list) != JSON_T_ARRAY) {
        rc = invalid(err, list ? "Invalid 'conditions' value." : "Policy missing conditions.");
    }
    rc = rc < 0 ? rc : conditions(&c, list);
    return rc < 0 ? rc : uncovered(&c);
}
