#include "aws/s3_cond.h"

#include "base/num.h"
#include "base/time.h"
#include <errno.h>
#include <time.h>

static struct str header(const struct http_header *h, size_t n, const char *prefix,
                         const char *name)
{
    size_t n_prefix = strlen(prefix);
    for (size_t i = 0; i < n; i++) {
        if (h[i].name.n >= n_prefix && str_ieq(str_n(h[i].name.p, n_prefix), str_c(prefix)) &&
            str_ieqc(str_skip(h[i].name, n_prefix), name)) {
            return h[i].value;
        }
    }
    return STR_NONE;
}

/* The two old forms that a recipient must still read (RFC 9110 section 5.6.7). */
static bool old_date(struct str text, uint64_t *ret_ns)
{
    static const char *const forms[] = {"%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"};
    char copy[64];
    if (text.n == 0 || text.n >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct tm tm = {0};
        const char *end = strptime(copy, forms[i], &tm);
        time_t t = end && *end == '\0' ? timegm(&tm) : -1;
        if (t >= 0) {
            *ret_ns = (uint64_t)t * NS_PER_S;
            return true;
        }
    }
    return false;
}

/* A date that cannot be read is no condition (RFC 9110 section 13.1.3). */
static struct opt_time date(struct str text)
{
    uint64_t ns = 0;
    struct opt_time t = {.is_set = false};
    if (str_is_set(text) && (time_parse_http(text, &ns) == 0 ||
                             time_parse_iso(text, &ns) == 0 || old_date(text, &ns))) {
        t = (struct opt_time){.ns = ns, .is_set = true};
    }
    return t;
}

static void parse(const struct http_header *h, size_t n, const char *prefix,
                  struct s3_cond *ret)
{
    ret->if_match = header(h, n, prefix, "if-match");
    ret->if_none_match = header(h, n, prefix, "if-none-match");
    ret->modified_since = date(header(h, n, prefix, "if-modified-since"));
    ret->unmodified_since = date(header(h, n, prefix, "if-unmodified-since"));
}

void s3_cond_parse(const struct http_header *headers, size_t n_headers, struct s3_cond *ret)
{
    parse(headers, n_headers, "", ret);
}
void s3_cond_parse_copy(const struct http_header *headers, size_t n_headers,
                        struct s3_cond *ret)
{
    parse(headers, n_headers, "x-amz-copy-source-", ret);
}

/* ---- entity tags ---- */

struct str s3_etag_bare(struct str etag)
{
    etag = str_trim(etag);
    if (etag.n >= 2 && (etag.p[0] == 'W' || etag.p[0] == 'w') && etag.p[1] == '/') {
        etag = str_skip(etag, 2);
    }
    if (etag.n && etag.p[0] == '"') {
        etag = str_skip(etag, 1);
    }
    if (etag.n && etag.p[etag.n - 1] == '"') {
        etag.n--; /* one quote alone is as good: AWS takes such, too */
    }
    return etag;
}

bool s3_etag_in(struct str list, struct str etag)
{
    struct str rest = list, one;
    while (str_is_set(rest) && str_next(&rest, ',', &one)) {
        one = str_trim(one);
        if (str_eqc(one, "*") || (one.n && str_eq(s3_etag_bare(one), etag))) {
            return true;
        }
    }
    return false;
}

/* ---- reads ---- */

static int failed(struct s3_extra *extra, const char *condition, struct err *err)
{
    s3_extra_add(extra, "Condition", str_c(condition));
    return fail(err, -ECANCELED, "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold");
}

struct names {
    const char *match, *none_match, *modified, *unmodified;
};
static const struct names read_names = {"If-Match", "If-None-Match", "If-Modified-Since",
                                        "If-Unmodified-Since"};
static const struct names copy_names = {
    "x-amz-copy-source-If-Match", "x-amz-copy-source-If-None-Match",
    "x-amz-copy-source-If-Modified-Since", "x-amz-copy-source-If-Unmodified-Since"};

/* 0: go on; 1: not modified, 'which' says by what; negative: failed. */
static int evaluate(const struct s3_cond *c, const struct names *names, struct str etag,
                    uint64_t mtime_ns, uint64_t now_ns, const char **which,
                    struct s3_extra *extra, struct err *err)
{
    uint64_t mtime_s = mtime_ns / NS_PER_S; /* as Last-Modified shows it */
    if (str_is_set(c->if_match)) {
        if (!s3_etag_in(c->if_match, etag)) {
            return failed(extra, names->match, err);
        }
    } else if (c->unmodified_since.is_set && mtime_s > c->unmodified_since.ns / NS_PER_S) {
        return failed(extra, names->unmodified, err);
    }
    if (str_is_set(c->if_none_match)) {
        *which = names->none_match;
        return s3_etag_in(c->if_none_match, etag) ? 1 : 0;
    }
    /* A date that is still to come says nothing (RFC 7232 section 3.3), as AWS has it. */
    *which = names->modified;
    return c->modified_since.is_set && c->modified_since.ns <= now_ns &&
                   mtime_s <= c->modified_since.ns / NS_PER_S
               ? 1
               : 0;
}

int s3_cond_read(const struct s3_cond *c, struct str etag, uint64_t mtime_ns, uint64_t now_ns,
                 struct s3_extra *extra, struct err *err)
{
    const char *which = NULL;
    return evaluate(c, &read_names, etag, mtime_ns, now_ns, &which, extra, err);
}

int s3_cond_copy(const struct s3_cond *c, struct str etag, uint64_t mtime_ns, uint64_t now_ns,
                 struct s3_extra *extra, struct err *err)
{
    const char *which = NULL;
    int rc = evaluate(c, &copy_names, etag, mtime_ns, now_ns, &which, extra, err);
    return rc == 1 ? failed(extra, which, err) : rc;
}

/* ---- writes ---- */

static int not_implemented(struct err *err)
{
    return fail(err, -ENOSYS, "NotImplemented",
                "A header you provided implies functionality that is not implemented");
}

static int write_kind(struct str match, struct str none, struct s3_cond_write *w,
                      struct err *err)
{
    if (str_is_set(match) && str_is_set(none)) {
        return not_implemented(err);
    }
    if (str_is_set(match)) {
        w->kind = str_eqc(str_trim(match), "*") ? S3_COND_EXISTS : S3_COND_ETAG;
        w->etag = match;
    } else if (str_is_set(none)) {
        w->kind = str_eqc(str_trim(none), "*") ? S3_COND_ABSENT : S3_COND_OTHER;
        w->etag = none;
    }
    return 0;
}

int s3_cond_write_parse(const struct http_header *headers, size_t n_headers,
                        struct s3_cond_write *ret, struct err *err)
{
    struct s3_cond_write w = {.kind = S3_COND_NONE};
    if (str_is_set(header(headers, n_headers, "", "if-modified-since")) ||
        str_is_set(header(headers, n_headers, "", "if-unmodified-since"))) {
        return not_implemented(err);
    }
    int rc = write_kind(header(headers, n_headers, "", "if-match"),
                        header(headers, n_headers, "", "if-none-match"), &w, err);
    if (rc == 0) {
        *ret = w;
    }
    return rc;
}

int s3_cond_delete_make(struct str etag, struct opt_time mtime, struct opt_i64 size,
                        struct s3_cond_write *ret, struct err *err)
{
    struct s3_cond_write w = {.kind = S3_COND_NONE, .match_mtime = mtime, .match_size = size};
    if (size.is_set && size.v < 0) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Value for x-amz-if-match-size header is invalid");
    }
    int rc = write_kind(etag, STR_NONE, &w, err);
    if (rc == 0) {
        *ret = w;
    }
    return rc;
}

int s3_cond_delete_parse(const struct http_header *headers, size_t n_headers,
                         struct s3_cond_write *ret, struct err *err)
{
    struct str size_text = header(headers, n_headers, "", "x-amz-if-match-size");
    struct str mtime_text = header(headers, n_headers, "", "x-amz-if-match-last-modified-time");
    struct opt_i64 size = {.is_set = str_is_set(size_text)};
    struct opt_time mtime = date(mtime_text);
    if (str_is_set(header(headers, n_headers, "", "if-none-match")) ||
        str_is_set(header(headers, n_headers, "", "if-modified-since")) ||
        str_is_set(header(headers, n_headers, "", "if-unmodified-since"))) {
        return not_implemented(err);
    }
    if (size.is_set && num_i64(size_text, 0, INT64_MAX, &size.v) < 0) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Value for x-amz-if-match-size header is invalid");
    }
    if (str_is_set(mtime_text) && !mtime.is_set) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Value for x-amz-if-match-last-modified-time header is invalid");
    }
    return s3_cond_delete_make(header(headers, n_headers, "", "if-match"), mtime, size, ret,
                               err);
}

int s3_cond_write_check(const struct s3_cond_write *w, const struct s3_cond_now *now,
                        struct s3_extra *extra, struct err *err)
{
    switch (w->kind) {
    case S3_COND_NONE: return 0;
    case S3_COND_ABSENT: return now->exists ? failed(extra, "If-None-Match", err) : 0;
    case S3_COND_EXISTS: return now->exists ? 0 : failed(extra, "If-Match", err);
    case S3_COND_OTHER:
        return now->exists && s3_etag_in(w->etag, now->etag)
                   ? failed(extra, "If-None-Match", err)
                   : 0;
    case S3_COND_ETAG: break;
    }
    if (!now->exists) {
        return fail(err, -ENOENT, "NoSuchKey", "The specified key does not exist.");
    }
    return s3_etag_in(w->etag, now->etag) ? 0 : failed(extra, "If-Match", err);
}

int s3_cond_delete_check(const struct s3_cond_write *w, const struct s3_cond_now *now,
                         struct s3_extra *extra, struct err *err)
{
    if (!now->exists) {
        return 0;
    }
    if (w->kind == S3_COND_ETAG && !s3_etag_in(w->etag, now->etag)) {
        return failed(extra, "If-Match", err);
    }
    if (w->match_size.is_set && (uint64_t)w->match_size.v != now->size) {
        return failed(extra, "x-amz-if-match-size", err);
    }
    if (w->match_mtime.is_set && w->match_mtime.ns / NS_PER_S != now->mtime_ns / NS_PER_S) {
        return failed(extra, "x-amz-if-match-last-modified-time", err);
    }
    return 0;
}
