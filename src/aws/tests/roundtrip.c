/* roundtrip.c — the codec as a filter, for roundtrip_test.py: reads lines, writes "ok LENGTH"
 * or "error LENGTH", a newline, and so many bytes.
 *   SERVICE SHAPE 0|1 FORM    decodes the form into the structure of SHAPE (1: with the model's
 *                             checks) and encodes it as XML
 *   SERVICE OPERATION 2 FORM  the same for an output, as a whole answer
 *   SERVICE CODE 3 TEXT       the body of that error
 * Not a test of its own. */
#include "aws/api/ec2.h"
#include "aws/api/iam.h"
#include "aws/api/sts.h"
#include "aws/codec_in.h"
#include "aws/codec_out.h"
#include "aws/errors.h"
#include <stdio.h>

static const struct aws_service *const services[] = {&aws_service_ec2, &aws_service_iam,
                                                     &aws_service_sts};

static const struct aws_service *find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        if (str_eqc(name, services[i]->name)) {
            return services[i];
        }
    }
    return NULL;
}

static int decode(struct arena *a, const struct aws_service *s, int shape, bool is_checked,
                  struct str form, void **ret, struct err *err)
{
    struct aws_params ps = {0};
    *ret = arena_xalloc(a, s->shapes[shape].size);
    int rc = aws_params_parse(a, &ps, form, err);
    if (rc < 0) {
        return rc;
    }
    return is_checked ? aws_decode(s, (uint16_t)shape, &ps, a, *ret, err)
                      : aws_decode_unchecked(s, (uint16_t)shape, &ps, a, *ret, err);
}

static int shape_alone(struct arena *a, const struct aws_service *s, struct str name,
                       bool is_checked, struct str form, struct buf *out, struct err *err)
{
    void *v;
    int shape = aws_shape_find(s, name);
    if (shape < 0) {
        return fail(err, -1, "BadLine", "no such shape");
    }
    int rc = decode(a, s, shape, is_checked, form, &v, err);
    if (rc == 0) {
        buf_addc(out, "<R>");
        aws_encode_struct(s, (uint16_t)shape, v, out);
        buf_addc(out, "</R>");
    }
    return rc;
}

static int whole_answer(struct arena *a, const struct aws_service *s, struct str name,
                        struct str form, struct buf *out, struct err *err)
{
    void *v = NULL;
    int op = aws_op_find(s, name);
    if (op < 0) {
        return fail(err, -1, "BadLine", "no such operation");
    }
    int rc = s->ops[op].out == AWS_SHAPE_NONE
                 ? 0
                 : decode(a, s, s->ops[op].out, false, form, &v, err);
    return rc < 0 ? rc : aws_encode(s, op, v, STR("request-1"), out, err);
}

static int one(struct arena *a, struct str line, struct buf *out, struct err *err)
{
    struct str service, name, mode, rest = line;
    if (!str_next(&rest, ' ', &service) || !str_next(&rest, ' ', &name) ||
        !str_next(&rest, ' ', &mode)) {
        return fail(err, -1, "BadLine", "SERVICE NAME MODE TEXT is wanted");
    }
    const struct aws_service *s = find(service);
    if (!s) {
        return fail(err, -1, "BadLine", "no such service");
    }
    if (str_eqc(mode, "3")) {
        const struct aws_error_out e = {400, arena_cstr(a, name), arena_cstr(a, rest)};
        aws_error_body(s, &e, STR("request-1"), out);
        return 0;
    }
    int rc = str_eqc(mode, "2") ? whole_answer(a, s, name, rest, out, err)
                                : shape_alone(a, s, name, str_eqc(mode, "1"), rest, out, err);
    return rc < 0 || buf_ok(out) ? rc : fail(err, -1, "TooLarge", "the XML is too large");
}

int main(void)
{
    AUTO_FREE char *line = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(256u << 20);
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        AUTO_BUF out;
        struct err err = ERR_INIT;
        buf_init(&out, 64u << 20);
        int rc = one(a, str_trim(str_n(line, (size_t)n)), &out, &err);
        if (rc < 0) {
            buf_clear(&out);
            buf_fmt(&out, "%s: %s", err.name, err.msg);
        }
        printf("%s %zu\n", rc < 0 ? "error" : "ok", out.n);
        fwrite(out.p, 1, out.n, stdout);
        fflush(stdout);
        arena_reset(a);
    }
    return 0;
}
