/* roundtrip.c — the codec as a filter, for roundtrip_test.py: reads "SERVICE SHAPE CHECK FORM" lines, decodes the form into the
 * structure of SHAPE, encodes it as XML and writes "ok LENGTH" or "error LENGTH", a newline, and so many bytes.
 * Not a test of its own. */
#include "aws/api/ec2.h"
#include "aws/api/iam.h"
#include "aws/api/sts.h"
#include "aws/codec_in.h"
#include "aws/codec_out.h"
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

static int one(struct arena *a, struct str line, struct buf *out, struct err *err)
{
    struct str service, shape, check, form = line;
    struct aws_params ps = {0};
    if (!str_next(&form, ' ', &service) || !str_next(&form, ' ', &shape) ||
        !str_next(&form, ' ', &check)) {
        return fail(err, -1, "BadLine", "SERVICE SHAPE CHECK FORM is wanted");
    }
    const struct aws_service *s = find(service);
    int idx = s ? aws_shape_find(s, shape) : -1;
    if (idx < 0) {
        return fail(err, -1, "BadLine", "no such service or shape");
    }
    void *v = arena_xalloc(a, s->shapes[idx].size);
    int rc = aws_params_parse(a, &ps, form, err);
    if (rc == 0) {
        rc = str_eqc(check, "1") ? aws_decode(s, (uint16_t)idx, &ps, a, v, err)
                                 : aws_decode_unchecked(s, (uint16_t)idx, &ps, a, v, err);
    }
    if (rc == 0) {
        buf_addc(out, "<R>");
        aws_encode_struct(s, (uint16_t)idx, v, out);
        buf_addc(out, "</R>");
        rc = buf_ok(out) ? 0 : fail(err, -1, "TooLarge", "the XML is too large");
    }
    return rc;
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
