#include "predastore/lifecycle.h"

#include "predastore/conf.h"
#include "predastore/ops.h"
#include "predastore/rules.h"

#include <errno.h>

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

static int convert_filter(struct arena *a, const struct s3_lifecycle_rule_filter *in,
                          struct s3_life_filter *out, struct err *err)
{
    const struct s3_lifecycle_rule_and_operator *and = in->and;
    int n_single = str_is_set(in->prefix) + (in->tag != NULL) +
                   in->object_size_greater_than.is_set + in->object_size_less_than.is_set +
                   (and != NULL);
    if (n_single > 1) { /* two conditions want <And> */
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    *out = (struct s3_life_filter){.prefix = in->prefix,
                                   .size_above = in->object_size_greater_than,
                                   .size_below = in->object_size_less_than};
    if (in->tag) {
        struct s3_tag *t = arena_new_of(a, struct s3_tag);
        t->key = in->tag->key;
        t->value = in->tag->value;
        out->tags = t;
        out->n_tags = 1;
    }
    if (and) {
        struct s3_tag *t = arena_array(a, and->tags.n + 1, sizeof(*t));
        if (!t) {
            return fail(err, -ENOMEM, "MalformedXML", "%s", "");
        }
        for (size_t i = 0; i < and->tags.n; i++) {
            t[i].key = and->tags.v[i].key;
            t[i].value = and->tags.v[i].value;
        }
        *out = (struct s3_life_filter){.prefix = and->prefix,
                                       .tags = t,
                                       .n_tags = and->tags.n,
                                       .size_above = and->object_size_greater_than,
                                       .size_below = and->object_size_less_than,
                                       .is_and = true};
    }
    return 0;
}

static int convert_rule(struct arena *a, const struct s3_lifecycle_rule *in,
                        struct s3_life_rule *out, struct err *err)
{
    *out = (struct s3_life_rule){.id = in->id,
                                 .status = in->status,
                                 .prefix = in->prefix,
                                 .has_filter = in->filter != NULL,
                                 .has_expiration = in->expiration != NULL,
                                 .has_noncurrent = in->noncurrent_version_expiration != NULL,
                                 .has_abort = in->abort_incomplete_multipart_upload != NULL};
    out->has_transition = in->transitions.n > 0 || in->noncurrent_version_transitions.n > 0;
    for (size_t i = 0; i < in->transitions.n && out->transition_date.ns % DAY_NS == 0; i++) {
        out->transition_date = in->transitions.v[i].date;
    }
    if (in->expiration) {
        out->days = in->expiration->days;
        out->date = in->expiration->date;
        out->marker = in->expiration->expired_object_delete_marker;
    }
    if (in->noncurrent_version_expiration) {
        out->noncurrent_days = in->noncurrent_version_expiration->noncurrent_days;
        out->newer_versions = in->noncurrent_version_expiration->newer_noncurrent_versions;
    }
    if (in->abort_incomplete_multipart_upload) {
        out->abort_days = in->abort_incomplete_multipart_upload->days_after_initiation;
    }
    return in->filter ? convert_filter(a, in->filter, &out->filter, err) : 0;
}

int lifecycle_convert(struct arena *a, const struct s3_bucket_lifecycle_configuration *in,
                      struct s3_life *ret, struct err *err)
{
    struct s3_life_rule *v = arena_array(a, in->rules.n + 1, sizeof(*v));
    if (!v || in->rules.n > S3_LIFE_RULES_MAX) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    for (size_t i = 0; i < in->rules.n; i++) {
        int r = convert_rule(a, &in->rules.v[i], &v[i], err);
        if (r < 0) {
            return r;
        }
    }
    *ret = (struct s3_life){v, in->rules.n};
    return 0;
}

int lifecycle_rules(struct arena *a, const struct obucket *b, struct s3_life *ret,
                    struct err *err)
{
    struct s3_bucket_lifecycle_configuration conf = {0};
    if (!conf_is_set(b, &conf_lifecycle)) {
        return 0;
    }
    int r = conf_get(a, b, &conf_lifecycle, &conf, err);
    if (r == 0) {
        r = lifecycle_convert(a, &conf, ret, err);
    }
    return r < 0 ? r : 1;
}

void lifecycle_abort_date(const struct s3_call *c, uint64_t begun_ns, struct opt_time *ret_date,
                          struct str *ret_rule)
{
    const struct s3_life *l = NULL;
    const struct s3_life_rule *rule = NULL;
    uint64_t ns = 0;
    if (rules_life(c->s3->rules, c->bucket, c->arena, &l, NULL) == 1 &&
        s3_life_upload_when(l, c->t.key, begun_ns, &ns, &rule)) {
        *ret_date = some_time(ns);
        *ret_rule = rule->id;
    }
}

struct str s3_expiration(const struct s3_call *c, const struct oversion *v)
{
    const struct s3_life *l = NULL;
    struct arena *a = c->arena;
    const struct obucket *b = c->bucket;
    if (!b || v->rec.kind == OREC_MARKER || rules_life(c->s3->rules, b, a, &l, NULL) != 1) {
        return STR_NONE;
    }
    struct s3_tag *tags = arena_array(a, v->rec.tags.n + 1, sizeof(*tags));
    if (!tags) {
        return STR_NONE;
    }
    for (size_t i = 0; i < v->rec.tags.n; i++) {
        tags[i].key = v->rec.tags.v[i].name;
        tags[i].value = v->rec.tags.v[i].value;
    }
    const struct s3_life_object o = {.key = v->rec.key,
                                     .mtime_ns = v->rec.time_ns,
                                     .size = v->rec.size,
                                     .tags = tags,
                                     .n_tags = v->rec.tags.n,
                                     .is_current = true,
                                     .is_versioned = b->versioning != OSTORE_UNVERSIONED};
    return s3_life_header(a, l, &o);
}

/* ---- the operations ---- */

/* Transitions are the only rules with this; it is AWS's default. */
#define MINIMUM_SIZE STR("all_storage_classes_128K")

int op_put_bucket_lifecycle(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_put_bucket_lifecycle_configuration_request *in = input;
    struct s3_put_bucket_lifecycle_configuration_output *out = output;
    struct s3_life l;
    struct str minimum = in->transition_default_minimum_object_size;
    if (!in->lifecycle_configuration) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    if (str_is_set(minimum) && !str_eq(minimum, MINIMUM_SIZE)) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "A header you provided implies functionality that is not implemented");
    }
    int r = lifecycle_convert(c->arena, in->lifecycle_configuration, &l, err);
    if (r < 0 || (r = s3_life_check(c->arena, &l, err)) < 0) {
        return r;
    }
    for (size_t i = 0; i < l.n_rules; i++) { /* those that had no id got one */
        in->lifecycle_configuration->rules.v[i].id = l.rules[i].id;
    }
    out->transition_default_minimum_object_size = MINIMUM_SIZE;
    return conf_put(c, &conf_lifecycle, in->lifecycle_configuration, err);
}

int op_get_bucket_lifecycle(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct s3_get_bucket_lifecycle_configuration_output *out = output;
    struct s3_bucket_lifecycle_configuration conf = {0};
    if (!conf_is_set(c->bucket, &conf_lifecycle)) {
        return fail(err, -ENOENT, "NoSuchLifecycleConfiguration", "%s", "");
    }
    int r = conf_get(c->arena, c->bucket, &conf_lifecycle, &conf, err);
    out->rules = conf.rules;
    out->transition_default_minimum_object_size = MINIMUM_SIZE;
    return r;
}

int op_delete_bucket_lifecycle(struct s3_call *c, const void *input, void *output,
                               struct err *err)
{
    return conf_remove(c, &conf_lifecycle, err);
}
