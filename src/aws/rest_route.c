#include "aws/rest.h"

#include "codec/uri.h"
#include <errno.h>

static const struct aws_service *const s3 = &aws_service_s3;

enum { LEVEL_SERVICE, LEVEL_BUCKET, LEVEL_OBJECT };

static const char *const method_names[AWS_M_N] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

void rest_extra_add(struct s3_extra *x, const char *name, struct str value)
{
    for (size_t i = 0; i < x->n; i++) {
        if (strcmp(x->v[i].name, name) == 0) {
            return;
        }
    }
    s3_extra_add(x, name, value);
}

static int invalid_uri(const struct aws_http *rq, struct rest_target *t, struct err *err)
{
    rest_extra_add(&t->extra, "URI", str_n(rq->path.p, MIN(rq->path.n, (size_t)2048)));
    return fail(err, -EINVAL, "InvalidURI", "Couldn't parse the specified URI.");
}

static int no_memory(struct err *err)
{
    return fail(err, -ENOMEM, "MaxMessageLengthExceeded", "Your request was too large.");
}

/* ---- host ---- */

/* "Films.Example.COM.:8443" -> "films.example.com"; "[::1]:8443" -> "[::1]". */
static struct str plain_host(struct arena *a, struct str host)
{
    size_t n = host.n;
    if (n > 0 && host.p[0] == '[') {
        ptrdiff_t end = str_find(host, ']', 0);
        n = end < 0 ? n : (size_t)end + 1;
    } else {
        n = str_cut(host, ':').n;
    }
    if (n > 0 && host.p[n - 1] == '.') {
        n--;
    }
    char *p = arena_alloc(a, n + 1);
    for (size_t i = 0; p && i < n; i++) {
        char c = host.p[i];
        p[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    return p ? str_n(p, n) : STR_NONE;
}

/* The bucket that the host names, or STR_NONE (path style). The longest domain decides, so that
 * "s3.example.com" is no bucket "s3" of "example.com" when both are ours. */
static struct str host_bucket(const struct rest_opts *o, struct str host)
{
    struct str found = STR_NONE;
    size_t best = 0;
    for (size_t i = 0; i < o->n_domains; i++) {
        struct str d = o->domains[i];
        if (d.n < best || d.n == 0 || !str_has_suffix(host, d)) {
            continue;
        }
        if (host.n == d.n) {
            found = STR_NONE;
            best = d.n;
        } else if (host.n > d.n + 1 && host.p[host.n - d.n - 1] == '.') {
            found = str_n(host.p, host.n - d.n - 1);
            best = d.n;
        }
    }
    return found;
}

/* ---- path ---- */

/* Decoded when it has to be; else the bytes as they came. */
static int decode_part(struct arena *a, struct str raw, struct str *ret)
{
    int rc = 0;
    *ret = raw;
    if (str_find(raw, '%', 0) >= 0) {
        rc = uri_decode(a, raw, URI_PLAIN, ret);
    }
    if (rc == 0 && (str_utf8_len(*ret) == SIZE_MAX || str_find(*ret, '\0', 0) >= 0)) {
        rc = -EINVAL;
    }
    return rc;
}

static int invalid_bucket(struct rest_target *t, struct err *err)
{
    rest_extra_add(&t->extra, "BucketName", STR(""));
    return fail(err, -EINVAL, "InvalidBucketName", "The specified bucket is not valid.");
}

static bool is_printable(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7f) {
            return false;
        }
    }
    return true;
}

static int split_path(const struct rest_opts *o, const struct aws_http *rq, struct arena *a,
                      struct rest_target *t, struct err *err)
{
    struct str bucket = host_bucket(o, t->host), key = STR_NONE;
    if (rq->path.n == 0 || rq->path.p[0] != '/') {
        /* "*": the asterisk form of OPTIONS, which names nothing here. */
        return invalid_uri(rq, t, err);
    }
    struct str rest = str_skip(rq->path, 1);
    t->is_vhost = str_is_set(bucket);
    if (t->is_vhost) {
        if (!is_printable(bucket)) {
            return invalid_bucket(t, err);
        }
        t->bucket = bucket;
        key = rest;
    } else if (rest.n > 0) {
        bucket = str_cut(rest, '/');
        key = str_skip(rest, bucket.n + 1);
        int rc = decode_part(a, bucket, &t->bucket);
        if (rc < 0) {
            t->bucket = STR_NONE;
            return rc == -ENOMEM ? no_memory(err) : invalid_uri(rq, t, err);
        }
        if (bucket.n == 0) {
            return invalid_bucket(t, err);
        }
    }
    if (key.n == 0) {
        return 0;
    }
    int rc = decode_part(a, key, &t->key);
    if (rc < 0) {
        t->key = STR_NONE;
        return rc == -ENOMEM ? no_memory(err) : invalid_uri(rq, t, err);
    }
    if (t->key.n > REST_MAX_KEY) {
        rest_extra_add(&t->extra, "Size", arena_fmt(a, "%zu", t->key.n));
        rest_extra_add(&t->extra, "MaxSizeAllowed", STR("1024"));
        t->key = STR_NONE;
        return fail(err, -ENAMETOOLONG, "KeyTooLongError", "Your key is too long");
    }
    return 0;
}

/* ---- operation ---- */

static int find_method(struct str name)
{
    for (int i = 0; i < AWS_M_N; i++) {
        if (str_eqc(name, method_names[i])) {
            return i;
        }
    }
    return -1;
}

/* The first route whose sub-resource this is, at this level, or NULL. */
static const struct aws_route *find_sub(unsigned level, struct str name)
{
    for (uint16_t i = 0; i < s3->n_routes; i++) {
        const struct aws_route *r = &s3->routes[i];
        if (r->level == level && r->sub && (i == 0 || r[-1].sub != r->sub) &&
            str_eqc(name, aws_name(s3, r->sub))) {
            return r;
        }
    }
    return NULL;
}

static int conflict(struct arena *a, struct rest_target *t, const char *one, const char *two,
                    struct err *err)
{
    rest_extra_add(&t->extra, "ArgumentName", STR("ResourceType"));
    rest_extra_add(&t->extra, "ArgumentValue", str_c(one));
    return fail(err, -EINVAL, "InvalidArgument", "Conflicting query string parameters: %s, %s",
                one, two);
}

static int argument(struct rest_target *t, const char *name, struct str value, const char *why,
                    struct err *err)
{
    rest_extra_add(&t->extra, "ArgumentName", str_c(name));
    rest_extra_add(&t->extra, "ArgumentValue", str_is_set(value) ? value : STR(""));
    return fail(err, -EINVAL, "InvalidArgument", "%s", why);
}

/* What the query says: the sub-resource, and the AWS_NEED_... that it meets. */
static int read_query(struct arena *a, unsigned level, struct rest_target *t, unsigned *needs,
                      struct err *err)
{
    const char *elsewhere = NULL;
    for (size_t i = 0; i < t->query.n; i++) {
        const struct aws_param *p = &t->query.v[i];
        if (p->name.n > 6 && str_ieq(str_n(p->name.p, 6), STR("x-amz-"))) {
            continue; /* of a presigned URL, never a sub-resource */
        }
        const struct aws_route *r = find_sub(level, p->name);
        if (r) {
            const char *name = aws_name(s3, r->sub);
            if (t->sub[0] && strcmp(t->sub, name) != 0) {
                return conflict(a, t, t->sub, name, err);
            }
            if (r->value && !str_eqc(p->value, aws_name(s3, r->value))) {
                return argument(t, name, p->value, "Invalid List Type specified in Request",
                                err);
            }
            t->sub = name;
        } else if (str_eqc(p->name, "uploadId")) {
            *needs |= AWS_NEED_UPLOAD_ID;
        } else if (str_eqc(p->name, "partNumber")) {
            *needs |= AWS_NEED_PART;
        } else if (str_eqc(p->name, "id")) {
            *needs |= AWS_NEED_ID;
        } else {
            for (unsigned l = LEVEL_SERVICE; !elsewhere && l <= LEVEL_OBJECT; l++) {
                r = find_sub(l, p->name);
                elsewhere = r && !r->value ? aws_name(s3, r->sub) : NULL;
            }
        }
    }
    /* A key's ?versions and the like: never taken for the plain operation. */
    t->sub = t->sub[0] || !elsewhere ? t->sub : elsewhere;
    return 0;
}

static bool is_row(const struct aws_route *r, unsigned level, const char *sub)
{
    return r->level == level && strcmp(aws_name(s3, r->sub), sub) == 0;
}

static int not_allowed(struct arena *a, unsigned level, struct str method,
                       struct rest_target *t, struct err *err)
{
    static const char *const kinds[] = {"SERVICE", "BUCKET", "OBJECT"};
    bool has[AWS_M_N] = {0};
    AUTO_BUF allow;
    buf_init(&allow, 128);
    has[AWS_M_POST] = level == LEVEL_BUCKET && !t->sub[0]; /* forms */
    for (uint16_t i = 0; i < s3->n_routes; i++) {
        if (is_row(&s3->routes[i], level, t->sub)) {
            has[s3->routes[i].method] = true;
        }
    }
    for (int i = 0; i < AWS_M_N; i++) {
        if (has[i]) {
            buf_fmt(&allow, "%s%s", allow.n ? ", " : "", method_names[i]);
        }
    }
    t->allow = arena_str_dup(a, buf_str(&allow)).p; /* NULL when the arena is full */
    rest_extra_add(&t->extra, "Method", str_n(method.p, MIN(method.n, (size_t)64)));
    rest_extra_add(&t->extra, "ResourceType", t->sub[0] ? str_c(t->sub) : str_c(kinds[level]));
    return fail(err, -EPERM, "MethodNotAllowed",
                "The specified method is not allowed against this resource.");
}

/* The row that asks for most of what the request has; -1 when there is none. A configuration
 * whose id is missing is found when nothing else is: decoding says what is missing. */
static int best_route(unsigned level, int method, const char *sub, unsigned have)
{
    int best = -1, best_score = -1;
    for (uint16_t i = 0; i < s3->n_routes; i++) {
        const struct aws_route *r = &s3->routes[i];
        unsigned missing = r->needs & ~have;
        if (r->method != method || (missing & ~(unsigned)AWS_NEED_ID) ||
            !is_row(r, level, sub)) {
            continue;
        }
        int score = missing ? 0 : 1 + __builtin_popcount(r->needs);
        if (score > best_score) {
            best = r->op;
            best_score = score;
        }
    }
    return best;
}

static int check_part(struct rest_target *t, unsigned have, struct err *err)
{
    struct str id = aws_params_get(&t->query, "uploadId"),
               part = aws_params_get(&t->query, "partNumber");
    if ((have & AWS_NEED_PART) && !(have & AWS_NEED_UPLOAD_ID)) {
        return argument(t, "partNumber", part,
                        "This operation does not accept a partNumber without an uploadId", err);
    }
    if ((have & AWS_NEED_UPLOAD_ID) && !(have & AWS_NEED_PART)) {
        return argument(t, "uploadId", id,
                        "This operation does not accept an uploadId without a partNumber", err);
    }
    return 0;
}

/* SDKs write headers of presigned URLs into the query: no copy may become an empty upload. */
static bool has_source(const struct aws_http *rq, const struct rest_target *t)
{
    bool has = str_is_set(aws_http_header(rq, "x-amz-copy-source"));
    for (size_t i = 0; i < t->query.n && !has; i++) {
        has = str_ieqc(t->query.v[i].name, "x-amz-copy-source");
    }
    return has;
}

static int find_op(const struct aws_http *rq, struct arena *a, struct rest_target *t,
                   struct err *err)
{
    unsigned level = str_is_set(t->key)      ? LEVEL_OBJECT
                     : str_is_set(t->bucket) ? LEVEL_BUCKET
                                             : LEVEL_SERVICE;
    unsigned have = 0;
    int method = find_method(rq->method);
    if (str_eqc(rq->method, "OPTIONS")) {
        t->op = REST_OP_PREFLIGHT;
        return 0;
    }
    int rc = read_query(a, level, t, &have, err);
    if (rc < 0) {
        return rc;
    }
    bool is_plain_put = level == LEVEL_OBJECT && method == AWS_M_PUT && !t->sub[0];
    if (is_plain_put && has_source(rq, t)) {
        have |= AWS_NEED_SOURCE;
    }
    if (is_plain_put && (rc = check_part(t, have, err)) < 0) {
        return rc;
    }
    if (level == LEVEL_BUCKET && method == AWS_M_POST && !t->sub[0]) {
        struct str type = aws_http_header(rq, "Content-Type");
        if (!str_ieqc(str_trim(str_cut(type, ';')), "multipart/form-data")) {
            rest_extra_add(&t->extra, "Condition",
                           STR("Bucket POST must be of the enclosure-type "
                               "multipart/form-data"));
            return fail(err, -EINVAL, "PreconditionFailed",
                        "At least one of the pre-conditions you specified did not hold");
        }
        t->op = REST_OP_POST_FORM;
        return 0;
    }
    t->op = method < 0 ? -1 : best_route(level, method, t->sub, have);
    return t->op < 0 ? not_allowed(a, level, rq->method, t, err) : 0;
}

int rest_route(const struct rest_opts *o, const struct aws_http *rq, struct arena *a,
               struct rest_target *ret, struct err *err)
{
    *ret = (struct rest_target){.op = REST_OP_NONE,
                                .bucket = STR_NONE,
                                .key = STR_NONE,
                                .resource = rq->path,
                                .sub = "",
                                .is_head = str_eqc(rq->method, "HEAD")};
    ret->host = plain_host(a, aws_http_header(rq, "Host"));
    if (!str_is_set(ret->host)) {
        return no_memory(err);
    }
    int rc = split_path(o, rq, a, ret, err);
    if (rc < 0) {
        return rc;
    }
    if (str_is_set(rq->query)) {
        struct err said = ERR_INIT;
        rc = aws_params_parse(a, &ret->query, rq->query, &said);
        if (rc < 0) {
            ret->query.n = 0;
            return rc == -EINVAL ? invalid_uri(rq, ret, err) : no_memory(err);
        }
    }
    return find_op(rq, a, ret, err);
}

/* ---- facts of operations ---- */

static const struct aws_op *row_of(int op)
{
    return op >= 0 && op < (int)s3->n_ops ? &s3->ops[op] : NULL;
}

bool rest_is_there(int op)
{
    const struct aws_op *o = row_of(op);
    return o ? o->state != AWS_OP_NO : op == REST_OP_POST_FORM || op == REST_OP_PREFLIGHT;
}

const char *rest_op_name(int op)
{
    const struct aws_op *o = row_of(op);
    return o                         ? aws_name(s3, o->name)
           : op == REST_OP_POST_FORM ? "PostObject"
           : op == REST_OP_PREFLIGHT ? "Preflight"
                                     : "";
}

bool rest_op_streams(int op)
{
    const struct aws_op *o = row_of(op);
    return o ? (o->rest_flags & AWS_REST_STREAM_IN) != 0 : op == REST_OP_POST_FORM;
}

bool rest_op_wants_checksum(int op)
{
    const struct aws_op *o = row_of(op);
    return o && (o->rest_flags & AWS_REST_SUM_REQUIRED);
}
