/* Parameters of strangers into structures, and back out as XML. Input: two bytes choose the
 * operation, the rest is a form.
 * Invariants: memory stays bounded; what is accepted can be written; the XML is well-formed;
 *             the same form gives the same. */
#include "aws/api/ec2.h"
#include "aws/api/iam.h"
#include "aws/api/sts.h"
#include "aws/codec_in.h"
#include "aws/codec_out.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct aws_service *const services[] = {&aws_service_ec2, &aws_service_iam,
                                                     &aws_service_sts};

/* Elements nest and end; text has no markup and is UTF-8 of XML 1.0. */
static void check_xml(struct str x)
{
    struct str open[64];
    size_t depth = 0;
    assert(str_utf8_len(x) != SIZE_MAX);
    for (size_t i = 0; i < x.n;) {
        unsigned char c = (unsigned char)x.p[i];
        assert(c >= 0x20 || c == '\t' || c == '\n');
        assert(c != '>');
        if (c == '&') {
            ptrdiff_t end = str_find(x, ';', i);
            assert(end > 0 && (size_t)end - i <= 6);
            i = (size_t)end + 1;
            continue;
        }
        if (c != '<') {
            i++;
            continue;
        }
        ptrdiff_t end = str_find(x, '>', i);
        assert(end > 0);
        struct str tag = str_n(x.p + i + 1, (size_t)end - i - 1);
        if (tag.p[0] == '/') {
            assert(depth > 0 && str_eq(open[--depth], str_skip(tag, 1)));
        } else if (tag.p[tag.n - 1] != '/') {
            assert(depth < 64);
            open[depth++] = tag;
        }
        i = (size_t)end + 1;
    }
    assert(depth == 0);
}

static int decode(const struct aws_service *s, uint16_t shape, struct str form, struct arena *a,
                  struct buf *xml, bool is_checked)
{
    struct aws_params ps = {0};
    struct err err = ERR_INIT;
    void *v = arena_xalloc(a, shape == AWS_SHAPE_NONE ? 1 : s->shapes[shape].size);
    int rc = aws_params_parse(a, &ps, form, &err);
    if (rc == 0) {
        rc = is_checked ? aws_decode(s, shape, &ps, a, v, &err)
                        : aws_decode_unchecked(s, shape, &ps, a, v, &err);
    }
    assert(rc <= 0 && (rc < 0) == (err.code < 0) && (rc == 0 || err.name));
    assert(arena_used(a) < 4 * AWS_MAX_DECODED + 64 * form.n + (1u << 20));
    if (rc == 0 && shape != AWS_SHAPE_NONE) {
        aws_encode_struct(s, shape, v, xml);
        assert(buf_ok(xml));
        check_xml(buf_str(xml));
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    if (size < 2 || size > AWS_MAX_DECODED) {
        return 0;
    }
    a = a ? a : arena_new(256u << 20);
    unsigned pick = (unsigned)data[0] << 8 | data[1];
    const struct aws_service *s = services[pick % 3];
    uint16_t shape = s->ops[pick / 3 % s->n_ops].in;
    struct str form = {(const char *)data + 2, size - 2};
    AUTO_BUF one, two, three;
    buf_init(&one, 256u << 20);
    buf_init(&two, 256u << 20);
    buf_init(&three, 256u << 20);
    int rc = decode(s, shape, form, a, &one, false);
    arena_reset(a);
    assert(decode(s, shape, form, a, &two, false) == rc);
    assert(str_eq(buf_str(&one), buf_str(&two)));
    arena_reset(a);
    if (decode(s, shape, form, a, &three, true) == 0) {
        assert(rc == 0 && str_eq(buf_str(&one), buf_str(&three))); /* checks change nothing */
    }
    arena_reset(a);
    return 0;
}
