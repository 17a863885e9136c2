#include "aws/s3_lifecycle.h"

#include "base/time.h"
#include "codec/uri.h"

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

/* The midnight (UTC) after 'days' from 'from_ns', as S3 rounds: something of the 15th at 10:30
 * that has three days goes at the beginning of the 19th. */
static uint64_t due(uint64_t from_ns, int64_t days)
{
    uint64_t d = (uint64_t)days;
    if (d > UINT64_MAX / DAY_NS - from_ns / DAY_NS - 2) {
        return UINT64_MAX; /* beyond what a clock says */
    }
    return (from_ns / DAY_NS + d + 1) * DAY_NS;
}

static bool is_on(const struct s3_life_rule *r)
{
    return str_eqc(r->status, "Enabled");
}

static bool has_prefix(const struct s3_life_rule *r, struct str key)
{
    struct str prefix = r->has_filter ? r->filter.prefix : r->prefix;
    return !str_is_set(prefix) || str_has_prefix(key, prefix);
}

static bool has_tag(const struct s3_life_object *o, const struct s3_tag *want)
{
    for (size_t i = 0; i < o->n_tags; i++) {
        if (str_eq(o->tags[i].key, want->key) && str_eq(o->tags[i].value, want->value)) {
            return true;
        }
    }
    return false;
}

static bool covers(const struct s3_life_rule *r, const struct s3_life_object *o)
{
    const struct s3_life_filter *f = &r->filter;
    if (!is_on(r) || !has_prefix(r, o->key)) {
        return false;
    }
    if (!r->has_filter) {
        return true;
    }
    for (size_t i = 0; i < f->n_tags; i++) {
        if (!has_tag(o, &f->tags[i])) {
            return false;
        }
    }
    return !(f->size_above.is_set && o->size <= (uint64_t)f->size_above.v) &&
           !(f->size_below.is_set && o->size >= (uint64_t)f->size_below.v);
}

/* When the rule's Expiration falls due for a current version; false: it says nothing. */
static bool expires(const struct s3_life_rule *r, const struct s3_life_object *o,
                    uint64_t *ret_ns)
{
    if (!r->has_expiration || (!r->days.is_set && !r->date.is_set)) {
        return false;
    }
    *ret_ns = r->days.is_set ? due(o->mtime_ns, r->days.v) : r->date.ns;
    return true;
}

static bool noncurrent_due(const struct s3_life_rule *r, const struct s3_life_object *o,
                           uint64_t now_ns)
{
    return r->has_noncurrent && r->noncurrent_days.is_set &&
           now_ns >= due(o->noncurrent_since_ns, r->noncurrent_days.v) &&
           (!r->newer_versions.is_set ||
            o->n_newer_noncurrent >= (uint64_t)r->newer_versions.v);
}

/* What one rule asks for. */
static enum s3_life_action ask(const struct s3_life_rule *r, const struct s3_life_object *o,
                               uint64_t now_ns)
{
    uint64_t when = 0;
    if (!covers(r, o)) {
        return S3_LIFE_KEEP;
    }
    if (!o->is_current) {
        return noncurrent_due(r, o, now_ns) ? S3_LIFE_DELETE_VERSION : S3_LIFE_KEEP;
    }
    bool is_due = expires(r, o, &when) && now_ns >= when;
    if (!o->is_marker) {
        return is_due ? S3_LIFE_EXPIRE : S3_LIFE_KEEP;
    }
    /* A marker with nothing behind it hides nothing: it goes when asked, or when it is as old as
     * an object would be. */
    bool wants_markers = r->has_expiration && r->marker.is_set && r->marker.v;
    return o->is_only_version && (wants_markers || is_due) ? S3_LIFE_DELETE_MARKER
                                                           : S3_LIFE_KEEP;
}

enum s3_life_action s3_life_object(const struct s3_life *l, const struct s3_life_object *o,
                                   uint64_t now_ns, const struct s3_life_rule **ret_rule)
{
    enum s3_life_action action = S3_LIFE_KEEP;
    size_t i = 0;
    while (i < l->n_rules && (action = ask(&l->rules[i], o, now_ns)) == S3_LIFE_KEEP) {
        i++;
    }
    if (ret_rule) {
        *ret_rule = action == S3_LIFE_KEEP ? NULL : &l->rules[i];
    }
    return action;
}

bool s3_life_when(const struct s3_life *l, const struct s3_life_object *o, uint64_t *ret_ns,
                  const struct s3_life_rule **ret_rule)
{
    bool is_found = false;
    for (size_t i = 0; i < l->n_rules && o->is_current && !o->is_marker; i++) {
        uint64_t when = 0;
        if (covers(&l->rules[i], o) && expires(&l->rules[i], o, &when) &&
            (!is_found || when < *ret_ns)) {
            *ret_ns = when;
            *ret_rule = &l->rules[i];
            is_found = true;
        }
    }
    return is_found;
}

bool s3_life_upload_when(const struct s3_life *l, struct str key, uint64_t begun_ns,
                         uint64_t *ret_ns, const struct s3_life_rule **ret_rule)
{
    bool is_found = false;
    for (size_t i = 0; i < l->n_rules; i++) {
        const struct s3_life_rule *r = &l->rules[i];
        if (!is_on(r) || !r->has_abort || !r->abort_days.is_set || !has_prefix(r, key)) {
            continue;
        }
        uint64_t when = due(begun_ns, r->abort_days.v);
        if (!is_found || when < *ret_ns) {
            *ret_ns = when;
            *ret_rule = r;
            is_found = true;
        }
    }
    return is_found;
}

bool s3_life_upload(const struct s3_life *l, struct str key, uint64_t begun_ns, uint64_t now_ns,
                    const struct s3_life_rule **ret_rule)
{
    uint64_t when = 0;
    const struct s3_life_rule *rule = NULL;
    bool is_due = s3_life_upload_when(l, key, begun_ns, &when, &rule) && now_ns >= when;
    if (ret_rule) {
        *ret_rule = is_due ? rule : NULL;
    }
    return is_due;
}

struct str s3_life_header(struct arena *a, const struct s3_life *l,
                          const struct s3_life_object *o)
{
    char date[TIME_ISO_SIZE];
    uint64_t when = 0;
    const struct s3_life_rule *r = NULL;
    AUTO_BUF id;
    buf_init(&id, 4 * S3_LIFE_ID_MAX);
    if (!s3_life_when(l, o, &when, &r) || when == UINT64_MAX) {
        return STR_NONE;
    }
    uri_encode(r->id, URI_PLAIN, &id);
    return arena_fmt(a, "expiry-date=\"%s\", rule-id=\"%.*s\"", time_http(when, date),
                     STR_ARG(buf_str(&id)));
}
