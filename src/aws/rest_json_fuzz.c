/* Requests of the rest-json protocol from bytes: "METHOD path?query\nHeader: value\n\nbody". What
 * decodes is valid for the model or is refused; nothing else may happen. */
#include "aws/api/ebs.h"
#include "aws/rest_json.h"
#include "aws/validate.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct aws_service *s = &aws_service_ebs;
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct str rest = str_n((const char *)data, size), line = STR("");
    struct http_header headers[16];
    struct aws_http rq = {.headers = headers, .query = STR_NONE};
    struct rest_json_route t;
    if (size == 0 || !str_next(&rest, '\n', &line)) {
        return 0;
    }
    rq.method = str_cut(line, ' ');
    line = str_skip(line, rq.method.n + 1);
    rq.path = str_cut(line, '?');
    if (rq.path.n < line.n) {
        rq.query = str_skip(line, rq.path.n + 1);
    }
    while (rest.p && str_next(&rest, '\n', &line) && line.n && rq.n_headers < 16) {
        headers[rq.n_headers].name = str_cut(line, ':');
        headers[rq.n_headers].value =
            str_trim(str_skip(line, headers[rq.n_headers].name.n + 1));
        rq.n_headers++;
    }
    rq.body = rest.p ? rest : STR("");
    if (rest_json_find(s, &rq, a, &t, NULL) < 0 || t.op < 0) {
        return 0;
    }
    assert(t.op < EBS_OP_N && t.n_labels <= REST_JSON_LABELS);
    void *in = arena_xalloc(a, s->shapes[s->ops[t.op].in].size);
    struct err e = ERR_INIT;
    int r = rest_json_decode(s, &t, &rq, a, in, &e);
    assert(r == 0 || e.name);
    if (r == 0) {
        (void)!aws_validate(s, s->ops[t.op].in, in, NULL);
    }
    return 0;
}
