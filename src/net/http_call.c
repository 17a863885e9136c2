#include "net/http_call.h"

#include "base/time.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define STALL_S    60L
#define CONNECT_MS 15000L

struct http_caller {
    CURL *curl;
    char *ca_file;
};

struct run {
    const struct http_call *o;
    CURL *curl;
    struct http_called *ret;
    size_t n_error;
    bool is_cancelled;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        abort();
    }
}

int http_caller_new(const char *ca_file, struct http_caller **ret, struct err *err)
{
    if (pthread_once(&curl_once, curl_init)) {
        abort();
    }
    struct http_caller *c = calloc(1, sizeof(*c));
    CURL *curl = curl_easy_init();
    if (!c || !curl || (ca_file && !(c->ca_file = strdup(ca_file)))) {
        free(c);
        curl_easy_cleanup(curl);
        return fail(err, -ENOMEM, "CallFailed", "out of memory");
    }
    c->curl = curl;
    *ret = c;
    return 0;
}

void http_caller_free(struct http_caller *c)
{
    if (c) {
        curl_easy_cleanup(c->curl);
        free(c->ca_file);
        free(c);
    }
}

static size_t on_send(char *p, size_t one, size_t n, void *ctx)
{
    struct run *r = ctx;
    size_t got = r->o->on_send ? r->o->on_send(r->o->ctx, p, one * n) : 0;
    if (got == 0) {
        r->is_cancelled = true;
        return CURL_READFUNC_ABORT;
    }
    return got;
}

static size_t on_receive(char *p, size_t one, size_t n, void *ctx)
{
    struct run *r = ctx;
    long status = 0;
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) {
        r->is_cancelled = r->o->on_receive && !r->o->on_receive(r->o->ctx, str_n(p, n));
        return r->is_cancelled ? 0 : n;
    }
    size_t take = MIN(n, sizeof(r->ret->error) - 1 - r->n_error);
    memcpy(r->ret->error + r->n_error, p, take);
    r->n_error += take;
    r->ret->error[r->n_error] = 0;
    return n;
}

static struct curl_slist *list_headers(const struct http_call *o)
{
    struct curl_slist *l = curl_slist_append(NULL, "Expect:"); /* no pause before the body */
    for (size_t i = 0; i < o->n_headers; i++) {
        char line[2000];
        int n = snprintf(line, sizeof(line), "%.*s: %.*s", STR_ARG(o->headers[i].name),
                         STR_ARG(o->headers[i].value));
        if (n > 0 && (size_t)n < sizeof(line)) {
            l = curl_slist_append(l, line);
        }
    }
    return l;
}

static void set_options(struct run *r, const struct http_caller *c, struct curl_slist *headers,
                        char *text)
{
    const struct http_call *o = r->o;
    CURL *h = r->curl;
    curl_easy_reset(h); /* keeps the connection */
    curl_easy_setopt(h, CURLOPT_URL, o->url);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "spinifex");
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, STALL_S);
    curl_easy_setopt(h, CURLOPT_BUFFERSIZE, 262144L);
    curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    if (o->timeout_ns) {
        curl_easy_setopt(h, CURLOPT_TIMEOUT_MS,
                         (long)MAX(o->timeout_ns / NS_PER_MS, (uint64_t)1));
    }
    if (c->ca_file) {
        curl_easy_setopt(h, CURLOPT_CAINFO, c->ca_file);
        curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
    }
    if (o->body_size >= 0) {
        curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)o->body_size);
        curl_easy_setopt(h, CURLOPT_READFUNCTION, on_send);
        curl_easy_setopt(h, CURLOPT_READDATA, r);
    } else if (strcmp(o->method, "HEAD") == 0) {
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    }
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, o->method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_receive);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, r);
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
    default: return -EIO;
    }
}

int http_call(struct http_caller *c, const struct http_call *call, struct http_called *ret,
              struct err *err)
{
    char text[CURL_ERROR_SIZE] = "";
    *ret = (struct http_called){0};
    struct run r = {.o = call, .curl = c->curl, .ret = ret};
    struct curl_slist *headers = list_headers(call);
    set_options(&r, c, headers, text);
    CURLcode done = curl_easy_perform(c->curl);
    long status = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    ret->status = (int)status;
    if (r.is_cancelled) {
        return fail(err, -ECANCELED, "CallFailed", "stopped");
    }
    if (done == CURLE_OK && status) {
        return 0;
    }
    return fail(err, curl_code(done), "CallFailed", "%s %s: %s", call->method, call->url,
                text[0] ? text : curl_easy_strerror(done));
}
