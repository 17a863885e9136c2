#include "net/http_client.h"

#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "crypto/x509.h"
#include "net/http_server.h"
#include "net/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

static void go_to(struct http_req *req, struct str where)
{
    struct http_header h = {STR("Location"), where};
    http_respond(req, &(struct http_answer){.status = 302, .headers = &h, .n_headers = 1});
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    const struct http_head *h = http_req_head(req);
    struct http_header type = {STR("Content-Type"), STR("text/x-test")};
    uint64_t n = 0;
    if (str_eqc(h->path, "/ok")) {
        http_respond(
            req, &(struct http_answer){
                     .status = 200, .headers = &type, .n_headers = 1, .body = STR("content")});
    } else if (str_eqc(h->path, "/chunked")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = -1});
        for (int i = 0; i < 100; i++) {
            http_body_more(req, STR("0123456789"), i == 99);
        }
    } else if (str_eqc(h->path, "/hop")) {
        go_to(req, STR("/ok"));
    } else if (str_eqc(h->path, "/loop")) {
        go_to(req, STR("/loop"));
    } else if (str_eqc(h->path, "/file")) {
        go_to(req, STR("file:///etc/passwd"));
    } else if (str_eqc(h->path, "/down")) {
        go_to(req, h->query);
    } else if (str_eqc(h->path, "/broken")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 100});
        http_body_more(req, STR("short"), true);
    } else if (str_eqc(h->path, "/stall")) {
        http_respond(
            req, &(struct http_answer){.status = 200, .is_stream = true, .stream_size = 100});
        http_body_more(req, STR("begun"), false); /* and never more: on_abort() ends it */
    } else if (num_u64(str_skip(h->path, 1), 999, &n) == 0) {
        http_respond(req,
                     &(struct http_answer){.status = (int)n, .body = STR("an error page")});
    } else {
        http_respond(req, &(struct http_answer){.status = 404});
    }
}

static void on_abort(struct http_req *req, void *user)
{
    http_abort(req);
}

struct fixture {
    struct http_server *plain, *secure;
    struct tls_server *tls;
    char dir[64], ca[96], other_ca[96], cert[96], key[96];
    char plain_base[64], secure_base[64];
};

static void write_ca(const char *path, struct x509_pair *ca)
{
    assert_int_equal(x509_make_ca(STR("test"), 30, ca, NULL), 0);
    assert_int_equal(file_write_atomic(path, str_c(ca->cert_pem), 0644, NULL), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    snprintf(f->dir, sizeof(f->dir), "/tmp/http-client-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->ca, sizeof(f->ca), "%s/ca", f->dir);
    snprintf(f->other_ca, sizeof(f->other_ca), "%s/other", f->dir);
    snprintf(f->cert, sizeof(f->cert), "%s/cert", f->dir);
    snprintf(f->key, sizeof(f->key), "%s/key", f->dir);
    struct x509_pair ca = {0}, other = {0}, p = {0};
    write_ca(f->ca, &ca);
    write_ca(f->other_ca, &other);
    struct str name = STR("127.0.0.1");
    assert_int_equal(x509_issue(&ca, &name, 1, 10, &p, NULL), 0);
    assert_int_equal(x509_save(&p, f->cert, f->key, NULL), 0);
    x509_pair_done(&ca);
    x509_pair_done(&other);
    x509_pair_done(&p);
    assert_int_equal(tls_server_new(f->cert, f->key, &f->tls, NULL), 0);
    struct http_handler h = {.on_end = on_end, .on_abort = on_abort};
    struct http_server_opts o = {.n_loops = 1};
    assert_int_equal(http_server_new(&o, &h, NULL, &f->plain, NULL), 0);
    o.tls = f->tls;
    assert_int_equal(http_server_new(&o, &h, NULL, &f->secure, NULL), 0);
    assert_int_equal(http_server_listen(f->plain, "127.0.0.1", 0, NULL), 0);
    assert_int_equal(http_server_listen(f->secure, "127.0.0.1", 0, NULL), 0);
    snprintf(f->plain_base, sizeof(f->plain_base), "http://127.0.0.1:%u",
             http_server_port(f->plain));
    snprintf(f->secure_base, sizeof(f->secure_base), "https://127.0.0.1:%u",
             http_server_port(f->secure));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    http_server_free(f->plain);
    http_server_free(f->secure);
    tls_server_free(f->tls);
    unlink(f->ca);
    unlink(f->other_ca);
    unlink(f->cert);
    unlink(f->key);
    rmdir(f->dir);
    free(f);
    return 0;
}

static bool cancel_at_once(void *ctx, uint64_t done, uint64_t total)
{
    ++*(int *)ctx;
    return false;
}

struct row {
    const char *path;
    int want;
    const char *text; /* the body, or part of the message */
    uint64_t max_size, timeout_ns, stall_ns;
};

static const struct row rows[] = {
    {"/ok", 0, "content"},
    {"/ok", 0, "content", .max_size = 7},
    {"/ok", -EFBIG, "larger", .max_size = 6},
    {"/hop", 0, "content"},
    {"/chunked", -EFBIG, "larger", .max_size = 999},
    {"/loop", -EIO, "redirect"},
    {"/file", -EINVAL, "rotocol"},
    {"/broken", -EIO, ""},
    {"/stall", -ETIMEDOUT, "", .timeout_ns = 300 * NS_PER_MS},
    {"/stall", -ETIMEDOUT, "", .stall_ns = NS_PER_S},
    {"/nothing", -ENOENT, "404"},
    {"/403", -EACCES, "403"},
    {"/500", -EIO, "500"},
    {"/206", -EIO, "206"},
};

static void test_rows(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i / 2];
        char url[128];
        snprintf(url, sizeof(url), "%s%s?secret=1", i % 2 ? f->secure_base : f->plain_base,
                 row->path);
        AUTO_BUF b;
        buf_init(&b, 4096);
        struct err err = ERR_INIT;
        struct http_get g = {.url = url,
                             .ca_file = f->ca,
                             .buf = &b,
                             .max_size = row->max_size,
                             .timeout_ns = row->timeout_ns,
                             .stall_ns = row->stall_ns};
        int r = http_get(&g, NULL, &err);
        if (r != row->want || (r < 0 && !strstr(err.msg, row->text))) {
            fail_msg("%s: %d, not %d: %s", url, r, row->want, err.msg);
        }
        if (r == 0) {
            assert_true(str_eqc(buf_str(&b), row->text));
        } else {
            assert_string_equal(err.name, "DownloadFailed");
            assert_null(strstr(err.msg, "secret"));
            assert_true(row->want == -EFBIG || b.n < 100);
            assert_null(memmem(buf_str(&b).p, b.n, "an error page", 13));
        }
    }
}

static void test_file(void **state)
{
    struct fixture *f = *state;
    char url[128], path[96];
    snprintf(path, sizeof(path), "%s/got", f->dir);
    snprintf(url, sizeof(url), "%s/chunked", f->secure_base);
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    struct http_got got;
    assert_int_equal(
        http_get(&(struct http_get){.url = url, .ca_file = f->ca, .fd = fd}, &got, NULL), 0);
    assert_int_equal(got.size, 1000);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 4096, &text, &n, NULL), 0);
    assert_int_equal(n, 1000);
    assert_memory_equal(text + 990, "0123456789", 10);
    snprintf(url, sizeof(url), "%s/ok", f->plain_base);
    assert_int_equal(http_get(&(struct http_get){.url = url, .fd = fd}, &got, NULL), 0);
    assert_string_equal(got.content_type, "text/x-test");
    unlink(path);
    /* A disk that takes nothing more. */
    AUTO_FD full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(http_get(&(struct http_get){.url = url, .fd = full}, NULL, NULL), -ENOSPC);
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    char url[256];
    AUTO_BUF b;
    buf_init(&b, 4096);
    struct err err = ERR_INIT;
    snprintf(url, sizeof(url), "%s/ok", f->secure_base);
    assert_int_equal(
        http_get(&(struct http_get){.url = url, .ca_file = f->other_ca, .buf = &b}, NULL, &err),
        -EKEYREJECTED);
    assert_int_equal(http_get(&(struct http_get){.url = url, .buf = &b}, NULL, NULL),
                     -EKEYREJECTED);
    int n_calls = 0;
    assert_int_equal(http_get(&(struct http_get){.url = url,
                                                 .ca_file = f->ca,
                                                 .buf = &b,
                                                 .on_progress = cancel_at_once,
                                                 .ctx = &n_calls},
                              NULL, NULL),
                     -ECANCELED);
    assert_int_equal(n_calls, 1);
    /* From https down to http is refused. */
    snprintf(url, sizeof(url), "%s/down?%s/ok", f->secure_base, f->plain_base);
    assert_int_equal(
        http_get(&(struct http_get){.url = url, .ca_file = f->ca, .buf = &b}, NULL, NULL),
        -EINVAL);
    static const char *const bad[] = {
        "file:///etc/passwd", "", "ftp://h/x", "http://u:p@h/", "https://u@h", "http:/x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(http_get(&(struct http_get){.url = bad[i], .buf = &b}, NULL, NULL),
                         -EINVAL);
    }
    assert_int_equal(
        http_get(&(struct http_get){.url = "http://127.0.0.1:1/", .buf = &b}, NULL, NULL),
        -EHOSTUNREACH);
    assert_int_equal(b.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
