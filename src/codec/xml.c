#include "codec/xml.h"

#include "base/buf.h"
#include <errno.h>
#include <expat.h>
#include <limits.h>

/* Between a name and its namespace in what expat says: no byte of either. */
#define NS_SEP '\n'

struct reader {
    XML_Parser p;
    struct xml_limits lim;
    const struct xml_events *ev;
    void *ctx;
    struct buf text; /* of the innermost open element */
    unsigned depth;
    size_t n_elements;
    bool has_children; /* of the element that ended or began last: it is no leaf */
    int rc;
    struct err *err;
};

static void stop(struct reader *r, int rc)
{
    if (r->rc == 0) {
        r->rc = rc;
        XML_StopParser(r->p, XML_FALSE);
    }
}

/* Newer versions of expat have the one and warn of the other. */
static unsigned long long line_of(struct reader *r)
{
#ifdef HAVE_XML_LINE64
    return XML_GetCurrentLineNumber64(r->p);
#else
    return XML_GetCurrentLineNumber(r->p);
#endif
}

static void refuse(struct reader *r, const char *why)
{
    if (r->rc == 0) {
        stop(r, fail(r->err, -EINVAL, "BadXml", "line %llu: %s", line_of(r), why));
    }
}

static void too_large(struct reader *r, const char *what)
{
    if (r->rc == 0) {
        stop(r, fail(r->err, -EFBIG, "XmlTooLarge", "line %llu: %s", line_of(r), what));
    }
}

/* expat says "namespace\nname", or "name" when there is none. */
static void split(const char *full, struct str *ret_ns, struct str *ret_name)
{
    struct str s = str_c(full);
    ptrdiff_t i = str_find(s, NS_SEP, 0);
    *ret_ns = i < 0 ? STR("") : str_n(s.p, (size_t)i);
    *ret_name = i < 0 ? s : str_skip(s, (size_t)i + 1);
}

/* The text so far belongs to an element that has children: only white space is good. */
static bool is_blank(struct reader *r)
{
    return str_trim(buf_str(&r->text)).n == 0;
}

static void XMLCALL on_start(void *ctx, const XML_Char *name, const XML_Char **atts)
{
    struct reader *r = ctx;
    struct xml_attr attrs[XML_MAX_ATTRS];
    struct xml_elem_in el = {.attrs = attrs};
    if (r->rc < 0) {
        return;
    }
    if (++r->depth > r->lim.max_depth) {
        too_large(r, "elements are nested too deep");
        return;
    }
    if (++r->n_elements > r->lim.max_elements) {
        too_large(r, "there are too many elements");
        return;
    }
    if (!is_blank(r)) {
        refuse(r, "text beside elements");
        return;
    }
    for (; atts[0]; atts += 2) {
        if (el.n_attrs == XML_MAX_ATTRS) {
            too_large(r, "an element has too many attributes");
            return;
        }
        struct xml_attr *at = &attrs[el.n_attrs++];
        split(atts[0], &at->ns, &at->name);
        at->value = str_c(atts[1]);
    }
    split(name, &el.ns, &el.name);
    buf_clear(&r->text);
    r->has_children = false;
    int rc = r->ev->on_start ? r->ev->on_start(r->ctx, &el) : 0;
    if (rc < 0) {
        stop(r, rc);
    }
}

static void XMLCALL on_end(void *ctx, const XML_Char *full)
{
    struct reader *r = ctx;
    struct str ns, name;
    if (r->rc < 0) {
        return;
    }
    if (r->has_children && !is_blank(r)) {
        refuse(r, "text beside elements");
        return;
    }
    split(full, &ns, &name);
    int rc = r->ev->on_end
                 ? r->ev->on_end(r->ctx, name, r->has_children ? STR("") : buf_str(&r->text))
                 : 0;
    buf_clear(&r->text);
    r->has_children = true; /* its parent */
    r->depth--;
    if (rc < 0) {
        stop(r, rc);
    }
}

static void XMLCALL on_text(void *ctx, const XML_Char *s, int n)
{
    struct reader *r = ctx;
    if (r->rc == 0) {
        buf_add(&r->text, str_n(s, (size_t)n));
        if (!buf_ok(&r->text)) {
            too_large(r, "an element has too much text");
        }
    }
}

static void XMLCALL on_doctype(void *ctx, const XML_Char *name, const XML_Char *sysid,
                               const XML_Char *pubid, int has_internal_subset)
{
    refuse(ctx, "a DOCTYPE is not allowed");
}

static void XMLCALL on_decl(void *ctx, const XML_Char *version, const XML_Char *encoding,
                            int standalone)
{
    struct str e = str_c(encoding);
    if (encoding && !str_ieqc(e, "utf-8") && !str_ieqc(e, "utf8") && !str_ieqc(e, "us-ascii")) {
        refuse(ctx, "the encoding must be UTF-8");
    }
}

static void feed(struct reader *r, struct str text)
{
    XML_SetUserData(r->p, r);
    XML_SetElementHandler(r->p, on_start, on_end);
    XML_SetCharacterDataHandler(r->p, on_text);
    XML_SetStartDoctypeDeclHandler(r->p, on_doctype);
    XML_SetXmlDeclHandler(r->p, on_decl);
    if (XML_Parse(r->p, text.p ? text.p : "", (int)text.n, XML_TRUE) != XML_STATUS_OK) {
        refuse(r, XML_ErrorString(XML_GetErrorCode(r->p)));
    }
}

int xml_parse(struct str text, const struct xml_limits *limits, const struct xml_events *ev,
              void *ctx, struct err *err)
{
    struct reader r = {.lim = *limits, .ev = ev, .ctx = ctx, .err = err};
    r.lim.max_size = r.lim.max_size ? r.lim.max_size : 1u << 20;
    r.lim.max_text = r.lim.max_text ? r.lim.max_text : r.lim.max_size;
    r.lim.max_elements = r.lim.max_elements ? r.lim.max_elements : 100000;
    r.lim.max_depth = r.lim.max_depth ? r.lim.max_depth : 8;
    if (text.n > r.lim.max_size || text.n > INT_MAX) {
        return fail(err, -EFBIG, "XmlTooLarge", "the document is larger than %zu bytes",
                    r.lim.max_size);
    }
    /* Named outright: neither a byte order mark nor the declaration may choose another. */
    r.p = XML_ParserCreateNS("UTF-8", NS_SEP);
    if (!r.p) {
        return fail(err, -ENOMEM, "XmlTooLarge", "no memory for the reader");
    }
    buf_init(&r.text, r.lim.max_text);
    feed(&r, text);
    buf_done(&r.text);
    XML_ParserFree(r.p);
    return r.rc;
}
