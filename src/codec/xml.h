/* xml.h — XML in: events of one small document, in the order of the text.
 * Not here: XML out (aws/xml_out.h), trees. expat is seen in xml.c only.
 * Strict:   UTF-8 only; no DOCTYPE, so no entities but the five; elements with children have no
 *           text of their own but white space; limits on depth, elements and size. Namespaces
 *           are told, prefixes are not. Comments and processing instructions are passed over.
 * Threads:  no state.
 * Memory:   slices given to a call-back are borrowed until it returns.
 * Errors:   -EINVAL "BadXml", -EFBIG "XmlTooLarge"; what a call-back answers (negative) ends the
 *           reading and is returned. */
#pragma once
#include "base/err.h"
#include "base/str.h"

#define XML_MAX_ATTRS 8u

struct xml_attr {
    struct str ns, name, value; /* ns "" = none; declarations of namespaces are no attributes */
};
struct xml_elem_in {
    struct str ns, name;
    const struct xml_attr *attrs;
    size_t n_attrs;
};

struct xml_events {
    int (*on_start)(void *ctx, const struct xml_elem_in *el);
    /* 'text' is all the text of an element without children, else "". */
    int (*on_end)(void *ctx, struct str name, struct str text);
};

struct xml_limits {
    size_t max_size;     /* bytes of the document; 0 = 1 MiB */
    size_t max_text;     /* bytes of one element's text; 0 = max_size */
    size_t max_elements; /* 0 = 100,000 */
    unsigned max_depth;  /* 0 = 8 */
};

MUST_CHECK int xml_parse(struct str text, const struct xml_limits *limits,
                         const struct xml_events *ev, void *ctx, struct err *err);
