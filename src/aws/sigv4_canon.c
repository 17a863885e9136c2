/* Canonical requests, strings to sign and signing keys: the parts that S3's streaming forms use
 * too. */
#include "aws/sigv4.h"

#include "codec/hex.h"
#include "codec/uri.h"
#include "crypto/digest.h"
#include "crypto/secret.h"
#include <errno.h>
#include <pthread.h>

enum { MAX_FIELDS = 4096, MAX_SEGMENTS = 4096 };

static int incomplete(struct err *err, const char *what)
{
    return fail(err, -EINVAL, "IncompleteSignature", "%s", what);
}

static int full(struct err *err)
{
    return fail(err, -ENOMEM, "RequestTooLarge",
                "The request is larger than this service accepts.");
}

/* The bytes that stay as they are. */
static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == '.' || c == '~';
}

/* ---- path ---- */

/* Removes "." and ".." and doubled slashes (RFC 3986 section 5.2.4); keeps a slash at the end.
 */
static int put_normal_path(struct arena *a, struct str path, struct buf *out)
{
    struct str rest = str_skip(path, path.n && path.p[0] == '/' ? 1 : 0), seg;
    size_t n = 0, cap = 1;
    bool is_dir = false;
    for (size_t i = 0; i < path.n; i++) {
        cap += path.p[i] == '/' ? 1 : 0;
    }
    struct str *keep = cap <= MAX_SEGMENTS ? arena_array(a, cap, sizeof(*keep)) : NULL;
    if (!keep) {
        return -ENOMEM;
    }
    while (str_is_set(rest) && str_next(&rest, '/', &seg)) {
        is_dir = seg.n == 0 || str_eqc(seg, ".") || str_eqc(seg, "..");
        if (str_eqc(seg, "..")) {
            n -= n > 0 ? 1 : 0;
        } else if (!is_dir) {
            keep[n++] = seg;
        }
    }
    for (size_t i = 0; i < n; i++) {
        buf_add_char(out, '/');
        uri_encode(keep[i], URI_PLAIN, out);
    }
    if (is_dir || n == 0) {
        buf_add_char(out, '/');
    }
    return 0;
}

/* Every spelling of a byte becomes the canonical one; nothing else changes. */
static int put_s3_path(struct str path, unsigned flags, struct buf *out)
{
    for (size_t i = 0; i < path.n; i++) {
        size_t from = i;
        while (i < path.n && (is_unreserved(path.p[i]) || path.p[i] == '/')) {
            i++;
        }
        buf_add(out, str_n(path.p + from, i - from));
        if (i == path.n) {
            break;
        }
        char c = path.p[i];
        if (c == '%') {
            int hi = path.n - i > 2 ? hex_digit(path.p[i + 1]) : -1;
            int lo = path.n - i > 2 ? hex_digit(path.p[i + 2]) : -1;
            if (hi < 0 || lo < 0) {
                return -EINVAL;
            }
            c = (char)(unsigned char)(hi << 4 | lo);
            i += 2;
        }
        uri_encode(str_n(&c, 1), flags & SIGV4_S3_SLASH ? URI_KEEP_SLASH : URI_PLAIN, out);
    }
    return 0;
}

static int put_path(struct arena *a, struct str path, unsigned flags, struct buf *out)
{
    if (!(flags & SIGV4_S3)) {
        return put_normal_path(a, path, out);
    }
    if (flags & SIGV4_RAW_PATH) {
        buf_add(out, path);
        return 0;
    }
    return put_s3_path(path, flags, out);
}

/* ---- query ---- */

struct field {
    struct str name, value; /* encoded in the canonical way */
};

static int field_cmp(const void *x, const void *y)
{
    const struct field *a = x, *b = y;
    int r = str_cmp(a->name, b->name);
    return r != 0 ? r : str_cmp(a->value, b->value);
}

static bool is_canonical(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is_unreserved(s.p[i])) {
            return false;
        }
    }
    return true;
}

/* Decodes and encodes again, so that every spelling of a byte is signed alike. */
static int recode(struct arena *a, struct str s, unsigned flags, struct str *ret)
{
    struct str plain;
    if (is_canonical(s)) {
        *ret = str_is_set(s) ? s : STR("");
        return 0;
    }
    AUTO_BUF out;
    buf_init(&out, s.n * 3 + 1);
    int rc = uri_decode(a, s, flags & SIGV4_S3 ? URI_PLUS_IS_SPACE : URI_PLAIN, &plain);
    if (rc < 0) {
        return rc;
    }
    uri_encode(plain, URI_PLAIN, &out);
    *ret = arena_str_dup(a, buf_str(&out));
    return ret->p ? 0 : -ENOMEM;
}

static int put_query(struct arena *a, struct str query, bool is_presigned, unsigned flags,
                     struct buf *out)
{
    struct str name, value, rest = query;
    size_t n = 0, cap = 1;
    for (size_t i = 0; i < query.n; i++) {
        cap += query.p[i] == '&' ? 1 : 0;
    }
    struct field *v = cap <= MAX_FIELDS ? arena_array(a, cap, sizeof(*v)) : NULL;
    if (!v) {
        return -ENOMEM;
    }
    while (str_is_set(rest) && uri_next_field(&rest, &name, &value)) {
        int rc = recode(a, name, flags, &v[n].name);
        rc = rc < 0 ? rc : recode(a, value, flags, &v[n].value);
        if (rc < 0) {
            return rc;
        }
        n += is_presigned && str_eqc(v[n].name, "X-Amz-Signature") ? 0 : 1;
    }
    qsort(v, n, sizeof(*v), field_cmp);
    for (size_t i = 0; i < n; i++) {
        buf_addc(out, i ? "&" : "");
        buf_add(out, v[i].name);
        buf_add_char(out, '=');
        buf_add(out, v[i].value);
    }
    return 0;
}

/* ---- headers ---- */

/* Runs of spaces become one. */
static void put_value(struct str v, struct buf *out)
{
    v = str_trim(v);
    while (v.n) {
        ptrdiff_t at = str_find_str(v, STR("  "));
        struct str run = at < 0 ? v : str_n(v.p, (size_t)at + 1); /* with one space */
        buf_add(out, run);
        v = str_skip(v, run.n);
        while (v.n && v.p[0] == ' ') {
            v = str_skip(v, 1);
        }
    }
}

static int put_headers(const struct aws_http *rq, struct str names, unsigned flags,
                       struct buf *out, struct err *err)
{
    struct str rest = names, name;
    bool has_host = false;
    while (str_is_set(rest) && str_next(&rest, ';', &name)) {
        size_t n = 0;
        has_host = has_host || str_eqc(name, "host");
        for (size_t i = 0; i < name.n; i++) {
            if (name.p[i] >= 'A' && name.p[i] <= 'Z') {
                return incomplete(err, "SignedHeaders must be in lower case");
            }
        }
        buf_add(out, name);
        buf_add_char(out, ':');
        for (size_t i = 0; i < rq->n_headers; i++) {
            if (str_ieq(rq->headers[i].name, name)) {
                buf_addc(out, n++ ? "," : "");
                put_value(rq->headers[i].value, out);
            }
        }
        if (n == 0 && !(flags & SIGV4_S3)) {
            return fail(err, -EINVAL, "SignatureDoesNotMatch",
                        "The signed header '%.*s' is not in the request", STR_ARG(name));
        }
        buf_add_char(out, '\n');
    }
    return has_host ? 0
                    : fail(err, -EINVAL, "SignatureDoesNotMatch",
                           "'Host' or ':authority' must be a 'SignedHeader' in the AWS "
                           "Authorization.");
}

int sigv4_canonical(struct arena *a, const struct aws_http *rq, const struct sigv4_auth *auth,
                    unsigned flags, struct str payload_hash, struct buf *out, struct err *err)
{
    buf_add(out, rq->method);
    buf_add_char(out, '\n');
    int rc = put_path(a, rq->path, flags, out);
    buf_add_char(out, '\n');
    rc = rc < 0 ? rc : put_query(a, rq->query, auth->is_presigned, flags, out);
    buf_add_char(out, '\n');
    if (rc < 0) {
        return rc == -ENOMEM ? full(err)
                             : fail(err, -EINVAL, "MalformedQueryString",
                                    "The query string contains a syntax error");
    }
    rc = put_headers(rq, auth->signed_headers, flags, out, err);
    if (rc < 0) {
        return rc;
    }
    buf_add_char(out, '\n');
    buf_add(out, auth->signed_headers);
    buf_add_char(out, '\n');
    buf_add(out, payload_hash);
    return buf_ok(out) ? 0 : full(err);
}

void sigv4_string_to_sign(const struct sigv4_auth *auth, struct str canonical, struct buf *out)
{
    uint8_t hash[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    sha256(canonical, hash);
    digest_hex(hash, sizeof(hash), hex);
    buf_addc(out, "AWS4-HMAC-SHA256\n");
    buf_add(out, auth->amz_date);
    buf_add_char(out, '\n');
    buf_add(out, auth->date);
    buf_add_char(out, '/');
    buf_add(out, auth->region);
    buf_add_char(out, '/');
    buf_add(out, auth->service);
    buf_addc(out, "/aws4_request\n");
    buf_add(out, str_n(hex, sizeof(hex) - 1));
}

void sigv4_signing_key(struct str secret, struct str date, struct str region,
                       struct str service, uint8_t out[SHA256_SIZE])
{
    char first[4 + 256];
    struct str step = {(const char *)out, SHA256_SIZE};
    size_t n = MIN(secret.n, sizeof(first) - 4); /* secrets have 40 characters */
    memcpy(first, "AWS4", 4);
    if (n) {
        memcpy(first + 4, secret.p, n);
    }
    hmac_sha256(str_n(first, n + 4), date, out);
    hmac_sha256(step, region, out);
    hmac_sha256(step, service, out);
    hmac_sha256(step, STR("aws4_request"), out);
    secret_wipe(first, sizeof(first));
}

/* ---- cache ---- */

struct slot {
    uint8_t id[SHA256_SIZE]; /* hash of the secret and the scope: a changed secret never finds
                                the old key */
    uint8_t key[SHA256_SIZE];
    bool is_used;
};

struct sigv4_cache {
    pthread_mutex_t lock; /* guards slots; a leaf: nothing else is locked under it */
    size_t n;
    struct slot slots[];
};

struct sigv4_cache *sigv4_cache_new(size_t n)
{
    struct sigv4_cache *c = calloc(1, sizeof(*c) + n * sizeof(c->slots[0]));
    if (!c || n == 0) {
        abort();
    }
    pthread_mutex_init(&c->lock, NULL);
    c->n = n;
    return c;
}

void sigv4_cache_free(struct sigv4_cache *c)
{
    if (c) {
        pthread_mutex_destroy(&c->lock);
        secret_wipe(c->slots, c->n * sizeof(c->slots[0]));
        free(c);
    }
}

void sigv4_cached_key(struct sigv4_cache *c, struct str secret, const struct sigv4_auth *auth,
                      uint8_t out[SHA256_SIZE])
{
    static const struct str domain = {"sigv4 cache", 12}; /* with its NUL */
    const struct str nul = {"\0", 1};
    const struct str parts[] = {domain, auth->date, nul, auth->region, nul, auth->service};
    uint8_t id[SHA256_SIZE];
    hmac_sha256_parts(secret, parts, ARRAY_LEN(parts), id);
    uint32_t at;
    memcpy(&at, id, sizeof(at));
    struct slot *s = &c->slots[at % c->n];
    pthread_mutex_lock(&c->lock);
    bool is_hit = s->is_used && str_eq_consttime(str_n((char *)s->id, sizeof(id)),
                                                 str_n((char *)id, sizeof(id)));
    if (is_hit) {
        memcpy(out, s->key, SHA256_SIZE);
    }
    pthread_mutex_unlock(&c->lock);
    if (is_hit) {
        return;
    }
    sigv4_signing_key(secret, auth->date, auth->region, auth->service, out);
    pthread_mutex_lock(&c->lock);
    memcpy(s->id, id, sizeof(id));
    memcpy(s->key, out, SHA256_SIZE);
    s->is_used = true;
    pthread_mutex_unlock(&c->lock);
}
