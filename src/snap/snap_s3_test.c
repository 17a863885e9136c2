/* The client of the object store against answers that a script gives: what they mean, and what
 * happens when they are late, torn, early or nonsense. */
#include "base/test.h"

#include "base/num.h"
#include "base/time.h"
#include "snap/snap_s3.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* One connection after the other, one request after the other: reads a request (all of it,
 * unless it is_early), sends the next answer. */
struct answer {
    const char *text; /* "" closes at once; NULL ends the script */
    size_t n;         /* 0: strlen */
    bool is_early;    /* before the body of the request was read; closes then */
    bool is_closing;  /* closes after it */
    unsigned nap_ms;  /* before each byte */
};

static struct server {
    struct tmpdir dir;
    char path[PATH_MAX];
    int fd;
    pthread_t thread;
    const struct answer *script;
    _Atomic unsigned n_conns, n_requests;
    char head[4096]; /* of the last request */
    size_t n_body;
} sv;

static bool read_request(int fd, bool is_early)
{
    size_t n = 0;
    uint64_t want = 0;
    char *end = NULL;
    while (!end) {
        ssize_t got = recv(fd, sv.head + n, sizeof(sv.head) - 1 - n, 0);
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
        sv.head[n] = '\0';
        end = strstr(sv.head, "\r\n\r\n");
    }
    const char *len = strstr(sv.head, "Content-Length: ");
    if (len) {
        len += 16;
        (void)!num_u64(str_n(len, strcspn(len, "\r")), SIZE_MAX, &want);
    }
    sv.n_body = n - (size_t)(end + 4 - sv.head);
    while (!is_early && sv.n_body < want) {
        static char sink[65536];
        ssize_t got = recv(fd, sink, sizeof(sink), 0);
        if (got <= 0) {
            return false;
        }
        sv.n_body += (size_t)got;
    }
    sv.n_requests++;
    return true;
}

static void send_answer(int fd, const struct answer *a)
{
    size_t n = a->n ? a->n : strlen(a->text);
    for (size_t i = 0; a->nap_ms && i < n; i++) {
        usleep(a->nap_ms * 1000);
        if (send(fd, a->text + i, 1, MSG_NOSIGNAL) < 0) {
            return;
        }
    }
    for (size_t i = 0; !a->nap_ms && i < n;) {
        ssize_t k = send(fd, a->text + i, n - i, MSG_NOSIGNAL);
        if (k < 0) {
            return;
        }
        i += (size_t)k;
    }
}

static void *serve(void *ctx)
{
    (void)ctx;
    while (sv.script->text) {
        int fd = accept(sv.fd, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        sv.n_conns++;
        while (sv.script->text && read_request(fd, sv.script->is_early)) {
            const struct answer *a = sv.script++;
            send_answer(fd, a);
            if (!*a->text || a->is_closing || a->is_early) {
                break;
            }
        }
        close(fd);
    }
    return NULL;
}

static struct snap_s3 *begin(const struct answer *script)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    tmpdir_init(&sv.dir, "s3");
    tmpdir_path(&sv.dir, "s", sv.path);
    snprintf(a.sun_path, sizeof(a.sun_path), "%.100s", sv.path);
    sv.script = script;
    sv.n_conns = sv.n_requests = 0;
    sv.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sv.fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(sv.fd, 8), 0);
    assert_int_equal(pthread_create(&sv.thread, NULL, serve, NULL), 0);
    const struct snap_s3_opts o = {
        .socket = sv.path, .bucket = ".b", .n_conns = 2, .stall_ns = 300 * NS_PER_MS};
    return snap_s3_new(&o);
}

static void end(struct snap_s3 *c)
{
    snap_s3_free(c);
    shutdown(sv.fd, SHUT_RDWR);
    pthread_join(sv.thread, NULL);
    close(sv.fd);
    tmpdir_done(&sv.dir);
}

static int put(struct snap_s3 *c, size_t size, struct err *err)
{
    AUTO_FREE char *p = calloc(1, size + 1);
    const struct snap_s3_put rq = {.key = "b/1/x", .body = str_n(p, size), .crc = 0x01020304};
    return snap_s3_put(c, &rq, err);
}

static void test_what_answers_mean(void **ctx)
{
    static const struct {
        const char *answer;
        int want;
        const char *name;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, NULL},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, NULL},
        {"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", -ENOENT, "NoSuchKey"},
        {"HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n", -EEXIST, "KeyExists"},
        {"HTTP/1.1 409 No\r\nContent-Length: 0\r\n\r\n", -EEXIST, "KeyExists"},
        {"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", -EACCES, "StoreRefused"},
        {"HTTP/1.1 400 No\r\nContent-Length: 3\r\n\r\nBad", -EIO, "StoreFailed"},
        {"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", -EAGAIN, "StoreUnavailable"},
        {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", -EAGAIN, "StoreUnavailable"},
        {"HTTP/1.1 507 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", -EAGAIN,
         "StoreUnavailable"},
        {"HTTP/1.1 302 No\r\nContent-Length: 0\r\n\r\n", -EIO, "StoreFailed"},
        {"HTTP/1.1 200 OK\r\n\r\n", -EIO, "StoreFailed"}, /* how long? */
        {"SSH-2.0-OpenSSH\r\n\r\n", -EIO, "StoreFailed"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", -EFBIG, "ObjectTooLarge"},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct answer script[] = {{cases[i].answer, .is_closing = true}, {NULL}};
        struct snap_s3 *c = begin(script);
        struct err e = ERR_INIT;
        uint64_t before = snap_s3_trouble_ns(c);
        int r = put(c, 10, &e);
        assert_int_equal(r, cases[i].want);
        if (cases[i].name) {
            assert_string_equal(e.name, cases[i].name);
        }
        /* Only an outcome that is not known is trouble. */
        assert_int_equal(snap_s3_trouble_ns(c) > before, r == -EAGAIN || r == -EIO);
        assert_non_null(strstr(sv.head, "PUT /.b/b/1/x HTTP/1.1\r\n"));
        assert_non_null(strstr(sv.head, "x-amz-checksum-crc32c: AQIDBA==\r\n"));
        assert_int_equal(sv.n_body, 10);
        end(c);
    }
}

static void test_connections_are_kept(void **ctx)
{
#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    static const struct answer script[] = {
        {OK_ANSWER}, {OK_ANSWER}, {OK_ANSWER, .is_closing = true}, {OK_ANSWER}, {NULL}};
    struct snap_s3 *c = begin(script);
    (void)ctx;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(put(c, 5, NULL), 0);
    }
    assert_int_equal(sv.n_conns, 1);
    usleep(50000);
    assert_int_equal(put(c, 5, NULL), 0); /* it was closed meanwhile: once more, on a new one */
    assert_int_equal(sv.n_conns, 2);
    assert_int_equal(sv.n_requests, 4);
    end(c);
}

/* A fresh connection that breaks is not tried again: the request may have been done. */
static void test_broken_is_told(void **ctx)
{
    static const struct answer scripts[][2] = {
        {{"", 0}, {NULL}},
        {{"HTTP/1.1 200 OK\r\nContent-Le", .is_closing = true}, {NULL}},
        {{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", .is_closing = true}, {NULL}},
        {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", .is_closing = true},
         {NULL}},
    };
    (void)ctx;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct snap_s3 *c = begin(scripts[i]);
        struct err e = ERR_INIT;
        char buf[200];
        size_t n = 0;
        assert_int_equal(snap_s3_get(c, "k/1", buf, sizeof(buf), &n, &e), -EAGAIN);
        assert_string_equal(e.name, "StoreUnavailable");
        assert_int_equal(sv.n_requests, 1);
        end(c);
    }
}

/* The store says no from the head of a large body, and closes. */
static void test_early_refusal(void **ctx)
{
    static const struct answer script[] = {
        {"HTTP/1.1 507 Full\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull",
         .is_early = true},
        {OK_ANSWER},
        {NULL}};
    struct snap_s3 *c = begin(script);
    struct err e = ERR_INIT;
    (void)ctx;
    assert_int_equal(put(c, 4u << 20, &e), -EAGAIN);
    assert_non_null(strstr(e.msg, "full"));
    assert_int_equal(put(c, 4u << 20, NULL), 0); /* the next one has a connection of its own */
    end(c);
}

static void test_bodies(void **ctx)
{
    static char big[300000];
    char head[100], got[300001];
    size_t n = 0;
    AUTO_BUF b;
    (void)ctx;
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (char)('a' + i % 23);
    }
    int h = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                     sizeof(big));
    AUTO_FREE char *whole = malloc((size_t)h + sizeof(big));
    memcpy(whole, head, (size_t)h);
    memcpy(whole + h, big, sizeof(big));
    const struct answer script[] = {{whole, .n = (size_t)h + sizeof(big)},
                                    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                                     "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                                     .nap_ms = 1},
                                    {whole, .n = (size_t)h + sizeof(big), .is_closing = true},
                                    {whole, .n = (size_t)h + sizeof(big), .is_closing = true},
                                    {NULL}};
    struct snap_s3 *c = begin(script);
    assert_int_equal(snap_s3_get(c, "k/1", got, sizeof(got), &n, NULL), 0);
    assert_int_equal(n, sizeof(big));
    assert_memory_equal(got, big, sizeof(big));
    assert_int_equal(snap_s3_get(c, "k/1", got, sizeof(got), &n, NULL), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(got, "abcde", 5);
    assert_int_equal(snap_s3_get(c, "k/1", got, sizeof(big) - 1, &n, NULL), -EFBIG);
    buf_init(&b, 1000);
    assert_int_equal(snap_s3_get_buf(c, "k/1", &b, NULL), -EFBIG);
    end(c);
}

/* Silence, and a byte now and then: both have an end. */
static void test_slow(void **ctx)
{
    static const struct answer script[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", .nap_ms = 120, .is_closing = true},
        {NULL}};
    struct snap_s3 *c = begin(script);
    struct err e = ERR_INIT;
    uint64_t t = time_mono_ns();
    (void)ctx;
    assert_int_equal(put(c, 5, &e), -EAGAIN);
    assert_string_equal(e.name, "StoreUnavailable");
    assert_true(time_mono_ns() - t < 4 * NS_PER_S);
    end(c);
    static const struct answer silent[] = {{"x", .nap_ms = 1000, .is_closing = true}, {NULL}};
    c = begin(silent);
    t = time_mono_ns();
    assert_int_equal(put(c, 5, NULL), -EAGAIN);
    assert_true(time_mono_ns() - t < NS_PER_S);
    end(c);
    const struct snap_s3_opts o = {.socket = "/nonexistent/s", .bucket = ".b"};
    c = snap_s3_new(&o);
    assert_int_equal(put(c, 5, NULL), -EAGAIN);
    snap_s3_free(c);
}

static void test_lists(void **ctx)
{
#define LIST(text) \
    "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" text
    static const char one[] =
        "<ListBucketResult xmlns=\"x\"><Name>.b</Name><Prefix>b/</Prefix>"
        "<IsTruncated>true</IsTruncated><Contents><Key>b/2</Key><LastModified>"
        "2026-11-30T10:00:01.000Z</LastModified><Size>7</Size></Contents>"
        "<Contents><Key>b/1</Key><Size>0</Size></Contents></ListBucketResult>";
    char text[1000];
    static struct snap_s3_item items[SNAP_S3_LIST_MAX];
    size_t n = 0;
    bool is_more = false;
    (void)ctx;
    snprintf(text, sizeof(text), LIST("%zx\r\n%s\r\n0\r\n\r\n"), sizeof(one) - 1, one);
    const struct answer script[] = {
        {text, .is_closing = true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<a><b></a", .is_closing = true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 79\r\n\r\n<DeleteResult><Error><Key>b/1</Key>"
         "<Code>SlowDown</Code></Error></DeleteResult>",
         .is_closing = true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n<DeleteResult xmlns=\"x\"></Delete",
         .is_closing = true},
        {NULL}};
    struct snap_s3 *c = begin(script);
    assert_int_equal(snap_s3_list(c, "b/", "b/0", true, items, &n, &is_more, NULL), 0);
    assert_non_null(strstr(sv.head, "GET /.b?list-type=2&max-keys=1000&prefix=b/"
                                    "&delimiter=%2F&start-after=b/0 HTTP/1.1\r\n"));
    assert_int_equal(n, 2);
    assert_true(is_more);
    assert_string_equal(items[0].key, "b/1");
    assert_string_equal(items[1].key, "b/2");
    assert_int_equal(items[1].size, 7);
    assert_int_equal(items[1].mtime_ns / NS_PER_S, 1796032801);
    assert_int_equal(snap_s3_list(c, "b/", "", false, items, &n, &is_more, NULL), -EIO);
    assert_int_equal(snap_s3_delete_many(c, items, 1, NULL), -EAGAIN);
    assert_int_equal(snap_s3_delete_many(c, items, 1, NULL), -EIO);
    end(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_answers_mean),
        cmocka_unit_test(test_connections_are_kept),
        cmocka_unit_test(test_broken_is_told),
        cmocka_unit_test(test_early_refusal),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
