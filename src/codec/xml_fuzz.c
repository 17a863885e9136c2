/* Accepted means: events nest, texts are UTF-8, leaves alone have text; written again from its
 * events the document says the same. */
#include "base/buf.h"
#include "codec/xml.h"
#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    struct buf xml;
    unsigned depth, max_depth;
    size_t n;
};

static void put_escaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '<' || c == '>' || c == '&' || c == '"' || c < 0x20) {
            buf_fmt(out, "&#%u;", c);
        } else {
            buf_add_char(out, s.p[i]);
        }
    }
}

static int on_start(void *ctx, const struct xml_elem_in *el)
{
    struct copy *c = ctx;
    c->n++;
    assert(++c->depth <= c->max_depth && el->n_attrs <= XML_MAX_ATTRS);
    assert(str_utf8_len(el->name) != SIZE_MAX && el->name.n > 0);
    assert(str_find(el->name, ':', 0) < 0);
    buf_addc(&c->xml, "<");
    buf_add(&c->xml, el->name);
    /* Declared at each element: a prefix was told as what it stands for. */
    buf_addc(&c->xml, " xmlns=\"");
    put_escaped(&c->xml, el->ns);
    buf_addc(&c->xml, "\"");
    for (size_t i = 0; i < el->n_attrs; i++) {
        assert(str_utf8_len(el->attrs[i].value) != SIZE_MAX);
        if (el->attrs[i].ns.n == 0) {
            buf_addc(&c->xml, " ");
            buf_add(&c->xml, el->attrs[i].name);
            buf_addc(&c->xml, "=\"");
            put_escaped(&c->xml, el->attrs[i].value);
            buf_addc(&c->xml, "\"");
        }
    }
    buf_addc(&c->xml, ">");
    return 0;
}

static int on_end(void *ctx, struct str name, struct str text)
{
    struct copy *c = ctx;
    assert(c->depth-- > 0);
    assert(str_utf8_len(text) != SIZE_MAX);
    put_escaped(&c->xml, text);
    buf_addc(&c->xml, "</");
    buf_add(&c->xml, name);
    buf_addc(&c->xml, ">");
    return 0;
}

static int copy_of(struct str text, const struct xml_limits *lim, struct copy *c,
                   struct err *err)
{
    static const struct xml_events ev = {on_start, on_end};
    *c = (struct copy){.max_depth = lim->max_depth};
    buf_init(&c->xml, 64u << 20);
    return xml_parse(text, lim, &ev, c, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct xml_limits first = {.max_size = 1u << 16, .max_depth = 6, .max_elements = 500};
    const struct xml_limits again = {.max_size = 64u << 20, .max_depth = 6};
    struct copy one, two;
    struct err err = ERR_INIT;
    int rc = copy_of(str_n((const char *)data, size), &first, &one, &err);
    assert((rc < 0) == (err.code < 0));
    if (rc == 0 && buf_ok(&one.xml)) {
        assert(one.depth == 0 && one.n > 0);
        rc = copy_of(buf_str(&one.xml), &again, &two, &err);
        assert(rc == 0 && one.n == two.n && str_eq(buf_str(&one.xml), buf_str(&two.xml)));
        buf_done(&two.xml);
    }
    buf_done(&one.xml);
    return 0;
}
