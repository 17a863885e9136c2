#include "aws/filter.h"

#include "base/time.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum kind { F_NAME, F_TAG, F_TAG_KEY, F_TAG_VALUE };

struct one {
    enum kind kind;
    size_t name_idx;
    struct str tag_key; /* F_TAG */
    const struct aws_str_list *values;
};

struct aws_filter {
    const struct aws_filter_spec *spec;
    struct one *v;
    size_t n;
};

struct aws_filter_probe {
    const struct one *one;
    bool is_hit;
};

/* '*' and '?' in the filter's value; a backslash quotes them. */
static bool value_matches(const struct one *o, struct str value)
{
    for (size_t i = 0; i < o->values->n; i++) {
        if (str_glob(o->values->v[i], value, STR_GLOB_QUOTES)) {
            return true;
        }
    }
    return false;
}

void aws_filter_add(struct aws_filter_probe *p, struct str value)
{
    p->is_hit = p->is_hit || (value.p && value_matches(p->one, value));
}

void aws_filter_addc(struct aws_filter_probe *p, const char *value)
{
    aws_filter_add(p, str_c(value));
}

void aws_filter_add_bool(struct aws_filter_probe *p, bool value)
{
    aws_filter_add(p, value ? STR("true") : STR("false"));
}

void aws_filter_add_i64(struct aws_filter_probe *p, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    aws_filter_addc(p, text);
}

void aws_filter_add_time(struct aws_filter_probe *p, uint64_t wall_ns)
{
    char text[TIME_ISO_SIZE];
    aws_filter_addc(p, time_iso_ms(wall_ns, text));
}

void aws_filter_tag(struct aws_filter_probe *p, struct str key, struct str value)
{
    switch (p->one->kind) {
    case F_TAG:
        if (str_eq(key, p->one->tag_key)) {
            aws_filter_add(p, value);
        }
        break;
    case F_TAG_KEY: aws_filter_add(p, key); break;
    case F_TAG_VALUE: aws_filter_add(p, value); break;
    case F_NAME: break;
    }
}

static int bad_name(struct str name, struct err *err)
{
    return fail(err, -EINVAL, "InvalidParameterValue", "The filter '%.*s' is invalid",
                STR_ARG(name));
}

static int open_one(const struct aws_filter_spec *spec, struct str name, struct one *o,
                    struct err *err)
{
    for (size_t i = 0; i < spec->n_names; i++) {
        if (str_eqc(name, spec->names[i])) {
            o->kind = F_NAME;
            o->name_idx = i;
            return 0;
        }
    }
    if (!spec->has_tags) {
        return bad_name(name, err);
    }
    if (str_has_prefixc(name, "tag:") && name.n > 4) {
        o->kind = F_TAG;
        o->tag_key = str_skip(name, 4);
        return 0;
    }
    if (str_eqc(name, "tag-key") || str_eqc(name, "tag-value")) {
        o->kind = name.n == 7 ? F_TAG_KEY : F_TAG_VALUE;
        return 0;
    }
    return bad_name(name, err);
}

int aws_filter_open(struct arena *a, const struct aws_filter_spec *spec,
                    const struct ec2_filter_list *filters, struct aws_filter **ret,
                    struct err *err)
{
    struct aws_filter *f = arena_alloc(a, sizeof(*f));
    struct one *v = f ? arena_array(a, filters->n ? filters->n : 1, sizeof(*v)) : NULL;
    if (!v) {
        return fail(err, -ENOMEM, "RequestTooLarge",
                    "The request is larger than this service accepts.");
    }
    *f = (struct aws_filter){.spec = spec, .v = v};
    size_t n_values = 0;
    for (size_t i = 0; i < filters->n; i++) {
        const struct ec2_filter *in = &filters->v[i];
        if (!in->name.p) {
            return fail(err, -EINVAL, "MissingParameter",
                        "The request must contain the parameter Filter.%zu.Name", i + 1);
        }
        int rc = open_one(spec, in->name, &v[i], err);
        if (rc < 0) {
            return rc;
        }
        if (in->values.n == 0) {
            return fail(err, -EINVAL, "MissingParameter",
                        "The request must contain the parameter Filter.%zu.Value", i + 1);
        }
        n_values += in->values.n;
        v[i].values = &in->values;
        f->n++;
    }
    if (n_values > AWS_FILTER_MAX_VALUES) {
        return fail(err, -EINVAL, "FilterLimitExceeded",
                    "The maximum number of filter values specified on a single call is %u",
                    AWS_FILTER_MAX_VALUES);
    }
    *ret = f;
    return 0;
}

bool aws_filter_match(const struct aws_filter *f, void *ctx, const void *obj)
{
    for (size_t i = 0; i < f->n; i++) {
        struct aws_filter_probe p = {.one = &f->v[i]};
        if (f->v[i].kind == F_NAME) {
            f->spec->values(ctx, obj, f->v[i].name_idx, &p);
        } else {
            f->spec->tags(ctx, obj, &p);
        }
        if (!p.is_hit) {
            return false;
        }
    }
    return true;
}

bool aws_filter_is_empty(const struct aws_filter *f)
{
    return f->n == 0;
}

const struct aws_str_list *aws_filter_values(const struct aws_filter *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->v[i].kind == F_NAME && strcmp(f->spec->names[f->v[i].name_idx], name) == 0) {
            return f->v[i].values;
        }
    }
    return NULL;
}
