#include "awsgw/relay_route.h"

/* The part before the last of "AKIA.../20261130/eu-west-1/s3/aws4_request"; in a query the slash
 * may be %2F. STR_NONE when there are fewer than three parts. */
static struct str scope_service(struct str scope)
{
    struct str before = STR_NONE;
    size_t from = 0, n_parts = 0;
    for (size_t i = 0; i < scope.n; i++) {
        bool is_coded = i + 2 < scope.n && scope.p[i] == '%' && scope.p[i + 1] == '2' &&
                        (scope.p[i + 2] == 'F' || scope.p[i + 2] == 'f');
        if (is_coded || scope.p[i] == '/') {
            before = str_n(scope.p + from, i - from);
            from = i + (is_coded ? 3 : 1);
            n_parts++;
        }
    }
    return n_parts >= 2 ? before : STR_NONE;
}

/* The value of a parameter of the query, not decoded. */
static bool find_param(struct str query, const char *name, struct str *ret)
{
    struct str rest = query, item = STR_NONE;
    size_t n = strlen(name);
    while (rest.p && str_next(&rest, '&', &item)) {
        struct str key = str_cut(item, '=');
        if (str_eqc(key, name)) {
            *ret = key.n < item.n ? str_skip(item, n + 1) : STR("");
            return true;
        }
    }
    return false;
}

struct str relay_scope_service(const struct http_head *head)
{
    struct str auth = http_header_get(head, "Authorization"), scope = STR_NONE;
    if (str_has_prefixc(auth, "AWS4-")) {
        ptrdiff_t at = str_find_str(auth, STR("Credential="));
        if (at < 0) {
            return STR_NONE;
        }
        scope = str_skip(auth, (size_t)at + strlen("Credential="));
        return scope_service(str_cut(str_cut(scope, ','), ' '));
    }
    return find_param(head->query, "X-Amz-Credential", &scope) ? scope_service(scope)
                                                               : STR_NONE;
}

static bool is_bucket_host(struct str host, const char *const *domains, size_t n)
{
    struct str name = str_cut(host, ':');
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(domains[i]);
        bool is_whole = name.n == len && str_ieqc(name, domains[i]);
        bool is_below = name.n > len + 1 && name.p[name.n - len - 1] == '.' &&
                        str_ieqc(str_skip(name, name.n - len), domains[i]);
        if (is_whole || is_below) {
            return true;
        }
    }
    return false;
}

bool relay_wants(const struct http_head *head, const char *const *domains, size_t n_domains)
{
    if (str_eqc(head->method, "OPTIONS")) {
        return true; /* CORS: the query APIs have none */
    }
    struct str service = relay_scope_service(head), param = STR_NONE;
    if (str_is_set(service)) {
        return str_eqc(service, "s3");
    }
    /* Nobody has signed, or in a way of old: the form of the request says whose it is. */
    struct str auth = http_header_get(head, "Authorization");
    if (str_has_prefixc(auth, "AWS ") || is_bucket_host(head->host, domains, n_domains)) {
        return true;
    }
    bool is_root = str_eqc(head->path, "/") || str_eqc(head->path, "*");
    if (!is_root) {
        return true;
    }
    if (str_eqc(head->method, "POST")) { /* a form for a bucket, or a query API */
        return str_has_prefixc(http_header_get(head, "Content-Type"), "multipart/form-data");
    }
    if (find_param(head->query, "Action", &param)) {
        return false;
    }
    /* A list of buckets by a URL that was signed in the way of old. */
    return !str_eqc(head->method, "GET") || find_param(head->query, "AWSAccessKeyId", &param);
}
