#include "net/http_client.h"

#include "base/file.h"
#include "base/str.h"
#include "base/time.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define MAX_REDIRECTS 5L
#define STALL_BYTES   16L /* a second, on average: less is no progress */
#define CONNECT_MS    15000L

struct get {
    const struct http_get *o;
    CURL *curl;
    uint64_t n_done;
    int error; /* of our own, from inside a call-back */
    bool is_checked;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        abort();
    }
}

DEFINE_CLEANUP(CURL *, curl_easy_cleanup);

static long answer_status(CURL *curl)
{
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_data(char *p, size_t one, size_t n, void *ctx)
{
    struct get *g = ctx;
    if (!g->is_checked) { /* the body of an error is not the file */
        g->is_checked = true;
        if (answer_status(g->curl) != 200) {
            return 0;
        }
    }
    if (g->o->max_size && n > g->o->max_size - g->n_done) {
        g->error = -EFBIG;
        return 0;
    }
    if (g->o->buf) {
        buf_add(g->o->buf, str_n(p, n));
        g->error = buf_ok(g->o->buf) ? 0 : -EFBIG;
    } else {
        g->error = file_write_all(g->o->fd, p, n);
    }
    if (g->error) {
        return 0;
    }
    g->n_done += n;
    return n;
}

static int on_progress(void *ctx, curl_off_t total, curl_off_t done, curl_off_t up_total,
                       curl_off_t up)
{
    struct get *g = ctx;
    long status = answer_status(g->curl);
    if (status == 200 && g->o->max_size && total > 0 && (uint64_t)total > g->o->max_size) {
        g->error = -EFBIG;
        return 1;
    }
    if (g->o->on_progress &&
        !g->o->on_progress(g->o->ctx, g->n_done, total > 0 ? (uint64_t)total : 0)) {
        g->error = -ECANCELED;
        return 1;
    }
    return 0;
}

/* Without the query, which may carry a signature. */
static struct str shown(const char *url)
{
    return str_cut(str_c(url), '?');
}

static int bad_status(const struct http_get *o, long status, struct err *err)
{
    int code = status == 404 || status == 410   ? -ENOENT
               : status == 401 || status == 403 ? -EACCES
                                                : -EIO;
    return fail(err, code, "DownloadFailed", "%.*s: the server answered %ld",
                STR_ARG(shown(o->url)), status);
}

static int curl_code(CURLcode r)
{
    switch (r) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return -EINVAL;
    case CURLE_OPERATION_TIMEDOUT: return -ETIMEDOUT;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return -EHOSTUNREACH;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return -EKEYREJECTED;
    case CURLE_FILESIZE_EXCEEDED: return -EFBIG;
    case CURLE_OUT_OF_MEMORY: return -ENOMEM;
    default: return -EIO;
    }
}

static int judge(struct get *g, CURLcode r, const char *text, struct err *err)
{
    const struct http_get *o = g->o;
    struct str url = shown(o->url);
    long status = answer_status(g->curl);
    if (g->error == -EFBIG) {
        return fail(err, -EFBIG, "DownloadFailed", "%.*s: larger than allowed", STR_ARG(url));
    }
    if (g->error == -ECANCELED) {
        return fail(err, -ECANCELED, "DownloadFailed", "%.*s: stopped", STR_ARG(url));
    }
    if (g->error) {
        return fail(err, g->error, "DownloadFailed", "%.*s: writing: %s", STR_ARG(url),
                    strerror(-g->error));
    }
    if (status && status != 200 && (r == CURLE_OK || r == CURLE_WRITE_ERROR)) {
        return bad_status(o, status, err);
    }
    if (r != CURLE_OK) {
        return fail(err, curl_code(r), "DownloadFailed", "%.*s: %s", STR_ARG(url),
                    text[0] ? text : curl_easy_strerror(r));
    }
    return status == 200 ? 0 : bad_status(o, status, err);
}

static void set_options(struct get *g, const char *schemes, char *text)
{
    const struct http_get *o = g->o;
    CURL *c = g->curl;
    uint64_t stall_ns = o->stall_ns ? o->stall_ns : 30 * NS_PER_S;
    curl_easy_setopt(c, CURLOPT_URL, o->url);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, schemes);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "spinifex");
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)MAX(stall_ns / NS_PER_S, (uint64_t)1));
    if (o->timeout_ns) {
        curl_easy_setopt(c, CURLOPT_TIMEOUT_MS,
                         (long)MAX(o->timeout_ns / NS_PER_MS, (uint64_t)1));
    }
    if (o->ca_file) {
        curl_easy_setopt(c, CURLOPT_CAINFO, o->ca_file);
        curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
    }
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, g);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, g);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
}

int http_get(const struct http_get *get, struct http_got *ret, struct err *err)
{
    if (pthread_once(&curl_once, curl_init)) {
        abort();
    }
    struct str url = str_c(get->url);
    struct str authority = str_cut(
        str_skip(url, (size_t)MAX(str_find_str(url, STR("://")), (ptrdiff_t)0) + 3), '/');
    bool is_https = url.n > 8 && str_ieq(str_n(url.p, 8), STR("https://"));
    bool is_http = url.n > 7 && str_ieq(str_n(url.p, 7), STR("http://"));
    if ((!is_https && !is_http) || str_find(authority, '@', 0) >= 0) {
        return fail(err, -EINVAL, "DownloadFailed",
                    "the URL must begin with http:// or https:// and hold no password");
    }
    AUTO(curl_easy_cleanupp) CURL *curl = curl_easy_init();
    if (!curl) {
        return fail(err, -ENOMEM, "DownloadFailed", "out of memory");
    }
    char text[CURL_ERROR_SIZE] = "";
    struct get g = {.o = get, .curl = curl};
    set_options(&g, is_https ? "https" : "http,https", text);
    CURLcode done = curl_easy_perform(curl);
    int r = judge(&g, done, text, err);
    if (r == 0 && ret) {
        const char *type = NULL;
        curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
        *ret = (struct http_got){.size = g.n_done};
        snprintf(ret->content_type, sizeof(ret->content_type), "%s", type ? type : "");
    }
    return r;
}
