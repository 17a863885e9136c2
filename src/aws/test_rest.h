/* test_rest.h — requests for the tests of the rest codec, from text.
 * Not here: tests.
 * Threads, memory, errors: of one test; everything lives in its arena; asserts. */
#pragma once
#include "aws/rest.h"
#include "base/test.h"

static const struct aws_service *const s3 = &aws_service_s3;
static const struct str domains[] = {{"example.com", 11}, {"s3.example.com", 14}};
static const struct rest_opts opts = {.domains = domains, .n_domains = ARRAY_LEN(domains)};

/* "PUT /films/a?x=1\nHost: h\nName: value\n\nbody"; lives as long as the text and the arena. */
static struct aws_http request(struct arena *a, const char *text)
{
    struct str rest = str_c(text), line, target;
    struct aws_http rq = {.query = STR_NONE, .body = STR("")};
    struct http_header *h = arena_xalloc(a, 40 * sizeof(*h));
    rq.headers = h;
    assert_true(str_next(&rest, '\n', &line));
    rq.method = str_cut(line, ' ');
    target = str_skip(line, rq.method.n + 1);
    rq.path = str_cut(target, '?');
    if (rq.path.n < target.n) {
        rq.query = str_skip(target, rq.path.n + 1);
    }
    while (rest.p && str_next(&rest, '\n', &line) && line.n > 0) {
        assert_true(rq.n_headers < 40);
        h[rq.n_headers].name = str_cut(line, ':');
        h[rq.n_headers].value = str_trim(str_skip(line, h[rq.n_headers].name.n + 1));
        rq.n_headers++;
    }
    rq.body = rest.p ? rest : STR("");
    return rq;
}
